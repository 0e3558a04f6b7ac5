"""Softmax cross-entropy over class numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.losses.targets import indicators


@dataclass(frozen=True)
class CrossEntropy:
    """log sum_c exp(out_c) - out_y, labels as class numbers."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return outputs.logsumexp(-1) - (outputs * indicators(y, outputs)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """softmax(out) - onehot(y)."""
        p = outputs.mT.softmax(-2).mT  # (..., n, c); over the last axis but one: stacked trainers keep records last
        return p - indicators(y, outputs)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """p - onehot(y) is negative in the true class alone."""
        return residual.argmin(-1)

    @classmethod
    def examples(cls) -> tuple[tuple[CrossEntropy, Tensor], ...]:
        """Instances to test, each with labels for three outputs."""
        return ((cls(), torch.tensor([0, 2, 1, 1])),)
