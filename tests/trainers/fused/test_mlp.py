"""The fused gradient is the stacked gradient. Triton's interpreter runs the kernels here (see conftest.py)."""

import pytest
import torch
from torch import nn

from lostwax.losses import CrossEntropy, SquaredError
from lostwax.nets import mlp
from lostwax.trainers import GD
from lostwax.trainers.fused import FusedMLP, fused
from lostwax.trainers.stacked import Architecture, Batch, gradient
from lostwax.trainers.stepwise import State

pytest.importorskip("triton", reason="Triton comes with torch on Linux")
LOSS = CrossEntropy()


def architecture(net, dtype=torch.float32):
    return Architecture.of(net, torch.device("cpu"), dtype)


def case(net, d, c, *, models, shared, own, seed=0):
    """Random parameters and a batch, in float64."""
    random = torch.Generator().manual_seed(seed)
    real = {"generator": random, "dtype": torch.float64}
    params = {name: torch.randn(models, *value.shape, **real) for name, value in net.named_parameters()}
    common = ((torch.randn(shared, d, **real), torch.randint(c, (shared,), generator=random)),)
    secret = ((torch.randn(models, own, d, **real), torch.randint(c, (models, own), generator=random)),)
    return params, Batch(common if shared else (), secret if own else ())


def single(params, batch):
    """The same in float32."""
    shared, own = (tuple((x.float(), y) for x, y in part) for part in batch[:2])
    return {name: value.float() for name, value in params.items()}, Batch(shared, own)


SIZES = {  # d, h, c, models, shared, own
    "unrolled": (12, 10, 10, 2, 37, 1),
    "unrolled, own records alone": (7, 5, 3, 2, 0, 9),
    "unrolled, shared records alone": (7, 5, 3, 2, 40, 0),
    "tiles": (7, 40, 4, 2, 70, 3),
    "tiles, own records alone": (7, 20, 9, 2, 0, 9),
}


@pytest.mark.parametrize("activation", [nn.ELU, nn.ReLU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_equals_the_stacked_gradient(sizes, activation):
    d, h, c, models, shared, own = sizes
    net = mlp(d, h, c, activation=activation)
    params, batch = case(net, d, c, models=models, shared=shared, own=own)
    expected = gradient(architecture(net, torch.float64), LOSS, params, batch)
    params, batch = single(params, batch)
    fast = FusedMLP.of(architecture(net), LOSS, torch.float32)
    found = fast(architecture(net), LOSS, params, batch)
    assert list(found) == list(params)
    for name in expected:
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-4, atol=1e-5)


def test_a_step_may_be_taken_with_it():
    net, trainer = mlp(6, 4, 3), GD(lr=0.5, momentum=0.9)
    params, batch = single(*case(net, 6, 3, models=3, shared=8, own=1))
    state = State(params, trainer.buffers(params))
    fast = FusedMLP.of(architecture(net), LOSS, torch.float32)
    plain, _ = trainer.step(architecture(net), state, batch, 0, 1)
    quick, _ = trainer.step(architecture(net), state, batch, 0, 1, fast)
    for name in params:
        torch.testing.assert_close(quick.params[name], plain.params[name], rtol=1e-4, atol=1e-5)


def test_labels_may_lie_anywhere_in_memory():
    net = mlp(6, 4, 3)
    params, batch = single(*case(net, 6, 3, models=2, shared=8, own=1))
    ((x, y),) = batch.shared
    apart = torch.stack([y, y + 100], 1)[:, 0]  # every other number of a table
    fast = FusedMLP.of(architecture(net), LOSS, torch.float32)
    one, other = (fast(architecture(net), LOSS, params, Batch(((x, part),), batch.own)) for part in (y, apart))
    assert all(torch.equal(one[name], other[name]) for name in one)


class Doubled(nn.Sequential):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    net = mlp(4, 3, 2)
    net[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return net


def frozen():
    net = mlp(4, 3, 2)
    net[1].weight.requires_grad_(False)
    return net


TWICE = nn.ReLU()
OTHERS = {
    "two hidden layers": mlp(4, 3, 3, 2),
    "no hidden layer": mlp(4, 2),
    "too wide": mlp(4, 200, 2),
    "another activation": mlp(4, 3, 2, activation=nn.GELU),
    "another ELU": mlp(4, 3, 2, activation=lambda: nn.ELU(alpha=0.5)),
    "no bias": nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU(), nn.Linear(3, 2)),
    "frozen weights": frozen(),
    "no Sequential": nn.Linear(4, 2),
    "a forward of its own": Doubled(*mlp(4, 3, 2)),
    "a hook": hooked(),
    "an activation twice": nn.Sequential(nn.Linear(4, 3), TWICE, nn.Linear(3, 2), TWICE),
    "flattened in the middle": nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6, 2)),
    "flattened from another axis": nn.Sequential(nn.Flatten(2), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)),
}


@pytest.mark.parametrize("net", OTHERS.values(), ids=OTHERS)
def test_leaves_other_nets_alone(net):
    assert FusedMLP.of(architecture(net), LOSS, torch.float32) is None


def test_leaves_other_losses_and_dtypes_alone():
    net = architecture(mlp(4, 3, 2))
    assert FusedMLP.of(net, SquaredError(), torch.float32) is None
    assert FusedMLP.of(net, type("Derived", (CrossEntropy,), {})(), torch.float32) is None
    assert FusedMLP.of(net, LOSS, torch.float64) is None
    assert fused(net, LOSS, torch.float32, torch.device("cpu")) is None
