"""Learning-rate schedules: the factor on the learning rate at each optimiser step (one per batch, not per epoch)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from lostwax.fields import above, at_least, between, check_fields


class Schedule(Protocol):
    """A factor on the learning rate."""

    def __call__(self, step: int, steps: int) -> float:
        """The factor at `step` (from 0) of `steps` in all."""


@dataclass(frozen=True)
class Constant:
    """A constant learning rate."""

    def __call__(self, step: int, steps: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """Cosine decay from 1 to `floor` (torch's CosineAnnealingLR), after a linear warm-up of `warmup` steps."""

    warmup: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, warmup=at_least(0), floor=between(0, 1, "[]"))

    def __call__(self, step: int, steps: int) -> float:
        """floor + (1 - floor) (1 + cos(pi t)) / 2, with t from 0 to 1 after the warm-up."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        t = (step - self.warmup) / max(steps - self.warmup, 1)
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * t)) / 2


@dataclass(frozen=True)
class StepDecay:
    """Multiply the rate by `factor` after every `every` steps: torch's StepLR."""

    every: int
    factor: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, every=at_least(1), factor=above(0))

    def __call__(self, step: int, steps: int) -> float:
        """factor^floor(step / every)."""
        return float(self.factor ** (step // self.every))


@dataclass(frozen=True)
class Linear:
    """Linear from `start` to `end`, which step number `steps` would reach: torch's LinearLR."""

    start: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, start=at_least(0), end=at_least(0))

    def __call__(self, step: int, steps: int) -> float:
        """start + (end - start) step / steps."""
        return self.start + (self.end - self.start) * step / steps
