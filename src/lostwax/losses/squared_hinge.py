"""The loss of a linear support vector classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.losses.targets import indicators


@dataclass(frozen=True)
class SquaredHinge:
    """max(0, 1 - s out)^2 with s = +1 for the record's class and -1 for the others, summed over outputs."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return self._slack(outputs, y).square().sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-2 s max(0, 1 - s out): zero for a record beyond the margin, which leaves no trace."""
        return -2 * self._sign(outputs, y) * self._slack(outputs, y)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """The label whose residual comes nearest: a record may be beyond its own margin and inside another's."""
        if outputs.shape[-1] == 1:
            return (residual[..., 0] < 0).long()
        labels = torch.arange(outputs.shape[-1], device=outputs.device)
        each = torch.stack([self.residual(outputs, label.expand(outputs.shape[:-1])) for label in labels], -1)
        return (each - residual.unsqueeze(-1)).square().sum(-2).argmin(-1)

    def _sign(self, outputs: Tensor, y: Tensor) -> Tensor:
        return 2 * indicators(y, outputs) - 1

    def _slack(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (1 - self._sign(outputs, y) * outputs).clamp_min(0)

    @classmethod
    def examples(cls) -> tuple[tuple[SquaredHinge, Tensor], ...]:
        """Instances to test, each with labels for three outputs."""
        return ((cls(), torch.tensor([0, 2, 1, 1])),)
