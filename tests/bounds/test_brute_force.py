"""Every sampling and every goal at one, two and three steps: integration from the definition, to eight digits.

With nu the noise alone and R = dmu/dnu, everything follows from delta(t) = E[(R - t)_+]: the ceiling of a baseline k is
the least of delta(t) + t k, the advantage of a membership test is delta(1), an attribute is named as often as the least
over l of l + sum_a p_a delta(l / p_a). The last step is integrated in closed form. What is left is smooth, which suits
the trapezium rule: it is compared with integration in 30 digits. (`reference` has others, for less noise.)
"""

import math
from functools import partial

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.optimize import minimize_scalar
from scipy.special import bdtr, ndtr
from scipy.stats import binom

from lostwax import bounds
from lostwax.bounds import bound

SPACING = {1: 1.0, 2: 0.005, 3: 0.06}  # by the number of steps


def log_uniform(random, low, high):
    return math.exp(random.uniform(math.log(low), math.log(high)))


def rest(c, noise):
    """E[(Y - c)_+] for one log-normal Y = exp(z / s - 1 / (2 s^2))."""
    with np.errstate(divide="ignore", invalid="ignore"):
        edge = noise * np.log(np.maximum(c, 0)) + 1 / (2 * noise)
    return np.where(c <= 0, 1 - c, ndtr(1 / noise - edge) - c * ndtr(-edge))


def delta(t, noise, steps, rate=None):
    """E[(R - t)_+]: R is a product of 1 - q + q Y over the steps, or the mean of Y if no rate is given."""
    spacing = SPACING[steps]
    z = np.arange(-10, 10 + 2 / noise, spacing)
    weight = spacing * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    y = np.exp(z / noise - 1 / (2 * noise**2))
    one = y if rate is None else 1 - rate + rate * y
    before, mass = np.full(1, 0.0 if rate is None else 1.0), np.ones(1)
    for _ in range(steps - 1):
        before = (np.add if rate is None else np.multiply).outer(before, one).ravel()
        mass = np.multiply.outer(mass, weight).ravel()
    if rate is None:
        return float(mass @ rest(t * steps - before, noise)) / steps
    return float(mass @ (before * rate * rest((t / before - (1 - rate)) / rate, noise)))


def precise(t, noise, rate=None):
    """The same for two steps, in 30 digits."""
    with mp.workdps(30):
        s, t = mpf(noise), mpf(t)

        def last(c):
            if c <= 0:
                return 1 - c
            edge = s * mpmath.log(c) + 1 / (2 * s)
            return mpmath.ncdf(1 / s - edge) - c * mpmath.ncdf(-edge)

        def over(z):
            y = mpmath.exp(z / s - 1 / (2 * s * s))
            if rate is None:
                return mpmath.npdf(z) * last(2 * t - y) / 2
            q = mpf(rate)
            first = 1 - q + q * y
            return mpmath.npdf(z) * first * q * last((t / first - (1 - q)) / q)

        return float(mpmath.quad(over, [mpf(k) / 2 for k in range(-24, 25 + math.ceil(4 / noise))], maxdegree=5))


def least(function, low, high):
    """The least value of a convex function of exp(x): golden sections, from the best of some points."""
    grid = np.linspace(low, high, 60)
    best = int(np.argmin([function(math.exp(x)) for x in grid]))
    ends = grid[max(0, best - 1)], grid[min(59, best + 1)]
    found = minimize_scalar(lambda x: function(math.exp(x)), bounds=ends, method="bounded", options={"xatol": 1e-10})
    return min(float(found.fun), function(math.exp(grid[best])))


def success(law, kappa):
    """The ceiling of this baseline."""
    return min(1.0, least(lambda t: law(t) + t * kappa, -14, 14))


def named(law, prior):
    """How often an attribute is named."""
    return max(max(prior), least(lambda level: level + sum(p * law(level / p) for p in prior), -14, 6))


def inside(ceiling, exact):
    assert ceiling.lower * (1 - 5e-9) <= exact <= ceiling.upper * (1 + 5e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 0.2])
@pytest.mark.parametrize(("noise", "t"), [(1.2, 0.3), (1.5, 3.0), (2.0, 1.0), (1.2, 1.7)])
def test_the_reference_agrees_with_integration_in_thirty_digits(noise, t, rate):
    assert delta(t, noise, 2, rate) == pytest.approx(precise(t, noise, rate), rel=3e-9, abs=1e-14)


MANY = [(1, 40), (2, 40), (3, 4)]


@pytest.mark.parametrize(
    ("steps", "count"), [(1, 1), (2, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in MANY)]
)
def test_samplings_and_goals_at_few_steps(steps, count):
    random = np.random.default_rng([26, steps, count])
    for _ in range(count):
        noise, rate = log_uniform(random, 1.2 if steps < 3 else 1.5, 8), log_uniform(random, 0.02, 0.9)
        kappa = log_uniform(random, 1e-4, 0.8)
        prior = random.dirichlet([2.0] * int(random.integers(2, 5)))
        run = {"noise_multiplier": noise, "steps": steps, "tolerance": 1e-6}
        for sampling, law in (
            (bounds.Poisson(rate), partial(delta, noise=noise, steps=steps, rate=rate)),
            (bounds.BallsInBins(1), partial(delta, noise=noise, steps=steps)),
            (bounds.Cyclic(1), partial(delta, noise=noise, steps=1)),
        ):
            inside(bound(**run, baseline=kappa, sampling=sampling), success(law, kappa))
            inside(bound(**run, sampling=sampling, goal=bounds.Membership(kappa)), success(law, kappa))
            inside(bound(**run, sampling=sampling, goal=bounds.Membership()), (1 + law(1.0)) / 2)
            inside(bound(**run, sampling=sampling, goal=bounds.Attribute(prior)), named(law, prior.tolist()))
        n, b = 30, int(random.integers(1, 15))
        half = partial(delta, noise=noise / 2, steps=steps, rate=b / n)
        fixed = bound(**run, baseline=kappa, sampling=bounds.FixedSize(n, b))
        assert fixed.upper >= min(success(half, kappa), bound(**run, baseline=kappa).lower) * (1 - 1e-9)


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_epochs_that_keep_their_batches(count):
    random = np.random.default_rng(1)
    for _ in range(count):
        bins, epochs = int(random.integers(1, 3)), int(random.integers(1, 4))
        noise = log_uniform(random, 1.2, 8) * math.sqrt(epochs)
        kappa = log_uniform(random, 1e-4, 0.8)
        run = {"noise_multiplier": noise, "steps": bins * epochs, "baseline": kappa, "tolerance": 1e-6}
        law = partial(delta, noise=noise / math.sqrt(epochs), steps=bins)
        inside(bound(**run, sampling=bounds.BallsInBins(epochs, redrawn=False)), success(law, kappa))


@pytest.mark.parametrize("count", [2, pytest.param(100, marks=pytest.mark.slow)])
def test_two_shuffled_steps(count):
    """The best test of the pair of Chua et al. lies between both ends: shifts of 2 against shifts of 1, in either."""
    random = np.random.default_rng(2)
    z = np.arange(-9, 9, 0.05)
    for _ in range(count):
        noise, kappa = log_uniform(random, 0.5, 5), log_uniform(random, 1e-3, 0.8)
        x = np.meshgrid(z + 1 / noise, z + 1 / noise)

        def density(shift, x=x, noise=noise):
            first, second = (np.exp(-((one - shift / noise) ** 2) / 2) for one in x)
            still = [np.exp(-(one**2) / 2) for one in x]
            return (first * still[1] + second * still[0]).ravel() * 0.05**2 / (4 * math.pi)

        null, hit = density(1.0), density(2.0)
        order = np.argsort(-hit / null)
        power = float(np.interp(kappa, np.cumsum(null[order]), np.cumsum(hit[order])))
        found = bound(noise_multiplier=noise, steps=2, baseline=kappa, sampling=bounds.Shuffled(1))
        assert found.lower <= power + 1e-3
        assert power <= found.upper + 1e-3


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_one_cut_batch(count):
    """The other gradients are zero: the record is there with the probability that it is drawn and kept."""
    random = np.random.default_rng(3)
    for _ in range(count):
        n, rate = int(random.integers(2, 40)), log_uniform(random, 0.02, 0.9)
        largest, noise = int(random.integers(1, n + 1)), log_uniform(random, 0.6, 5)
        kappa = log_uniform(random, 1e-4, 0.8)
        others = np.arange(n)
        there = rate * float(binom.pmf(others, n - 1, rate) @ np.minimum(1, largest / (others + 1)))
        exact = success(partial(delta, noise=noise, steps=1, rate=there), kappa)
        sampling = bounds.TruncatedPoisson(rate, n, largest)
        found = bound(noise_multiplier=noise, baseline=kappa, sampling=sampling)
        assert found.lower * (1 - 1e-9) <= exact <= found.upper * (1 + 1e-9), sampling


@pytest.mark.parametrize("count", [3, pytest.param(300, marks=pytest.mark.slow)])
def test_a_group_in_one_step(count):
    """k records that are aligned: a binomial number of shifts. The ratio grows with z, so a threshold is best."""
    random = np.random.default_rng(4)
    for _ in range(count):
        k, rate, noise = int(random.integers(1, 9)), log_uniform(random, 0.02, 1), log_uniform(random, 0.6, 10)
        kappa = log_uniform(random, 1e-4, 0.8)
        with mp.workdps(30):
            edge = -mpmath.sqrt(2) * mpmath.erfinv(2 * mpf(kappa) - 1)
            chance = (mpmath.binomial(k, i) * mpf(rate) ** i * (1 - mpf(rate)) ** (k - i) for i in range(k + 1))
            exact = float(mpmath.fsum(p * mpmath.ncdf(i / mpf(noise) - edge) for i, p in enumerate(chance)))
        run = {"noise_multiplier": noise, "baseline": kappa, "goal": bounds.Records(k), "tolerance": 1e-6}
        inside(bound(**run, sampling=bounds.Poisson(rate)), exact)


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_some_of_n_signs_in_one_step(count):
    """Gradients on one line: the best guess of j or more signs, by the posterior of their sum, is not above."""
    random = np.random.default_rng(5)
    for _ in range(count):
        n, noise = int(random.integers(2, 9)), log_uniform(random, 0.4, 8)
        k = int(random.integers(1, n + 1))
        ups = np.arange(n + 1)
        y = np.arange(-n - 9 * noise, n + 9 * noise, 0.02 * noise)
        mean = (2 * ups - n)[:, None]
        joint = binom.pmf(ups, n, 0.5)[:, None] * np.exp(-((y - mean) ** 2) / (2 * noise**2))  # (ups, y)
        joint *= 0.02 / math.sqrt(2 * math.pi)
        best = np.zeros(y.size)
        for guessed in ups:  # by symmetry only their number counts: right are ups in common, and downs in common
            common = np.arange(n + 1)[:, None]  # (common, ups)
            chance = (
                binom_table(n, guessed, ups, common)
                * (common + (n - guessed - (ups - common)) >= k)
                * (n - guessed >= ups - common)
            ).sum(0)
            best = np.maximum(best, chance @ joint)
        found = bound(noise_multiplier=noise, baseline=0.5, goal=bounds.Records(k, of=n))
        assert float(best.sum()) <= found.upper + 1e-9
        assert bdtr(k - 1, n, 0.5) <= 1 - found.baseline + 1e-9


def binom_table(n, guessed, ups, common):
    """P[so many of the guessed ups are ups], hypergeometric: (common, ups)."""
    from scipy.stats import hypergeom

    return hypergeom.pmf(common, n, ups[None, :], guessed)


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_the_posterior_mean_errs_more_than_the_floor(count):
    """A column that moves the sum along a line, full batches: the least error there is, by integration in 20 digits."""
    random = np.random.default_rng(6)
    for _ in range(count):
        values = np.sort(random.uniform(-1, 1, int(random.integers(2, 6))))
        values = (values - values[0]) / (values[-1] - values[0]) * 2 - 1
        p = random.dirichlet([2.0] * values.size)
        noise, steps = log_uniform(random, 0.3, 8), int(random.integers(1, 4))
        prior = dict(zip(values.tolist(), (p / p.sum()).tolist(), strict=True))
        floor = bound(noise_multiplier=noise, steps=steps, goal=bounds.MeanSquaredError(prior))
        with mp.workdps(20):
            s = mpf(noise) / mpmath.sqrt(steps)

            def explained(y, s=s, prior=prior):
                weights = [mpf(p) * mpmath.npdf((y - mpf(v)) / s) / s for v, p in prior.items()]
                total = mpmath.fsum(weights)
                return mpmath.fsum(w * mpf(v) for w, v in zip(weights, prior, strict=True)) ** 2 / total

            cuts = mpmath.linspace(-1 - 9 * s, 1 + 9 * s, 24)
            square = mpmath.fsum(mpf(p) * mpf(v) ** 2 for v, p in prior.items())
            exact = float(square - mpmath.quad(explained, cuts))
        assert floor.error <= exact * (1 + 1e-9)
        assert exact <= floor.blind * (1 + 1e-9)
