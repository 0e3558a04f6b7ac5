"""Damped Gauss-Newton on  |A(z) - theta|^2  with theta the released weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.learning.coordinates import Coordinates
from lostwax.progress import progress

ROUNDS = 30


def bounded_step(curvature: Tensor, slope: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """The minimum of  s^T C s / 2 + g^T s  over  low <= s <= high, for b problems at once, (b, u).

    Projected Newton (Bertsekas 1982): a coordinate at a bound and pushed outwards is held. A problem whose curvature is
    not positive definite stops.
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
        half = torch.linalg.solve_triangular(factor, (gradient * free).unsqueeze(-1), upper=False)
        # torch.cholesky_solve fails on a GPU for batches of tables with some thousand rows (invalid argument)
        move = -torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(-1)
        move = torch.where(failed.unsqueeze(-1) > 0, 0.0, move)  # training diverged
        step, better, value = _search(curvature, slope, step, move, low, high, value)
        if not better.any():
            break
    return step


def free_step(normal: Tensor, slope: Tensor, damping: float) -> Tensor:
    """The minimum of  s^T (N + damping) s / 2 + g^T s,  (u,); NaN where the matrix is not positive definite."""
    damped = normal.clone()
    damped.diagonal().add_(damping)
    factor, failed = torch.linalg.cholesky_ex(damped)
    step = -torch.cholesky_solve(slope.unsqueeze(1), factor)[:, 0]
    return torch.full_like(step, torch.nan) if failed else step


def _search(
    curvature: Tensor, slope: Tensor, step: Tensor, move: Tensor, low: Tensor, high: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Line search over a few lengths, clamped to the bounds: the step, whether it improved, the value."""
    best, gained = step, torch.zeros_like(value, dtype=torch.bool)
    for length in (1.0, 0.5, 0.25, 0.1, 0.01):
        tried = torch.minimum(torch.maximum(step + length * move, low), high)
        curved = (curvature @ tried.unsqueeze(-1)).squeeze(-1)
        reached = (tried * (curved / 2 + slope)).sum(-1)
        better = reached < value - 1e-14 * value.abs()
        best = torch.where(better.unsqueeze(-1), tried, best)
        gained, value = gained | better, torch.where(better, reached, value)
    return best, gained, value


DAMPINGS = (1e-12, 1e-3, 1e-1, 1.0, 10.0)  # of the largest curvature, all tried at once
CAREFUL = (1e-3, 1e-1, 1.0)  # of a first step, from far away
GOOD = 0.3  # of the residual: after a step that leaves less, the Jacobian is used again
STALLED = 0.99
NEARLY = 2  # times what is enough: not worth another Jacobian
CHANGED = 0.5  # of how far a direction moves the weights: the most by which it may differ, which doubles an error
NUMBERS = 50_000_000  # in matrices that are solved together


class Linearised(NamedTuple):
    """Training, linearised at one record."""

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


class Ended(NamedTuple):
    """Where an iteration ended."""

    point: Point
    linear: Linearised  # the last one computed
    jacobians: int  # how many were


@dataclass(frozen=True, eq=False)
class Problem:
    """The map from records to released parameters: residuals by `exact`, in float64, Jacobians by `quick`."""

    exact: TrainingMap
    quick: TrainingMap
    coordinates: Coordinates

    def linear(self, a: Tensor, label: Tensor) -> Linearised:
        """At one record."""
        return Linearised.of(self.quick.tangents(self.coordinates(a), label, self.coordinates.directions))

    def exact_linear(self, a: Tensor, label: Tensor) -> Linearised:
        """The same in float64."""
        return Linearised.of(self.exact.tangents(self.coordinates(a), label, self.coordinates.directions))

    def moves(self, point: Point, along: Tensor, expected: Tensor) -> bool:
        """True if directions (w, r) move the weights at this point as a Jacobian of one nearby expects, (p, w).

        What the weights do not see at an answer at all, they see weakly nearby: so its weakest directions show it.
        """
        tangents = self.exact.tangents(self.coordinates(point.a), point.label, along @ self.coordinates.directions)
        return bool(((tangents.double() - expected).norm(dim=0) <= CHANGED * expected.norm(dim=0)).all())

    def linears(self, points: Sequence[Point]) -> list[Linearised]:
        """At the record of each point; together where they come from a linear response."""
        if not points or (responses := self.quick.responses) is None:
            return [self.linear(point.a, point.label) for point in points]
        z, label = self.coordinates(torch.stack([one.a for one in points])), torch.stack([one.label for one in points])
        rows = max(1, NUMBERS // (len(responses.access.directions) * len(self.coordinates.directions)))
        parts = [slice(first, first + rows) for first in range(0, len(points), rows)]
        along = self.coordinates.directions
        found = [self.quick.responded(z[part], label[part], responses, along) for part in parts]
        return [Linearised.of(one) for part in found for one in part]

    def points(self, a: Tensor, label: Tensor, released: Tensor) -> list[Point]:
        """At records (g, r) of classes (g, k), one per release (g, p)."""
        residuals = self.exact(self.coordinates(a), label) - released
        return [Point(*each) for each in zip(a, label, residuals, strict=True)]

    def steps(self, points: Sequence[Point], linears: Sequence[Linearised], released: Tensor) -> list[Point]:
        """From each point the best of several steps, by the models trained there, given its release (g, p)."""
        return self.best(points, self._tried(points, linears, DAMPINGS), released, self.exact)

    def first_steps(self, points: Sequence[Point], linears: Sequence[Linearised], released: Tensor) -> list[Point]:
        """The same by `quick`, for many points of which few will be followed."""
        return self.best(points, self._tried(points, linears, CAREFUL), released, self.quick)

    def descend(
        self,
        points: Sequence[Point],
        linears: Sequence[Linearised],
        released: Tensor,
        enough: Tensor,
        jacobians: int,
        stalled_at: float = STALLED,
    ) -> list[Ended]:
        """Step from each point, all games together, until its residual is `enough` (g,) or no step helps.

        The first Jacobians may be of records nearby; a game computes a new one when progress slows, up to `jacobians`.
        A step with one that leaves more than `stalled_at` of the residual is the last.
        """
        games = [Ended(point, linear, 0) for point, linear in zip(points, linears, strict=True)]
        fresh = [False] * len(games)  # the Jacobian is that of this point
        running = [number for number, game in enumerate(games) if game.point.distance > enough[number]]
        with progress("Newton's method: games", len(running)) as advance:
            while running:
                before = [games[number] for number in running]
                moved = self.steps([game.point for game in before], [game.linear for game in before], released[running])
                going, slow = [], []
                for number, game, point in zip(running, before, moved, strict=True):
                    left = point.distance / game.point.distance
                    stalled = fresh[number] and left > stalled_at
                    games[number], fresh[number] = game._replace(point=point), False
                    if stalled or point.distance <= enough[number]:
                        continue
                    if left > GOOD:
                        if game.jacobians == jacobians or point.distance <= NEARLY * enough[number]:
                            continue
                        slow.append(number)
                    going.append(number)
                for number, linear in zip(slow, self.linears([games[number].point for number in slow]), strict=True):
                    game = games[number]
                    games[number], fresh[number] = Ended(game.point, linear, game.jacobians + 1), True
                advance(len(running) - len(going))
                running = going
        return games

    def best(self, points: Sequence[Point], tried: Tensor, released: Tensor, weights: TrainingMap) -> list[Point]:
        """Of the records tried (g, f, r), the one whose model is closest to the release, or the point itself."""
        g, f, _ = tried.shape
        here = torch.stack([point.a for point in points]).unsqueeze(1)  # (g, 1, r)
        tried = torch.where(tried.isfinite(), tried, here)  # the victim diverged
        labels = torch.stack([point.label for point in points]).repeat_interleave(f, 0)
        trained = weights(self.coordinates(tried.flatten(0, 1)), labels).double()  # (g f, p)
        residuals = trained.view(g, f, -1) - released.unsqueeze(1)
        distances = residuals.norm(dim=2).nan_to_num(torch.inf)  # (g, f)
        least, best = (part.tolist() for part in distances.min(1))
        return [
            Point(tried[row, best[row]], point.label, residuals[row, best[row]])
            if least[row] < point.distance
            else point
            for row, point in enumerate(points)
        ]

    def _tried(self, points: Sequence[Point], linears: Sequence[Linearised], dampings: Sequence[float]) -> Tensor:
        """The minimum of  |J s + residual|^2 + damping |s|^2  within the bounds, for each damping: (g, f, r)."""
        size = max(1, NUMBERS // (len(dampings) * linears[0].normal.numel()))
        parts = [slice(start, start + size) for start in range(0, len(points), size)]
        return torch.cat([self._solved(points[part], linears[part], dampings) for part in parts])

    def _solved(self, points: Sequence[Point], linears: Sequence[Linearised], dampings: Sequence[float]) -> Tensor:
        a = torch.stack([point.a for point in points]).unsqueeze(1)  # (g, 1, r)
        slopes = [each.jacobian.double().mT @ point.residual for point, each in zip(points, linears, strict=True)]
        normal = torch.stack([each.normal for each in linears]).unsqueeze(1)  # (g, 1, r, r)
        largest = normal.diagonal(dim1=2, dim2=3).amax(2)  # (g, 1)
        damping = torch.tensor(dampings).to(a) * largest  # (g, f)
        if not (self.coordinates.low.isfinite().any() or self.coordinates.high.isfinite().any()):
            steps = [
                torch.stack([free_step(each.normal, slope, one) for one in mine.tolist()])
                for each, slope, mine in zip(linears, slopes, damping, strict=True)
            ]
            return a + torch.stack(steps)
        curvature = normal + torch.diag_embed(damping.unsqueeze(-1).expand(-1, -1, a.shape[2]))  # (g, f, r, r)
        slope = torch.stack(slopes).unsqueeze(1)
        low, high = self.coordinates.low - a, self.coordinates.high - a
        flat = [part.expand(*damping.shape, -1).flatten(0, 1) for part in (slope, low, high)]  # (g f, r) each
        return a + bounded_step(curvature.flatten(0, 1), *flat).view(*damping.shape, -1)
