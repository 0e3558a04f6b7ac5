"""How batches are drawn: the laws, and the likelihood ratios that belong to them."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, chisquare

import lostwax as lw
from lostwax.games import Cohort, Records
from lostwax.trainers.batches import InBins, Independent, IndependentUpTo, InTurns, WithoutReplacement

LAWS = [Independent(0.25, 8), InBins(4, 2), InTurns(4, 2), InTurns(4, 2, shuffled=False), WithoutReplacement(10, 3, 8)]
LAWS += [IndependentUpTo(0.25, 10, 9, 8)]


def cohort(m=2000, n=10):
    shared = Records(torch.zeros(n - 1, 1), torch.zeros(n - 1, dtype=torch.long))
    own = Records(torch.zeros(m, 1, 1), torch.zeros(m, 1, dtype=torch.long))
    return Cohort(shared, own, torch.arange(m))


def drawn(law, seed=0, **sizes):
    """(t, m, n)"""
    return torch.stack(list(law.draws(cohort(**sizes), seed=seed)))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_draws_are_private_reproducible_and_of_the_stated_rate(law):
    one = drawn(law)
    assert one.shape == (8, 2000, 10)
    assert torch.equal(one, drawn(law))
    some = Cohort(cohort().shared, cohort().own[5:7], torch.arange(5, 7))
    assert torch.equal(torch.stack(list(law.draws(some, seed=0))), one[:, 5:7])
    rate = 1 / law.per_epoch if isinstance(law, InBins | InTurns) else law.rate
    assert one.double().mean() == pytest.approx(rate, abs=0.01)
    random = not (isinstance(law, InTurns) and not law.shuffled)
    assert torch.equal(one, drawn(law, seed=1)) == (not random)


def test_balls_in_bins_are_uniform_and_independent():
    law = InBins(4, 2)
    epochs = drawn(law).view(2, 4, 2000, 10)
    assert (epochs.sum(1) == 1).all()
    bins = epochs.int().argmax(1)  # (epoch, m, n)
    for one, other in ((bins[0, :, 0], bins[0, :, 9]), (bins[0, :, 9], bins[1, :, 9])):
        counts = torch.bincount(4 * one + other, minlength=16)
        assert chisquare(counts.numpy()).pvalue > 1e-4
    first, second = drawn(InBins(4, 2, redrawn=False)).view(2, 4, 2000, 10)
    assert torch.equal(first, second)
    assert torch.equal(first, epochs[0])


def test_shuffled_batches_partition_the_records_evenly():
    epochs = drawn(InTurns(4, 2)).view(2, 4, 2000, 10)
    assert (epochs.sum(1) == 1).all()
    assert set(epochs.sum(3).unique().tolist()) == {2, 3}
    bins = epochs.int().argmax(1)
    pairs = (bins[0, :, 0] == bins[0, :, 9]).sum()  # P(the same batch): by sizes 3, 2, 3, 2 of 10
    assert binomtest(int(pairs), 2000, (3 * 2 + 2 * 1 + 3 * 2 + 2 * 1) / 90).pvalue > 1e-4


def test_whoever_knows_the_others_batches_knows_the_secrets():
    law = InTurns(4, 2)
    for step, mask in enumerate(law.draws(cohort(), seed=0)):
        assert torch.equal(law.present(step, mask[:, :-1], 10), mask[:, -1])


def test_batches_of_a_fixed_size_have_it():
    masks = drawn(WithoutReplacement(10, 3, 8))
    assert (masks.sum(2) == 3).all()
    both = int((masks[0, :, 0] & masks[0, :, 9]).sum())
    assert binomtest(both, 2000, 3 * 2 / 90).pvalue > 1e-4
    with pytest.raises(ValueError, match="training sets of 12 records"):
        drawn(WithoutReplacement(12, 3, 8))


@pytest.mark.parametrize("largest", [2, 4])
def test_batches_that_are_too_large_are_cut_at_random(largest):
    """Otherwise they are those of Poisson sampling; each of the drawn is kept equally often."""
    whole, cut = drawn(Independent(0.4, 8)), drawn(IndependentUpTo(0.4, 10, largest, 8))
    size = whole.sum(2)
    assert torch.equal(cut.sum(2), size.clamp_max(largest))
    assert torch.equal(cut[size <= largest], whole[size <= largest])
    assert not (cut & ~whole).any()
    lost = (whole & ~cut).sum((0, 1)).double()
    assert chisquare(lost.numpy()).pvalue > 1e-4
    with pytest.raises(ValueError, match="training sets of 12 records"):
        drawn(IndependentUpTo(0.4, 12, largest, 8))


@pytest.mark.parametrize(
    "law",
    [
        Independent(0.3, 4),
        InBins(2, 2),
        InBins(2, 2, False),
        WithoutReplacement(10, 3, 4),
        IndependentUpTo(0.3, 10, 9, 4),
    ],
    ids=str,
)
def test_the_evidence_is_the_mean_over_all_ways_to_be_drawn(law):
    """By brute force: the likelihood ratio is that of each set of steps, times its probability."""
    gains = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=torch.float64)
    total = 0.0
    for steps in itertools.product([0, 1], repeat=4):
        if isinstance(law, InBins):
            chance = 0.25 if sum(steps[:2]) == sum(steps[2:]) == 1 else 0.0
            if not law.redrawn:
                chance = 0.5 if chance and steps[:2] == steps[2:] else 0.0
        else:
            chance = math.prod(law.rate if one else 1 - law.rate for one in steps)
        total += chance * math.exp(sum(g for g, one in zip(gains.tolist(), steps, strict=True) if one))
    assert law.evidence(iter(gains.unsqueeze(1))).item() == pytest.approx(math.log(total), rel=1e-12)


KNOWN, PRIOR, SECRETS = lw.records.digits().split(19, 5, 400, seed=0)
SAMPLINGS = [
    lw.bounds.Poisson(0.25),
    lw.bounds.BallsInBins(2),
    lw.bounds.BallsInBins(2, redrawn=False),
    lw.bounds.Shuffled(2),
    lw.bounds.Cyclic(2),
    lw.bounds.FixedSize(20, 5),
    lw.bounds.TruncatedPoisson(0.25, 20, 12),
    lw.bounds.TruncatedPoisson(0.25, 20, 5),
    lw.bounds.FullBatch(),
]


def trainer(batches, **fields):
    return lw.DPSGD(**{"lr": 0.5, "clip": 0.1, "noise_multiplier": 0.7, "steps": 8, "batches": batches, **fields})


@pytest.mark.parametrize("batches", SAMPLINGS, ids=str)
def test_the_attack_stays_under_the_ceiling(batches):
    """An audit compares with the ceiling of the sampling, and would stop if the attack exceeded it."""
    ours = trainer(batches)
    audit = lw.audit(
        lw.nets.mlp(64, 5, 10),
        trainer=ours,
        threat=lw.Informed(KNOWN, candidates=4),
        attack=lw.PriorAware(),
        prior=PRIOR,
        secrets=SECRETS,
        seed=0,
    )
    assert audit.ceiling == lw.bound(**ours.mechanism(), baseline=0.25)
    success = audit.findings[0].rebuilt.mean()
    assert success <= audit.ceiling.upper + 3 * (0.25 / 400) ** 0.5
    assert success > 0.3  # above the blind guess


@pytest.mark.slow
def test_no_random_setting_lies_below_its_attack():
    """A search for a ceiling that is too low: the attack exceeds it by more than chance in no setting."""
    random, games = np.random.default_rng(26), 600
    for seed in range(40):
        per_epoch, epochs = int(random.integers(2, 9)), int(random.integers(1, 4))
        n = per_epoch * int(random.integers(2, 6))
        batches = [
            lw.bounds.Poisson(1 / per_epoch),
            lw.bounds.BallsInBins(epochs),
            lw.bounds.BallsInBins(epochs, redrawn=False),
            lw.bounds.Shuffled(epochs),
            lw.bounds.Cyclic(epochs),
            lw.bounds.FixedSize(n, n // per_epoch),
            lw.bounds.TruncatedPoisson(1 / per_epoch, n, n // per_epoch + int(random.integers(0, 5))),
        ][seed % 7]
        known, prior, secrets = lw.records.digits().split(n - 1, 60, games, seed=seed)
        if random.random() < 0.5:  # copies: nothing of the others is unknown
            known = lw.Records(known.x[:1].expand_as(known.x).clone(), known.y[:1].expand_as(known.y).clone())
        noise, clip = math.exp(random.uniform(-0.9, 0.7)), math.exp(random.uniform(-3, 0))
        torch.manual_seed(seed)
        audit = lw.audit(
            lw.nets.mlp(64, int(random.integers(3, 12)), 10),
            trainer=lw.DPSGD(lr=0.3, clip=clip, noise_multiplier=noise, steps=per_epoch * epochs, batches=batches),
            threat=lw.Informed(known, candidates=int(random.integers(2, 9))),
            attack=lw.PriorAware(),
            prior=prior,
            secrets=secrets,
            seed=seed,
        )
        won, most = int(audit.findings[0].rebuilt.sum()), audit.ceiling.upper
        p_value = float(binom.sf(won - 1, games, most))
        print(f"{seed} {batches} noise {noise:.2f}: {won / games:.3f} of {most:.3f}, p {p_value:.2g}", flush=True)
        assert p_value > 1e-6, (seed, batches, noise, clip, won / games, most)


def test_values_of_bounds_say_how_batches_are_drawn():
    assert trainer(lw.bounds.BallsInBins(2)).law() == InBins(4, 2)
    assert trainer(lw.bounds.Poisson(0.25)).law() == trainer(None, sample_rate=0.25).law() == Independent(0.25, 8)
    assert trainer(lw.bounds.Cyclic(4)).law() == InTurns(2, 4, shuffled=False)


def test_poisson_by_either_name_is_the_same_training():
    games = lw.Informed(KNOWN).deal(SECRETS, 3, seed=0)
    net = lw.nets.mlp(64, 5, 10)
    one, other = (
        each(net, games, seed=0) for each in (trainer(lw.bounds.Poisson(0.25)), trainer(None, sample_rate=0.25))
    )
    assert torch.equal(one.flat(), other.flat())


def test_draws_that_would_reveal_the_secrets_are_not_published():
    games = lw.Informed(KNOWN).deal(SECRETS, 3, seed=0)
    release = trainer(lw.bounds.FixedSize(20, 5))(lw.nets.mlp(64, 5, 10), games, seed=0)
    assert all(step.sampled is None for step in release.steps())


@pytest.mark.parametrize(
    ("batches", "fields", "words"),
    [
        (lw.bounds.BallsInBins(2), {"sample_rate": 0.5}, "sample_rate left out"),
        (lw.bounds.BallsInBins(3), {}, "multiple of epochs"),
        (lw.bounds.Correlated(1.3), {}, "cannot draw batches by Correlated"),
        ("shuffled", {}, "batches"),
    ],
    ids=str,
)
def test_slips_are_named(batches, fields, words):
    with pytest.raises((ValueError, TypeError), match=words):
        trainer(batches, **fields)


def test_epsilon_is_for_poisson_sampling():
    with pytest.raises(ValueError, match=r"use lw\.calibrate"):
        lw.DPSGD.for_epsilon(1.0, batches=lw.bounds.BallsInBins(2))
