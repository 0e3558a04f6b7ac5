"""The likeliest of candidates, by refits that games share: chance on noise, and no fit too many."""

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from audits.game import KNOWN, PRIOR, SECRETS, Publishes
from lostwax.access import Weights
from lostwax.attacks.membership import LikeliestRefit, likelihood, nearest
from lostwax.games import Knowledge, Release


class Counted(Publishes):
    """The secret's numbers with noise, which is private; counts its models."""

    def __init__(self, noise):
        self.noise, self.models = noise, 0

    def __call__(self, net, cohort, *, seed):
        self.models += len(cohort)
        x = cohort.own.x[:, 0]
        draws = [np.random.default_rng([seed % 2**32, int(number)]).normal(size=x.shape[1:]) for number in cohort.index]
        return Release({"x": x.double() + self.noise * torch.from_numpy(np.stack(draws))})


@pytest.mark.parametrize(("noise", "repeats", "least"), [(0.0, 1, 1.0), (0.1, 4, 0.9)])
def test_a_release_that_shows_its_record_is_recognised(noise, repeats, least):
    trainer, threat = Counted(noise), lw.Informed(KNOWN, candidates=5)
    cohort = threat.deal(SECRETS[:40], 40, seed=0)
    hints = threat.hints(cohort, SECRETS[:40], seed=0)
    release = trainer(nn.Identity(), cohort, seed=0)
    trainer.models = 0
    knowledge = Knowledge(nn.Identity(), trainer, threat, Weights(), PRIOR)
    guess = LikeliestRefit(repeats).prepare(knowledge, seed=1)(release, hints)
    assert float((guess.records.x == cohort.own.x).flatten(1).all(1).double().mean()) >= least
    assert trainer.models == 40 * repeats  # and not 5 times as many


@pytest.mark.parametrize("features", [1, 30, 3_000])
def test_noise_names_the_right_record_as_often_as_chance(features):
    random, right = torch.Generator().manual_seed(0), 0
    for _ in range(30):
        refits = torch.randn(20, 4, features, generator=random, dtype=torch.float64)
        seen = torch.randn(20, features, generator=random, dtype=torch.float64)
        own = torch.rand(20, features, generator=random) < 0.05
        for scores in (likelihood(seen, refits, own), nearest(seen, refits[:, 0])):
            assert scores.isfinite().all()
            right += int((scores.argmax(1) == torch.arange(20)).sum())
    assert 30 <= right <= 95  # of 1,200, 60 by chance; ties go to the first


@pytest.mark.parametrize("outlier", [30.0, -1e9, float("inf"), float("nan")])
def test_one_refit_that_diverged_hides_no_record(outlier):
    random = torch.Generator().manual_seed(1)
    mean = 2 * torch.randn(60, 25, generator=random, dtype=torch.float64)
    refits, seen = (
        mean.unsqueeze(1) + torch.randn(60, repeats, 25, generator=random, dtype=torch.float64) for repeats in (3, 1)
    )
    own, right = torch.arange(25).expand(60, 25) < 8, torch.arange(60)
    undisturbed = likelihood(seen[:, 0], refits, own).argmax(1) == right
    refits[7, 2] += outlier
    disturbed = likelihood(seen[:, 0], refits, own).argmax(1) == right
    assert undisturbed.sum() >= 30
    assert disturbed.sum() >= 0.9 * undisturbed.sum()


def test_numbers_that_never_change_hide_nothing():
    """A constant has no variance to divide by: it used to make every score NaN."""
    random = torch.Generator().manual_seed(0)
    mean = torch.randn(6, 4, generator=random, dtype=torch.float64)
    refits = mean[:, None] + 1e-3 * torch.randn(6, 3, 4, generator=random, dtype=torch.float64)
    still = torch.zeros(6, 3, 2, dtype=torch.float64)
    still[..., 1] = 7.0
    seen, own = torch.cat([mean, still[:, 0]], 1), torch.zeros(6, 6, dtype=torch.bool)
    assert (likelihood(seen, torch.cat([refits, still], 2), own).argmax(1) == torch.arange(6)).all()
    assert (nearest(seen, torch.cat([refits[:, 0], still[:, 0]], 1)).argmax(1) == torch.arange(6)).all()
    assert (nearest(seen[:, 4:], still[:, 0]) == 0).all()


def test_it_needs_candidates():
    knowledge = Knowledge(nn.Identity(), Publishes(), lw.Informed(KNOWN), Weights(), PRIOR)
    assert "it chooses among candidates" in LikeliestRefit().objection(knowledge)
    with pytest.raises(ValueError, match="candidates"):
        LikeliestRefit().prepare(knowledge, seed=0)
