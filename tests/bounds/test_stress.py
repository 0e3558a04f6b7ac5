"""Thousands of random settings: no end on the wrong side, no width out of bounds, no slow answer."""

import math
import runpy
import time
from pathlib import Path

import numpy as np
import pytest

from bounds import reference
from lostwax import bounds
from lostwax.bounds import calibrate
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.random_batches import balls_in_bins, subsampled

pytestmark = pytest.mark.slow


def log_uniform(generator, low, high):
    return math.exp(generator.uniform(math.log(low), math.log(high)))


def draw(generator, *, smallest=1e-12, most_steps=10_000):
    return {
        "log_baseline": math.log(log_uniform(generator, smallest, 0.9)),
        "noise_multiplier": log_uniform(generator, 0.3, 30),
        "sample_rate": log_uniform(generator, 0.001, 1) if generator.random() < 0.7 else generator.uniform(0.001, 1),
        "steps": round(log_uniform(generator, 1, most_steps)),
    }


def test_three_thousand_settings_in_the_promised_range():
    generator = np.random.default_rng(0)
    times = []
    for _ in range(3000):
        run = draw(generator)
        start = time.process_time()
        ceiling = subsampled(**run)
        times.append(time.process_time() - start)
        full = gaussian(run["log_baseline"], run["noise_multiplier"], run["steps"])
        assert run["log_baseline"] <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper, run
        assert ceiling.relative_width <= 1e-4, run
    print(f"median {np.median(times):.4f} s, worst {max(times):.2f} s")
    assert np.median(times) <= 0.3
    assert max(times) <= 2


def test_a_thousand_settings_far_out_are_valid():
    generator = np.random.default_rng(1)
    wide = 0
    for _ in range(1000):
        run = draw(generator, smallest=1e-100, most_steps=100_000)
        ceiling = subsampled(**run)
        full = gaussian(run["log_baseline"], run["noise_multiplier"], run["steps"])
        assert run["log_baseline"] <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper, run
        wide += ceiling.relative_width > 1e-4
    print(f"{wide} of 1000 wider than 1e-4")


def test_a_finer_interval_lies_inside_a_coarser_one():
    """Both hold the same number, so they must meet."""
    generator = np.random.default_rng(2)
    for _ in range(300):
        run = draw(generator, smallest=1e-40)
        coarse, fine = subsampled(**run, tolerance=1e-2), subsampled(**run, tolerance=1e-6)
        assert coarse.log_lower <= fine.log_upper, run
        assert fine.log_lower <= coarse.log_upper, run


@pytest.mark.parametrize("name", ["noise_multiplier", "sample_rate", "steps", "log_baseline"])
def test_monotone_in_each_argument(name):
    generator = np.random.default_rng(3)
    for _ in range(300):
        run = draw(generator, smallest=1e-40)
        factor = 1 + log_uniform(generator, 1e-4, 1)
        moved = dict(run)
        if name == "steps":
            moved["steps"] = math.ceil(run["steps"] * factor)
        elif name == "sample_rate":
            moved["sample_rate"] = min(1.0, run["sample_rate"] * factor)
        else:
            moved[name] = run[name] / factor  # less noise, or a log nearer to 0
        assert subsampled(**run).log_lower <= subsampled(**moved).log_upper, (run, moved)


def test_fifty_calibrations_meet_the_target_and_hardly_exceed_it():
    generator = np.random.default_rng(4)
    for _ in range(50):
        run = draw(generator, smallest=1e-9, most_steps=3000)
        baseline = math.exp(run["log_baseline"])
        target = baseline + (1 - baseline) * log_uniform(generator, 0.01, 0.9)
        plan = calibrate(
            max_success=target, baseline=baseline, sample_rate=run["sample_rate"], steps=run["steps"], delta=1e-5
        )
        assert plan.ceiling.upper <= target, (run, target)
        if plan.noise_multiplier > 0:
            run["noise_multiplier"] = 0.9999 * plan.noise_multiplier
            assert subsampled(**run, tolerance=1e-7).lower > target, (run, target)


def test_groups_of_records_are_valid_and_monotone():
    generator = np.random.default_rng(5)
    for _ in range(200):
        run = draw(generator)
        few = int(generator.integers(1, 30))
        small, large = subsampled(**run, records=few), subsampled(**run, records=few + int(generator.integers(1, 5)))
        full = gaussian(run["log_baseline"], run["noise_multiplier"], run["steps"], few)
        assert run["log_baseline"] <= small.log_lower <= small.log_upper <= full.log_upper, (run, few)
        assert small.log_lower <= large.log_upper, (run, few)
        assert small.relative_width <= 1e-4, (run, few)


@pytest.mark.parametrize(("threshold", "line", "half_width", "nodes"), [(3.7, 8.2, 30.0, 1500), (1.0, 5.0, 40.0, 800)])
def test_the_contour_integral_at_small_baselines(threshold, line, half_width, nodes):
    """Down to 1e-11, where the tilted law has two humps and the integrand falls slowly."""
    noise, rate, steps = 1.0, 0.01, 1000
    log_kappa, log_gamma = reference.contour_pair(
        noise, rate, steps, threshold, line, half_width=half_width, nodes=nodes
    )
    for tolerance in (1e-4, 1e-6):
        ceiling = subsampled(log_kappa, noise, rate, steps, tolerance)
        assert ceiling.log_lower <= log_gamma <= ceiling.log_upper


def draw_epochs(generator, *, least_noise=0.5, smallest=1e-6):
    return {
        "log_baseline": math.log(log_uniform(generator, smallest, 0.9)),
        "noise_multiplier": log_uniform(generator, least_noise, 30),
        "steps": round(log_uniform(generator, 2, 10_000)),
        "epochs": round(log_uniform(generator, 1, 100)),
    }


def test_two_thousand_settings_of_balls_in_bins():
    generator, times = np.random.default_rng(6), []
    for _ in range(2000):
        run = draw_epochs(generator)
        start = time.process_time()
        ceiling = balls_in_bins(**run)
        times.append(time.process_time() - start)
        full = gaussian(run["log_baseline"], run["noise_multiplier"], run["epochs"])
        assert run["log_baseline"] <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper, run
        assert ceiling.relative_width <= 1e-4, run
    print(f"median {np.median(times):.4f} s, worst {max(times):.2f} s")
    assert max(times) <= 2


def test_balls_in_bins_far_out_is_valid():
    generator = np.random.default_rng(7)
    for _ in range(150):
        run = draw_epochs(generator, least_noise=0.15, smallest=1e-60)
        ceiling = balls_in_bins(**run)
        full = gaussian(run["log_baseline"], run["noise_multiplier"], run["epochs"])
        assert run["log_baseline"] <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper, run


@pytest.mark.parametrize("name", ["noise_multiplier", "steps", "epochs", "log_baseline"])
def test_balls_in_bins_is_monotone(name):
    generator = np.random.default_rng(8)
    for _ in range(100):
        run = draw_epochs(generator)
        factor = 1 + log_uniform(generator, 1e-4, 1)
        moved = dict(run)
        if name == "epochs":
            moved[name] = math.ceil(run[name] * factor)
        elif name == "steps":  # a multiple of the steps: twice the places to hide
            run["steps"], moved["steps"] = 2 * run["steps"], run["steps"]
        else:
            moved[name] = run[name] / factor
        assert balls_in_bins(**run).log_lower <= balls_in_bins(**moved).log_upper, (run, moved)


def test_balls_in_bins_by_integration_at_few_steps():
    generator = np.random.default_rng(9)
    for _ in range(15):
        run = draw_epochs(generator)
        noise, log_kappa = run["noise_multiplier"], run["log_baseline"]
        for steps in (1, 2, 3) if noise > 0.7 else (1, 2):
            exact = reference.one_of_few_steps(noise, steps, log_kappa)
            ceiling = balls_in_bins(log_kappa, noise, steps, 1, 1e-6)
            assert ceiling.log_lower - 1e-11 <= exact <= ceiling.log_upper + 1e-11, (run, steps)


def test_balls_in_bins_is_never_outside_the_limits_of_samples():
    generator = np.random.default_rng(10)
    for seed in range(60):
        run = draw_epochs(generator, smallest=1e-3)
        steps, epochs = min(run["steps"], 300), min(run["epochs"], 20)
        kappa, noise = math.exp(run["log_baseline"]), run["noise_multiplier"]
        low, high = reference.sampled_limits(noise, steps, epochs, kappa, samples=20_000, seed=seed)
        ceiling = balls_in_bins(math.log(kappa), noise, steps, epochs)
        assert low <= ceiling.upper, (run, low)
        assert ceiling.lower <= high, (run, high)


@pytest.mark.parametrize("kind", ["Shuffled", "FixedSize", "TruncatedPoisson", "Cyclic"])
def test_the_other_samplings_are_valid_and_monotone(kind):
    generator = np.random.default_rng(11)
    for _ in range(150):
        run = draw_epochs(generator)
        steps, n = run["steps"] * run["epochs"], run["steps"] * int(generator.integers(1, 100))
        batch = n // run["steps"]
        sampling = {
            "Shuffled": bounds.Shuffled(run["epochs"]),
            "FixedSize": bounds.FixedSize(n, batch),
            "TruncatedPoisson": bounds.TruncatedPoisson(
                batch / n, n, batch + int(generator.integers(0, 9 * batch**0.5 + 1))
            ),
            "Cyclic": bounds.Cyclic(run["epochs"]),
        }[kind]
        log_kappa, noise = run["log_baseline"], run["noise_multiplier"]
        ceiling = sampling.ceiling(log_kappa, noise, steps, 1e-4)
        full = gaussian(log_kappa, noise, sampling.visits(steps))
        assert log_kappa <= ceiling.log_lower <= ceiling.log_upper <= full.log_upper, (run, sampling)
        factor = 1 + log_uniform(generator, 1e-4, 1)
        assert ceiling.log_lower <= sampling.ceiling(log_kappa, noise / factor, steps, 1e-4).log_upper, (run, sampling)
        assert ceiling.log_lower <= sampling.ceiling(log_kappa / factor, noise, steps, 1e-4).log_upper, (run, sampling)


GOALS = [bounds.Membership(), bounds.Membership(0.01), bounds.Attribute([0.7, 0.2, 0.1]), bounds.Records(2, of=6)]


def answer(goal, noise, steps, sampling, tolerance=1e-4):
    known = {"baseline": 0.1} if goal.needs_baseline else {}
    run = {"noise_multiplier": noise, "steps": steps, "sampling": sampling}
    return bounds.bound(**run, goal=goal, **known, tolerance=tolerance)


@pytest.mark.parametrize("goal", GOALS, ids=repr)
def test_goals_are_valid_and_monotone(goal):
    generator = np.random.default_rng(12)
    for _ in range(40):
        noise, rate = log_uniform(generator, 0.3, 30), log_uniform(generator, 0.001, 1)
        steps, epochs = round(log_uniform(generator, 1, 3000)), round(log_uniform(generator, 1, 20))
        if generator.random() < 0.5:
            sampling, steps = bounds.Poisson(rate), steps
            more = (sampling, 2 * steps)
        else:
            sampling, steps = bounds.BallsInBins(epochs), epochs * min(300, steps)
            more = (bounds.BallsInBins(2 * epochs), 2 * steps)
        ceiling = answer(goal, noise, steps, sampling)
        run = (goal, noise, steps, sampling)
        assert ceiling.log_baseline <= ceiling.log_lower <= ceiling.log_upper <= 0, run
        if goal != GOALS[-1]:
            assert ceiling.upper - ceiling.lower <= 1e-3 * ceiling.upper, run
        factor = 1 + log_uniform(generator, 1e-4, 1)
        assert ceiling.log_lower <= answer(goal, noise / factor, steps, sampling).log_upper, run
        assert ceiling.log_lower <= answer(goal, noise, more[1], more[0]).log_upper, run


def test_goals_are_as_narrow_as_was_asked_for():
    generator = np.random.default_rng(16)
    for number in range(150):
        noise, rate = log_uniform(generator, 0.3, 8), log_uniform(generator, 0.01, 1)
        steps, prior = round(log_uniform(generator, 1, 300)), generator.dirichlet([2.0] * int(generator.integers(2, 6)))
        sampling = bounds.Poisson(rate) if number % 3 else bounds.BallsInBins(1)
        for goal in (bounds.Membership(), bounds.Attribute(prior)):
            for tolerance in (1e-4, 1e-6):
                ceiling = answer(goal, noise, steps, sampling, tolerance)
                assert ceiling.relative_width <= 3 * tolerance, (goal, noise, steps, sampling, tolerance)


def test_attributes_of_random_priors_are_valid():
    generator = np.random.default_rng(13)
    for _ in range(100):
        prior = generator.dirichlet([log_uniform(generator, 0.05, 5)] * int(generator.integers(2, 30)))
        noise, rate = log_uniform(generator, 0.3, 30), log_uniform(generator, 0.001, 1)
        steps = round(log_uniform(generator, 1, 1000))
        ceiling = answer(bounds.Attribute(prior), noise, steps, bounds.Poisson(rate), 1e-3)
        blunt = bounds.bound(
            noise_multiplier=noise, steps=steps, sampling=bounds.Poisson(rate), baseline=float(prior.max())
        )
        assert prior.max() * (1 - 1e-12) <= ceiling.lower <= ceiling.upper <= blunt.upper * (1 + 1e-9), (noise, steps)


def test_played_goals_are_never_above():
    """Games with the best attack, over random settings: below the ceiling by more than chance allows in none."""
    games = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "goals.py"))
    generator, runs = np.random.default_rng(14), 10_000
    spread = 4.5 * math.sqrt(0.25 / runs)
    for seed in range(40):
        noise, steps = log_uniform(generator, 0.4, 5), round(log_uniform(generator, 1, 100))
        sampling = bounds.Poisson(log_uniform(generator, 0.01, 1)) if seed % 2 else bounds.BallsInBins(1)
        without, within = games["membership"](sampling, noise, steps, runs, seed)
        accuracy = ((within > 0).mean() + (without <= 0).mean()) / 2
        assert abs(accuracy - answer(bounds.Membership(), noise, steps, sampling).upper) <= spread, (noise, steps)
        prior = generator.dirichlet([2.0] * int(generator.integers(2, 5)))
        ceiling = answer(bounds.Attribute(prior), noise, steps, sampling)
        played = games["attribute"](sampling, noise, steps, prior, runs, seed)
        assert not ceiling.broken_by(round(runs * (played - spread)), runs), (noise, steps, sampling, prior)


def test_counts_of_records_played_are_never_above():
    games = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "goals.py"))
    generator, runs = np.random.default_rng(15), 20_000
    for seed in range(30):
        noise, n = log_uniform(generator, 0.5, 20), int(generator.integers(2, 60))
        k = int(generator.integers(1, n + 1))
        run = {"noise_multiplier": noise, "baseline": 0.5, "goal": bounds.Records(k, of=n)}
        ceiling = bounds.bound(**run)
        right = games["signs_along_one_line"](noise, n, runs, seed)
        assert (right >= k).mean() <= ceiling.upper + 4.5 * math.sqrt(0.25 / runs), run
        assert ceiling.lower <= ceiling.upper, run
