"""Tangents by the kernel are those of torch.func. Triton's interpreter runs it here (see conftest.py)."""

import pytest
import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.losses import SquaredError
from lostwax.nets import mlp
from lostwax.trainers import GD, SGD, Adam
from lostwax.trainers.descent import pushed, quick_tangents
from lostwax.trainers.fused import MLPTangent
from lostwax.trainers.stacked import Architecture

pytest.importorskip("triton", reason="Triton comes with torch on Linux")
RANDOM = torch.Generator().manual_seed(0)
KNOWN = Records(torch.rand(37, 6, generator=RANDOM), torch.randint(3, (37,), generator=RANDOM))
OWN = Records(torch.rand(1, 2, 6, generator=RANDOM), torch.randint(3, (1, 2), generator=RANDOM))
COHORT = Cohort(KNOWN, OWN, torch.zeros(1, dtype=torch.long))
DIRECTIONS = torch.randn(4, 2, 6, generator=RANDOM)
TRAINERS = (
    GD(lr=0.2, momentum=0.9, steps=4, weight_decay=0.01),
    SGD(lr=0.2, batch_size=16, epochs=1),
    Adam(lr=0.05, epochs=3),
)


def kernel(net):
    return MLPTangent.of(Architecture.of(net, torch.device("cpu"), torch.float32), GD().loss, torch.float32)


def reference(trainer, net):
    def weights(x):
        cohort = Cohort(KNOWN, Records(x, OWN.y), COHORT.index)
        return trainer.differentiable(net, cohort, seed=0).flat()[0]

    return torch.stack([torch.func.jvp(weights, (OWN.x,), (one[None],))[1] for one in DIRECTIONS])


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: type(trainer).__name__)
def test_of_every_trainer(trainer):
    net = mlp(6, 5, 3)
    ours = Architecture.of(net, torch.device("cpu"), torch.float32)
    found = pushed(trainer, ours, kernel(net), COHORT, DIRECTIONS)
    torch.testing.assert_close(found, reference(trainer, net), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("activation", [nn.ELU, nn.Tanh, nn.Sigmoid, nn.ReLU, nn.Identity])
def test_of_every_activation(activation):
    net, trainer = mlp(6, 5, 3, activation=activation), GD(lr=0.2, momentum=0.9, steps=3)
    ours = Architecture.of(net, torch.device("cpu"), torch.float32)
    found = pushed(trainer, ours, kernel(net), COHORT, DIRECTIONS)
    torch.testing.assert_close(found, reference(trainer, net), rtol=1e-3, atol=1e-5)


def test_only_where_a_kernel_serves():
    assert quick_tangents(TRAINERS[0], mlp(6, 5, 3), COHORT, DIRECTIONS) is None  # on the CPU
    assert kernel(mlp(6, 60, 3)) is None  # too many sums for the registers
    deep = nn.Sequential(nn.Linear(6, 5), nn.ELU(), nn.Linear(5, 5), nn.ELU(), nn.Linear(5, 3))
    assert kernel(deep) is None
    net = Architecture.of(mlp(6, 5, 3), torch.device("cpu"), torch.float32)
    assert MLPTangent.of(net, SquaredError(), torch.float32) is None
    assert MLPTangent.of(net, GD().loss, torch.float64) is None
