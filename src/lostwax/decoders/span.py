"""The coordinates in which a decoder answers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROUNDING = 1e-6  # by which a pixel may lie outside its range: interpolation rounds


@dataclass(frozen=True, eq=False)
class Span:
    """record = shift + scale * answer.

    Where all of the prior lies in [0, 1] or in [-1, 1], as pixels do, answers are shares of that range, and a decoder
    keeps within it by a sigmoid. Other records (tables) are unbounded: answers count deviations from a feature's mean.
    """

    shift: Tensor  # (...) of a record's shape
    scale: Tensor
    bounded: bool

    @classmethod
    def of(cls, prior: Tensor) -> Span:
        """The span of records (n, ...)."""
        low, high = float(prior.min()), float(prior.max())
        for lowest in (0.0, -1.0):
            if low >= lowest - ROUNDING and high <= 1 + ROUNDING:
                varies = prior.amax(0) > prior.amin(0)  # what never varies is known, and answered exactly
                shift = torch.where(varies, lowest, prior[0])
                return cls(shift, torch.where(varies, 1 - lowest, 0.0).to(prior), bounded=True)
        return cls.of_deviations(prior)

    @classmethod
    def of_deviations(cls, prior: Tensor) -> Span:
        """Unbounded, whatever the records."""
        deviation, mean = torch.std_mean(prior.double(), dim=0, correction=0)
        return cls(mean.to(prior), deviation.to(prior), bounded=False)

    def shares(self, records: Tensor) -> Tensor:
        """The answers that stand for these records."""
        return (records - self.shift) / torch.where(self.scale > 0, self.scale, 1.0)

    def records(self, answers: Tensor) -> Tensor:
        """The records that answers (..., shape) stand for."""
        return self.shift + self.scale * answers
