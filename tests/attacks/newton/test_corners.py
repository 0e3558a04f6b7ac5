"""Corners of the space of a training set: records, or nothing."""

import numpy as np
import pytest
import torch

import lostwax as lw
from lostwax.attacks.newton.corners import corners
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
