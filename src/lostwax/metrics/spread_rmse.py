"""Error in units of each feature's own spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lostwax.types.fields import at_least, check_fields


@dataclass(frozen=True, eq=False)
class SpreadRMSE:
    """Root mean square over features of (guess - truth) / standard deviation of the feature.

    Constant features have no spread: they are left out, and must be right to `exact` (relative to their size) or
    the error is infinite.
    """

    deviation: Tensor  # (d,)
    exact: float = 1e-6
    better: Literal["lower", "higher"] = "lower"
    name: str = "RMSE in feature standard deviations"

    def __post_init__(self) -> None:
        check_fields(self, exact=at_least(0, infinite=True))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, d) twice -> (games,)."""
        guess, truth = guess.flatten(1), truth.flatten(1)
        varies = self.deviation > 0
        error = ((guess - truth)[:, varies] / self.deviation[varies]).square().mean(1).sqrt()
        if not varies.any():
            error = torch.zeros(len(guess), dtype=guess.dtype)
        constant = truth[:, ~varies]
        right = (guess[:, ~varies] - constant).abs() <= self.exact * constant.abs().clamp_min(1)  # NaN is not
        return torch.where(right.all(1), error, torch.inf)

    @classmethod
    def examples(cls) -> tuple[SpreadRMSE, ...]:
        """Instances to test, for three features of which one is constant."""
        return (cls(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)),)
