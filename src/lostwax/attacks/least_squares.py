"""Damped Gauss-Newton for many games at once: one loop, whatever is fitted and however its steps are solved for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from lostwax.progress import progress
from lostwax.seeds import generator

PROJECTIONS = 30  # of a step within bounds, at most
MAX_TABLE_NUMBERS = 50_000_000  # in matrices that are solved together


class Linearised(NamedTuple):
    """A function of the unknowns, linearised at one point."""

    jacobian: Tensor  # (p, r)
    normal: Tensor  # (r, r) J^T J, float64

    @classmethod
    def of(cls, jacobian: Tensor) -> Linearised:
        """From the Jacobian in any precision."""
        jacobian = jacobian.nan_to_num(0.0, 0.0, 0.0)  # training diverged
        exact = jacobian.double()
        return cls(jacobian, exact.mT @ exact)


class Point(NamedTuple):
    """A guess, and how far the model trained on it is from the release."""

    a: Tensor  # (r,)
    label: Tensor  # (k,)
    residual: Tensor  # (p,) A(z) - theta, float64

    @property
    def distance(self) -> float:
        """|A(z) - theta|."""
        return float(self.residual.norm())


Linear = TypeVar("Linear")


@dataclass(eq=False)
class GameSearch(Generic[Linear]):
    """One game's search."""

    point: Point
    linear: Linear  # the last one computed
    released: Tensor  # (p,) theta
    enough: float = 0.0  # a residual at which it ends
    jacobians: int = 0  # computed
    fresh: bool = False  # the last one is that of this point
    damping: float = 1.0  # of the last step that helped, where dampings adapt
    moved: Tensor | None = None  # (r,) by the last step that helped


Begun = TypeVar("Begun")
Result = TypeVar("Result")


def in_turn(
    starts: Sequence[Sequence[Begun]],
    search: Callable[[Sequence[int], list[Begun]], list[Result]],
    good: Callable[[int, Result], bool],
    better: Callable[[Result, Result], Result],
) -> list[Result]:
    """The best result of each game, from its starts in turn until one is good; all games are searched together.

    `search` gets the numbers of some games and a start of each.
    """
    best = search(range(len(starts)), [mine[0] for mine in starts])
    for turn in range(1, max(map(len, starts))):
        again = [g for g, mine in enumerate(starts) if turn < len(mine) and not good(g, best[g])]
        if not again:
            break
        for g, result in zip(again, search(again, [starts[g][turn] for g in again]), strict=True):
            best[g] = better(best[g], result)
    return best


class Rule(NamedTuple):
    """How steps are tried, and when a search ends; shares are those of the sum that a step leaves."""

    dampings: tuple[float, ...]  # of the curvature, all tried at once
    stalled: float  # with a new Jacobian a step that leaves more is the last
    good: float = 0.0  # after a step that leaves no more, the Jacobian is used again
    nearly: float = 1.0  # times what is enough: not worth another Jacobian
    raised: float = 0.0  # factor on the damping after steps that do not help; 0: dampings do not adapt
    eased: float = 1.0  # the same after a step that helps
    damping_range: tuple[float, float] = (0.0, 0.0)


S = TypeVar("S", bound="GameSearch[Any]")


class LeastSquares(ABC, Generic[S]):
    """Sums of squares  |A(a) - theta|^2,  or more, of several games, as functions of their unknowns a (r,)."""

    @abstractmethod
    def residuals(self, searches: Sequence[S], tried: Tensor) -> Tensor:
        """(g, f, p) at unknowns (g, f, r)."""

    @abstractmethod
    def linearise(self, searches: Sequence[S]) -> None:
        """Compute the Jacobian of each search at its point."""

    def values(self, searches: Sequence[S], tried: Tensor, residuals: Tensor) -> Tensor:
        """(g, f) what is minimised, at unknowns (g, f, r) with residuals (g, f, p)."""
        norms: Tensor = residuals.norm(dim=2)
        return norms

    @abstractmethod
    def candidates(self, searches: Sequence[S], dampings: Tensor) -> Tensor:
        """(g, f, r) unknowns where steps with dampings (g, f) lead."""

    def step(self, searches: Sequence[S], rule: Rule) -> list[float]:
        """Move each search to the best of several steps, if that is better; the share of its sum that remains."""
        here = torch.stack([search.point.a for search in searches]).unsqueeze(1)  # (g, 1, r)
        dampings = torch.tensor(rule.dampings).to(here.device, torch.float64)
        dampings = dampings * dampings.new_tensor([[search.damping] for search in searches])  # (g, f)
        tried = self.candidates(searches, dampings)
        tried = torch.where(tried.isfinite(), tried, here)  # the victim diverged
        residuals = self.residuals(searches, tried)
        values = self.values(searches, tried, residuals).nan_to_num(torch.inf)
        before = self.values(searches, here, torch.stack([s.point.residual for s in searches]).unsqueeze(1))
        least, places = (part.tolist() for part in values.min(1))
        shares = []
        for row, (search, place) in enumerate(zip(searches, places, strict=True)):
            value = float(before[row])
            helps = least[row] < value
            shares.append(least[row] / value if helps else 1.0)
            if helps:
                search.moved = tried[row, place] - search.point.a
                search.point = Point(tried[row, place], search.point.label, residuals[row, place])
                if rule.raised:
                    eased = rule.eased * float(dampings[row, min(place, dampings.shape[1] - 1)])
                    search.damping = max(eased, rule.damping_range[0])
        return shares

    def descend(
        self, searches: Sequence[S], rule: Rule, jacobians: int, solved: Callable[[Point], bool] | None = None
    ) -> None:
        """Step from each point, all games together, until its residual is enough, it is solved or no step helps.

        The first Jacobians may be of points nearby; a search computes a new one when progress slows, up to `jacobians`.
        """
        limits = [search.jacobians + jacobians for search in searches]
        running = [n for n, search in enumerate(searches) if search.point.distance > search.enough]
        with progress("Gauss-Newton: searches", len(running)) as advance:
            while running:
                going, slow = [], []
                for n, share in zip(running, self.step([searches[n] for n in running], rule), strict=True):
                    search = searches[n]
                    fresh, search.fresh = search.fresh, search.fresh and share == 1
                    distance = search.point.distance
                    if distance <= search.enough or (share < 1 and solved is not None and solved(search.point)):
                        continue
                    if share > rule.good:
                        if search.jacobians == limits[n] or distance <= rule.nearly * search.enough:
                            continue
                        if not (fresh and share > rule.stalled):
                            slow.append(n)
                        elif share == 1 and search.damping <= rule.damping_range[1]:
                            search.damping *= rule.raised
                        else:
                            continue
                    going.append(n)
                self.linearise([searches[n] for n in slow])
                advance(len(running) - len(going))
                running = going


class Dense(LeastSquares[S]):
    """Steps from a table, N (r, r)."""

    @abstractmethod
    def quadratic(self, search: S) -> tuple[Tensor, Tensor, Tensor | float]:
        """N (r, r) and g (r,) of the sum at the search's point,  s^T N s / 2 + g^T s,  and the unit of its damping."""

    @property
    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """(r,) each, of the unknowns."""
        return None

    def candidates(self, searches: Sequence[S], dampings: Tensor) -> Tensor:
        """(g, f, r) unknowns where steps with dampings (g, f) lead."""
        return torch.stack([search.point.a for search in searches]).unsqueeze(1) + self.steps(searches, dampings)

    def steps(self, searches: Sequence[S], dampings: Tensor) -> Tensor:
        """(g, f, r) the minima of  s^T (N + damping) s / 2 + g^T s,  within the bounds, for dampings (g, f)."""
        if self.bounds is None:  # one after the other: tables may be large
            return torch.stack([self._free_steps(*each) for each in zip(searches, dampings, strict=True)])
        count = max(1, MAX_TABLE_NUMBERS // (dampings.shape[1] * len(searches[0].point.a) ** 2))
        parts = [slice(first, first + count) for first in range(0, len(searches), count)]
        return torch.cat([self._bounded_steps(searches[part], dampings[part]) for part in parts])

    def _free_steps(self, search: S, dampings: Tensor) -> Tensor:
        normal, slope, unit = self.quadratic(search)
        return torch.stack([_free_step(normal, slope, damping * unit) for damping in dampings])

    def _bounded_steps(self, searches: Sequence[S], dampings: Tensor) -> Tensor:
        assert self.bounds is not None
        a = torch.stack([search.point.a for search in searches]).unsqueeze(1)  # (g, 1, r)
        forms = [self.quadratic(search) for search in searches]
        lifted = torch.stack([mine * unit for mine, (_, _, unit) in zip(dampings, forms, strict=True)])  # (g, f)
        curvature = torch.stack([normal for normal, _, _ in forms]).unsqueeze(1)  # (g, 1, r, r)
        curvature = curvature + torch.diag_embed(lifted.unsqueeze(-1).expand(-1, -1, a.shape[2]))
        slope = torch.stack([slope for _, slope, _ in forms]).unsqueeze(1)
        low, high = (bound - a for bound in self.bounds)
        flat = [part.expand(*lifted.shape, -1).flatten(0, 1) for part in (slope, low, high)]  # (g f, r) each
        return bounded_step(curvature.flatten(0, 1), *flat).view(*lifted.shape, -1)


def _free_step(normal: Tensor, slope: Tensor, damping: Tensor) -> Tensor:
    """(r,) one such minimum without bounds; 0 where the matrix is not positive definite."""
    damped = normal.clone()
    damped.diagonal().add_(damping)
    factor, failed = torch.linalg.cholesky_ex(damped)
    return torch.zeros_like(slope) if failed else -torch.cholesky_solve(slope.unsqueeze(1), factor)[:, 0]


def bounded_step(curvature: Tensor, slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The minimum of  s^T C s / 2 + g^T s  over  low <= s <= high, for b problems at once, (b, u).

    Projected Newton (Bertsekas 1982): a coordinate at a bound and pushed outwards is held. A problem whose curvature is
    not positive definite stops.
    """
    step = torch.zeros_like(slope)  # (b, u)
    value = torch.zeros_like(slope[:, 0])  # (b,)
    for _ in range(PROJECTIONS):
        gradient = (curvature @ step.unsqueeze(-1)).squeeze(-1) + slope
        free = (~(((step <= low) & (gradient > 0)) | ((step >= high) & (gradient < 0)))).to(slope)
        # rows and columns of held coordinates become those of the identity
        masked = curvature * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(1 - free)
        factor, failed = torch.linalg.cholesky_ex(masked)
        half = torch.linalg.solve_triangular(factor, (gradient * free).unsqueeze(-1), upper=False)
        # torch.cholesky_solve fails on a GPU for batches of tables with some thousand rows (invalid argument)
        move = -torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(-1)
        move = torch.where(failed.unsqueeze(-1) > 0, 0.0, move)  # training diverged
        best, improved = step, torch.zeros_like(value, dtype=torch.bool)
        for length in (1.0, 0.5, 0.25, 0.1, 0.01):  # line search
            tried = torch.minimum(torch.maximum(step + length * move, low), high)
            curved = (curvature @ tried.unsqueeze(-1)).squeeze(-1)
            reached = (tried * (curved / 2 + slope)).sum(-1)
            better = reached < value - 1e-14 * value.abs()
            best = torch.where(better.unsqueeze(-1), tried, best)
            improved, value = improved | better, torch.where(better, reached, value)
        step = best
        if not improved.any():
            break
    return step


Product = Callable[[Tensor], Tensor]
TINY = 1e-300


class Bidiagonal(NamedTuple):
    """J V^T = U B on a small space, for each of m games: V (k, r) and U (k + 1, p) have orthonormal rows.

    U begins with the residual, so that  |J s + residual|  for  s = V^T y  is  |B y + length e_1|.
    """

    basis: Tensor  # (m, k, r) V
    bidiagonal: Tensor  # (m, k + 1, k) B
    length: Tensor  # (m,) |residual|

    @property
    def unexplained(self) -> Tensor:
        """(m,) share of the squared residual left by the best step within the space,  min |B y + e_1|^2."""
        left, sizes, _ = torch.linalg.svd(self.bidiagonal.nan_to_num(0.0), full_matrices=False)  # (m, k + 1, k), (m, k)
        seen = sizes > torch.finfo(sizes.dtype).eps * sizes[:, :1] * sizes.shape[1]
        explained: Tensor = (left[:, 0].square() * seen).sum(1)
        return 1 - explained

    def steps(self, dampings: Tensor, noise: Tensor, from_mean: Tensor) -> Tensor:
        """The minima of  |J s + residual|^2 + noise |s + from_mean|^2 + damping |s|^2  within the space, (m, f, r).

        One per damping (m, f), in shares of the largest curvature. `noise` (m,) is the variance of a weight and
        `from_mean` (m, r) the unknowns' distance from the prior mean in its deviations.
        """
        normal = self.bidiagonal.mT @ self.bidiagonal  # (m, k, k)
        lifted = noise.unsqueeze(1) + dampings * normal.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)  # (m, f)
        slope = self.length.unsqueeze(1) * self.bidiagonal[:, 0]  # (m, k) B^T (length e_1)
        slope = slope + noise.unsqueeze(1) * (self.basis @ from_mean.unsqueeze(2)).squeeze(2)
        curvature = normal.unsqueeze(1) + torch.diag_embed(lifted.unsqueeze(2).expand(-1, -1, slope.shape[1]))
        y = -torch.linalg.solve(curvature, slope.unsqueeze(1).expand(-1, lifted.shape[1], -1))  # (m, f, k)
        steps: Tensor = y @ self.basis
        return steps


def golub_kahan(forward: Product, backward: Product, residual: Tensor, slope: Tensor, count: int) -> Bidiagonal:
    """Golub-Kahan bidiagonalisation (1965) from residuals (m, p), with `count` products J v and as many J^T w.

    `slope` is the first product, J^T residual (m, r). Every vector is made orthogonal to all before it, for float32.
    """
    length = residual.norm(dim=1)
    lefts = (residual / length.clamp_min(TINY).unsqueeze(1)).unsqueeze(1)  # (m, 1, p)
    rights = residual.new_zeros(len(residual), 0, 0)
    entries: list[tuple[Tensor, Tensor]] = []
    for turn in range(count):
        back = backward(lefts[:, -1]) if turn else slope / length.clamp_min(TINY).unsqueeze(1)
        right, diagonal = _orthonormal(back.double(), rights)
        rights = right.unsqueeze(1) if turn == 0 else torch.cat([rights, right.unsqueeze(1)], 1)
        moved, below = _orthonormal(forward(right).double(), lefts)
        lefts = torch.cat([lefts, moved.unsqueeze(1)], 1)
        entries.append((diagonal, below))
    bidiagonal = residual.new_zeros(len(residual), count + 1, count)
    for turn, (diagonal, below) in enumerate(entries):
        bidiagonal[:, turn, turn], bidiagonal[:, turn + 1, turn] = diagonal, below
    return Bidiagonal(rights, bidiagonal, length)


def _orthonormal(new: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """A new row (m, n) made orthogonal to the rows before (m, j, n), normalised; and its length before that, (m,)."""
    for _ in range(2 if before.numel() else 0):  # twice is enough
        new = new - ((new.unsqueeze(1) @ before.mT) @ before).squeeze(1)
    length = new.norm(dim=1)
    return new / length.clamp_min(TINY).unsqueeze(1), length


def conjugate_gradients(
    product: Product,
    slope: Tensor,
    shifts: Tensor,
    count: int,
    tolerance: float = 0.0,
    enough: Callable[[Tensor], bool] = lambda _: False,
) -> Tensor:
    """x (m, f, r) of  (A + shift) x = slope (m, r),  by at most `count` products A v of m games; for shifts (m, f).

    All shifts share one Krylov space (Jegerlehner 1996): residuals of the others are multiples, zeta, of those of the
    smallest.
    """
    least = shifts.amin(1, keepdim=True)  # (m, 1)
    x, zeta, zeta_before = slope.new_zeros(*shifts.shape, slope.shape[1]), *torch.ones(2, *shifts.shape).to(slope)
    along, towards, residual = slope, slope.unsqueeze(1).expand_as(x), slope
    square = slope.square().sum(1, keepdim=True)
    step_before, share, goal = torch.ones_like(square), torch.zeros_like(square), tolerance**2 * square
    for _ in range(count):
        curved = product(along) + least * along
        step = square / (along * curved).sum(1, keepdim=True).clamp_min(TINY)
        lifted = zeta_before * step_before * (1 + (shifts - least) * step) + step * share * (zeta_before - zeta)
        ratio = zeta_before * step_before / lifted.clamp_min(TINY)
        x = x + (step * ratio).unsqueeze(2) * towards
        residual = residual - step * curved
        share = residual.square().sum(1, keepdim=True) / square.clamp_min(TINY)
        zeta_before, zeta, step_before = zeta, zeta * ratio, step
        towards = zeta.unsqueeze(2) * residual.unsqueeze(1) + (share * ratio.square()).unsqueeze(2) * towards
        along, square = residual + share * along, share * square
        if (square <= goal).all() or enough(x):
            break
    return x


ROUNDED = 100  # times the rounding of a number: that of a Jacobian, after many steps
INVERSE_ITERATIONS = 4


class Factored(NamedTuple):
    """J = Q R  in deviations of the prior, float64."""

    jacobian: Tensor  # (p, r)
    factor: Tensor  # (r, r) R, upper triangular
    inverse: Tensor  # (r, r) of R

    @classmethod
    def of(cls, jacobian: Tensor) -> Factored:
        """Of at least as many weights as unknowns; a weight whose derivatives are not all numbers says nothing."""
        jacobian = torch.where(jacobian.isfinite().all(1, keepdim=True), jacobian, 0.0)
        factor = torch.linalg.qr(jacobian, mode="r").R
        unit = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return cls(jacobian, factor, torch.linalg.solve_triangular(factor, unit, upper=True))

    @property
    def weakest(self) -> float:
        """A lower bound of the singular values,  1 / |R^-1|  in the Frobenius norm."""
        return 1 / float(self.inverse.norm())

    @property
    def seen(self) -> bool:
        """True if no singular value is as small as the rounding of the Jacobian and of its factors makes them."""
        rounding = max(ROUNDED, len(self.factor)) * torch.finfo(self.factor.dtype).eps
        return self.weakest > rounding * float(self.factor.norm())

    @property
    def directions(self) -> Tensor:
        """(r,) the singular values, largest first; those lost in R^T R are given as their lower bound."""
        squares: Tensor = torch.linalg.eigvalsh(self.factor.mT @ self.factor)
        return squares.clamp_min(0).sqrt().clamp_min(self.weakest).flip(0)

    def weakest_directions(self, count: int) -> Tensor:
        """(w, r) about the right singular vectors of the smallest values, by a few rounds of inverse iteration."""
        drawn = generator(0, "weakest").standard_normal((len(self.inverse), min(count, len(self.inverse))))
        directions = torch.from_numpy(drawn).to(self.inverse)
        for _ in range(INVERSE_ITERATIONS):
            directions = torch.linalg.qr(self.inverse @ (self.inverse.mT @ directions)).Q  # by  (R^T R)^-1
        return directions.mT

    def step(self, residual: Tensor) -> Tensor:
        """(r,) the minimum of  |J s + residual|,  by the corrected seminormal equations (Bjorck 1987)."""
        first = self._solved(residual)
        return first + self._solved(residual + self.jacobian @ first)

    def _solved(self, residual: Tensor) -> Tensor:
        """s  from  R^T R s = -J^T residual."""
        return -(self.inverse @ (self.inverse.mT @ (self.jacobian.mT @ residual)))

    def variance(self, noise: float) -> Tensor:
        """(r,) of the unknowns, from noise of this variance on each weight: at most that of the prior, 1."""
        return (noise * self.inverse.square().sum(1)).clamp_max(1)
