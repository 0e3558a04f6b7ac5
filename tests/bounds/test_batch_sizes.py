"""Batches of a fixed or largest size, against direct attacks: the exact law of a step, and simulated training."""

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom, hypergeom, norm

from lostwax.bounds import (
    Attribute,
    BallsInBins,
    Correlated,
    Cyclic,
    FixedSize,
    Membership,
    Poisson,
    Records,
    Shuffled,
    TruncatedPoisson,
    bound,
    calibrate,
)
from lostwax.bounds.closed_forms import epsilon_of

GAMES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "goals.py"))
EXACT = 2e-6  # of the integrals below


def batches(sampling, with_record):
    """Probabilities of (the record is drawn, the number of others) for one step; none is known to the adversary."""
    law = {}
    if isinstance(sampling, FixedSize):
        rate = sampling.b / sampling.n if with_record else 0.0
        law[False, min(sampling.b, sampling.n - 1)] = 1 - rate
        law[True, sampling.b - 1] = rate
        return law
    for others in range(sampling.n):
        chance = binom.pmf(others, sampling.n - 1, sampling.rate)
        kept = min(1.0, sampling.largest / (others + 1)) if with_record else 0.0
        for key, weight in (
            ((True, min(others, sampling.largest - 1)), sampling.rate * kept),
            ((False, min(others, sampling.largest)), 1 - sampling.rate * kept),
        ):
            law[key] = law.get(key, 0.0) + chance * weight
    return law


def sums(sampling, gradient, up):
    """Values and probabilities of one step's sum: `up` of the others have gradient 1 and the rest -1.

    `gradient` is the record's; None: it is left out.
    """
    law = {}
    for (drawn, others), weight in batches(sampling, gradient is not None).items():
        for ups in range(others + 1):
            chance = weight * hypergeom.pmf(ups, sampling.n - 1, up, others)
            if chance > 0:
                total = 2 * ups - others + (gradient if drawn else 0.0)
                law[total] = law.get(total, 0.0) + chance
    return np.array([*law]), np.array([*law.values()])


def density(law, x, noise):
    values, chances = law
    return norm.pdf(x[:, None], values, noise) @ chances


def grid(laws, noise):
    every = np.concatenate([values for values, _ in laws])
    return np.linspace(every.min() - 9 * noise, every.max() + 9 * noise, 6001)


def true_positives(within, without, noise, fpr):
    """The most powerful test of one step."""
    x = grid((within, without), noise)
    hit, null = density(within, x, noise), density(without, x, noise)
    order = np.argsort(-hit / np.maximum(null, 1e-300))
    rates = [np.concatenate([[0.0], np.cumsum(f[order]) * (x[1] - x[0])]) for f in (null, hit)]
    return float(np.interp(fpr, *rates))


def named(laws, prior, noise):
    """How often the likeliest value is the right one, after one step."""
    x = grid(laws, noise)
    best = np.max([p * density(law, x, noise) for p, law in zip(prior, laws, strict=True)], axis=0)
    return float(best.sum() * (x[1] - x[0]))


def draw(random):
    n = int(random.integers(2, 13))
    noise = math.exp(random.uniform(math.log(0.3), math.log(4)))
    if random.random() < 0.5:
        return FixedSize(n, int(random.integers(1, n + 1))), noise
    return TruncatedPoisson(float(random.uniform(0.05, 0.95)), n, int(random.integers(1, n + 1))), noise


def attacked(random, sampling, noise):
    """(goal, ceiling, success of the best attack, for the most revealing of these gradients) for several goals."""
    fpr = float(random.choice([0.001, 0.01, 0.1, 0.3, 0.6]))
    prior = random.dirichlet([1.0] * int(random.integers(2, 4)))
    ups = {0, int(random.integers(0, sampling.n)), sampling.n - 1}
    pairs = [(sums(sampling, 1.0, up), sums(sampling, None, up)) for up in ups]
    gap = max(named(pair, (0.5, 0.5), noise) for pair in pairs)
    yield Membership(), gap
    yield Membership(fpr), max(true_positives(*pair, noise, fpr) for pair in pairs)
    values = list(itertools.product((-1.0, 0.0, 1.0), repeat=len(prior)))
    laws = {(up, g): sums(sampling, g, up) for up in ups for g in (-1.0, 0.0, 1.0)}
    chosen = [(up, gradients) for up in ups for gradients in values if len({*gradients}) > 1]
    yield Attribute(prior), max(named([laws[up, g] for g in gradients], prior, noise) for up, gradients in chosen)


def test_attacks_on_one_step_stay_below_the_ceiling():
    random = np.random.default_rng(0)
    near = 0
    for _ in range(40):
        sampling, noise = draw(random)
        for goal, reached in attacked(random, sampling, noise):
            ceiling = bound(noise_multiplier=noise, sampling=sampling, goal=goal)
            assert reached <= ceiling.upper + EXACT, (sampling, noise, goal)
            near += reached >= ceiling.upper - 1e-3
    assert near >= 40  # so the attacks are strong


def test_the_curve_of_one_way_to_train_without_the_record_is_not_mixed_with_another():
    """A column whose likely value has the others' gradient: 0.9588 of games, where 0.9473 was certified."""
    sampling, prior = FixedSize(10, 8), (0.9, 0.1)
    reached = named([sums(sampling, g, 0) for g in (-1.0, 1.0)], prior, 0.6)
    ceiling = bound(noise_multiplier=0.6, sampling=sampling, goal=Attribute(prior))
    assert 0.9587 < reached < ceiling.upper < bound(noise_multiplier=0.6, goal=Attribute(prior)).upper + 1e-9
    alone = {"noise_multiplier": 0.6, "sampling": sampling}
    for goal in (Membership(0.01), Membership()):
        left_out = bound(noise_multiplier=0.3, sampling=Poisson(0.8), goal=goal)
        assert bound(**alone, goal=goal).upper == pytest.approx(left_out.upper, rel=1e-9)
    # a record's blind success is the same either way, and the lowest ceiling holds
    assert bound(**alone, baseline=0.1).upper == bound(noise_multiplier=0.6, baseline=0.1).upper
    assert bound(**alone, baseline=0.5).upper < bound(noise_multiplier=0.6, baseline=0.5).upper


@pytest.mark.parametrize("sampling", [FixedSize(6, 5), TruncatedPoisson(0.9, 6, 4)], ids=repr)
def test_attacks_on_several_steps_stay_below_the_ceiling(sampling):
    """Likelihood ratios of six simulated steps; all other gradients point against the record's."""
    noise, steps, runs, random = 2.0, 6, 40_000, np.random.default_rng(0)
    within, without = sums(sampling, 1.0, 0), sums(sampling, None, 0)
    x = grid((within, without), noise)
    ratio = np.log(density(within, x, noise)) - np.log(density(without, x, noise))

    def scores(law):
        values, chances = law
        seen = random.choice(values, (runs, steps), p=chances / chances.sum())
        return np.interp(seen + noise * random.standard_normal(seen.shape), x, ratio).sum(1)

    hit, null = scores(within), scores(without)
    for fpr in (0.01, 0.1):
        run = {"steps": steps, "sampling": sampling, "goal": Membership(fpr)}
        reached = float((hit > np.quantile(null, 1 - fpr)).mean())
        ceiling = bound(noise_multiplier=noise, **run)
        spread = 4 * (0.5 + math.exp(ceiling.log_slope) * math.sqrt(fpr)) / math.sqrt(runs)
        assert reached < ceiling.upper + spread
        assert reached > bound(noise_multiplier=noise, steps=steps, goal=Membership(fpr)).upper  # full batches
        plan = calibrate(max_success=0.9 * reached, **run)
        assert plan.noise_multiplier > noise * 0.99
    accuracy = ((hit > 0).mean() + (null <= 0).mean()) / 2
    most = bound(noise_multiplier=noise, steps=steps, sampling=sampling, goal=Membership()).upper
    assert accuracy < most + 2 / math.sqrt(runs)


def test_a_cut_batch_counts_in_epsilon():
    """With the record in another's place the sum moves by 2: more than the epsilon of full batches permits."""
    sampling, noise, delta = TruncatedPoisson(0.9, 4, 1), 1.0, 1e-3
    within, without = sums(sampling, 1.0, 0), sums(sampling, None, 0)
    x = grid((within, without), noise)
    hit, null = density(within, x, noise), density(without, x, noise)

    def excess(epsilon):
        return float(np.maximum(hit - math.exp(epsilon) * null, 0).sum() * (x[1] - x[0]))

    assert excess(sampling.epsilon(noise, 1, delta)) <= delta
    assert excess(epsilon_of(noise, 1.0, 1, delta)) > delta
    rare = TruncatedPoisson(0.05, 200, 60)
    assert rare.epsilon(noise, 10, 1e-5) == pytest.approx(epsilon_of(noise, 0.05, 10, 5e-6))


def test_groups_are_left_out_from_the_smallest_set_on():
    """gamma of n records is taken last: without noise a group of k is missed where none of it is drawn."""
    n, b, k, baseline = 9, 3, 4, 0.05
    ceiling = bound(noise_multiplier=0.02, baseline=baseline, sampling=FixedSize(n, b), goal=Records(k))
    missed = math.comb(n - k, b) / math.comb(n, b)
    assert ceiling.upper == pytest.approx(1 - missed * (1 - baseline), rel=1e-6)


@pytest.mark.slow
def test_attacks_on_one_step_stay_below_the_ceiling_in_a_thousand_settings():
    random = np.random.default_rng(1)
    for _ in range(1_000):
        sampling, noise = draw(random)
        for goal, reached in attacked(random, sampling, noise):
            ceiling = bound(noise_multiplier=noise, sampling=sampling, goal=goal)
            assert reached <= ceiling.upper + EXACT, (sampling, noise, goal)


def scored_epochs(sampling, noise, steps, runs, random):
    """(runs,) log ratios without and with the record, which is in one step per epoch and set to zero without.

    The other gradients of a batch of fixed size point against the record's: its place is worth 1 without it and 2 with.
    """
    each = steps // sampling.epochs
    moves = (1.0, 2.0) if isinstance(sampling, Shuffled) else (0.0, 1.0)
    places = random.integers(each, size=(runs, sampling.epochs, 1))
    if isinstance(sampling, Cyclic) or not getattr(sampling, "redrawn", True):
        places[:] = 0 if isinstance(sampling, Cyclic) else places[:, :1]
    there = np.arange(each) == places
    for move in moves:
        x = move * there + noise * random.standard_normal(there.shape)
        if not getattr(sampling, "redrawn", True):
            x = x.mean(1, keepdims=True)
        own = noise if x.shape[1] == there.shape[1] else noise / math.sqrt(sampling.epochs)
        exponents = [(2 * m * x - m * m) / (2 * own**2) for m in moves]
        if isinstance(sampling, Cyclic):
            exponents = [exponent[:, :, :1] for exponent in exponents]
        without, within = (logsumexp(exponent, axis=2).sum(1) for exponent in exponents)
        yield within - without


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "bins", "same bins", "shuffled", "cyclic", "correlated"])
def test_attacks_on_other_samplings_stay_below_the_ceiling(kind):
    """Membership and a column with opposite gradients, simulated in forty settings each."""
    random, runs = np.random.default_rng(2), 10_000
    for _ in range(40):
        epochs, each = int(random.integers(1, 5)), int(random.integers(1, 9))
        steps, noise = epochs * each, math.exp(random.uniform(math.log(0.4), math.log(3)))
        rate, prior = float(random.uniform(0.05, 1)), random.dirichlet([1.0, 1.0])
        sampling = {
            "poisson": Poisson(rate),
            "bins": BallsInBins(epochs),
            "same bins": BallsInBins(epochs, redrawn=False),
            "shuffled": Shuffled(epochs),
            "cyclic": Cyclic(epochs),
            "correlated": Correlated.of([1.0, 0.6], Poisson(rate)),
        }[kind]
        run = {"noise_multiplier": noise, "steps": steps, "sampling": sampling, "tolerance": 1e-3}
        if kind == "correlated":
            null, hit = GAMES["banded"](np.array([1.0, 0.6]), rate, noise, steps, runs)
        elif kind == "poisson":
            null, hit = GAMES["membership"](sampling, noise, steps, runs)
        else:
            null, hit = scored_epochs(sampling, noise, steps, runs, random)
        accuracy = ((hit > 0).mean() + (null <= 0).mean()) / 2
        assert accuracy <= bound(**run, goal=Membership()).upper + 2.5 / math.sqrt(runs), run
        for fpr in (0.05, 0.3):
            ceiling = bound(**run, goal=Membership(fpr))
            spread = 4.5 * (0.5 + math.exp(ceiling.log_slope) * math.sqrt(fpr)) / math.sqrt(runs)
            assert (hit > np.quantile(null, 1 - fpr)).mean() <= ceiling.upper + spread, run
        if kind in ("poisson", "bins"):
            named_share = GAMES["attribute"](sampling, noise, steps, prior, runs)
            assert named_share <= bound(**run, goal=Attribute(prior)).upper + 2.5 / math.sqrt(runs), run
