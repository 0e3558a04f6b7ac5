"""Closed forms with several solutions: models without an intercept, and more features than rows.

With more features than rows, a linear model fitted from zero, or with any ridge, has weights in the span of its rows:

    W_c = sum_i a_ci f_i,        and  sum_i a_ci = 0  where features are centred before the fit (least squares).

Projecting the span of the known rows out of W leaves a_c v, with v the part of the missing row outside that span. So
its direction v / |v| is known exactly, even if the fit leaves no residual to divide by. The rest is estimated from the
known rows: the length |v|, the sign of a_c (hence two candidates), and the part of the row inside the span, a share
n / d of a row with d independent features, from the mean of the known rows (shrunk by James and Stein's factor where
the span has an origin).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Records, Stationary
from lostwax.games.fitted import BLOCK_NUMBERS, sums_of_others

# Models without an intercept: the residual is unknown too, and solves a scalar equation (Balle et al. 2022, Theorem 8).

ROOTS = 4  # at most: two classes have two
GRID = torch.cat([-torch.logspace(4, -8, 241, dtype=torch.float64), torch.logspace(-8, 4, 241, dtype=torch.float64)])


def candidates(model: Stationary, missing: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Every feature row f that explains `missing` given the label: (games, candidates, d), NaN where there is none.

    `missing` is w r f^T with r = residual(W f, y) unknown. Then K = missing W^T / w = r (W f)^T is known and has
    rank one, K = s u v^T; so the outputs are W f = a v and r = (s / a) u for a number a that solves
    a u . residual(a v, y) = s. For least squares that is the quadratic of Theorem 8; else it is bracketed and bisected.
    """
    gradient = missing / weight[:, None, None]  # (g, c, d)
    left, values, right = torch.linalg.svd(gradient @ model.weight.mT)
    u, s, v = left[..., 0], values[..., 0], right[..., 0, :]  # (g, c), (g,), (g, c)
    if model.quadratic:
        target = y.reshape(len(y), -1)  # (g, c)
        roots = _quadratic((u * v).sum(-1), (u * target).sum(-1), s)  # a^2 <u, v> - a <u, y> - s = 0
    else:
        roots = _bisect(model, u, v, y, s)  # (g, 2)
    residual: Tensor = (s[:, None] / roots)[:, :, None] * u[:, None]  # (g, candidates, c)
    return torch.einsum("gkc,gcd->gkd", residual, gradient) / residual.square().sum(-1, keepdim=True)


def _quadratic(square: Tensor, linear: Tensor, constant: Tensor) -> Tensor:
    """Both roots of square a^2 - linear a - constant = 0; a discriminant below zero by rounding counts as zero."""
    root = (linear.square() + 4 * square * constant).clamp_min(0).sqrt()
    larger = linear + torch.where(linear < 0, -root, root)  # no cancellation: the root of larger modulus first
    return torch.stack([larger / (2 * square), -2 * constant / larger], -1)


def _bisect(model: Stationary, u: Tensor, v: Tensor, y: Tensor, s: Tensor) -> Tensor:
    """Up to `ROOTS` roots a of a u . residual(a v, y) = s between the points of a logarithmic grid of both signs.

    The point where the two sides are closest is added to the grid, and is the answer if there is no change of sign.
    """

    def excess(a: Tensor) -> Tensor:  # (g, points)
        residual = model.loss.residual(a[..., None] * v[:, None], y[:, None].expand(a.shape))  # (g, points, c)
        return a * (u[:, None] * residual).sum(-1) - s[:, None]

    grid = GRID.to(s.device).expand(len(s), -1)
    closest = _closest(excess, grid)  # (g, 1)
    grid = torch.cat([grid, closest], 1).sort(1).values
    signs = excess(grid).nan_to_num(nan=0.0).sign()
    crossing = (signs[:, :-1] * signs[:, 1:] < 0).double()  # (g, points - 1)
    crossed, at = crossing.topk(ROOTS, dim=1)
    low, high = grid.gather(1, at), grid.gather(1, at + 1)
    below = excess(low).sign()
    for _ in range(100):
        middle = (low + high) / 2
        left = excess(middle).sign() == below
        low, high = torch.where(left, middle, low), torch.where(left, high, middle)
    roots = torch.where(crossed > 0, (low + high) / 2, torch.nan)
    roots[:, 0] = torch.where(crossed[:, 0] > 0, roots[:, 0], closest[:, 0])
    return roots


def _closest(excess: Callable[[Tensor], Tensor], grid: Tensor) -> Tensor:
    """Where the excess is closest to zero, or furthest beyond it, (g, 1): ternary search at the best grid point."""
    distance = excess(grid).abs().nan_to_num(nan=torch.inf)
    at = distance.argmin(1, keepdim=True)
    side = excess(grid.gather(1, at)).sign()
    low, high = (grid.gather(1, (at + way).clamp(0, grid.shape[1] - 1)) for way in (-1, 1))
    for _ in range(100):
        third = (high - low) / 3
        left = side * excess(low + third) < side * excess(high - third)
        low, high = torch.where(left, low, low + third), torch.where(left, high - third, high)
    return (low + high) / 2


JITTER = 1e-13  # of the mean squared length, so that equal known rows do not stop Cholesky
FEWEST_ROWS = 4  # to estimate the deviation of a column from


class Outside(NamedTuple):
    """Two candidates per game, NaN where there is none."""

    x: Tensor  # (games, 2, d)
    residual: Tensor  # (games, 2, c) that the missing row would have, up to a factor: a_c = -r_c / ridge


def outside_candidates(
    model: Stationary, table: Records, games: Tensor, mean: Tensor, wanted: Tensor | None = None
) -> Outside | None:
    """Both candidates for the missing row of each game that is `wanted` (g,); None with fewer features than rows.

    `mean` is that of the known rows, (games, d). Lengths are in units of each feature's deviation, estimated from the
    odd rows in the games for even rows and vice versa, so that a NaN in row i does not change game i.
    """
    n, d = table.x.shape
    if n > d or (wanted is not None and not wanted.any()):
        return None
    x = mean.new_full((len(games), 2, d), torch.nan)
    residual = mean.new_zeros(len(games), 2, len(model.weight))
    sign = mean.new_tensor([[1.0], [-1.0]])
    features = model.features(table.x)
    for parity in (0, 1):
        chosen = torch.ones_like(games, dtype=torch.bool) if wanted is None else wanted
        places = {int(games[place]): place for place in chosen.nonzero()[:, 0].tolist() if games[place] % 2 == parity}
        half = _Half.of(model, features, parity)
        for left in half.leave_one_out(set(places)):
            place = places[left.row]
            _, sizes, axes = torch.linalg.svd(left.outside, full_matrices=False)  # a v^T, of rank one
            if sizes[0] > 0:
                inside = left.share_of_mean * model.features(mean[place])
                x[place] = (inside + sign * axes[0] * left.length * half.unit) * model.scale + model.shift  # (2, d)
                residual[place] = -sign * (left.outside @ axes[0])
    return Outside(x, residual)


class _LeftOut(NamedTuple):
    """One game: the weights outside the span of its known rows, and the expected size of the missing row."""

    row: int
    outside: Tensor  # (c, d) a v^T
    length: Tensor  # |v|
    share_of_mean: Tensor  # expected of the missing row, in units of the known rows' mean


class _Rest(NamedTuple):
    """What is left of rows and weights outside the span of the vectors that are known so far."""

    places: Tensor  # (l,) which vectors are not known yet
    rows: Tensor  # (l, d) those vectors
    products: Tensor  # (l, l) theirs
    weights: Tensor  # (c, d)
    along: Tensor  # (l, c) products of rows and weights
    pivots: Tensor  # (k,) squared length of each known vector outside those before it: Cholesky's

    def knowing(self, known: slice, left: slice) -> _Rest:
        """The rest of the vectors `left`, when the vectors `known` are known too.

        A vector that is left does not change anything but itself: a NaN in it stays in its own row and column.
        """
        factor = torch.linalg.cholesky_ex(self.products[known, known])[0]
        share = torch.cholesky_solve(self.products[known, left], factor).mT  # (left, known)
        weight_share = torch.cholesky_solve(self.along[known], factor).mT  # (c, known)
        return _Rest(
            self.places[left],
            self.rows[left] - share @ self.rows[known],
            self.products[left, left] - share @ self.products[known, left],
            self.weights - weight_share @ self.rows[known],
            self.along[left] - share @ self.along[known],
            torch.cat([self.pivots, factor.diagonal().square()]),
        )


@dataclass(frozen=True)
class _Half:
    """The rows as vectors whose span holds the weights: those of the other parity, then those to be left out."""

    vectors: Tensor  # (N, d) in units of each feature's deviation, from a known origin
    weights: Tensor  # (c, d) likewise
    unit: Tensor  # (d,) that deviation
    rows: list[int]  # which rows of the table the last vectors are: the games of this parity
    always: int  # number of vectors before those, known in all of these games
    points: int  # number of rows of their affine hull; 0 where the span is meant

    @classmethod
    def of(cls, model: Stationary, features: Tensor, parity: int) -> _Half:
        """The games for the rows of one parity."""
        mine, others = features[parity::2], features[1 - parity :: 2]
        centred = model.quadratic and model.bias is not None and not bool(model.bias_ridge.any())
        unit = _deviations(others)
        known, origin, points = others, torch.zeros_like(unit), 0
        if centred and len(others):  # differences from one of the rows
            known, origin, points = others[1:], others[0], len(others)
        vectors = (torch.cat([known, mine]) - origin) / unit
        rows = list(range(parity, len(features), 2))
        return cls(vectors, model.weight / unit, unit, rows, len(known), points)

    def leave_one_out(self, wanted: set[int]) -> Iterator[_LeftOut]:
        """The games for the wanted rows.

        Rows become known by bisection, so that games share most of the work: n^2 d operations for n rows instead of
        n^4. The path to a game does not depend on which are wanted.
        """
        always = self.vectors[: self.always]
        jitter = JITTER * always.square().sum(1).mean() if self.always else self.vectors.new_zeros(())
        products = self.vectors @ self.vectors.mT
        products.diagonal().add_(jitter)
        noises = self._noises(products.diagonal())
        places = torch.arange(len(self.vectors), device=self.vectors.device)
        along, none = self.vectors @ self.weights.mT, self.vectors.new_zeros(0)
        remainder = _Rest(places, self.vectors, products, self.weights, along, none)
        ahead = [remainder.knowing(slice(self.always), slice(self.always, None))]
        del products, remainder
        known = len(self.vectors) - 1
        while ahead:
            remainder = ahead.pop()
            rows = [self.rows[place - self.always] for place in remainder.places.tolist()]
            if wanted.isdisjoint(rows):
                continue
            if len(rows) > 1:
                half = (len(rows) + 1) // 2
                first, second = slice(half), slice(half, None)
                ahead += [remainder.knowing(second, first), remainder.knowing(first, second)]
                continue
            noise = noises[remainder.places[0] - self.always]
            yield _LeftOut(rows[0], remainder.weights, self._length(remainder.pivots, noise), known / (known + noise))

    def _noises(self, squares: Tensor) -> Tensor:
        """Of each game: variance of a row over |expected row|^2, from the known rows' mean square and their mean."""
        k = len(self.vectors) - 1  # known rows
        if self.points:  # an affine hull has no origin
            return torch.zeros_like(squares[self.always :])
        if k < 2:
            return torch.full_like(squares[self.always :], torch.inf)
        columns = torch.split(self.vectors, max(1, BLOCK_NUMBERS // len(self.vectors)), 1)
        square, *means = (
            (part[: self.always].sum(0) + sums_of_others(part[self.always :])) / k for part in (squares, *columns)
        )
        expected = torch.stack([mean.square().sum(1) for mean in means]).sum(0)
        variance = (square - expected).clamp_min(0) * k / (k - 1)
        return variance / (expected - variance / k).clamp_min(0)

    def _length(self, pivots: Tensor, noise: Tensor) -> Tensor:
        """Expected length of a row outside the span of the others: Cholesky's pivots of known rows of the same half.

        Outside the span of k others, the squared length is proportional to 1 + 1 / (k + noise).
        """
        before = torch.arange(len(pivots)).to(pivots) + max(0, self.points - self.always)  # number of rows before it
        pivots = pivots * (1 + 1 / (before[-1:] + 1 + noise)) / (1 + 1 / (before + noise))
        pivots = pivots[self.always :] if len(pivots) > self.always else pivots
        return pivots.median().sqrt() if len(pivots) else pivots.new_tensor(torch.nan)


def _deviations(rows: Tensor) -> Tensor:
    """Each column's standard deviation; for few rows, its log is shrunk towards that of the other columns.

    The sampling variance of a log deviation from k rows is trigamma((k - 1) / 2) / 4; the share of the columns'
    variance beyond that is kept. A constant column takes the mean.
    """
    ones = rows.new_ones(rows.shape[1])
    deviation = rows.std(0) if len(rows) >= FEWEST_ROWS else torch.zeros_like(ones)
    varies = deviation > 0
    if not varies.any():
        return ones
    log = deviation[varies].log()
    chance = torch.special.polygamma(1, rows.new_tensor((len(rows) - 1) / 2)) / 4
    share = (1 - chance / log.var(correction=0).clamp_min(1e-300)).clamp_min(0)
    unit = ones * log.mean().exp()
    unit[varies] = (log.mean() + share * (log - log.mean())).exp()
    return unit
