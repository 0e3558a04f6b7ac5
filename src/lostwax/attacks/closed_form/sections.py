"""The rows behind a sum of rank m: they lie in its row space, and each can be tried there by itself.

    G = sum_i r_i (u_i, 1)^T,   a (C, d + 1) matrix,   r_i = w residual(outputs(u_i), y_i)

With G = U S V^T of rank m, every row (u_i, 1) is V b_i with b_i (m,), and every r_i is U a_i: m (d + 1) unknown numbers
become m (m - 1), whatever d. Since the rows are dual to their residuals,

    r_i in the span of U,   a_i^T S^-1 b_l = 1 if i = l, else 0,

so that a row can be tried alone, on C - m + 1 equations. Two ways lead to rows. Where columns have natural limits
(counts of zero, black pixels, indicators), a row has so many cells at a limit that it is a corner of the polytope which
the limits cut out of the row space; walks find corners without labels, and without the model. Else rows are roots of
the equations, from starts drawn like the known rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from lostwax.games import Records, Stationary, Sums
from lostwax.games.fitted import blocks, rounding
from lostwax.trainers.minimum import curvatures

LEAST = 1e-300  # that is divided by


class Kinds(NamedTuple):
    """What rows are beside their features."""

    y: Tensor  # (n,) labels
    weight: Tensor  # (n,)

    def at(self, places: Tensor) -> Kinds:
        return Kinds(self.y[places], self.weight[places])

    @property
    def as_one(self) -> Kinds:
        """As those of a single guess, (1, n)."""
        return Kinds(self.y[None], self.weight[None])


class RebuiltRows(NamedTuple):
    """Answers for missing rows: solved for, or what is expected of them."""

    u: Tensor  # (k, d)
    y: Tensor  # (k,)
    certified: Tensor  # (k,) bool
    predicted: Tensor  # (k,) root mean square error over columns

    @classmethod
    def joined(cls, parts: Sequence[RebuiltRows]) -> RebuiltRows:
        """One below the other."""
        return cls(*(torch.cat(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True)
class Terms:
    """What a row adds to the released equations, one below the other: r (C,) times (u, 1), u = (x - centre) / unit.

    Without an intercept there is no one, and nothing but the model.
    """

    model: Stationary | None
    sums: tuple[Sums, ...]
    centre: Tensor  # (d,)
    unit: Tensor  # (d,)

    @property
    def affine(self) -> bool:
        """Whether features come with a one."""
        return self.model is None or self.model.bias is not None

    @property
    def equations(self) -> list[Stationary | Sums]:
        return [*([] if self.model is None else [self.model]), *self.sums]

    def records(self, u: Tensor) -> Tensor:
        return self.centre + self.unit * u

    def as_table(self, rows: Records) -> Records:
        return Records(self.records(rows.x), rows.y)

    def with_ones(self, u: Tensor) -> Tensor:
        """(..., d) -> (..., d + 1); as it is without an intercept."""
        return torch.cat([u, torch.ones_like(u[..., :1])], -1) if self.affine else u

    def outputs(self, u: Tensor) -> Tensor:
        """(..., d) -> (..., c); without a model (..., 0)."""
        return u[..., :0] if self.model is None else self.model.outputs(self.records(u))

    @property
    def slopes(self) -> Tensor:
        """The derivatives of the outputs in u, (c, d)."""
        if self.model is None:
            return self.unit.new_zeros(0, len(self.unit))
        return self.model.weight * (self.unit / self.model.scale)

    def residuals(self, outputs: Tensor, kinds: Kinds) -> Tensor:
        """The r of rows with outputs (..., c) and their kinds (...), (..., C)."""
        y, weight = (part.flatten() for part in kinds)
        blocks = [sums.membership(y, weight).to(outputs) for sums in self.sums]
        if self.model is not None:
            blocks.insert(0, weight[:, None] * self.model.loss.residual(outputs.flatten(0, -2), y))
        r = torch.cat(blocks, 1)
        return r.view(*outputs.shape[:-1], r.shape[1])

    def bends(self, outputs: Tensor, kinds: Kinds) -> Tensor:
        """The derivatives of r in the outputs, (..., C, c)."""
        groups = sum(len(sums.counts) for sums in self.sums)
        constant = outputs.new_zeros(*outputs.shape[:-1], groups, outputs.shape[-1])
        if self.model is None:
            return constant
        curved = curvatures(self.model.loss, outputs.flatten(0, -2), *(part.flatten() for part in kinds))
        return torch.cat([curved.view(*outputs.shape, outputs.shape[-1]), constant], -2)

    def gaps(self, known: Records, weight: Tensor) -> tuple[Tensor, Tensor]:
        """What known rows leave of the totals, and the rounding errors in it, (C, d + 1) twice."""
        model, none = self.model, torch.zeros_like(self.centre)
        in_features = (
            (none, self.unit) if model is None else ((self.centre - model.shift) / model.scale, self.unit / model.scale)
        )
        places = [*([] if model is None else [in_features]), *([(self.centre, self.unit)] * len(self.sums))]
        gaps, noises = [], []
        for equation, (offset, factor) in zip(self.equations, places, strict=True):
            gap, noise = equation.total(), rounding(equation, known, weight)
            for part in blocks(known):
                r, f = equation.factors(known[part], weight[part])
                gap = gap - r.mT @ f
            if self.affine:
                gap = torch.cat([gap[:, :-1] - gap[:, -1:] * offset, gap[:, -1:]], 1)
                noise = torch.cat([noise[:, :-1] + noise[:, -1:] * offset.abs(), noise[:, -1:]], 1)
                factor = torch.cat([factor, torch.ones_like(factor[:1])])
            gaps.append(gap / factor)
            noises.append(noise / factor)
        return torch.cat(gaps), torch.cat(noises)


@dataclass(frozen=True)
class Section:
    """Where the rows behind a matrix of rank m may be: u = origin + axes c,  b = foot + turn c."""

    left: Tensor  # (C, m) U
    beyond: Tensor  # (C, C - m): directions in which no row has a residual
    sizes: Tensor  # (m,) S
    foot: Tensor  # (m,)
    turn: Tensor  # (m, q): q = m - 1, since the last number of (u, 1) is one; without an intercept q = m
    origin: Tensor  # (d,)
    axes: Tensor  # (d, q) orthonormal

    @classmethod
    def of(cls, gap: Tensor, rank: int, *, affine: bool) -> Section:
        """Of a matrix (C, d + 1), or (C, d) without an intercept."""
        left, sizes, right = torch.linalg.svd(gap, full_matrices=False)
        if left.shape[1] < len(left):
            left = torch.cat([left, torch.linalg.qr(left, "complete").Q[:, left.shape[1] :]], 1)
        span = right[:rank].mT  # (d + 1, m) V
        foot, turn = span.new_zeros(rank), torch.eye(rank, dtype=span.dtype, device=span.device)
        if affine:
            ones, span = span[-1], span[:-1]
            foot = ones / ones.square().sum().clamp_min(LEAST)
            turn = torch.linalg.qr(torch.cat([foot[:, None], turn], 1)).Q[:, 1:rank]
        return cls(left[:, :rank], left[:, rank:], sizes[:rank], foot, turn, span @ foot, span @ turn)

    @property
    def free(self) -> int:
        return self.axes.shape[1]

    def rows(self, c: Tensor) -> Tensor:
        """(..., q) -> u (..., d)."""
        return self.origin + c @ self.axes.mT

    def coordinates(self, u: Tensor) -> Tensor:
        """The nearest point of the section, (..., d) -> (..., q)."""
        return (u - self.origin) @ self.axes


class Misfits(NamedTuple):
    """The equations of j rows of a section, for b guesses at them."""

    values: Tensor  # (b, e)
    jacobian: Tensor | None  # (b, e, j q)


def misfits(section: Section, terms: Terms, c: Tensor, kinds: Kinds, *, slopes: bool = True) -> Misfits:
    """How far rows at c (b, j, q) are from their equations: e = j (C - m) + j^2 numbers, free of scale."""
    b, j, q = c.shape
    bent = terms.slopes @ section.axes  # (c, q)
    outputs = terms.outputs(section.origin) + c @ bent.mT
    r, dual = terms.residuals(outputs, kinds), section.foot + c @ section.turn.mT  # (b, j, C), (b, j, m)
    length = r.norm(dim=-1, keepdim=True).clamp_min(LEAST)
    outside = r @ section.beyond / length  # (b, j, C - m)
    weighted = section.left / section.sizes  # (C, m) U S^-1
    pairs = r @ weighted @ dual.mT - torch.eye(j, dtype=c.dtype, device=c.device)  # (b, j, j)
    values = torch.cat([outside.flatten(1), pairs.flatten(1)], 1)
    if not slopes:
        return Misfits(values, None)
    moved = terms.bends(outputs, kinds) @ bent  # (b, j, C, q) dr / dc
    along = (r.unsqueeze(-2) @ moved) / length.unsqueeze(-1).square()  # (b, j, 1, q)
    turned = section.beyond.mT @ moved / length.unsqueeze(-1) - outside.unsqueeze(-1) * along  # (b, j, C - m, q)
    same = torch.eye(j, dtype=c.dtype, device=c.device)
    first = torch.einsum("bieq,it->bietq", turned, same).reshape(b, j * section.beyond.shape[1], j * q)
    by_residual = torch.einsum("bimq,blm->bilq", weighted.mT @ moved, dual)
    by_row = r @ weighted @ section.turn  # (b, i, q)
    second = torch.einsum("bilq,it->biltq", by_residual, same) + torch.einsum("biq,lt->biltq", by_row, same)
    return Misfits(values, torch.cat([first, second.reshape(b, j * j, j * q)], 1))


def agreement(section: Section, terms: Terms, c: Tensor, kinds: Kinds) -> Tensor:
    """How far each two of n rows are from being rows of one sum, (n, n)."""
    r = terms.residuals(terms.outputs(section.rows(c)), kinds)
    dual = section.foot + c @ section.turn.mT
    pairs = (r @ (section.left / section.sizes) @ dual.mT).abs()
    return torch.maximum(pairs, pairs.mT)


def largest_groups(agree: Tensor) -> list[list[int]]:
    """The largest sets of which all pairs agree (n, n): Bron and Kerbosch (1973)."""
    beside = [set(row.nonzero().flatten().tolist()) - {place} for place, row in enumerate(agree)]
    groups: list[list[int]] = [[]]

    def grow(group: list[int], more: set[int], done: set[int]) -> None:
        if len(group) + len(more) < len(groups[0]):
            return
        if not more and not done:
            if len(group) > len(groups[0]):
                groups.clear()
            groups.append(group)
        for node in sorted(more):
            grow([*group, node], more & beside[node], done & beside[node])
            more, done = more - {node}, done | {node}

    grow([], set(range(len(beside))), set())
    return [group for group in groups if group]


STEPS, EASED, RAISED = 60, 0.2, 5.0
DAMPINGS = (1e-12, 1e6)


class Quadratic(NamedTuple):
    """A sum of squares around b guesses: half its gradient, half its Hessian by Gauss and Newton."""

    value: Tensor  # (b,)
    slope: Tensor  # (b, q)
    normal: Tensor  # (b, q, q)


def gauss_newton(
    around: Callable[[Tensor], Quadratic], c: Tensor, steps: int, *, damping: float = 1e-2
) -> tuple[Tensor, Quadratic]:
    """Damped steps from b guesses (b, ...) at once; where they end, and the sums there."""
    dampings, here = c.new_full((len(c),), damping), around(c)
    for _ in range(steps):
        unit = here.normal.diagonal(dim1=1, dim2=2)
        lifted = dampings[:, None] * unit + 1e-15 * unit.amax(1, keepdim=True) + LEAST
        factor, failed = torch.linalg.cholesky_ex(here.normal + torch.diag_embed(lifted))
        move = -torch.cholesky_solve(here.slope.unsqueeze(-1), factor).squeeze(-1)
        tried = c + torch.where((failed == 0)[:, None], move, 0.0).nan_to_num(0.0, 0.0, 0.0).view_as(c)
        there = around(tried)
        better = there.value < here.value  # not where it is NaN
        if not better.any() and bool((dampings >= DAMPINGS[1]).all()):
            break
        chosen = (
            torch.where(better.view(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip((tried, *there), (c, *here), strict=True)
        )
        c, here = next(chosen), Quadratic(*chosen)
        dampings = torch.where(better, dampings * EASED, dampings * RAISED).clamp(*DAMPINGS)
    return c, here


def descend(section: Section, terms: Terms, c: Tensor, kinds: Kinds, steps: int = STEPS) -> tuple[Tensor, Tensor]:
    """Gauss-Newton from b guesses (b, j, q) at once; where it ends, and the length of the misfits there (b,)."""

    def around(c: Tensor) -> Quadratic:
        misfit, jacobian = misfits(section, terms, c, kinds)
        assert jacobian is not None
        slope = (jacobian.mT @ misfit.unsqueeze(-1)).squeeze(-1)
        return Quadratic(misfit.square().sum(1), slope, jacobian.mT @ jacobian)

    c, reached = gauss_newton(around, c, steps)
    return c, reached.value.sqrt()


class Limits(NamedTuple):
    """Natural ends of columns: normal u <= bound."""

    column: Tensor  # (l,)
    sign: Tensor  # (l,) +1 for an upper limit, -1 for a lower one
    bound: Tensor  # (l,)

    @classmethod
    def of(cls, u: Tensor, common: float = 0.02) -> Limits:
        """Of known rows (n, d): an end of a column is natural if a share of the rows is there, and others are not."""
        parts = []
        for sign in (1, -1):
            end = (sign * u).amax(0)
            there = (sign * u == end).double().mean(0)
            column = ((there >= common) & (there < 1)).nonzero().flatten()
            parts.append((column, torch.full_like(column, sign).to(u), end[column]))
        return cls(*(torch.cat(part) for part in zip(*parts, strict=True)))

    def within(self, section: Section, least: float) -> tuple[Tensor, Tensor]:
        """The limits in a section: (l', q) unit normals and (l',) bounds, of columns that move there."""
        normals = self.sign[:, None] * section.axes[self.column]
        bounds = self.bound - self.sign * section.origin[self.column]
        length = normals.norm(dim=1)
        moves = length > least
        return normals[moves] / length[moves, None], bounds[moves] / length[moves]


def corners(normals: Tensor, bounds: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """Corners of  normals c <= bounds  (l, q), by walks from its middle: (count', q).

    A walk goes in a random direction to the first limit, then along it to the next, and so on: q steps. A row with many
    cells at their limits stops walks from all sides.
    """
    q = normals.shape[1]
    if len(normals) <= q:
        return normals.new_zeros(0, q)
    costs, table = np.append(np.zeros(q), -1.0), np.c_[normals.numpy(), np.ones(len(normals))]
    middle = linprog(costs, table, bounds.numpy(), bounds=(None, None), method="highs")
    if middle.status != 0 or middle.x[-1] <= 0:  # a row is beyond what the known rows reach
        return normals.new_zeros(0, q)
    c = torch.from_numpy(middle.x[:-1]).expand(count, -1).clone()
    way = torch.from_numpy(rng.standard_normal((count, len(normals)))) @ normals
    room = bounds - c @ normals.mT
    stopped, alive = c.new_zeros(count, q, q), torch.ones(count, dtype=torch.bool)  # orthonormal normals, by column
    for step in range(q):
        speed = way @ normals.mT
        nears = speed > 1e-9 * way.norm(dim=1, keepdim=True)
        length, limit = torch.where(nears, room.clamp_min(0) / speed, torch.inf).min(1)
        alive &= length.isfinite()
        length = torch.where(alive, length, 0.0).unsqueeze(1)
        c, room = c + length * way, room - length * speed
        normal = _outside(normals[limit], stopped)
        normal = normal / normal.norm(dim=1, keepdim=True).clamp_min(LEAST)
        stopped[:, :, step] = normal
        way = way - normal * (way * normal).sum(1, keepdim=True)
        spent = way.norm(dim=1, keepdim=True) < 1e-6
        way = torch.where(spent, _outside(torch.from_numpy(rng.standard_normal(way.shape)), stopped), way)
    return c[alive]


def _outside(vectors: Tensor, basis: Tensor) -> Tensor:
    """Vectors (b, q) without their parts in orthonormal columns (b, q, t)."""
    for _ in range(2):
        vectors = vectors - (basis @ (basis.mT @ vectors.unsqueeze(-1))).squeeze(-1)
    return vectors


class Prior(NamedTuple):
    """The known rows as Gaussians of one covariance, one for each label."""

    labels: Tensor  # (l,)
    shares: Tensor  # (l,)
    means: Tensor  # (l, d)
    precision: Tensor  # (d, d)

    @classmethod
    def of(cls, known: Records) -> Prior:
        """From rows in units of their spread; the covariance is shrunk towards one."""
        labels, at, counts = torch.unique(known.y, return_inverse=True, return_counts=True)
        means = torch.zeros(len(labels), known.x.shape[1], dtype=known.x.dtype).index_add_(0, at, known.x)
        means = means / counts[:, None]
        within = known.x - means[at]
        shrunk = 0.9 * within.mT @ within / len(known.x)
        shrunk.diagonal().add_(0.1)
        return cls(labels, counts / counts.sum(), means, torch.linalg.inv(shrunk))

    def within(self, section: Section) -> tuple[Tensor, Tensor, Tensor]:
        """Each label's middle in a section (l, q), the factor of its precision (q, q), and log likelihoods (l,)."""
        weighted = section.axes.mT @ self.precision  # (q, d)
        factor = torch.linalg.cholesky(weighted @ section.axes)
        away = self.means - section.origin
        middles = torch.cholesky_solve(weighted @ away.mT, factor).mT
        left = away - middles @ section.axes.mT
        return middles, factor, self.shares.log() - ((left @ self.precision) * left).sum(1) / 2

    def draw(self, section: Section, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Rows of a section as likely as the prior says: (count, q) and the places of their labels (count,)."""
        middles, factor, log = self.within(section)
        labels = torch.from_numpy(rng.choice(len(log), size=count, p=log.softmax(0).numpy()))
        return middles[labels] + _spread(factor, (count, section.free), rng), labels

    def draw_sets(self, section: Section, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Sets of m rows (count, m, q), nearer to the middles, and places of labels (count, m).

        A label that is missing has a residual of its own, so that U has a direction close to it.
        """
        middles, factor, log = self.within(section)
        log = log / 2
        if len(section.left) >= len(log) > 2:
            log = log - (1 - section.left[: len(log)].square().sum(1)) / UNSEEN
        size = (count, len(section.sizes))
        labels = torch.from_numpy(rng.choice(len(log), size=size, p=log.softmax(0).numpy()))
        return middles[labels] + _spread(factor, (*size, section.free), rng) / 2, labels


UNSEEN = 0.1  # share of a label outside U that makes it e times less likely


def _spread(factor: Tensor, size: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Gaussian vectors (..., q) whose precision has this factor."""
    noise = torch.from_numpy(rng.standard_normal(size))
    spread: Tensor = torch.linalg.solve_triangular(factor.mT, noise.flatten(0, -2).mT, upper=True).mT
    return spread.view(size)
