"""Corners of the space of a training set: records, or nothing."""

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint, milp

import lostwax as lw
from lostwax.attacks.newton.corners import Corners, corners
from lostwax.learning.coordinates import Coordinates


def space_of(x):
    """The affine space of records (n, d), in coordinates that are not theirs."""
    origin = x.mean(0)
    _, sizes, rows = torch.linalg.svd(x - origin, full_matrices=False)
    rows = rows[sizes > 1e-9]
    anywhere = torch.full_like(rows[:, 0], torch.inf)
    return Coordinates(origin, rows, -anywhere, anywhere)


def found_in(x, templates, low=0.0, noise=1e-12):
    space, d = space_of(x), x.shape[1]
    a = corners(space, torch.full((d,), low), torch.ones(d), templates, len(x), noise).sure
    return space(a)


def digits():
    return [part.x.flatten(1).double() for part in lw.records.digits().split(500, 300, seed=0)]


@pytest.mark.parametrize("size", [5, 10, 20])
def test_digits_are_corners_and_corners_are_digits(size):
    templates, pool = digits()
    for first in (0, 40):
        x = pool[first : first + size]
        found = found_in(x, templates)
        far = (found[:, None] - x).abs().amax(2)  # (f, n)
        assert (far.amin(1) < 1e-9).all()
        assert len(set(far.argmin(1).tolist())) == len(found)  # each once
        assert len(found) >= size / 2 or size > 10  # 64 pixels show few of 20


def test_pixels_from_minus_one_to_one():
    templates, pool = digits()
    found = found_in(2 * pool[:6] - 1, 2 * templates - 1, low=-1.0)
    assert len(found) >= 3
    assert ((found[:, None] - (2 * pool[:6] - 1)).abs().amax(2).amin(1) < 1e-9).all()


def test_records_that_nothing_tells_from_their_mixtures_are_not_returned():
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.uniform(0.2, 0.8, (6, 64)))  # no number at its bound
    assert len(found_in(x, torch.from_numpy(random.uniform(0, 1, (60, 64))))) == 0


def test_a_record_that_covers_another_is_right_or_missing():
    """Beyond it, away from the one that it covers, numbers are still positive: it is no corner, others nearby are."""
    templates, pool = digits()
    x = pool[:6].clone()
    x[0] = (x[0] + x[1]).clamp_max(1.0).mul(0.9)
    found = found_in(x, torch.cat([x[:1], templates]))
    assert ((found[:, None] - x).abs().amax(2).amin(1) < 1e-9).all()


def test_noise_in_the_space_is_allowed_for():
    templates, pool = digits()
    x = pool[:6]
    space = space_of(x)
    noisy = space._replace(directions=space.directions + 1e-7 * torch.randn(space.directions.shape).double())
    found = noisy(corners(noisy, torch.zeros(64), torch.ones(64), templates, 6, 1e-6).sure)
    assert len(found) >= 3
    assert ((found[:, None] - x).abs().amax(2).amin(1) < 1e-3).all()


def test_doubtful_corners_are_no_mixtures_of_others():
    templates, pool = digits()
    x = pool[40:50]
    space = space_of(x)
    sure, doubtful = corners(space, torch.zeros(64), torch.ones(64), templates, len(x), 1e-12)
    every = torch.cat([sure, doubtful])
    assert len(every) <= len(x)
    assert torch.linalg.matrix_rank(torch.cat([every, torch.ones(len(every), 1)], 1)) == len(every)


def by_linear_programs(x, templates):
    """Which of records (n, d) are found by one program after another, each towards fewer numbers off a bound."""
    space = space_of(x)
    origin, directions = space.origin.numpy(), space.directions.numpy()
    inside, anywhere = LinearConstraint(directions.T, -origin, 1 - origin), Bounds(-np.inf, np.inf)
    found = set()
    for numbers in templates.numpy():
        for _ in range(3):
            price = 1 / (np.maximum(numbers, 0) + 0.05)
            numbers = origin + milp(directions @ price, constraints=inside, bounds=anywhere).x @ directions
        found |= set(np.flatnonzero(np.abs(x.numpy() - numbers).max(1) < 1e-5).tolist())
    return found


@pytest.mark.parametrize("first", [0, 80, 160])
def test_as_many_are_found_as_by_linear_programs(first):
    templates, pool = digits()
    x = pool[first : first + 12]
    space = space_of(x)
    every = space(torch.cat(corners(space, torch.zeros(64), torch.ones(64), templates, len(x), 1e-12)))
    near, which = (every[:, None] - x).abs().amax(2).min(1)
    found = set(which[near < 1e-6].tolist())
    plain = by_linear_programs(x, templates[:40])
    assert len(found) >= len(plain) >= 2
    assert len(plain - found) <= 1


def test_guesses_near_the_records_lead_to_those_not_found_yet():
    templates, pool = digits()
    x = pool[:10]
    space, low, high = space_of(x), torch.zeros(64), torch.ones(64)
    sure = corners(space, low, high, templates, len(x), 1e-12).sure
    guesses = (
        space(sure[3:]) + 0.1 * torch.randn(len(sure) - 3, 64, generator=torch.Generator().manual_seed(0))
    ).clamp(0)
    again = corners(space, low, high, templates, len(x), 1e-12, Corners(sure[:3], sure[:0]), guesses).sure
    assert (again[:3] - sure[:3]).abs().max() < 1e-9
    assert len(again) >= 3 + (len(sure) - 3) / 2
    assert ((space(again)[:, None] - x).abs().amax(2).amin(1) < 1e-9).all()


def test_a_doubtful_corner_that_turns_out_to_be_a_record_is_not_counted_twice():
    templates, pool = digits()
    x = pool[:10]
    space, low, high = space_of(x), torch.zeros(64), torch.ones(64)
    sure = corners(space, low, high, templates, len(x), 1e-12).sure
    for taken_for_doubtful in (sure[:1], sure[-1:]):
        found = Corners(sure[:0], taken_for_doubtful)
        again = corners(space, low, high, templates, len(x) + 5, 1e-12, found, space(taken_for_doubtful))
        assert ((again.sure - taken_for_doubtful).abs().amax(1) < 1e-9).any()
        assert not ((again.doubtful - taken_for_doubtful).abs().amax(1) < 1e-5).any()
