"""Structural similarity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from lostwax.metrics.images import as_images
from lostwax.types.fields import above, at_least, check_fields, expect


@dataclass(frozen=True)
class SSIM:
    """Agreement of local brightness, contrast and structure, 1 for a perfect guess (Wang et al. 2004, Eq. 13).

    Local means, variances and covariance are weighted by a Gaussian window; the mean is over all positions where
    the whole window lies in the image, and over channels (scikit-image's `gaussian_weights=True,
    use_sample_covariance=False`). In an image smaller than the window, the window is cut to the largest odd size
    that fits: 7 in an image of 8 x 8. Images are in [0, peak]. Sums are in float64: the variances are
    differences of nearly equal numbers.
    """

    window: int = 11
    sigma: float = 1.5
    peak: float = 1.0
    better: Literal["lower", "higher"] = "higher"
    name: str = "structural similarity"

    def __post_init__(self) -> None:
        check_fields(self, window=at_least(1), sigma=above(0), peak=above(0))
        expect(self, "window", "to be odd", self.window % 2 == 1)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, channels, height, width) twice -> (games,)."""
        x, y = (images.double() for images in as_images("SSIM", guess, truth))
        weights = self._weights(min(x.shape[-2:])).to(x)

        def local(image: Tensor) -> Tensor:
            """Weighted mean in every window, (games, channels, rows, columns)."""
            flat = image.flatten(0, 1).unsqueeze(1)  # each channel by itself
            mean = conv2d(conv2d(flat, weights.reshape(1, 1, -1, 1)), weights.reshape(1, 1, 1, -1))
            return mean.reshape(*image.shape[:2], *mean.shape[-2:])

        mean_x, mean_y = local(x), local(y)
        variances = local(x * x) - mean_x**2 + local(y * y) - mean_y**2
        covariance = local(x * y) - mean_x * mean_y
        c1, c2 = (0.01 * self.peak) ** 2, (0.03 * self.peak) ** 2
        similarity = ((2 * mean_x * mean_y + c1) * (2 * covariance + c2)) / (
            (mean_x**2 + mean_y**2 + c1) * (variances + c2)
        )
        return similarity.flatten(1).mean(1).to(guess.dtype)

    def _weights(self, side: int) -> Tensor:
        """The Gaussian along one axis, adding up to 1, no wider than the image."""
        window = min(self.window, side - (side + 1) % 2)  # the largest odd number <= side
        offset = torch.arange(window, dtype=torch.float64) - window // 2
        weights = (-(offset**2) / (2 * self.sigma**2)).exp()
        return weights / weights.sum()

    @classmethod
    def examples(cls) -> tuple[SSIM, ...]:
        """None for the table of the contract tests: it compares images only."""
        return ()
