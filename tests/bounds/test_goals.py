"""What is at risk: every goal with every sampling, against brute force, games that are played, and riskcal."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import norm

import lostwax as lw
from bounds import reference
from lostwax.bounds import (
    Attribute,
    BallsInBins,
    Correlated,
    Cyclic,
    FixedSize,
    FullBatch,
    MeanSquaredError,
    Membership,
    Poisson,
    Record,
    Records,
    Shuffled,
    TruncatedPoisson,
    bound,
    calibrate,
)

GAMES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "goals.py"))
RUNS = 20_000
SAMPLINGS = [Poisson(0.05), BallsInBins(5), Shuffled(5), FixedSize(200, 10), TruncatedPoisson(0.05, 200, 25)]
SAMPLINGS += [Cyclic(5), FullBatch(), Correlated(1.3), Correlated(1.3, 4, Poisson(0.05))]
GOALS = [Record(), Records(2), Records(3, of=5), Attribute([0.6, 0.3, 0.1]), Membership(0.01), Membership()]


def name(value):
    return type(value).__name__


def answer(noise, goal, sampling, steps=100, baseline=0.1, **more):
    known = {"baseline": baseline} if goal.needs_baseline else {}
    return bound(noise_multiplier=noise, steps=steps, sampling=sampling, goal=goal, **known, **more)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=name)
@pytest.mark.parametrize("goal", GOALS, ids=repr)
def test_every_goal_has_an_interval_for_every_sampling(goal, sampling):
    ceiling, less = answer(3.0, goal, sampling, tolerance=1e-3), answer(2.0, goal, sampling, tolerance=1e-3)
    assert ceiling.certified
    assert ceiling.log_baseline <= ceiling.log_lower <= ceiling.log_upper <= 0
    assert ceiling.log_lower <= less.log_upper  # more noise
    assert ceiling.log_upper <= less.log_upper + 2e-3
    full = answer(3.0, goal, FullBatch())
    if sampling.sensitivity == 1:
        assert ceiling.log_lower <= full.log_upper


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=name)
def test_more_noise_leaves_a_larger_error(sampling):
    for prior in ([1.0, 0.5], {0.0: 0.5, 1.0: 0.3, 5.0: 0.2}):
        low, high = (answer(noise, MeanSquaredError(prior), sampling) for noise in (2.0, 5.0))
        assert 0 <= low.error <= high.error <= high.blind
        assert high.error <= low.blind


@pytest.mark.parametrize("steps", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rate", [None, 0.2])
@pytest.mark.parametrize("noise", [pytest.param(0.7, marks=pytest.mark.slow), 2.0])
def test_few_steps_by_brute_force(noise, rate, steps):
    sampling = BallsInBins(1) if rate is None else Poisson(rate)
    delta = reference.grid_delta(noise, steps, rate)
    run = {"noise_multiplier": noise, "steps": steps, "sampling": sampling, "tolerance": 1e-5}
    ceiling = bound(**run, goal=Membership())
    assert ceiling.lower - 2e-4 <= (1 + delta(1.0)) / 2 <= ceiling.upper + 2e-4
    assert ceiling.upper - ceiling.lower < 1e-4
    for prior in ((0.8, 0.2), (0.5, 0.3, 0.2)):
        ceiling = bound(**run, goal=Attribute(prior))
        exact = max(max(prior), reference.best_answer(delta, prior))
        assert ceiling.lower - 3e-4 <= exact <= ceiling.upper + 3e-4
        assert ceiling.relative_width < 1e-3


def test_membership_is_the_ceiling_at_this_baseline_and_the_total_variation():
    rate = bound(noise_multiplier=1.0, steps=100, sampling=Poisson(0.05), goal=Membership(0.1))
    assert rate.upper == bound(noise_multiplier=1.0, steps=100, sampling=Poisson(0.05), baseline=0.1).upper
    assert "true-positive rate" in str(rate)
    for distance in (0.2, 1.0, 3.0):
        exact = 2 * ndtr(distance / 2) - 1
        assert bound(noise_multiplier=1 / distance, goal=Membership()).advantage == pytest.approx(exact, abs=1e-9)
    pure = bound(epsilon=1.0, goal=Membership())
    assert pure.upper == pytest.approx(math.e / (1 + math.e), abs=1e-9)


@pytest.mark.parametrize("sampling", [Poisson(0.05), BallsInBins(5), FullBatch()], ids=name)
def test_membership_played(sampling):
    """The likelihood ratio test reaches the ceiling."""
    steps, noise = (1, 1.0) if name(sampling) == "FullBatch" else (40, 0.8)
    without, within = GAMES["membership"](sampling, noise, steps, RUNS)
    for fpr in (0.1, 0.02):
        ceiling = answer(noise, Membership(fpr), sampling, steps).upper
        slope = math.exp(answer(noise, Membership(fpr), sampling, steps).log_slope)
        spread = 4 * math.sqrt((ceiling * (1 - ceiling) + slope**2 * fpr * (1 - fpr)) / RUNS)
        assert GAMES["true_positives"](without, within, fpr) == pytest.approx(ceiling, abs=spread)
    accuracy = ((within > 0).mean() + (without <= 0).mean()) / 2
    assert accuracy == pytest.approx(answer(noise, Membership(), sampling, steps).upper, abs=2 / math.sqrt(RUNS))


@pytest.mark.parametrize("prior", [(0.5, 0.5), (0.9, 0.1), (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("sampling", [Poisson(0.05), BallsInBins(5), FullBatch()], ids=name)
def test_an_attribute_played(sampling, prior):
    """Never above; two values with opposite gradients and full batches attain it."""
    steps, noise = (1, 1.0) if name(sampling) == "FullBatch" else (40, 0.8)
    ceiling = answer(noise, Attribute(prior), sampling, steps)
    played = GAMES["attribute"](sampling, noise, steps, prior, RUNS)
    spread = 4 * math.sqrt(0.25 / RUNS)
    assert played <= ceiling.upper + spread
    near = 0.0 if name(sampling) == "FullBatch" and len(prior) == 2 else 0.08
    assert played >= ceiling.lower - near - spread


def test_equally_likely_values_are_candidates():
    for sampling in (Poisson(0.05), BallsInBins(5)):
        one = answer(1.0, Record(), sampling, baseline=0.25)
        values = answer(1.0, Attribute([0.25] * 4), sampling)
        assert values.upper == pytest.approx(one.upper, rel=1e-12)
        assert values.lower == pytest.approx(one.lower, rel=1e-12)


def test_never_looser_than_one_minus_f_of_the_likeliest_value():
    """Kulynych et al. 2025: success <= 1 - f(max p), f being that of add or remove."""
    random = np.random.default_rng(0)
    for _ in range(10):
        prior = random.dirichlet([1.0] * int(random.integers(2, 6)))
        sampling, noise = Poisson(float(random.uniform(0.01, 0.5))), float(random.uniform(0.5, 3))
        ceiling = answer(noise, Attribute(prior), sampling, 50)
        plain = answer(noise, Record(), sampling, 50, baseline=float(prior.max()))
        assert ceiling.log_upper <= plain.log_upper + 1e-10
    sharper = bound(noise_multiplier=1.0, goal=Attribute([0.9, 0.1]))
    assert sharper.upper < 0.93
    assert bound(noise_multiplier=1.0, baseline=0.9).upper > 0.98


def test_the_bayes_risk_of_add_or_remove_is_too_low_for_an_attribute():
    """riskcal's get_bayes_risk_from_gdp(1, 1/2) means an accuracy of 0.69; opposite gradients have 0.84."""
    mu, prior = 1.0, 0.5
    epsilon = math.log(prior / (1 - prior))
    delta = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    accuracy = 1 - (1 - prior) * (1 - delta)
    played = GAMES["attribute"](FullBatch(), 1.0, 1, (0.5, 0.5), RUNS)
    assert accuracy == pytest.approx(0.6915, abs=1e-4)
    assert played > accuracy + 0.1
    assert bound(noise_multiplier=1.0, goal=Attribute([0.5, 0.5])).upper == pytest.approx(ndtr(1.0))


def test_copies_break_the_ceiling_of_one_record_and_not_that_of_the_group():
    """Twenty copies of the secret: the adversary who knows no other record rebuilds it far more often."""
    played = GAMES["copies"](10.0, 20, 10, RUNS)
    alone = bound(noise_multiplier=10.0, baseline=0.1)
    assert alone.broken_by(round(played * RUNS), RUNS)
    group = bound(noise_multiplier=10.0, baseline=0.1, goal=Records(20))
    assert not group.broken_by(round(played * RUNS), RUNS)
    assert played > group.lower - 0.12
    assert any("No other record depends on the secret" in one for one in alone.assumptions)
    assert any("among the 20" in one for one in group.assumptions)


def test_copies_break_the_other_goals_too():
    """The same for a column: the prior is no longer all there is to know."""
    random = np.random.default_rng(0)
    value = random.integers(2, size=RUNS)
    seen = 20 * (2 * value - 1) + 10 * random.standard_normal(RUNS)
    right = int(((seen > 0) == (value == 1)).sum())
    assert bound(noise_multiplier=10.0, goal=Attribute([0.5, 0.5])).broken_by(right, RUNS)


def test_full_batches_are_called_so():
    full, at_rate_one = (answer(1.5, GOALS[0], sampling).assumptions for sampling in (FullBatch(), Poisson(1.0)))
    assert full == at_rate_one
    assert "FullBatch(): no record is in a step more than once." in full


@pytest.mark.parametrize("goal", [*GOALS, MeanSquaredError([1.0])], ids=repr)
def test_what_an_answer_assumes_is_in_its_words(goal):
    found = answer(1.5, goal, Poisson(0.05))
    assert any("1.5 times the clipping norm" in one and "100 sums" in one for one in found.assumptions)
    assert any("Poisson(rate=0.05): each record is in each step" in one for one in found.assumptions)
    assert any("epend" in one for one in found.assumptions)
    text, page = str(found), found._repr_html_()
    for one in found.assumptions:
        assert f"assumes: {one}" in text
        assert one.split("(")[0] in page
    assert "\n" not in found.sentence


@pytest.mark.parametrize("goal", GOALS, ids=repr)
def test_an_epsilon_alone(goal):
    if goal == Records(2):
        with pytest.raises(ValueError, match="Expected a noise_multiplier"):
            bound(epsilon=1.0, baseline=0.1, goal=goal)
        return
    known = {"baseline": 0.1} if goal.needs_baseline else {}
    whatever = bound(epsilon=1.0, delta=1e-5, goal=goal, **known)
    noise = answer(37.3, goal, FullBatch())  # has this epsilon and delta
    assert noise.upper < whatever.upper < 1
    assert any("epsilon = 1 and delta = 1e-05" in one for one in whatever.assumptions)


def test_the_error_under_pure_differential_privacy():
    floor = bound(epsilon=0.5, goal=MeanSquaredError([2.0]))
    assert floor.error == pytest.approx(4 * math.exp(-2 * 0.5 * math.tanh(0.25)), rel=1e-6)
    with pytest.raises(ValueError, match="no error is certain"):
        bound(epsilon=0.5, delta=1e-9, goal=MeanSquaredError([2.0]))


@pytest.mark.parametrize("goal", [Records(2), Records(2, of=4), Attribute({"a": 0.8, "b": 0.2}), Membership(0.01)])
def test_calibrate_meets_the_target(goal):
    known = {"baseline": 0.1} if goal.needs_baseline else {}
    plan = calibrate(max_success=0.85, steps=4, goal=goal, **known)
    assert plan.ceiling.upper <= 0.85
    assert bound(noise_multiplier=0.99 * plan.noise_multiplier, steps=4, goal=goal, **known).upper > 0.85
    assert plan.ceiling.assumptions


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: bound(noise_multiplier=1.0, goal=Membership(), baseline=0.1), "Leave out baseline"),
        (lambda: bound(noise_multiplier=1.0, goal=Records(2, of=3)), "exactly one of baseline"),
        (lambda: bound(noise_multiplier=1.0), "exactly one of baseline"),
        (lambda: Records(4, of=3), "k <= n"),
        (lambda: Records(0), "k=0"),
        (lambda: Attribute([0.5, 0.6]), "add up to 1"),
        (lambda: Attribute([1.0]), "two or more"),
        (lambda: Attribute([1.0, 0.0]), "leave something to guess"),
        (lambda: Membership(0.0), "fpr=0.0"),
        (lambda: MeanSquaredError([0.0]), "positive standard deviation"),
        (lambda: MeanSquaredError({1.0: 1.0}), "two or more numbers"),
        (lambda: calibrate(max_success=0.5, goal=Attribute([0.9, 0.1])), "above the blind guess's 0.9"),
        (lambda: calibrate(max_success=0.5, goal=Membership()), "above the blind guess's 0.5"),
    ],
)
def test_what_does_not_fit_is_refused(made, words):
    with pytest.raises(ValueError, match=words):
        made()


def test_a_goal_is_a_value():
    with pytest.raises(TypeError, match=r"value like lw\.bounds\.Record"):
        bound(noise_multiplier=1.0, baseline=0.1, goal=Record)
    with pytest.raises(TypeError, match="has no max_success"):
        calibrate(max_success=0.5, goal=MeanSquaredError([1.0]))
    assert Attribute(np.array([0.5, 0.5])) == Attribute([0.5, 0.5])
    assert len({Attribute({"a": 0.5, "b": 0.5}), MeanSquaredError({0: 0.5, 1: 0.5}), MeanSquaredError([1])}) == 3


def test_one_of_one_is_a_record():
    assert answer(1.0, Records(1, of=1), Poisson(0.05)) == answer(1.0, Record(), Poisson(0.05))
    assert ndtr(ndtri(0.1) + 1) == pytest.approx(bound(noise_multiplier=1.0, baseline=0.1, goal=Records(1, of=1)).upper)
    assert lw.bounds.Records(1, of=1) == Records(1, 1)
