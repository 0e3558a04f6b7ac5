"""Half the squared distance to the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SquaredError:
    """|out - y|^2 / 2, summed over outputs (torch's MSELoss is twice its mean over records and outputs)."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return self.residual(outputs, y).square().sum(-1) / 2  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """out - y."""
        return outputs - _columns(y, outputs)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = out - residual."""
        y = outputs - residual
        return y[..., 0] if outputs.shape[-1] == 1 else y

    @classmethod
    def examples(cls) -> tuple[tuple[SquaredError, Tensor], ...]:
        """Instances to test, each with labels for three outputs."""
        y = torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.1, 3.0], [1.0, 1.0, 1.0], [-1.0, 0.3, 0.2]])
        return ((cls(), y.double()),)


def _columns(y: Tensor, outputs: Tensor) -> Tensor:
    """Targets with the outputs' last axis: (..., n) becomes (..., n, 1)."""
    return (y.unsqueeze(-1) if y.ndim < outputs.ndim else y).to(outputs.dtype)
