"""One scale for all coordinates, and the trap of those that do not move."""

import numpy as np
import pytest
import torch

from lostwax.learning import standardise
from lostwax.learning.standardise import Standardise

RANDOM = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=RANDOM)


def test_mean_and_deviation_are_those_of_float64(monkeypatch):
    monkeypatch.setattr(standardise, "COLUMNS", 2)
    seen = 100 + 1e-3 * normal(500, 5)  # float32: a sum of squares would have no digit left
    fitted = Standardise.fit(seen)
    exact = seen.numpy().astype(np.float64)
    np.testing.assert_allclose(fitted.mean, exact.mean(0), rtol=1e-14)
    np.testing.assert_allclose(fitted.deviation, exact.std(0), rtol=1e-9)
    scaled = fitted(seen)
    np.testing.assert_allclose(scaled, (exact - exact.mean(0)) / exact.std(0), rtol=1e-6, atol=1e-8)
    assert fitted(seen, torch.float32).dtype == torch.float32


def test_still_coordinates_are_dropped_where_dividing_by_them_would_blow_up_rounding():
    """The trap: a pixel black in all known records leaves a weight that differs between models by rounding alone."""
    seen = normal(300, 6)
    seen[:, 1] = 0.7  # never moves
    seen[:, 4] = 0.3 + 3e-8 * normal(300)  # moves in the last bit
    seen[:, 5] *= 1e-5  # far below the others
    fitted = Standardise.fit(seen)
    assert fitted.kept.tolist() == [0, 2, 3]
    victim = seen[:1].clone()
    victim[:, [1, 4]] += 1e-6  # the same weights, summed in another order
    naive = (victim - seen.mean(0)) / seen.std(0)
    assert naive.nan_to_num().abs().max() > 20
    assert fitted(victim).abs().max() < 5
    assert torch.equal(fitted(victim), fitted(seen[:1]))


def test_nothing_is_further_off_than_a_shadow_could_be():
    """A coordinate that hardly moved in 25 shadows moves in the victim: sqrt(25) deviations, not a hundred thousand."""
    seen = normal(25, 3)
    seen[:, 1] *= 1e-2
    fitted = Standardise.fit(seen)
    assert fitted(seen).abs().max() < 5  # |z| <= sqrt(s - 1) whatever the numbers
    victim = seen[:1].clone()
    victim[:, 1] = -1e3
    assert fitted(victim)[0, 1] == -5
    assert torch.equal(fitted(victim)[0, [0, 2]], fitted(seen[:1])[0, [0, 2]])


def test_most_coordinates_may_be_still():
    seen = torch.cat([torch.full((50, 90), 0.1), normal(50, 10)], 1)
    assert Standardise.fit(seen).kept.tolist() == list(range(90, 100))


def test_refusals():
    with pytest.raises(ValueError, match="all 3 models look the same"):
        Standardise.fit(torch.full((3, 4), 0.1))
    with pytest.raises(ValueError, match="expected 4 numbers per model, as the shadow models have, got 5"):
        Standardise.fit(normal(3, 4))(normal(3, 5))


def test_other_models_are_read_in_the_same_coordinates_at_their_own_scale():
    seen = normal(200, 5)
    seen[:, 2] = 1.0
    fitted = Standardise.fit(seen)
    others = 50 + 7 * normal(200, 5)
    others[:, 4] = 0.3  # moved before, and does not now
    refitted = fitted.refit(others)
    assert refitted.kept.tolist() == [0, 1, 3, 4]
    scaled = refitted(others)
    torch.testing.assert_close(scaled[:, :3], Standardise.fit(others[:, [0, 1, 3]])(others[:, [0, 1, 3]]))
    assert (scaled[:, 3] == 0).all()
    with pytest.raises(ValueError, match="expected 5 numbers per model"):
        fitted.refit(others[:, :4])
