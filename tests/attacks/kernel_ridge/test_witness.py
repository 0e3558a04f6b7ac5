"""The second opinion on a class: the plain definition, and the nets that need it."""

import math

import torch

import lostwax as lw
from lostwax.attacks.kernel_ridge import witness
from lostwax.attacks.kernel_ridge.sight import Sight
from lostwax.attacks.kernel_ridge.witness import KERNEL, RIDGE, Witness


def clusters(count, seed):
    """Models in three directions, some near, some far: one class each."""
    draw = torch.Generator().manual_seed(seed)
    groups = torch.arange(count) % 3
    sizes = torch.rand(count, 1, generator=draw, dtype=torch.float64) * 9 + 1
    away = torch.eye(3, dtype=torch.float64)[groups] + 0.1 * torch.randn(count, 3, generator=draw, dtype=torch.float64)
    return sizes * away, groups


def test_it_is_a_ridge_regression_of_classes_on_likenesses():
    seen, groups = clusters(30, 0)
    asked = Witness.taught(Sight.of(seen, dtype=seen.dtype), seen, groups)
    distances = torch.cdist(asked.rows, asked.rows).square()
    alike = KERNEL.width * (-distances / (KERNEL.width * asked.median)).exp()
    truth = torch.eye(3, dtype=torch.float64)[groups]
    weights = torch.linalg.solve(alike + RIDGE * torch.eye(30, dtype=torch.float64), truth - truth.mean(0))
    torch.testing.assert_close(asked(seen), (truth.mean(0) + alike @ weights).mT, rtol=1e-6, atol=1e-8)


def test_it_decides_where_all_classes_are_in_the_same_doubt():
    seen, groups = clusters(60, 1)
    others, truth = clusters(30, 2)
    asked = Witness.taught(Sight.of(seen, dtype=seen.dtype), seen, groups)
    assert torch.equal(asked.verdict(others, torch.ones(3, 30, dtype=torch.float64)), truth)
    certain = torch.ones(3, 30, dtype=torch.float64)
    certain[1] = math.exp(-50)  # and where a class is in no doubt at all, its word does not count
    assert (asked.verdict(others, certain) == 1).all()
    assert (asked.verdict(others, torch.zeros(3, 30, dtype=torch.float64)) == truth).all()


def test_it_asks_no_more_models_than_it_should(monkeypatch):
    monkeypatch.setitem(witness.MODELS, "cpu", 7)
    seen, groups = clusters(30, 0)
    assert len(Witness.taught(Sight.of(seen, dtype=seen.dtype), seen, groups).rows) <= 7


def test_a_net_of_one_neuron_needs_it():
    known, prior, secrets = lw.records.digits().split(200, 500, 200, seed=0)
    net, trainer = lw.nets.mlp(64, 1, 10), lw.GD(lr=0.2, momentum=0.9, steps=50)
    facts = lw.Knowledge(net, trainer, lw.Informed(known), lw.Weights(), prior)
    reconstruct = lw.KernelRidge().prepare(facts, seed=0)
    cohort = lw.Informed(known).deal(secrets, 200, seed=0)
    release, truth = trainer(net, cohort, seed=0), cohort.own.y[:, 0]
    with_it, without = (
        float((one(release).records.y[:, 0] == truth).double().mean())
        for one in (reconstruct, reconstruct._replace(witness=None))
    )
    assert with_it > without + 0.02, (with_it, without)
