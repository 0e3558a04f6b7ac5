"""Compiled for a GPU, the kernels give what they give in the interpreter: the stacked gradient."""

import os

import pytest
import torch
from torch import nn

from lostwax.losses import CrossEntropy
from lostwax.nets import cnn, mlp
from lostwax.trainers.fused import FusedCNN, _proven, fused
from lostwax.trainers.stacked import Architecture, Batch, gradient

NETS = {
    "S1's MLP": (mlp(3 * 32 * 32, 10, 10), (3, 32, 32)),
    "a wide MLP": (mlp(20, 100, 10, activation=nn.Tanh), (20,)),
    "S1's CNN": (cnn(), (3, 32, 32)),
    "three convolutions": (
        nn.Sequential(
            *(nn.Conv2d(1, 8, 3), nn.Tanh(), nn.Conv2d(8, 24, 3, stride=2), nn.Sigmoid(), nn.Conv2d(24, 16, 2)),
            *(nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16, 10)),
        ),
        (1, 13, 13),
    ),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETS)
def test_the_compiled_gradient_is_the_stacked_one(name):
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    worst = error(*NETS[name])
    assert worst < 1e-5


def error(net, shape):
    """The largest relative error of a parameter's gradient."""
    random, device = torch.Generator().manual_seed(0), torch.device("cuda")
    scale = {key: value[0].numel() ** -0.5 if value.ndim > 1 else 0.1 for key, value in net.named_parameters()}
    params = {key: scale[key] * torch.randn(3, *value.shape, generator=random) for key, value in net.named_parameters()}
    shared = torch.rand(37, *shape, generator=random), torch.randint(10, (37,), generator=random)
    own = torch.rand(3, 1, *shape, generator=random), torch.randint(10, (3, 1), generator=random)

    def placed(dtype):
        batch = Batch(*(((x.to(device, dtype), y.to(device)),) for x, y in (shared, own)))
        return {key: value.to(device, dtype) for key, value in params.items()}, batch

    expected = gradient(Architecture.of(net, device, torch.float64), CrossEntropy(), *placed(torch.float64))
    ours = Architecture.of(net, device, torch.float32)
    fast = fused(ours, CrossEntropy(), torch.float32, device)
    assert fast is not None
    found = fast(ours, CrossEntropy(), *placed(torch.float32))
    return max(float((found[key] - expected[key]).norm() / expected[key].norm()) for key in expected)


@pytest.mark.parametrize(("change", "taken"), [({}, True), ({"padding": 1}, False), ({"out_channels": 12}, False)])
def test_only_proven_convolutions_are_taken(change, taken):
    first = nn.Conv2d(**{"in_channels": 3, "out_channels": 16, "kernel_size": 3, **change})
    net = nn.Sequential(first, nn.ELU(), nn.Flatten(), nn.LazyLinear(10))
    net(torch.zeros(1, 3, 8, 8))
    known = FusedCNN.of(Architecture.of(net, torch.device("cpu"), torch.float32), CrossEntropy(), torch.float32)
    assert known is not None
    assert (_proven(known) is not None) == taken
