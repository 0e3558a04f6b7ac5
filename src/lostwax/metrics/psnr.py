"""Peak signal-to-noise ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lostwax.types.fields import above, check_fields


@dataclass(frozen=True)
class PSNR:
    """The mean squared error in decibels below the square of the range of a pixel; infinite for a perfect guess."""

    peak: float = 1.0  # the range of a pixel: 1 for images in [0, 1]
    better: Literal["lower", "higher"] = "higher"
    name: str = "peak signal-to-noise ratio (dB)"

    def __post_init__(self) -> None:
        check_fields(self, peak=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        squared_error = (guess - truth).square().flatten(1).mean(1)
        return -10 * (squared_error / self.peak**2).log10()  # 10 log10(peak^2 / MSE)

    @classmethod
    def examples(cls) -> tuple[PSNR, ...]:
        """Instances to test."""
        return cls(), cls(peak=255.0)
