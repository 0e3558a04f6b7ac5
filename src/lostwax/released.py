"""What goes out of a training run, where that is less than the weights after every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lostwax.fields import above, at_least, check_fields, expect

NEGLIGIBLE = 1e-12  # contraction of a step
ROUNDING = 1e-15  # of a difference from 2


@dataclass(frozen=True)
class LastWeights:
    """Only the last weights are released, after noisy steps on convex losses: theta - lr (gradient + noise).

    With its weight decay, the loss of every batch that may be drawn (divided by the expected size) is
    `smoothness`-smooth and `convexity`-strongly convex in the weights. Weights may be kept in a set of this `diameter`,
    by a projection after each step; then `sensitivity` is the length by which one record moves the gradient of a step.
    """

    lr: float
    smoothness: float
    convexity: float = 0.0
    diameter: float = math.inf
    sensitivity: float | None = None

    def __post_init__(self) -> None:
        positive = {"lr": above(0), "smoothness": above(0), "diameter": above(0, infinite=True)}
        check_fields(self, **positive, convexity=at_least(0), sensitivity=above(0))
        expect(self, "convexity", f"at most smoothness={self.smoothness:g}", self.convexity <= self.smoothness)
        expect(self, "lr", f"at most 2 / smoothness = {2 / self.smoothness:g}", self.lr * self.smoothness <= 2)
        expect(self, "sensitivity", "given with a diameter", math.isinf(self.diameter) or self.sensitivity is not None)

    @property
    def decay(self) -> float:
        """-log c: a step brings any two weights nearer by c = max(|1 - lr convexity|, |1 - lr smoothness|)."""
        gap = min(self.lr * self.convexity, 2 - self.lr * self.smoothness - ROUNDING)
        if gap < NEGLIGIBLE:
            return 0.0
        return -math.log1p(-gap) if gap < 1 else math.inf

    @property
    def reach(self) -> float:
        """The diameter over what one record moves in a step."""
        return self.diameter / (self.lr * self.sensitivity) if self.sensitivity is not None else math.inf
