"""With the Hessians' leading part large enough, only the known records' answer is linear."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort
from lostwax.trainers import GD, SGD, Adam
from lostwax.trainers.linear_response import BaseTrajectory
from lostwax.trainers.responses import Adjoints, EveryWeight, LeadingHessians, SemiLinear
from lostwax.trainers.stacked import Batch, flat, gradient

KNOWN, TARGETS = lw.records.digits().to(torch.float64).split(300, 12, seed=0)


def net(activation=nn.ELU):
    torch.manual_seed(0)
    return lw.nets.mlp(64, 4, 10, activation=activation).double()


def directions(base, count=20):
    p = flat(base.end).shape[1]
    return torch.linalg.qr(torch.randn(p, count, generator=torch.Generator().manual_seed(1)).double())[0].mT


def definition(base, records):
    """(m, p), with all of each Hessian."""
    moved = base.states[0].zeros(len(records))
    own = Batch((), ((records.x.unsqueeze(1), records.y.unsqueeze(1)),))
    for step in base.steps():
        push = flat(base.known_answer(step, moved.params))
        if step.secret:
            here = {name: value + moved.params[name] for name, value in step.state.params.items()}
            push = push + flat(gradient(base.net, base.trainer.loss, here, own)) / step.size
        moved = base.moved(step, moved, base.shaped(push))
    return flat(moved.params)


@pytest.mark.parametrize(
    "trainer",
    [GD(lr=0.2, momentum=0.9, steps=5), SGD(lr=0.1, batch_size=100, epochs=2), Adam(lr=1e-3, epochs=4)],
    ids=lambda trainer: type(trainer).__name__,
)
def test_with_whole_hessians_it_is_the_definition(trainer):
    base = BaseTrajectory.of(trainer, net(), KNOWN[:50])
    u, records = directions(base, 5), TARGETS[:3]
    whole = SemiLinear(Adjoints.of(base, u), LeadingHessians.of(base, rank=10**6))
    expected = definition(base, records) @ u.mT
    torch.testing.assert_close(whole(records), expected, rtol=1e-6, atol=1e-9 * float(expected.abs().max()))
    torch.testing.assert_close(EveryWeight.of(base, u)(records), expected)


def test_tangents_with_every_weight_are_finite_differences():
    base = BaseTrajectory.of(GD(lr=0.2, momentum=0.9, steps=5), net(), KNOWN[:50])
    followed = EveryWeight.of(base, directions(base, 5)).along(torch.tensor([0, 3]))
    towards = TARGETS[3:5]
    tangents = followed.tangents(TARGETS[:3], towards)  # (3, 2, 2)
    for k, x in enumerate(towards.x):
        ahead, behind = (followed(replace(TARGETS[:3], x=TARGETS.x[:3] + far * x)) for far in (1e-5, -1e-5))
        torch.testing.assert_close(tangents[:, k], (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-10)


def errors(found, real):
    return (found - real).norm(dim=1) / real.norm(dim=1)


def test_it_is_nearer_to_training_than_the_linear_response():
    trainer = GD(lr=0.2, momentum=0.9, steps=40)
    base = BaseTrajectory.of(trainer, net(), KNOWN)
    u = directions(base)
    adjoints = Adjoints.of(base, u)
    cohort = Cohort(KNOWN, TARGETS[torch.arange(len(TARGETS)).unsqueeze(1)], torch.arange(len(TARGETS)))
    real = (trainer(net(), cohort, seed=0).flat() - flat(base.end)) @ u.mT
    linear = errors(adjoints(TARGETS), real)
    semi = errors(SemiLinear(adjoints, LeadingHessians.of(base, rank=32))(TARGETS), real)
    assert semi.mean() < 0.7 * linear.mean()
    assert semi.max() < 0.7 * linear.max()
    assert semi.median() < 0.1
