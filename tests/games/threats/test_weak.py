"""Dealing to the weak adversary."""

import os
import re

import pytest
import torch
from torch import nn

import lostwax as lw
from instances import instances
from lostwax.attacks import (
    ClosedForm,
    Ensemble,
    GradientInversion,
    KernelRidge,
    NearestCandidate,
    RecoNN,
    Refit,
)
from lostwax.games import Records, Weak
from lostwax.games.protocols import refusal
from lostwax.shadows import Game, Local, Store

POOL = Records(torch.arange(48.0).reshape(24, 2), torch.arange(24) % 3)  # eight of each of three classes


def test_every_record_is_secret_and_every_class_has_its_share():
    cohort = Weak(size=6).deal(POOL, 7, seed=0)
    assert len(cohort.shared) == 0
    assert cohort.records == cohort.secrets == 6
    assert cohort.own.y.tolist() == [[0, 0, 1, 1, 2, 2]] * 7
    assert all(len(set(one[:, 0].tolist())) == 6 for one in cohort.own.x), "a record twice in a set"


def test_sets_can_be_unbalanced():
    assert Weak(size=4, per_class=(3, 0, 1)).deal(POOL, 2, seed=0).own.y.tolist() == [[0, 0, 0, 2]] * 2


def test_a_pass_uses_every_record_once_and_the_next_pairs_them_anew():
    sets = Weak(size=3).deal(POOL, 16, seed=0).own.x[..., 0]  # (16, 3); a pass serves 8 models
    assert all(sorted(turn.flatten().tolist()) == POOL.x[:, 0].tolist() for turn in (sets[:8], sets[8:]))
    assert {tuple(one) for one in sets[:8].tolist()} != {tuple(one) for one in sets[8:].tolist()}


@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_a_set_depends_on_seed_and_number_alone(start):
    whole, part = Weak(size=3).deal(POOL, 30, seed=3), Weak(size=3).deal(POOL, 9, seed=3, start=start)
    assert torch.equal(part.own.x, whole.own.x[start : start + 9])
    assert torch.equal(part.index, whole.index[start : start + 9])
    assert not torch.equal(Weak(size=3).deal(POOL, 30, seed=4).own.x, whole.own.x)


@pytest.mark.gpu
def test_a_pool_on_a_gpu_is_dealt_alike():
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    here, there = (Weak(size=6).deal(pool, 500, seed=3, start=7) for pool in (POOL, POOL.to("cuda")))
    assert there.own.x.is_cuda
    assert torch.equal(there.own.x.cpu(), here.own.x)
    assert torch.equal(there.index.cpu(), here.index)


def test_a_set_is_a_fair_draw_whatever_the_size_of_its_classes():
    """Every record of a class is as likely as any other, and classes are drawn apart from each other."""
    pool = Records(torch.arange(7.0).unsqueeze(1), torch.tensor([0, 0, 0, 0, 0, 1, 1]))
    sets = torch.cat([Weak(size=2).deal(pool, 1, seed=seed).own.x[:, :, 0] for seed in range(2_000)]).long()
    seen = torch.zeros(5, 2).index_put_((sets[:, 0], sets[:, 1] - 5), torch.ones(2_000), accumulate=True)
    assert ((seen - 200).abs() < 4 * (2_000 * 0.1 * 0.9) ** 0.5).all()  # ten pairs, each of chance 1 / 10


def test_labels_that_are_no_classes_are_drawn_as_they_come():
    targets = Records(POOL.x, torch.linspace(0, 1, 24))
    cohort = Weak(size=5).deal(targets, 8, seed=0)
    assert cohort.own.x.shape == (8, 5, 2)
    assert Weak(size=5).hints(cohort, targets, seed=0) is None


def test_the_classes_of_a_set_are_no_secret():
    cohort = Weak(size=3).deal(POOL, 2, seed=0)
    assert Weak(size=3).hints(cohort, POOL, seed=0).labels.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("threat", "pool", "words"),
    [
        (Weak(size=4), POOL, "4 records cannot be divided equally among the 3 classes"),
        (Weak(size=2), POOL[POOL.y != 1], "no record of class 1"),
        (Weak(size=27), POOL, "needs 9 records of class 0, but the pool holds 8"),
        (Weak(size=2, per_class=(1, 0, 0, 1)), POOL, "1 records of class 3, but the pool holds 0"),
        (Weak(size=2, per_class=(1, 1)), Records(POOL.x, POOL.x[:, 0]), "needs labels that are class numbers"),
    ],
)
def test_sets_that_cannot_be_dealt(threat, pool, words):
    with pytest.raises(ValueError, match=words):
        threat.deal(pool, 1, seed=0)


@pytest.mark.parametrize(
    "settings", [{"size": 0}, {"size": 2.5}, {"size": 3, "per_class": (1, 1)}, {"size": 1, "per_class": (2, -1)}]
)
def test_settings_without_meaning(settings):
    with pytest.raises(ValueError, match="Weak: expected"):
        Weak(**settings)


@pytest.mark.parametrize(
    "attack",
    [ClosedForm, Ensemble, GradientInversion, KernelRidge, NearestCandidate, lw.PriorAware, RecoNN, Refit],
)
def test_who_looks_for_the_one_missing_record_objects(attack):
    knowledge = lw.games.Knowledge(nn.Linear(2, 3), lw.GD(), Weak(size=3), lw.access.Weights(), POOL)
    sentence = refusal(instances(attack)[0], knowledge)
    assert re.match(rf"{attack.__name__}(\(RecoNN\))? is not applicable: ", sentence)
    assert "Weak" in sentence


def test_shadows_of_a_weak_game_are_kept_and_found_again(tmp_path):
    games = [
        Game(nn.Linear(2, 3), lw.GD(steps=3, tile=4, init=lw.inits.LeCunNormal()), Weak(size=3), POOL, 0)
        for _ in range(2)
    ]
    (ours, stored), (again, found) = (next(Store(tmp_path).simulate(game, models=4, engine=Local())) for game in games)
    assert torch.equal(ours.own.x, again.own.x)
    assert torch.equal(stored.flat(), found.flat())
