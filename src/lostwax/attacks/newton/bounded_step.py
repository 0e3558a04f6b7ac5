"""The step of a damped Gauss-Newton method that keeps within bounds."""

from __future__ import annotations

import torch
from torch import Tensor

ROUNDS = 30


def bounded_step(curvature: Tensor, slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The minimum of  s^T C s / 2 + g^T s  over  low <= s <= high, for b problems at once, (b, u).

    Clamping the free minimum would not do: where most numbers sit at a bound, as the black pixels of a digit do, it is
    no descent. Newton steps in the free coordinates instead, a coordinate being held while it is at a bound and pushed
    outwards (projected Newton, Bertsekas 1982). A problem whose curvature is not positive definite goes no further.
    """
    step = torch.zeros_like(slope)  # (b, u)
    value = torch.zeros_like(slope[:, 0])  # (b,)
    for _ in range(ROUNDS):
        gradient = (curvature @ step.unsqueeze(-1)).squeeze(-1) + slope
        held = ((step <= low) & (gradient > 0)) | ((step >= high) & (gradient < 0))
        free = (~held).to(slope)
        # rows and columns of held coordinates become those of the identity
        masked = curvature * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(1 - free)
        factor, failed = torch.linalg.cholesky_ex(masked)
        move = -torch.cholesky_solve((gradient * free).unsqueeze(-1), factor).squeeze(-1)
        move = torch.where(failed.unsqueeze(-1) > 0, 0.0, move)  # training that diverges has no curvature to go by
        step, better, value = _search(curvature, slope, step, move, low, high, value)
        if not better.any():
            break
    return step


def _search(
    curvature: Tensor, slope: Tensor, step: Tensor, move: Tensor, low: Tensor, high: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The best of a few lengths of the move, each bent to the bounds; where it went, whether it gained, the value."""
    best, gained = step, torch.zeros_like(value, dtype=torch.bool)
    for length in (1.0, 0.5, 0.25, 0.1, 0.01):
        tried = torch.minimum(torch.maximum(step + length * move, low), high)
        curved = (curvature @ tried.unsqueeze(-1)).squeeze(-1)
        reached = (tried * (curved / 2 + slope)).sum(-1)
        better = reached < value - 1e-14 * value.abs()
        best = torch.where(better.unsqueeze(-1), tried, best)
        gained, value = gained | better, torch.where(better, reached, value)
    return best, gained, value
