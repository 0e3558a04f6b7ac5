"""The fast gradient of convolutional nets is the gradient; Triton interprets its kernels here, on the CPU."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.losses import CrossEntropy, SquaredError
from lostwax.trainers.fused import ConvShape, FusedCNN
from lostwax.trainers.stacked import Architecture, Batch, gradient

pytest.importorskip("triton")

CPU, LOSS, MODELS = torch.device("cpu"), CrossEntropy(), 2


def taken(net, dtype=torch.float32, loss=LOSS):
    return FusedCNN.of(Architecture.of(net, CPU, dtype), loss, dtype)


def game(shared=3, own=1):
    """Real digits, as 1 x 8 x 8 pictures: some that all models share, some of each model's own."""
    digits = lw.records.digits()
    x, y = digits.x.reshape(-1, 1, 8, 8).float(), digits.y
    mine = slice(shared, shared + MODELS * own)
    own_part = x[mine].reshape(MODELS, own, 1, 8, 8), y[mine].reshape(MODELS, own)
    return Batch(((x[:shared], y[:shared]),) if shared else (), (own_part,) if own else ())


def check(net, batch):
    """Against the generic gradient in float64."""
    random = torch.Generator().manual_seed(0)
    params = {name: torch.randn(MODELS, *value.shape, generator=random) / 3 for name, value in net.named_parameters()}
    fast = taken(net)(Architecture.of(net, CPU, torch.float32), LOSS, params, batch)
    wide = Batch(*(tuple((x.double(), y) for x, y in part) for part in batch[:2]))
    exact = {name: value.double() for name, value in params.items()}
    slow = gradient(Architecture.of(net, CPU, torch.float64), LOSS, exact, wide)
    assert fast.keys() == slow.keys()
    for name, value in slow.items():
        assert fast[name].is_contiguous()
        torch.testing.assert_close(fast[name].double(), value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", [nn.ELU, nn.ReLU, nn.Tanh, nn.Sigmoid])
def test_two_convolutions_and_two_linear_layers(activation):
    convolutions = nn.Conv2d(1, 4, 3, stride=2), activation(), nn.Conv2d(4, 5, 2), activation()
    check(nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(20, 6), activation(), nn.Linear(6, 10)), game())


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, (1, 2)])
def test_strides_and_padding_above_the_first_layer(stride, padding):
    convolutions = nn.Conv2d(1, 3, 2), nn.Tanh(), nn.Conv2d(3, 4, (2, 3), stride=stride, padding=padding), nn.ELU()
    width = nn.Sequential(*convolutions, nn.Flatten())(torch.zeros(1, 1, 8, 8)).shape[1]
    check(nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(width, 10)), game())


@pytest.mark.parametrize(("shared", "own"), [(4, 0), (0, 2), (2, 2)])
def test_any_mixture_of_shared_and_own_records(shared, own):
    check(nn.Sequential(nn.Conv2d(1, 3, 4), nn.ELU(), nn.Flatten(), nn.Linear(75, 10)), game(shared, own))


def test_layers_of_several_tiles_and_sums_of_several_shares(monkeypatch):
    monkeypatch.setattr(ConvShape, "share", lambda sizes: 2 if sizes.linear else 32)
    convolutions = nn.Conv2d(1, 70, 3), nn.ELU(), nn.Conv2d(70, 3, 3), nn.ELU()
    check(nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(48, 66), nn.ELU(), nn.Linear(66, 10)), game())


def test_an_activation_may_be_used_twice_and_a_layer_may_not():
    elu, tied = nn.ELU(), nn.Conv2d(1, 1, 3)
    assert taken(nn.Sequential(nn.Conv2d(1, 1, 3), elu, nn.Conv2d(1, 1, 3), elu, nn.Flatten(), nn.Linear(16, 10)))
    assert taken(nn.Sequential(tied, nn.ELU(), tied, nn.ELU(), nn.Flatten(), nn.Linear(16, 10))) is None


HEAD = nn.Flatten(), nn.Linear(108, 10)  # after 3 x 6 x 6


@pytest.mark.parametrize(
    "net",
    [
        lw.nets.mlp(64, 10, 10),
        nn.Linear(64, 10),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), *HEAD, nn.ELU()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.ELU(), nn.Linear(108, 10)),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten(), nn.Linear(108, 10)),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), nn.Linear(6, 6), nn.ELU(), *HEAD),
        nn.Sequential(nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU()), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), nn.Flatten()),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.GELU(), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(alpha=0.5), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.ELU(), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3, stride=(1, 2)), nn.ELU(), nn.Flatten(), nn.Linear(54, 10)),
        nn.Sequential(nn.Conv2d(1, 3, 3, padding="same"), nn.ELU(), nn.Flatten(), nn.Linear(192, 10)),
        nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular"), nn.ELU(), nn.Flatten(), nn.Linear(192, 10)
        ),
        nn.Sequential(nn.Conv2d(1, 3, 2, dilation=2), nn.ELU(), *HEAD),
        nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.ELU(), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.ELU(), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), *HEAD),
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 10)),
        nn.Sequential(nn.Conv2d(1, 3, 3).requires_grad_(False), nn.ELU(), *HEAD),
    ],
    ids=str,
)
def test_other_nets_are_left_to_the_generic_gradient(net):
    assert taken(net) is None


def test_other_losses_and_dtypes_are_too():
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ELU(), *HEAD)
    assert taken(net) is not None
    assert taken(net, torch.float64) is None
    assert taken(net, loss=SquaredError()) is None
    assert taken(net, loss=type("Derived", (CrossEntropy,), {})()) is None
