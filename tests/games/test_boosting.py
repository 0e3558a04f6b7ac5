"""Derivatives for guesses are those of the library, but for its rounding."""

import numpy as np
import pytest

from lostwax.games.boosting import BoostedLoss

LOSSES = [
    BoostedLoss(0),
    BoostedLoss(2),
    BoostedLoss(2, margins_in_float32=True, positive_weight=3.0),
    BoostedLoss(3, curvature=2.0, margins_in_float32=True),
    BoostedLoss(4, rounded=False),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.classes} classes")
def test_slopes_are_derivatives(loss):
    random = np.random.default_rng(0)
    margins, labels = random.normal(size=(20, loss.outputs)), random.integers(0, max(loss.classes, 1), 20)
    first, second = loss.slopes(margins[:, None], labels)
    for output in range(loss.outputs):
        right = loss.derivatives(margins, labels, output)
        np.testing.assert_allclose(first[:, 0, output], right.first, atol=1e-6)
        np.testing.assert_allclose(second[:, 0, output], right.second, atol=1e-6)
