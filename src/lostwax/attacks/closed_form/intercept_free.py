"""Models without an intercept: the residual is unknown too, and must solve a scalar equation (S1 Theorem 8)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lostwax.losses import SquaredError
from lostwax.types import Stationary

ROOTS = 4  # more than were ever seen: two for two classes
GRID = torch.cat([-torch.logspace(4, -8, 241, dtype=torch.float64), torch.logspace(-8, 4, 241, dtype=torch.float64)])


def candidates(model: Stationary, missing: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Every feature row f that explains `missing` given the label: (games, candidates, d), NaN where there is none.

    `missing` is w r f^T with r = residual(W f, y) unknown. Then K = missing W^T / w = r (W f)^T is known and has
    rank one, K = s u v^T; so the outputs are W f = a v and r = (s / a) u for a number a that solves
    a u . residual(a v, y) = s. For least squares that is the quadratic of Theorem 8; else it is bracketed and bisected.
    """
    gradient = missing / weight[:, None, None]  # (g, c, d)
    u, s, v = _rank_one(gradient @ model.weight.mT)  # (g, c), (g,), (g, c)
    if isinstance(model.loss, SquaredError):
        target = y.reshape(len(y), -1)  # (g, c)
        roots = _quadratic((u * v).sum(-1), (u * target).sum(-1), s)  # a^2 <u, v> - a <u, y> - s = 0
    else:
        roots = _bisect(model, u, v, y, s)  # (g, 2)
    residual = (s[:, None] / roots)[:, :, None] * u[:, None]  # (g, candidates, c)
    return torch.einsum("gkc,gcd->gkd", residual, gradient) / residual.square().sum(-1, keepdim=True)


def _rank_one(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The leading singular triple of each matrix."""
    left, values, right = torch.linalg.svd(matrix)
    return left[..., 0], values[..., 0], right[..., 0, :]


def _quadratic(square: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """Both roots of square a^2 - linear a - constant = 0; a discriminant below zero by rounding counts as zero."""
    root = (linear.square() + 4 * square * constant).clamp_min(0).sqrt()
    larger = linear + torch.where(linear < 0, -root, root)  # no cancellation: the root of larger modulus first
    return torch.stack([larger / (2 * square), -2 * constant / larger], -1)


def _bisect(model: Stationary, u: Tensor, v: Tensor, y: Tensor, s: Tensor) -> Tensor:
    """Up to `ROOTS` roots a of a u . residual(a v, y) = s between the points of a logarithmic grid of both signs.

    Two roots may lie between neighbouring points, where no sign changes, or be one double root that rounding has
    moved away from zero. So the point where the two sides come closest joins the grid; where there is no root, it is
    the answer.
    """

    def excess(a: Tensor) -> Tensor:  # (g, points)
        outputs = a[..., None] * v[:, None]  # (g, points, c)
        labels = y[:, None].expand(a.shape)
        return a * (u[:, None] * model.loss.residual(outputs, labels)).sum(-1) - s[:, None]

    grid = GRID.to(s.device).expand(len(s), -1)
    closest = _closest(excess, grid)  # (g, 1)
    grid = torch.cat([grid, closest], 1).sort(1).values
    signs = excess(grid).nan_to_num(nan=0.0).sign()
    crossing = (signs[:, :-1] * signs[:, 1:] < 0).double()  # (g, points - 1)
    found, at = crossing.topk(ROOTS, dim=1)
    low, high = grid.gather(1, at), grid.gather(1, at + 1)
    below = excess(low).sign()
    for _ in range(100):
        middle = (low + high) / 2
        left = excess(middle).sign() == below
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    roots = torch.where(found > 0, (low + high) / 2, torch.nan)
    roots[:, 0] = torch.where(found[:, 0] > 0, roots[:, 0], closest[:, 0])
    return roots


def _closest(excess: Callable[[Tensor], Tensor], grid: Tensor) -> Tensor:
    """Where the excess comes closest to zero, or furthest beyond it, (g, 1): by thirds around the best grid point."""
    distance = excess(grid).abs().nan_to_num(nan=torch.inf)
    at = distance.argmin(1, keepdim=True)
    side = excess(grid.gather(1, at)).sign()
    low, high = (grid.gather(1, (at + way).clamp(0, grid.shape[1] - 1)) for way in (-1, 1))
    for _ in range(100):
        third = (high - low) / 3
        left = side * excess(low + third) < side * excess(high - third)
        low, high = torch.where(left, low, low + third), torch.where(left, high - third, high)
    return (low + high) / 2
