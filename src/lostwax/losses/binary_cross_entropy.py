"""Logistic loss of one output, or of one output a class (one-vs-rest)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lostwax.losses.targets import indicators
from lostwax.types.fields import above, check_fields


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """a t log(1 + exp(-out)) + (1 - t) log(1 + exp(out)), with t in {0, 1} and a the `positive_weight`.

    With one output, t is the label; with c outputs, t is 1 in the column of the record's class: c separate
    "this class or not" problems.
    """

    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, positive_weight=above(0))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        t = indicators(y, outputs)
        return (self.positive_weight * t * softplus(-outputs) + (1 - t) * softplus(outputs)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(1 - t) p - a t (1 - p), which is p - t for a = 1."""
        t = indicators(y, outputs)
        return (1 - t) * outputs.sigmoid() - self.positive_weight * t * (-outputs).sigmoid()  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """The residual is negative where t = 1."""
        if outputs.shape[-1] == 1:
            return (residual[..., 0] < 0).long()
        return residual.argmin(-1)

    @classmethod
    def examples(cls) -> tuple[tuple[BinaryCrossEntropy, Tensor], ...]:
        """Instances to test, each with labels for three outputs."""
        y = torch.tensor([0, 2, 1, 1])
        return (cls(), y), (cls(positive_weight=10.0), y)
