"""Mean squared error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lostwax.types.fields import check_fields


@dataclass(frozen=True)
class MSE:
    """Mean over a record's numbers of the squared difference: for images, per pixel (S1 section V-B)."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "mean squared error"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return (guess - truth).square().flatten(1).mean(1)

    @classmethod
    def examples(cls) -> tuple[MSE, ...]:
        """Instances to test."""
        return (cls(),)
