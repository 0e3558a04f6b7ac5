"""The linear response is the derivative of training with respect to the weight of one record."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from lostwax.adapters import OwnTraining
from lostwax.defences import Defended, Rounded
from lostwax.games import Cohort
from lostwax.inits import LeCunNormal
from lostwax.losses import SquaredError
from lostwax.schedules import Cosine
from lostwax.trainers import DPSGD, GD, SGD, Adam, AdamW, Optimum, linear_response, responses
from lostwax.trainers.linear_response import BaseTrajectory, response_objection
from lostwax.trainers.responses import Adjoints
from lostwax.trainers.stacked import flat, gradient
from trainers.game import convolutions, net, records
from trainers.reference import batches, optimiser, tangents

KNOWN, PUSHED = records(11, seed=0), records(3, seed=1)
ACCEPTED = (
    GD(lr=0.3, steps=6),
    GD(lr=0.2, momentum=0.9, weight_decay=0.01, steps=8, schedule=Cosine(warmup=2)),
    SGD(lr=0.2, momentum=0.5, batch_size=5, epochs=3, weight_decay=1e-3),
    SGD(lr=0.1, batch_size=1, epochs=1),
    Adam(lr=0.02, epochs=6, weight_decay=0.01),
    Adam(lr=0.01, batch_size=4, epochs=2),
    AdamW(lr=0.02, batch_size=5, epochs=2, schedule=Cosine()),
)


def names(value):
    return getattr(value, "__name__", type(value).__name__)


def trained(trainer, module, record, weight):
    """The weights after torch.optim has trained on the known records and one more of this weight."""
    model = deepcopy(module).double()
    parameters = list(model.parameters())
    torch_optimiser = optimiser(trainer, parameters)
    x, y = torch.cat([KNOWN.x, record.x]), torch.cat([KNOWN.y, record.y])
    weights = torch.ones(len(x), dtype=torch.float64)
    weights[-1] = weight
    plan = list(batches(trainer, len(x), 0, 0))
    rate = torch.optim.lr_scheduler.LambdaLR(torch_optimiser, lambda step: trainer.schedule(step, len(plan)))
    for rows in plan:
        torch_optimiser.zero_grad()
        (weights[rows] * trainer.loss(model(x[rows]), y[rows])).mean().backward()
        torch_optimiser.step()
        rate.step()
    return torch.cat([value.detach().flatten() for value in parameters])


def double(trainer):
    return replace(trainer, dtype=torch.float64)


@pytest.mark.parametrize("trainer", ACCEPTED, ids=names)
def test_is_the_limit_of_finite_differences_of_training(trainer):
    base, weight = BaseTrajectory.of(double(trainer), net(), KNOWN), 1e-4
    for number, found in enumerate(tangents(base, PUSHED)):
        record = PUSHED[number : number + 1]
        ahead, behind = (trained(trainer, net(), record, sign * weight) for sign in (1, -1))
        expected = (ahead - behind) / (2 * weight)
        assert (found - expected).norm() <= 1e-6 * expected.norm()
    end = trained(trainer, net(), PUSHED[:1], 0.0)
    torch.testing.assert_close(flat(base.end)[0], end, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("trainer", "module"),
    [(trainer, net) for trainer in ACCEPTED] + [(trainer, convolutions) for trainer in ACCEPTED[1:6:2]],
    ids=names,
)
def test_adjoints_are_tangents(trainer, module):
    base = BaseTrajectory.of(double(trainer), module(), KNOWN)
    moved = tangents(base, PUSHED)  # (m, p)
    directions = torch.randn(4, moved.shape[1], generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected = moved @ directions.mT
    found = Adjoints.of(base, directions)(PUSHED)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


def test_a_regression():
    trainer = GD(lr=0.1, steps=5, loss=SquaredError(), dtype=torch.float64)
    random = torch.Generator().manual_seed(0)
    known = replace(KNOWN, y=torch.rand(len(KNOWN), generator=random, dtype=torch.float64))
    pushed = replace(PUSHED, y=torch.rand(len(PUSHED), generator=random, dtype=torch.float64))
    base = BaseTrajectory.of(trainer, nn.Sequential(nn.Flatten(), nn.Linear(16, 1)), known)
    every = torch.eye(17, dtype=torch.float64)
    torch.testing.assert_close(Adjoints.of(base, every)(pushed), tangents(base, pushed), rtol=1e-10, atol=1e-14)


def layered():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 3, 2), nn.ELU(), nn.Conv2d(3, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("module", [net, layered, convolutions], ids=names)
def test_derivatives_along_directions_of_the_record(module):
    base = BaseTrajectory.of(double(ACCEPTED[1]), module(), KNOWN)
    size = sum(value.numel() for value in base.end.values())
    adjoints = Adjoints.of(base, torch.eye(size, dtype=torch.float64)[:9])
    towards, tiny = records(2, seed=3), 1e-6
    found = adjoints.tangents(PUSHED, towards)  # (records, towards, 9)
    for number, direction in enumerate(towards.x):
        ahead, behind = (adjoints(replace(PUSHED, x=PUSHED.x + sign * tiny * direction)) for sign in (1, -1))
        expected = (ahead - behind) / (2 * tiny)
        torch.testing.assert_close(found[:, number], expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))


def test_derivatives_along_numeric_labels():
    trainer, random = GD(lr=0.1, steps=5, loss=SquaredError(), dtype=torch.float64), torch.Generator().manual_seed(0)

    def labelled(part):
        return replace(part, y=torch.rand(len(part), generator=random, dtype=torch.float64))

    known, pushed, towards = (labelled(part) for part in (KNOWN, PUSHED, records(2, seed=3)))
    base = BaseTrajectory.of(trainer, nn.Sequential(nn.Flatten(), nn.Linear(16, 1)), known)
    adjoints = Adjoints.of(base, torch.eye(17, dtype=torch.float64))
    found, tiny = adjoints.tangents(pushed, towards), 1e-6
    for number, (dx, dy) in enumerate(zip(towards.x, towards.y, strict=True)):
        ahead, behind = (
            adjoints(replace(pushed, x=pushed.x + sign * tiny * dx, y=pushed.y + sign * tiny * dy)) for sign in (1, -1)
        )
        torch.testing.assert_close(found[:, number], (ahead - behind) / (2 * tiny), rtol=1e-6, atol=1e-9)


def test_states_that_are_not_stored_are_computed_again(monkeypatch):
    trainer, every = double(ACCEPTED[2]), torch.eye(103, dtype=torch.float64)[:7]
    stored = BaseTrajectory.of(trainer, net(), KNOWN)
    monkeypatch.setattr(linear_response, "STORED_NUMBERS", 0)
    monkeypatch.setitem(responses.GRADIENT_NUMBERS, "cpu", 1)  # one record at a time
    again = BaseTrajectory.of(trainer, net(), KNOWN)
    assert len(again.states) < len(stored.states)
    for one, other in zip(stored.backward(), again.backward(), strict=True):
        assert one.number == other.number
        assert all(torch.equal(one.state.params[name], other.state.params[name]) for name in one.state.params)
    torch.testing.assert_close(
        Adjoints.of(again, every)(PUSHED), Adjoints.of(stored, every)(PUSHED), rtol=1e-12, atol=0
    )


def test_the_base_model_and_the_response_predict_a_trained_model():
    """Among many known records, a trained model is the base model plus the response."""
    known = records(300, seed=3)
    trainer = GD(lr=0.2, momentum=0.9, steps=20, dtype=torch.float64)
    base = BaseTrajectory.of(trainer, net(), known)
    secrets = Cohort(known, PUSHED[torch.arange(3).unsqueeze(1)], torch.arange(3))
    effect = trainer(net(), secrets, seed=0).flat() - flat(base.end)
    assert (effect - tangents(base, PUSHED)).norm() <= 0.1 * effect.norm()


@pytest.mark.parametrize(
    "trainer",
    [
        DPSGD(lr=0.1, noise_multiplier=1.0),
        Optimum(),
        Defended(GD(), by=Rounded(torch.bfloat16)),
        OwnTraining(lambda net, x, y, seed: net),
        SGD(order_seed=None),
        GD(init=LeCunNormal(seed=None)),
    ],
    ids=names,
)
def test_other_trainers_are_refused_by_name(trainer):
    name = type(trainer).__name__
    assert response_objection(trainer, net(), 12).startswith(f"{name} has no linear response")
    with pytest.raises(ValueError, match=f"^{name} has no linear response"):
        BaseTrajectory.of(trainer, net(), KNOWN)


def test_differences_of_gradients_are_products_with_the_hessian():
    module, known = convolutions(), records(11, seed=0)
    base = BaseTrajectory.of(GD(lr=0.1, momentum=0.9, steps=3, dtype=torch.float32), module, known)
    step = list(base.steps())[-1]
    random = torch.Generator().manual_seed(0)
    directions = {
        name: torch.randn(5, *value.shape[1:], generator=random)
        * torch.tensor([1e-3, 1.0, 1.0, 0.0, 1e3]).view(5, *[1] * (value.ndim - 1))
        for name, value in step.state.params.items()
    }
    products = base.known_answer(step, directions)
    by_two = replace(base, together=2).differences(step, directions, gradient)
    assert all(value[3].abs().max() < 1e-30 for value in by_two.values())  # no direction, no answer
    for row in (0, 1, 2, 4):
        found, expected = (torch.cat([value[row].flatten() for value in part.values()]) for part in (by_two, products))
        assert (found - expected).norm() < 0.01 * expected.norm()


class SameRecords:
    """In place of a random generator: whichever tenth is asked for, it is the first one."""

    def permutation(self, size):
        return torch.arange(size // 10).repeat_interleave(10).numpy()


def test_hessians_of_parts_in_turn_are_nearly_as_good_as_those_of_all(monkeypatch):
    """And far better than those of one part at all steps, whose errors add up."""
    base = BaseTrajectory.of(double(GD(lr=0.1, momentum=0.9, steps=60)), net(), records(1_000, seed=0))
    exact, in_turn = tangents(base, PUSHED), tangents(base.by_parts(100), PUSHED)
    monkeypatch.setattr(linear_response, "generator", lambda *_: SameRecords())
    always = tangents(base.by_parts(100), PUSHED)
    turning, standing = ((part - exact).norm() / exact.norm() for part in (in_turn, always))
    assert 0 < turning < 0.1
    assert turning < 0.5 * standing


def test_small_batches_are_not_cut():
    base = BaseTrajectory.of(double(SGD(lr=0.2, batch_size=5, epochs=3)), net(), KNOWN)
    assert torch.equal(tangents(base.by_parts(4), PUSHED), tangents(base, PUSHED))
    whole = BaseTrajectory.of(double(GD(lr=0.2, steps=3)), net(), KNOWN)
    assert not torch.equal(tangents(whole.by_parts(4), PUSHED), tangents(whole, PUSHED))


def test_adjoint_and_tangent_agree_by_parts():
    base = BaseTrajectory.of(double(GD(lr=0.2, momentum=0.9, steps=8)), net(), KNOWN).by_parts(4)
    directions = torch.randn(4, tangents(base, PUSHED).shape[1], dtype=torch.float64)
    torch.testing.assert_close(Adjoints.of(base, directions)(PUSHED), tangents(base, PUSHED) @ directions.mT)


def test_few_steps_of_very_many_weights_are_chosen_on_some(monkeypatch):
    base = BaseTrajectory.of(double(GD(lr=0.05, momentum=0.9, steps=30)), net(), KNOWN)
    directions = torch.randn(4, tangents(base, PUSHED).shape[1], dtype=torch.float64)
    monkeypatch.setattr(responses, "STORED_NUMBERS", 8 * 30 * 12)
    few = Adjoints.at_few_steps(base, directions, records(8, seed=2))
    assert len(few.swept) < 15
    whole = Adjoints.of(base, directions)(PUSHED)
    assert (few(PUSHED) - whole).norm() < 0.05 * whole.norm()
    assert len(Adjoints.at_few_steps(base, directions, records(1, seed=2)).swept) == 30  # nothing to test on
