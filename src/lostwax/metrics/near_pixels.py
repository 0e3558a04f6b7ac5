"""The share of numbers that are nearly right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lostwax.types.fields import above, check_fields


@dataclass(frozen=True)
class NearPixels:
    """The share of a record's numbers within `tolerance` of the truth (S3 appendix I).

    A guess counts as a success where the share is at least rho. How often a blind guess succeeds is
    `bounds.log_kappa_pixels(d, tolerance, rho)`, for pixels of which nothing is known.
    """

    tolerance: float = 32 / 255
    better: Literal["lower", "higher"] = "higher"
    name: str = "share of pixels nearly right"

    def __post_init__(self) -> None:
        check_fields(self, tolerance=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return ((guess - truth).abs() < self.tolerance).flatten(1).double().mean(1)

    @classmethod
    def examples(cls) -> tuple[NearPixels, ...]:
        """Instances to test."""
        return cls(tolerance=0.01), cls(tolerance=0.05)
