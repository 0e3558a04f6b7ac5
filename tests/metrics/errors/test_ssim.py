import math

import numpy as np
import pytest
import torch

from lostwax.metrics import SSIM


def by_the_definition(x, y, window, sigma, peak):
    """Wang et al. 2004, Eqs 13 to 16, at every position of the whole window (scikit-image's crop): plain loops."""
    radius = window // 2
    weight = np.array(
        [
            [math.exp(-(a * a + b * b) / (2 * sigma**2)) for b in range(-radius, radius + 1)]
            for a in range(-radius, radius + 1)
        ]
    )
    weight /= weight.sum()
    values = []
    for channel_x, channel_y in zip(x, y, strict=True):
        for row in range(radius, x.shape[1] - radius):
            for column in range(radius, x.shape[2] - radius):
                part = np.s_[row - radius : row + radius + 1, column - radius : column + radius + 1]
                a, b = channel_x[part], channel_y[part]
                mean_a, mean_b = (weight * a).sum(), (weight * b).sum()
                variance_a, variance_b = (weight * (a - mean_a) ** 2).sum(), (weight * (b - mean_b) ** 2).sum()
                covariance = (weight * (a - mean_a) * (b - mean_b)).sum()
                c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
                values.append(
                    (2 * mean_a * mean_b + c1)
                    * (2 * covariance + c2)
                    / ((mean_a**2 + mean_b**2 + c1) * (variance_a + variance_b + c2))
                )
    return float(np.mean(values))


@pytest.mark.parametrize(
    ("shape", "window"), [((1, 16, 14), 11), ((3, 12, 12), 11), ((1, 8, 8), 7), ((1, 9, 13), 9), ((1, 1, 1), 1)]
)
def test_equals_the_definition(shape, window):
    random = np.random.default_rng(0)
    truth = random.random((2, *shape))
    guess = np.clip(truth + 0.2 * random.standard_normal(truth.shape), 0, 1)
    expected = [by_the_definition(a, b, window, 1.5, 1.0) for a, b in zip(guess, truth, strict=True)]
    found = SSIM()(torch.from_numpy(guess), torch.from_numpy(truth))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(SSIM(peak=255)(*(torch.from_numpy(255 * z) for z in (guess, truth))), expected)


def test_laws():
    truth = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    guess = (truth + 0.1 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(1))).clamp(0, 1)
    metric = SSIM()
    torch.testing.assert_close(metric(truth, truth), torch.ones(3))
    torch.testing.assert_close(metric(guess, truth), metric(truth, guess))
    assert (metric(guess, truth) < 1).all()
    torch.testing.assert_close(metric(guess.expand(-1, 3, -1, -1), truth.expand(-1, 3, -1, -1)), metric(guess, truth))
    torch.testing.assert_close(metric(guess.squeeze(1), truth.squeeze(1)), metric(guess, truth))
    assert metric(guess, truth).dtype == torch.float32


def test_tables_are_refused():
    with pytest.raises(ValueError, match="SSIM compares images"):
        SSIM()(torch.zeros(2, 784), torch.zeros(2, 784))
    with pytest.raises(ValueError, match="guesses of the truth's shape"):
        SSIM()(torch.zeros(2, 1, 8, 8), torch.zeros(1, 1, 8, 8))
    with pytest.raises(ValueError, match="expected window to be odd"):
        SSIM(window=8)
