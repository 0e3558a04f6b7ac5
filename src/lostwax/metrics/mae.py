"""Mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lostwax.types.fields import check_fields


@dataclass(frozen=True)
class MAE:
    """Mean over a record's numbers of the absolute difference."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "mean absolute error"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return (guess - truth).abs().flatten(1).mean(1)

    @classmethod
    def examples(cls) -> tuple[MAE, ...]:
        """Instances to test."""
        return (cls(),)
