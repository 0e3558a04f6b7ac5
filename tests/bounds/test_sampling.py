"""The values of `sampling=`: what each means, how they compare, and what replaces the old spelling."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import lostwax as lw
from bounds.reference import limits
from lostwax.bounds import (
    BallsInBins,
    Cyclic,
    FixedSize,
    FullBatch,
    Poisson,
    Records,
    Shuffled,
    TruncatedPoisson,
    bound,
    calibrate,
)

RUN = {"noise_multiplier": 1.0, "steps": 100, "baseline": 0.1}
ALL = [Poisson(0.05), BallsInBins(5), Shuffled(5), FixedSize(200, 10), TruncatedPoisson(0.05, 200, 25), Cyclic(5)]
ALL += [FullBatch(), BallsInBins(5, redrawn=False)]


def name(sampling):
    return str(sampling)


def test_a_rate_alone_is_poisson_sampling():
    usual = bound(**RUN, sample_rate=0.05)
    assert usual == bound(**RUN, sampling=Poisson(0.05)) == bound(**RUN, sample_rate=0.05, sampling=Poisson())
    assert bound(**RUN, sample_rate=0.05, sampling=Poisson(0.05)) == usual
    assert bound(**RUN, sampling=Poisson()) == bound(**RUN, sampling=FullBatch()) == bound(**RUN)


@pytest.mark.parametrize("sampling", ALL, ids=name)
def test_all_are_between_the_blind_guess_and_full_batches(sampling):
    ceiling, full = bound(**RUN, sampling=sampling), bound(**RUN)
    assert ceiling.log_baseline <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper
    assert ceiling.certified
    less = bound(**RUN | {"noise_multiplier": 0.8}, sampling=sampling)
    assert ceiling.log_lower <= less.log_upper
    assert ceiling.log_upper <= less.log_upper


@pytest.mark.parametrize("sampling", ALL, ids=name)
def test_calibrate_meets_the_target_for_each(sampling):
    plan = calibrate(max_success=0.3, baseline=0.1, steps=100, sampling=sampling)
    assert plan.ceiling.upper <= 0.3
    run = {"steps": 100, "baseline": 0.1, "sampling": sampling}
    assert bound(noise_multiplier=plan.noise_multiplier, **run, tolerance=1e-6).upper <= 0.3 * (1 + 1e-4)
    assert bound(noise_multiplier=0.998 * plan.noise_multiplier, **run, tolerance=1e-6).upper > 0.3
    assert 0 < plan.epsilon < math.inf
    assert plan.adjacency == sampling.adjacency


@pytest.mark.parametrize("sampling", ALL, ids=name)
def test_more_records_at_once_are_easier(sampling):
    one, three = bound(**RUN, sampling=sampling), bound(**RUN, sampling=sampling, goal=Records(3))
    together = bound(**RUN, goal=Records(3))
    assert one.log_upper <= three.log_upper <= together.log_upper
    assert three.log_lower <= three.log_upper


def test_records_of_poisson_sampling_one_after_the_other_are_above_the_exact_group():
    """The general way of `Sampling` against the sharper one."""
    exact = bound(**RUN, sampling=Poisson(0.05), goal=Records(2))
    once = bound(**RUN, sampling=Poisson(0.05)).log_upper
    twice = bound(noise_multiplier=1.0, steps=100, log_baseline=once, sampling=Poisson(0.05))
    assert exact.log_lower <= twice.log_upper


def test_an_epoch_of_one_step_is_a_full_batch():
    ten = {"noise_multiplier": 2.0, "steps": 10, "baseline": 0.01}
    exact = bound(**ten)
    for sampling in (BallsInBins(10), Shuffled(10), Cyclic(10), FixedSize(7, 7), FullBatch()):
        ceiling = bound(**ten, sampling=sampling)
        assert (ceiling.lower, ceiling.upper) == (exact.lower, exact.upper)
    stays = bound(**ten, sampling=BallsInBins(10, redrawn=False))
    assert exact.lower <= stays.upper == pytest.approx(exact.upper, rel=1e-12)


def test_a_record_that_stays_in_its_batch():
    """By samples of the ratio, from its definition; one epoch is drawn once anyway."""
    fixed = bound(**RUN, sampling=BallsInBins(5, redrawn=False))
    assert fixed.lower > bound(**RUN, sampling=BallsInBins(5)).upper
    assert fixed.upper < bound(**RUN, sampling=Cyclic(5)).lower
    random = np.random.default_rng(0)
    z = random.standard_normal((20_000, 5, 20)).sum(1)
    low, high = limits(np.exp(z - 5 / 2).mean(1), 0.1, 1e-6)
    assert low <= fixed.upper
    assert fixed.lower <= high
    assert bound(**RUN, sampling=BallsInBins(1, redrawn=False)) == bound(**RUN, sampling=BallsInBins(1))
    half = BallsInBins(4, redrawn=False).information(2.0, 80)
    assert half == BallsInBins(1).information(1.0, 20)


def test_a_fixed_order_is_a_full_batch_step_per_epoch():
    exact = bound(noise_multiplier=1.0, steps=5, baseline=0.1)
    assert bound(**RUN, sampling=Cyclic(5)) == exact == bound(**RUN, sampling=Cyclic(), sample_rate=0.05)
    assert bound(**RUN, sampling=Cyclic(), sample_rate=0.051).upper > exact.upper  # six visits
    assert bound(**RUN, sampling=Cyclic()) == bound(**RUN)


def test_batches_of_a_fixed_size_put_the_record_in_the_place_of_another():
    ceiling = bound(**RUN, sampling=FixedSize(1000, 10))
    half = bound(noise_multiplier=0.5, steps=100, baseline=0.1, sample_rate=0.01)
    assert ceiling.upper == pytest.approx(half.upper, rel=1e-12)
    assert ceiling.lower > bound(**RUN, sample_rate=0.01).upper
    nearly_all = bound(**RUN, sampling=FixedSize(1000, 999))
    assert nearly_all.upper == bound(**RUN).upper  # the other theorem
    assert nearly_all.lower < nearly_all.upper


def test_a_cut_that_hardly_happens_changes_nothing_and_one_that_does_is_added():
    poisson = bound(**RUN, sample_rate=0.05)
    assert bound(**RUN, sampling=TruncatedPoisson(0.05, 200, 200)).upper == pytest.approx(poisson.upper, rel=1e-12)
    some = bound(**RUN, sampling=TruncatedPoisson(0.05, 200, 22))
    displaced = 100 * 0.05 * binom.sf(21, 199, 0.05)  # drawn beside 22 others, in any step
    assert some.upper == pytest.approx(poisson.upper + displaced, rel=1e-6)
    assert some.lower <= poisson.upper
    every = bound(**RUN, sampling=TruncatedPoisson(0.05, 200, 1))
    assert every.upper == bound(noise_multiplier=0.5, steps=100, baseline=0.1, sample_rate=0.05).upper
    assert every.lower >= 0.1


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: bound(**RUN, sampling=BallsInBins(7)), "steps=100 to be a multiple of epochs=7"),
        (lambda: bound(**RUN, sampling=Shuffled(5), sample_rate=0.3), "whose rate is 0.05. Leave out sample_rate"),
        (lambda: bound(**RUN, sampling=Poisson(0.1), sample_rate=0.3), "whose rate is 0.1. Leave out sample_rate"),
        (lambda: BallsInBins(0), "epochs=0"),
        (lambda: Poisson(1.5), "rate=1.5"),
        (lambda: FixedSize(10, 11), "b=11"),
        (lambda: FixedSize(0, 1), "n=0"),
        (lambda: TruncatedPoisson(0.1, 10, 0), "largest=0"),
        (lambda: bound(epsilon=1.0, baseline=0.1, sampling=Poisson()), "Leave out noise_multiplier"),
    ],
)
def test_what_does_not_fit_is_refused(made, words):
    with pytest.raises(ValueError, match=words):
        made()


@pytest.mark.parametrize("sampling", [FullBatch, "balls", "poisson"])
def test_a_class_or_a_text_is_no_value(sampling):
    with pytest.raises(TypeError, match=r"value like lw\.bounds\.Poisson"):
        bound(**RUN, sampling=sampling)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="has no attribute 'shuffle'"):
        _ = lw.bounds.shuffle


def test_the_rate_of_a_mechanism_may_stand_beside_its_sampling():
    assert bound(**RUN, sampling=BallsInBins(5), sample_rate=0.05) == bound(**RUN, sampling=BallsInBins(5))


@pytest.mark.parametrize(
    ("n", "b", "k", "baseline"), [(4, 2, 2, 0.5), (10, 1, 5, 0.1), (2, 1, 2, 0.5), (30, 4, 3, 1e-3)]
)
def test_a_group_in_batches_of_a_fixed_size_without_noise(n, b, k, baseline):
    """A group is rebuilt wherever one of it is drawn."""
    missed = math.comb(n - k, b) / math.comb(n, b)
    goal = lw.bounds.Records(k)
    ceiling = lw.bound(noise_multiplier=0.1, baseline=baseline, sampling=lw.bounds.FixedSize(n, b), goal=goal)
    assert ceiling.upper >= (1 - missed + missed * baseline) * (1 - 1e-9)


def test_information_of_balls_in_bins_with_little_noise():
    """Nearly all of a full batch's, less the choice of the step."""
    noise, steps = 0.02, 100
    found = lw.bounds.BallsInBins(1).information(noise, steps)
    assert 1 / (2 * noise**2) - math.log(steps) <= found <= 1 / (2 * noise**2)


def test_whether_bins_are_redrawn_is_yes_or_no():
    with pytest.raises(TypeError, match=r"BallsInBins: expected redrawn to be True or False, got 'no'"):
        BallsInBins(3, redrawn="no")
    assert "the same in all epochs" in BallsInBins(3, redrawn=False).words
    assert "the same" not in BallsInBins(3).words
