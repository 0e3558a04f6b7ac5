"""One backward pass for all records gives the gradients that a backward pass for each gives."""

import pytest
import torch
from torch import nn

from lostwax.losses import CrossEntropy, SquaredError
from lostwax.trainers import stacked as module
from lostwax.trainers.stacked import Architecture, layered_gradients, record_gradients

NETS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 3)),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(72, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)),
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ELU(), nn.Conv2d(4, 3, (2, 1), stride=(1, 2)), nn.Flatten(), nn.Linear(18, 3)
    ),
    "padded, dilated, pooled": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=(1, 2), dilation=(1, 2), bias=False),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(4, 2, 2, padding=1),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    ),
}


def given(net, n=5, classes=3):
    torch.manual_seed(0)
    architecture = Architecture.of(net, torch.device("cpu"), torch.float64)
    params = {name: value.detach().double()[None] for name, value in net.named_parameters() if value.requires_grad}
    return architecture, params, (torch.randn(n, 2, 6, 6, dtype=torch.float64), torch.randint(0, classes, (n,)))


def check(net, loss=None):
    architecture, params, records = given(net)
    loss = loss or CrossEntropy()
    found = layered_gradients(architecture, loss, params, records)
    expected = record_gradients(architecture, loss, params, records, own=False)
    assert list(found) == list(params)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_equals_one_backward_pass_per_record(name):
    check(NETS[name]())


def test_blocks_of_records_change_nothing(monkeypatch):
    monkeypatch.setitem(module.WINDOW_NUMBERS, "cpu", 1)
    check(NETS["convolutions"]())


def test_other_losses():
    net = nn.Sequential(nn.Conv2d(2, 1, 6), nn.Flatten())
    architecture, params, (x, y) = given(net)
    records = (x, y.double().unsqueeze(1))
    found = layered_gradients(architecture, SquaredError(), params, records)
    expected = record_gradients(architecture, SquaredError(), params, records, own=False)
    torch.testing.assert_close(found, {name: value[0] for name, value in expected.items()})


def test_frozen_layers_have_no_gradients():
    net = NETS["convolutions"]()
    net[0].requires_grad_(False)
    net[2].bias.requires_grad_(False)
    check(net)


SHARED = nn.Linear(3, 3)
TIED = nn.Sequential(nn.Flatten(), nn.Linear(72, 72), nn.Linear(72, 72))
TIED[2].weight = TIED[1].weight


@pytest.mark.parametrize(
    "net",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(72, 3), SHARED, nn.ELU(), SHARED),
        TIED,
        nn.Sequential(nn.Flatten(), nn.Linear(72, 3), nn.BatchNorm1d(3)),  # mixes records
        nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten()),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding="same"), nn.Flatten()),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), nn.Flatten()),
        nn.Sequential(nn.Linear(6, 3), nn.Flatten()),  # four dimensions
        nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(72, 3))),
        nn.Linear(6, 3),
        nn.Sequential(nn.Flatten()),
    ],
    ids=lambda net: str(net).replace("\n", "")[:60],
)
def test_other_nets_are_left_to_the_definition(net):
    architecture, params, records = given(net)
    assert layered_gradients(architecture, CrossEntropy(), params, records) is None


def test_hooks_are_left_to_the_definition():
    net = NETS["mlp"]()
    net[1].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    architecture, params, records = given(net)
    assert layered_gradients(architecture, CrossEntropy(), params, records) is None
