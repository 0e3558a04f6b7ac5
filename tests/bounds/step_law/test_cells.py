import math

import mpmath
import numpy as np
import pytest

from lostwax.bounds.step_law import StepLaw, cut

CASES = [
    (StepLaw(0.3, 0.001), 0.003, 14.0),
    (StepLaw(1.0, 0.1), 0.02, 9.0),
    (StepLaw(1.0, 0.1), 1.0, 9.0),
    (StepLaw(1.0, 0.1), 0.2, 9.0),
    (StepLaw(3.0, 0.01), 0.003, 9.0),
    (StepLaw(30.0, 0.5), 1e-4, 8.0),
    (StepLaw(0.8, 0.05, 4), 0.01, 12.0),
]


def hockey_stick(step, level):
    """E_nu[(R - level)_+] of one step, from normal tails."""
    if level <= math.exp(step.log_least):
        return 1 - level
    z = float(step.solve(np.array([math.log(level - math.exp(step.log_least))]))[0])
    return math.exp(step.log_mass_above(z)) - level * 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize(("step", "spacing", "right"), CASES)
def test_masses_add_up(step, spacing, right):
    cells = cut(step, spacing, right)
    beyond = 0.5 * math.erfc(right / math.sqrt(2))
    for law in (cells.spread, cells.seen.null):
        assert np.exp(law.log_mass).sum() == pytest.approx(1, abs=1e-12 + 2 * beyond)
    assert np.exp(cells.seen.hit.log_mass).sum() + cells.escaped == pytest.approx(1, abs=1e-11)


@pytest.mark.parametrize(("step", "spacing", "right"), CASES)
def test_spreading_connects_the_dots(step, spacing, right):
    """The spread law's hockey-stick curve is exact at the lattice points and above the true one between them."""
    cells = cut(step, spacing, right)
    losses = step.log_least + spacing * cells.spread.index
    masses, ratios = np.exp(cells.spread.log_mass), np.exp(losses)
    for loss in np.linspace(step.log_least + spacing / 7, losses[-1] * 0.9, 23):
        spread = masses @ np.maximum(ratios - math.exp(loss), 0) + cells.escaped
        assert spread >= hockey_stick(step, math.exp(loss)) - 1e-12
    for j in (1, 4, len(losses) // 2):
        spread = masses @ np.maximum(ratios - ratios[j], 0) + cells.escaped
        assert spread == pytest.approx(hockey_stick(step, float(ratios[j])), abs=1e-11 + 2 * cells.escaped)


@pytest.mark.parametrize(("step", "spacing", "right"), CASES[:-1])
def test_each_mass_is_as_precise_as_stated(step, spacing, right):
    cells = cut(step, spacing, right)
    generator = np.random.default_rng(0)
    with mpmath.workdps(100):
        s, q, h = mpmath.mpf(step.noise), mpmath.mpf(step.rate), mpmath.mpf(spacing)

        def edge(j):
            return s * (mpmath.log((1 - q) * mpmath.expm1(j * h) / q) + 1 / (2 * s * s))

        for place in generator.integers(1, len(cells.seen.null.index), 12):
            j = int(cells.seen.null.index[place])
            low, high = edge(j), edge(j + 1)
            null = mpmath.ncdf(high) - mpmath.ncdf(low)
            hit = (1 - q) * null + q * (mpmath.ncdf(high - 1 / s) - mpmath.ncdf(low - 1 / s))
            for law, mass in ((cells.seen.null, null), (cells.seen.hit, hit)):
                error = mpmath.expm1(mpmath.mpf(float(law.log_mass[place])) - mpmath.log(mass))
                assert abs(error) < law.relative, (j, float(error))
