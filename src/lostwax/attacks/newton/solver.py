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
    if slope.device.type == "cpu" and len(slope) > 1:  # alone each is solved in cache, and stops when it is done
        problems = zip(*(torch.split(part, 1) for part in (curvature, slope, low, high)), strict=True)
        return torch.cat([bounded_step(*one) for one in problems])
    step = torch.zeros_like(slope)  # (b, u)
    value = torch.zeros_like(slope[:, 0])  # (b,)
    for _ in range(ROUNDS):
        gradient = (curvature @ step.unsqueeze(-1)).squeeze(-1) + slope
        held = ((step <= low) & (gradient > 0)) | ((step >= high) & (gradient < 0))
        move = _move_of_one(curvature, gradient, ~held) if len(slope) == 1 else _moves(curvature, gradient, ~held)
        step, better, value = _search(curvature, slope, step, move, low, high, value)
        if not better.any():
            break
    return step


def _move_of_one(curvature: Tensor, gradient: Tensor, free: Tensor) -> Tensor:
    """(1, u) Newton's move of the free coordinates of one problem; 0 if the curvature is not positive definite."""
    move, rows = torch.zeros_like(gradient), free[0].nonzero()[:, 0]
    factor, failed = torch.linalg.cholesky_ex(curvature[0][rows][:, rows])
    if not failed and len(rows):
        move[0, rows] = -torch.cholesky_solve(gradient[0, rows].unsqueeze(1), factor)[:, 0]
    return move


def _moves(curvature: Tensor, gradient: Tensor, free: Tensor) -> Tensor:
    """(b, u) the same of several problems at once."""
    free = free.to(gradient)
    # rows and columns of held coordinates become those of the identity
    masked = curvature * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(1 - free)
    factor, failed = torch.linalg.cholesky_ex(masked)
    half = torch.linalg.solve_triangular(factor, (gradient * free).unsqueeze(-1), upper=False)
    # torch.cholesky_solve fails on a GPU for batches of tables with some thousand rows (invalid argument)
    move = -torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(-1)
    return torch.where(failed.unsqueeze(-1) > 0, 0.0, move)  # training diverged


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


DAMPINGS = (1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-1, 1.0)  # of the largest curvature, all tried at once
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
        """From each point the best of several steps, by the models trained there, given its release (g, p).

        Each step is tried as it is and with a second-order correction, a further step with the same Jacobian: a step
        that is right for most of the record can raise the residual, if training is curved in the few directions that
        move the weights most (the Maratos effect; Nocedal and Wright 2006, section 15.5).
        """
        once = self._tried(*_here(points, len(DAMPINGS)), linears, DAMPINGS)  # (g, f, r)
        residuals = self._residuals(points, once, released, self.exact)
        twice = self._tried(once, residuals, linears, DAMPINGS)
        residuals = torch.cat([residuals, self._residuals(points, twice, released, self.exact)], 1)  # (g, 2 f, p)
        return _closest(points, torch.cat([once, twice], 1), residuals)

    def first_steps(self, points: Sequence[Point], linears: Sequence[Linearised], released: Tensor) -> list[Point]:
        """One step each by `quick`, for many points of which few will be followed."""
        tried = self._tried(*_here(points, len(CAREFUL)), linears, CAREFUL)
        return self.best(points, tried, released, self.quick)

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
        here, _ = _here(points, tried.shape[1])
        tried = torch.where(tried.isfinite(), tried, here)  # the victim diverged
        return _closest(points, tried, self._residuals(points, tried, released, weights))

    def _residuals(self, points: Sequence[Point], tried: Tensor, released: Tensor, weights: TrainingMap) -> Tensor:
        """(g, f, p) of the models trained on records (g, f, r)."""
        g, f, _ = tried.shape
        labels = torch.stack([point.label for point in points]).repeat_interleave(f, 0)
        trained = weights(self.coordinates(tried.flatten(0, 1)), labels).double()  # (g f, p)
        return trained.view(g, f, -1) - released.unsqueeze(1)

    def _tried(self, a: Tensor, residuals: Tensor, linears: Sequence[Linearised], dampings: Sequence[float]) -> Tensor:
        """The minimum of  |J s + residual|^2 + damping |s|^2  within the bounds, for each damping: (g, f, r).

        From records (g, f, r) with residuals (g, f, p), one per damping; those themselves where there is no minimum.
        """
        size = max(1, NUMBERS // (len(dampings) * linears[0].normal.numel()))
        parts = [slice(start, start + size) for start in range(0, len(a), size)]
        tried = torch.cat([self._solved(a[part], residuals[part], linears[part], dampings) for part in parts])
        return torch.where(tried.isfinite(), tried, a)  # the victim diverged

    def _solved(self, a: Tensor, residuals: Tensor, linears: Sequence[Linearised], dampings: Sequence[float]) -> Tensor:
        each = zip(residuals, linears, strict=True)
        slopes = torch.stack([mine @ linear.jacobian.double() for mine, linear in each])  # (g, f, r)
        normal = torch.stack([each.normal for each in linears]).unsqueeze(1)  # (g, 1, r, r)
        largest = normal.diagonal(dim1=2, dim2=3).amax(2)  # (g, 1)
        damping = torch.tensor(dampings).to(a) * largest  # (g, f)
        if not (self.coordinates.low.isfinite().any() or self.coordinates.high.isfinite().any()):
            steps = [
                torch.stack([free_step(each.normal, *one) for one in zip(slope, mine.tolist(), strict=True)])
                for each, slope, mine in zip(linears, slopes, damping, strict=True)
            ]
            return a + torch.stack(steps)
        curvature = normal + torch.diag_embed(damping.unsqueeze(-1).expand(-1, -1, a.shape[2]))  # (g, f, r, r)
        low, high = self.coordinates.low - a, self.coordinates.high - a
        flat = [part.flatten(0, 1) for part in (curvature, slopes, low, high)]  # (g f, ...) each
        return a + bounded_step(*flat).view_as(a)


def _here(points: Sequence[Point], count: int) -> tuple[Tensor, Tensor]:
    """(g, f, r) and (g, f, p) each point and its residual, `count` times."""
    return (
        torch.stack([point.a for point in points]).unsqueeze(1).expand(-1, count, -1),
        torch.stack([point.residual for point in points]).unsqueeze(1).expand(-1, count, -1),
    )


def _closest(points: Sequence[Point], tried: Tensor, residuals: Tensor) -> list[Point]:
    """Of the records tried (g, f, r), the one with the smallest residual (g, f, p), or the point itself."""
    least, best = (part.tolist() for part in residuals.norm(dim=2).nan_to_num(torch.inf).min(1))
    return [
        Point(tried[row, best[row]], point.label, residuals[row, best[row]]) if least[row] < point.distance else point
        for row, point in enumerate(points)
    ]
