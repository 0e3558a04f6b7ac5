"""Sums of log-normal variables: the masses enclose the exact ones, and each rounding is on the safe side."""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr

from lostwax.bounds.octaves import FIRST, OVER, UNDER, Shift, SumLaw, _multiples, _single, sum_of

SETTINGS = [(0.5, 1), (0.5, 2), (0.5, 37), (1.0, 3), (2.0, 100), (20.0, 9)]


def law_of(noise, count, points=64):
    return sum_of(noise, count, points, highest=1 / noise + 8, negligible=1e-18, shifts=(Shift(1 / noise),))


def tails(law, thresholds):
    """E[(X - t)_+] / count under the upper law, and the probability of X > t under the one with a shift."""
    x, (over, _, hit) = law.points, law.masses.reshape(3, -1)
    sticks = [float(over @ np.maximum(x - t, 0)) / law.count + law.escaped / law.count for t in thresholds]
    return np.array(sticks), np.array([float(hit[x > t].sum()) for t in thresholds])


@pytest.mark.parametrize(("noise", "count"), SETTINGS)
def test_masses_and_means_add_up(noise, count):
    law = law_of(noise, count)
    over, under, hit = law.masses.sum((1, 2))
    assert 1 <= over <= 1 + 1e-11 * count
    assert 1 >= under >= 1 - 1e-11 * count
    assert 1 >= hit >= 1 - 1e-11 * count - 1e-9
    mean = float(law.masses[OVER].ravel() @ law.points) / count
    assert 1 <= mean + law.escaped / count <= 1 + 1e-6
    assert (law.masses[OVER] >= law.masses[UNDER]).all()


@pytest.mark.parametrize("noise", [0.5, 1.0, 7.0])
def test_one_variable_lies_above_the_exact_hockey_stick_and_close_to_it(noise):
    law = law_of(noise, 1)
    levels = np.exp(np.linspace(-2, 3, 40) / noise - 1 / (2 * noise**2))
    z = noise * np.log(levels) + 1 / (2 * noise)
    exact = ndtr(1 / noise - z) - levels * ndtr(-z)  # E[(Y - t)_+]
    sticks, _ = tails(law, levels)
    assert (sticks >= exact * (1 - 1e-12)).all()
    np.testing.assert_allclose(sticks, exact, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize(("noise", "count"), [(0.5, 5), (1.0, 11), (0.5, 50), (3.0, 16)])
def test_a_finer_law_lies_below(noise, count):
    """Roundings only spread: a coarse law has the higher hockey-stick curve at every level."""
    levels = count * np.exp(np.linspace(-0.5, 1.5, 30))
    coarse, fine = (tails(law_of(noise, count, points), levels)[0] for points in (32, 512))
    assert (coarse >= fine * (1 - 1e-9) - 1e-15).all()


@pytest.mark.parametrize(("noise", "count"), [(0.5, 3), (1.0, 20), (2.0, 7)])
def test_the_rounded_sum_has_the_law_of_sampled_sums(noise, count):
    generator = np.random.default_rng(0)
    z = generator.standard_normal((200_000, count))
    z[:, 0] += 1 / noise
    sums = np.exp(z / noise - 1 / (2 * noise**2)).sum(1)
    levels = np.quantile(sums, [0.1, 0.5, 0.9, 0.99])
    law = law_of(noise, count, 512)
    _, exceeds = tails(law, levels)
    np.testing.assert_allclose(exceeds, [0.9, 0.5, 0.1, 0.01], atol=0.004)


def test_the_shift_may_be_in_any_part():
    """A sum of parts with different roundings: the shift is in each with the probability of its size."""
    two = law_of(0.5, 2, 16)
    one = law_of(0.5, 1, 16)
    coarse = one.rounded(one.origin, 300 * two.unit, float(one.points[-1]))
    fine = two.rounded(two.origin, 300 * two.unit, float(two.points[-1]))
    mixed, first = (fine + coarse).masses[FIRST].ravel(), fine.masses[FIRST].ravel()
    assert mixed.sum() == pytest.approx(first.sum(), rel=1e-9)
    only_first = SumLaw(
        np.stack([coarse.masses[OVER], coarse.masses[UNDER], coarse.masses[UNDER]]),
        coarse.origin, coarse.unit, 1, coarse.escaped, coarse.shifts,
    )  # fmt: skip
    assert not np.allclose(mixed, (fine + only_first).masses[FIRST].ravel(), rtol=1e-3)


def plain_sum(law, other, i, j):
    """All pairs of points, as a dictionary from values to masses."""
    x = np.add.outer(law.points, other.points).ravel()
    return x, np.multiply.outer(law.masses[i].ravel(), other.masses[j].ravel()).ravel()


def test_row_by_row_is_all_pairs():
    """Mean, mass and hockey-stick of the fast sum against all pairs of points."""
    law = law_of(0.7, 2, 8)
    x, mass = plain_sum(law, law, OVER, OVER)
    double = law + law
    fast = double.masses[OVER].ravel()
    assert fast.sum() == pytest.approx(mass.sum(), rel=1e-12)
    assert fast @ double.points == pytest.approx(mass @ x, rel=1e-12)
    for t in np.geomspace(x.min() + 1e-3, 50, 20):
        exact, rounded = mass @ np.maximum(x - t, 0), fast @ np.maximum(double.points - t, 0)
        assert exact * (1 - 1e-12) <= rounded <= exact * 1.2 + 1e-9
    assert math.isclose(double.points[0], 2 * law.points[0])


def exact_sum(a, b, m):
    """Law of the rounded sum of two independent multiples, in fractions, as the docstring of the module has it."""

    def row(k):
        return 0 if k < m else (k // m).bit_length()

    def halved(law, spacing):
        new = defaultdict(Fraction)
        for k, mass in law.items():
            low = k // spacing * spacing
            assert k - low in (0, spacing // 2)
            for place in (k,) if k == low else (low, low + spacing):
                new[place] += mass if k == low else mass / 2
        return new

    total = defaultdict(Fraction)
    for i, p in a.items():
        for j, q in b.items():
            small, large = sorted((i, j), key=row)
            law = {small: p * q}
            for r in range(2, row(large) + 1):
                law = halved(law, 2 ** (r - 1))
            for k, mass in law.items():
                for place, part in halved({large + k: mass}, 2 ** max(0, row(large + k) - 1)).items():
                    total[place] += part
    return total


@pytest.mark.parametrize(("noise", "m"), [(1.6, 5), (3.0, 8)])
def test_sums_are_enclosed_entry_by_entry(noise, m):
    """Two and three variables, all laws, in exact arithmetic; the moved one is equally likely to be any of them."""
    one = _single(noise, m, 1 / noise + 3, (Shift(1 / noise), Shift(1.5 / noise, above=True)))
    two, places = one + one, [int(k) for k in _multiples(*one.masses.shape[1:])]
    three = two + one
    laws = [{k: Fraction(x) for k, x in zip(places, law.ravel().tolist(), strict=True) if x} for law in one.masses]
    for number, (rest, side) in enumerate([(0, 1), (1, -1), (1, -1), (0, 1)]):
        others = laws[rest]
        of_two = exact_sum(laws[number], others, m)
        first, last = exact_sum(of_two, others, m), exact_sum(exact_sum(others, others, m), laws[number], m)
        of_three = {k: (2 * first[k] + last[k]) / 3 for k in {*first, *last}}
        for found, exact in ((two, of_two), (three, of_three)):
            masses = dict(zip(_multiples(*found.masses.shape[1:]), found.masses[number].ravel().tolist(), strict=True))
            assert all(side * (Fraction(masses[k]) - mass) >= 0 for k, mass in exact.items())
            assert all(abs(masses[k] - float(mass)) < 1e-12 for k, mass in exact.items())
