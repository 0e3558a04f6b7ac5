"""The last weights alone: formulas against the taut string, quadratic losses and exact laws of small descents."""

import math
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri
from scipy.stats import hypergeom, norm

import lostwax as lw
from lostwax.bounds import (
    Allocation,
    Attribute,
    BallsInBins,
    Correlated,
    Cyclic,
    FixedSize,
    FullBatch,
    LastWeights,
    MeanSquaredError,
    Membership,
    Poisson,
    Records,
    Shuffled,
    bound,
    calibrate,
)
from lostwax.bounds.last_weights import full_batches, in_turns


def least_energy(c, moves, reach=math.inf):
    """The least sum of a_k^2 with z_k = c z_(k-1) + d_k - a_k >= 0 and z_t = 0: a taut string.

    With A_k = sum_(j<=k) c^(t-j) a_j, B_k the same of d, and w_k of c^(2(t-j)): A stays below B and ends at B_t, and
    sum of (A_k - A_(k-1))^2 / (w_k - w_(k-1)) is least on the greatest convex minorant.
    """
    t = len(moves)
    left = c ** np.arange(t - 1, -1, -1)
    w, b = np.append(0, np.cumsum(left**2)), np.append(0, np.cumsum(left * np.asarray(moves, float)))
    best = _string(w, b)
    if reach < math.inf:
        for start in range(t):
            best = min(
                best, _string(w[start:] - w[start], b[start:] - b[start] + c ** (t - start) * reach, at_zero=True)
            )
    return best


def _string(w, b, *, at_zero=False):
    hull = [(w[0], 0.0 if at_zero else b[0])]
    points = list(zip(w[1:], b[1:], strict=True))
    for x, y in points:
        while len(hull) > 1 and (y - hull[-1][1]) * (hull[-1][0] - hull[-2][0]) <= (hull[-1][1] - hull[-2][1]) * (
            x - hull[-1][0]
        ):
            hull.pop()
        hull.append((x, y))
    return sum((y2 - y1) ** 2 / (x2 - x1) for (x1, y1), (x2, y2) in pairwise(hull))


def drawn_settings(number, seed):
    random = np.random.default_rng(seed)
    for _ in range(number):
        yield random, float(1 - 10 ** random.uniform(-3, 0)), int(random.integers(1, 60))


def test_full_batches_are_the_string_in_2000_settings():
    for random, c, t in drawn_settings(1000, 0):
        reach = float(10 ** random.uniform(-1, 2))
        decay = -math.log(c) if c > 0 else math.inf
        assert full_batches(decay, t) == pytest.approx(least_energy(c, np.ones(t)), rel=1e-9)
        kept = full_batches(decay, t, reach)
        assert kept == pytest.approx(least_energy(c, np.ones(t), reach), rel=1e-9)
    for t in (1, 2, 7, 50):
        assert full_batches(0.0, t) == pytest.approx(t)
        assert full_batches(0.0, t, 5.0) == pytest.approx(least_energy(1.0, np.ones(t), 5.0), rel=1e-9)


def test_turns_are_the_string_in_1000_settings_and_the_last_place_is_the_worst():
    for random, c, epochs in drawn_settings(1000, 1):
        epochs, per_epoch = 1 + epochs % 8, int(random.integers(1, 9))
        decay = -math.log(c) if c > 0 else math.inf
        energies = []
        for place in range(per_epoch):
            moves = np.zeros(epochs * per_epoch)
            moves[place::per_epoch] = 1
            energies.append(least_energy(c, moves))
        assert in_turns(decay, epochs, per_epoch) == pytest.approx(energies[-1], rel=1e-9)
        assert max(energies) == pytest.approx(energies[-1], rel=1e-9)
    assert in_turns(0.0, 10, 100) == pytest.approx(1.09)
    assert in_turns(0.0, 1, 100) == 1


@pytest.mark.parametrize("convexity", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("steps", [1, 2, 10, 1000])
def test_a_quadratic_attains_it_to_twelve_digits(convexity, steps):
    """x <- x - lr (convexity x + record + noise): mean and variance step by step."""
    lr, noise, kappa = 0.1, 1.7, 0.05
    mean = variance = 0.0
    for _ in range(steps):
        mean = (1 - lr * convexity) * mean - lr
        variance = (1 - lr * convexity) ** 2 * variance + (lr * noise) ** 2
    exact = norm.cdf(ndtri(kappa) + abs(mean) / math.sqrt(variance))
    released = LastWeights(lr=lr, smoothness=10.0, convexity=convexity)
    ceiling = bound(noise_multiplier=noise, steps=steps, baseline=kappa, sampling=FullBatch(), released=released)
    assert ceiling.upper == pytest.approx(exact, rel=1e-12)
    assert ceiling.lower <= exact * (1 + 1e-12)
    assert exact <= ceiling.upper * (1 + 1e-12)
    assert full_batches(released.decay, steps) == pytest.approx(mean**2 / variance * noise**2, rel=1e-12)


def test_ten_thousand_steps_cost_what_199_do():
    released = LastWeights(lr=1.0, smoothness=1.0, convexity=0.01)
    last = bound(noise_multiplier=30.0, steps=10_000, baseline=0.1, sampling=FullBatch(), released=released)
    every = bound(noise_multiplier=30.0, steps=199, baseline=0.1, sampling=FullBatch())
    assert last.upper == pytest.approx(every.upper, rel=1e-9)
    assert last.certified
    assert last.relative_width < 1e-9
    assert last.assumptions[-1].startswith("One training run on these records is released: its last weights")


def exact_poisson(c, rate, steps, noise, kappa):
    """gamma(kappa) of x <- c x + drawn + noise, from the law of the mean on a fine grid: by integration."""
    deviation = noise * math.sqrt(sum(c ** (2 * k) for k in range(steps)))
    means = np.zeros(1)
    weights = np.ones(1)
    for _ in range(steps):
        means = np.concatenate([c * means, c * means + 1])
        weights = np.concatenate([(1 - rate) * weights, rate * weights])
    threshold = -ndtri(kappa) * deviation  # the ratio grows with x
    return float(weights @ ndtr((means - threshold) / deviation))


@pytest.mark.parametrize("number", [50, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_batches_are_never_beaten_by_a_quadratic(number):
    """Exact laws of the last weight: c x + drawn + noise has 2^t means."""
    random = np.random.default_rng(3)
    closest = 1.0
    for _ in range(number):
        lr_m = float(10 ** random.uniform(-2.5, 0))
        steps, rate = int(random.integers(2, 11)), float(10 ** random.uniform(-2, 0))
        noise, kappa = float(10 ** random.uniform(-0.5, 1)), float(10 ** random.uniform(-4, -0.2))
        released = LastWeights(lr=1.0, smoothness=1.0, convexity=lr_m)
        arguments = {"noise_multiplier": noise, "steps": steps, "baseline": kappa, "released": released}
        if random.random() < 0.5:
            arguments["tolerance"] = 1e-2
        exact = exact_poisson(1 - lr_m, rate, steps, noise, kappa)
        upper = bound(**arguments, sampling=Poisson(rate)).upper
        assert exact <= upper * (1 + 1e-9)
        closest = min(closest, (upper - exact) / upper)
    assert closest < 0.05


def test_fixed_sizes_are_never_beaten_where_the_record_takes_another_ones_place():
    """The other gradients point against the record's, as in the pair of the theorem."""
    random = np.random.default_rng(4)
    for _ in range(100):
        c, steps, b = float(1 - 10 ** random.uniform(-2, 0)), int(random.integers(2, 9)), int(random.integers(1, 9))
        noise, kappa = float(10 ** random.uniform(0, 1)), float(10 ** random.uniform(-3, -0.3))
        exact = exact_poisson(c, b / 10, steps, noise / 2, kappa)
        released = LastWeights(lr=1.0, smoothness=1.0, convexity=1 - c)
        sampling = FixedSize(10, b)
        assert exact <= bound(
            noise_multiplier=noise, steps=steps, baseline=kappa, sampling=sampling, released=released
        ).upper * (1 + 1e-9)


def bent_path(random, convexity, rising, count):
    """Derivatives of others' losses and of the record's on a line, piecewise linear, the latter within [-1, 1].

    Slopes of the sum are between the convexity and 1 with the record and without it, and the record's is 0 at least.
    """
    knots = np.sort(random.uniform(-12, 12, 6))
    slopes = convexity + (1 - convexity) * random.integers(0, 2, 7) * random.random(7) ** 0.3
    extra = (1 - slopes) * random.integers(0, 2, 7) * rising
    grid = np.linspace(-16, 16, count)
    piece = np.searchsorted(knots, grid)
    others = np.cumsum(slopes[piece]) * (grid[1] - grid[0])
    record = np.clip(np.cumsum(extra[piece]) * (grid[1] - grid[0]) + random.uniform(-2, 1), -1, 1)
    return others - np.interp(random.uniform(-8, 8), grid, others), record


def exact_power(maps, rate, deviation, kappa, grid, start):
    """gamma(kappa) of two chains on a grid by integration; the best test takes points in the order of their ratio."""
    edges = np.append(grid - (grid[1] - grid[0]) / 2, np.inf)
    edges[0] = -np.inf
    laws = []
    for inside in (0.0, rate):
        p = np.zeros(len(grid))
        p[start] = 1.0
        for others, record in maps:
            means = (grid - others, grid - others - record)
            kernels = [np.diff(ndtr((edges - mean[:, None]) / deviation), axis=1) for mean in means]
            p = (1 - inside) * (p @ kernels[0]) + inside * (p @ kernels[1])
        laws.append(p)
    null, hit = laws
    order = np.argsort(-hit / np.maximum(null, 1e-300))
    return float(np.interp(kappa, np.append(0, np.cumsum(null[order])), np.append(0, np.cumsum(hit[order]))))


@pytest.mark.parametrize("number", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_bent_losses_never_beat_it(number):
    """Another loss in every step, curved differently in each place, and any start: by integration on a grid."""
    random, count = np.random.default_rng(7), 161
    grid = np.linspace(-16, 16, count)
    closest = 1.0
    for _ in range(number):
        convexity = float(random.choice([0.0, 0.01, 0.1, 0.5]))
        steps, noise = int(random.integers(1, 5)), float(10 ** random.uniform(0, 0.7))
        rate = 1.0 if random.random() < 0.5 else float(10 ** random.uniform(-1, 0))
        kappa = float(10 ** random.uniform(-2.5, -0.2))
        maps = [bent_path(random, convexity, random.integers(0, 2), count) for _ in range(steps)]
        exact = exact_power(maps, rate, noise, kappa, grid, int(random.integers(30, 130)))
        released = LastWeights(lr=1.0, smoothness=1.0, convexity=convexity)
        sampling = FullBatch() if rate == 1 else Poisson(rate)
        run = {"noise_multiplier": noise, "steps": steps, "baseline": kappa, "sampling": sampling}
        upper = bound(**run, released=released, tolerance=1e-3).upper
        assert exact <= upper * (1 + 2e-3)
        closest = min(closest, 1 - exact / upper)
    assert closest < 0.02


def test_groups_in_batches_of_a_fixed_size_are_drawn_from_fewer_once_some_are_left_out():
    """Exact: copies of one record take the places of others, whose gradients point against theirs."""
    random = np.random.default_rng(0)
    for _ in range(100):
        copies, steps = int(random.integers(2, 4)), int(random.integers(1, 5))
        n = int(random.integers(copies + 3, 15))
        b = int(random.integers(1, n - copies + 1))
        c, noise = float(1 - 10 ** random.uniform(-2, 0)), float(10 ** random.uniform(-0.6, 0.5))
        kappa, drawn = float(10 ** random.uniform(-3, -0.3)), hypergeom(n, copies, b).pmf(np.arange(copies + 1))
        means = weights = np.ones(1)
        for _ in range(steps):
            means = np.concatenate([c * means + 2 * inside for inside in range(copies + 1)])
            weights = np.concatenate([weights * share for share in drawn])
        deviation = noise * math.sqrt(sum(c ** (2 * k) for k in range(steps)))
        exact = float(weights @ ndtr((means - c**steps) / deviation + ndtri(kappa)))
        released = LastWeights(lr=1.0, smoothness=1.0, convexity=1 - c)
        run = {"noise_multiplier": noise, "steps": steps, "baseline": kappa, "goal": Records(copies)}
        assert exact <= bound(**run, sampling=FixedSize(n, b), released=released).upper * (1 + 1e-9)


def test_many_random_steps_are_forgotten():
    released = LastWeights(lr=0.1, smoothness=1.0, convexity=0.1)
    run = {"noise_multiplier": 1.0, "sample_rate": 0.01, "baseline": 0.1}
    uppers = [bound(**run, steps=steps, released=released).upper for steps in (10_000, 100_000, 1_000_000)]
    assert max(uppers) < 1.001 * min(uppers)
    assert uppers[0] < bound(**run, steps=10_000).lower
    few = bound(**run, steps=20, released=released).upper
    assert few <= bound(**run, steps=20).upper * (1 + 1e-6)


RANDOM = [
    pytest.param(Poisson(0.02), marks=pytest.mark.slow),
    pytest.param(FixedSize(1000, 20), marks=pytest.mark.slow),
]


@pytest.mark.parametrize("sampling", [FullBatch(), Cyclic(10), *RANDOM])
def test_every_goal_and_calibrate(sampling):
    released = LastWeights(lr=0.1, smoothness=1.0, convexity=0.1)
    run = {"noise_multiplier": 4.0, "steps": 1000, "sampling": sampling}
    for goal in (Membership(), Membership(fpr=0.01), Attribute([0.7, 0.2, 0.1])):
        last, every = bound(**run, goal=goal, released=released), bound(**run, goal=goal)
        assert last.upper <= every.upper * (1 + 1e-3)
    for goal in (Records(3), Records(2, of=4)):
        last = bound(**run, goal=goal, baseline=0.1, released=released)
        assert last.upper <= bound(**run, goal=goal, baseline=0.1).upper * (1 + 1e-3)
    floor = bound(**run, goal=MeanSquaredError([1.0]), released=released)
    assert floor.error >= bound(**run, goal=MeanSquaredError([1.0])).error * (1 - 1e-9)
    plan = calibrate(max_success=0.3, baseline=0.1, steps=1000, sampling=sampling, released=released)
    assert plan.ceiling.upper <= 0.3
    assert (
        plan.noise_multiplier
        < 1.001 * calibrate(max_success=0.3, baseline=0.1, steps=1000, sampling=sampling).noise_multiplier
    )


NUMBERS = {"lr": st.floats(1e-3, 1), "convexity": st.floats(0, 0.9), "noise": st.floats(0.3, 50)}


@settings(max_examples=200, deadline=None)
@given(
    **NUMBERS,
    steps=st.integers(1, 10**6),
    more=st.floats(1, 3),
    epochs=st.integers(1, 20),
    diameter=st.floats(0.1, 1e3),
)
def test_known_steps_are_monotone_in_every_argument(lr, convexity, noise, steps, more, epochs, diameter):
    steps = max(steps, epochs)

    def upper(noise=noise, steps=steps, kappa=0.1, sampling=None, **changes):
        law = {"lr": lr, "smoothness": 1.0, "convexity": convexity} | changes
        return bound(
            noise_multiplier=noise,
            steps=steps,
            baseline=kappa,
            sampling=sampling or FullBatch(),
            released=LastWeights(**law),
        ).log_upper

    slack = 1e-9
    for sampling in (FullBatch(), Cyclic(epochs)):
        now = upper(sampling=sampling)
        assert upper(noise=noise * more, sampling=sampling) <= now + slack
        assert upper(kappa=0.05, sampling=sampling) <= now + slack
        assert upper(convexity=min(1.0, convexity * more), sampling=sampling) <= now + slack
        assert now <= upper(smoothness=2.0, sampling=sampling, convexity=convexity) + slack
    assert upper() <= upper(steps=steps * 2) + slack
    assert upper(sampling=Cyclic(epochs)) <= upper(sampling=Cyclic(epochs + 1), steps=max(steps, epochs + 1)) + slack
    kept = upper(diameter=diameter, sensitivity=1.0)
    # the best of 1,500 numbers of steps is taken
    assert kept <= upper(diameter=diameter * more, sensitivity=1.0) + 1e-3
    assert kept <= upper() + slack


@settings(max_examples=25, deadline=None)
@given(**NUMBERS, rate=st.floats(1e-3, 0.5), steps=st.integers(2, 10**5), more=st.floats(1.05, 3))
def test_random_steps_are_monotone_to_a_hundredth(lr, convexity, noise, rate, steps, more):
    """The best number of last steps is taken among 1,500, by an estimate."""

    def excess(noise=noise, rate=rate, steps=steps, convexity=convexity):
        released = LastWeights(lr=lr, smoothness=1.0, convexity=convexity)
        run = {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}
        return bound(**run, baseline=0.1, released=released, tolerance=1e-3).log_upper

    now = excess()
    assert excess(noise=noise * more) <= now + 0.01
    assert now <= excess(rate=min(1.0, rate * more)) + 0.01
    assert now <= excess(steps=2 * steps) + 0.01
    assert excess(convexity=min(1.0, convexity * more)) <= now + 0.01


def test_a_domain_matters_if_it_is_small():
    law = {"lr": 0.1, "smoothness": 1.0}
    free, kept = LastWeights(**law), LastWeights(**law, diameter=2.0, sensitivity=0.1)
    run = {"noise_multiplier": 100.0, "steps": 10_000, "baseline": 0.1, "sampling": FullBatch()}
    assert bound(**run, released=kept).upper < bound(**run, released=free).upper
    assert full_batches(0.0, 10_000, kept.reach) == pytest.approx(4 * kept.reach, rel=1e-3)


def test_the_largest_steps_forget_nothing():
    """lr * smoothness = 2 with convexity = smoothness: weights are mirrored, not shrunk."""
    mirrored = LastWeights(lr=1.0, smoothness=2.0, convexity=2.0)
    for sampling, steps in ((FullBatch(), 1), (FullBatch(), 10), (Cyclic(5), 10), (Cyclic(2), 10)):
        run = {"noise_multiplier": 3.0, "steps": steps, "baseline": 0.1, "sampling": sampling}
        flat = bound(**run, released=LastWeights(lr=1.0, smoothness=1.0))
        assert bound(**run, released=mirrored).log_upper == flat.log_upper


def test_what_is_not_proved_is_refused():
    released = LastWeights(lr=0.1, smoothness=1.0)
    for sampling in (BallsInBins(10), Shuffled(10)):
        with pytest.raises(
            ValueError, match=f"nothing is proved about the last weights alone with {type(sampling).__name__}"
        ):
            bound(noise_multiplier=1.0, steps=100, baseline=0.1, sampling=sampling, released=released)
    with pytest.raises(ValueError, match="lr at most 2 / smoothness"):
        LastWeights(lr=3.0, smoothness=1.0)
    with pytest.raises(ValueError, match="convexity at most smoothness"):
        LastWeights(lr=0.1, smoothness=1.0, convexity=2.0)
    with pytest.raises(ValueError, match="sensitivity given with a diameter"):
        LastWeights(lr=0.1, smoothness=1.0, diameter=3.0)
    with pytest.raises(TypeError, match="expected released to be of type LastWeights"):
        bound(noise_multiplier=1.0, baseline=0.1, released="last weights")
    with pytest.raises(ValueError, match="released"):
        bound(epsilon=1.0, baseline=0.1, released=released)


def test_it_takes_less_than_50_ms():
    """Of the processor, the fastest of three: baselines differ, so that nothing is looked up."""
    released = LastWeights(lr=0.1, smoothness=1.0, convexity=0.1)
    for sampling, steps, seen in (
        (FullBatch(), 10**6, released),
        (Cyclic(10), 10**6, released),
        (Poisson(0.01), 10**4, released),
        (FixedSize(1000, 20), 10**4, released),
        (Allocation(5), 100, None),
        (Correlated.in_bins([1.0, 0.5, 0.375], 300), 300, None),
    ):
        seconds = []
        for kappa in (0.1, 0.11, 0.12):
            start = time.process_time()
            bound(noise_multiplier=2.0, steps=steps, baseline=kappa, sampling=sampling, released=seen)
            seconds.append(time.process_time() - start)
        assert min(seconds) < 0.05, sampling


def test_membership_is_below_what_plain_numbers_say():
    """Against the Gaussian it is, with no other code than scipy's."""
    released = LastWeights(lr=0.5, smoothness=1.0, convexity=0.2)
    c, steps, noise = 0.9, 50, 3.0
    mu = math.sqrt((1 - c**steps) * (1 + c) / ((1 + c**steps) * (1 - c))) / noise
    ceiling = bound(noise_multiplier=noise, steps=steps, sampling=FullBatch(), goal=Membership(), released=released)
    assert ceiling.upper == pytest.approx(norm.cdf(mu / 2), rel=1e-4)
    assert lw.bounds.LastWeights is LastWeights
