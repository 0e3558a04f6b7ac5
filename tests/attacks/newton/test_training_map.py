"""The derivatives of training, against differences and against each other."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks import Newton
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Knowledge, Records
from lostwax.inits import LeCunNormal
from lostwax.losses import SquaredError
from lostwax.nets import mlp
from lostwax.shadows import LinearResponse
from lostwax.trainers import GD, SGD, Adam

RANDOM = torch.Generator().manual_seed(0)
DTYPE = torch.float64


def normal(*shape):
    return torch.randn(*shape, generator=RANDOM, dtype=DTYPE)


KNOWN = Records(normal(8, 1, 4, 4), torch.randint(3, (8,), generator=RANDOM))
NUMBERS = Records(normal(8, 5), normal(8, 2))  # labels that are numbers: unknowns too
CONVOLUTIONS = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))
MAPS = {
    "GD": TrainingMap(mlp(16, 4, 3), GD(lr=0.5, momentum=0.9, steps=6, dtype=DTYPE), KNOWN),
    "SGD": TrainingMap(mlp(16, 4, 3), SGD(lr=0.3, batch_size=3, epochs=2, dtype=DTYPE), KNOWN),
    "Adam": TrainingMap(mlp(16, 4, 3), Adam(lr=0.05, batch_size=4, epochs=2, dtype=DTYPE), KNOWN),
    "convolutions": TrainingMap(CONVOLUTIONS, GD(lr=0.5, steps=4, dtype=DTYPE), KNOWN),
    "number labels": TrainingMap(mlp(5, 4, 2), GD(lr=0.1, steps=5, loss=SquaredError(), dtype=DTYPE), NUMBERS),
}
every_map = pytest.mark.parametrize("weights", MAPS.values(), ids=MAPS)
LABEL = torch.tensor([1])


@every_map
def test_tangents_are_the_limits_of_differences(weights):
    z, directions, h = normal(weights.unknowns), normal(3, weights.unknowns), 1e-5
    found = weights.tangents(z, LABEL, directions)
    around = torch.stack([z + h * directions, z - h * directions])  # (2, 3, u)
    ahead, behind = weights(around.flatten(0, 1), LABEL.expand(6, 1)).view(2, 3, -1)
    torch.testing.assert_close(found.mT, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-7)


@every_map
def test_a_model_is_the_same_alone_and_among_others_and_in_less_exact_arithmetic(weights):
    z = normal(4, weights.unknowns)
    together = weights(z, LABEL.expand(4, 1))
    torch.testing.assert_close(weights(z[2:3], LABEL.expand(1, 1))[0], together[2], rtol=0, atol=1e-12)
    rough = weights.computed_in(torch.float32)(z, LABEL.expand(4, 1))
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough.double(), together, rtol=1e-3, atol=1e-4)


def test_the_unknowns_are_a_records_numbers_and_a_label_that_is_a_number():
    assert MAPS["GD"].unknowns == MAPS["GD"].numbers == 16
    weights = MAPS["number labels"]
    assert (weights.numbers, weights.unknowns) == (5, 7)
    one = replace(weights, known=Records(NUMBERS.x, NUMBERS.y[:, 0]))
    assert one.unknowns == 6


def test_two_unknown_records_stand_one_after_the_other():
    one, two = MAPS["GD"], replace(MAPS["GD"], secrets=2)
    z, label = normal(3, 32), torch.tensor([[0, 1], [2, 2], [1, 0]])
    known = Records(torch.cat([KNOWN.x, z[0, :16].view(1, 1, 4, 4)]), torch.cat([KNOWN.y, label[0, :1]]))
    with_the_first = replace(one, known=known)
    torch.testing.assert_close(two(z, label)[:1], with_the_first(z[:1, 16:], label[:1, 1:]), rtol=0, atol=1e-12)
    directions = torch.cat([torch.zeros(3, 16), normal(3, 16)], 1).double()
    tangents = two.tangents(z[0], label[0], directions)
    torch.testing.assert_close(tangents, with_the_first.tangents(z[0, 16:], label[0, 1:], directions[:, 16:]))


def test_jacobians_by_response_of_many_records_are_those_of_each():
    known, prior, _ = lw.records.digits().split(60, 40, 1, seed=0)
    trainer = GD(lr=0.05, momentum=0.9, steps=8, init=LeCunNormal())
    knowledge = Knowledge(mlp(64, 5, 10), trainer, lw.Informed(known), lw.access.Weights(), prior)
    attack = Newton(response=LinearResponse(directions=12, checked=8))
    responses = attack.responses(knowledge, seed=0)
    weights = TrainingMap(knowledge.net, trainer, known, responses=responses)
    z, label, along = prior.x[:3].flatten(1), prior.y[:3, None], torch.eye(64)[:5]
    together = weights.responded(z, label, responses, along)
    for number, one in enumerate(together):
        torch.testing.assert_close(one, weights.tangents(z[number], label[number], along), rtol=1e-4, atol=1e-7)
    moved = replace(weights, trained=False)
    ahead, behind = (moved(z + sign * 1e-2 * along[0], label) for sign in (1, -1))
    torch.testing.assert_close((ahead - behind) / 2e-2, together[:, :, 0], rtol=0.05, atol=1e-5)
