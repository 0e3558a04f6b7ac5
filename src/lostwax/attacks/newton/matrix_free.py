"""Newton's method for large records, by products with the Jacobian alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.bank import CLASSES_RACED, Bank, Entry
from lostwax.attacks.newton.inverter import Inversion, as_guess, determined
from lostwax.attacks.newton.published import Published
from lostwax.attacks.newton.solver import Point, Problem
from lostwax.attacks.newton.training_map import Unrolled
from lostwax.games import Guess, Hints, Records, Release
from lostwax.learning.coordinates import Coordinates
from lostwax.progress import progress

Products = Callable[[Tensor], Tensor]
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

        One per damping (f,), in shares of the largest curvature, without further products. `noise` (m,) is the variance
        of a weight, `from_mean` (m, r) the unknowns' distance from the prior mean in its deviations.
        """
        normal = self.bidiagonal.mT @ self.bidiagonal  # (m, k, k)
        lifted = noise.unsqueeze(1) + dampings * normal.diagonal(dim1=1, dim2=2).amax(1, keepdim=True)  # (m, f)
        slope = self.length.unsqueeze(1) * self.bidiagonal[:, 0]  # (m, k) B^T (length e_1)
        slope = slope + noise.unsqueeze(1) * (self.basis @ from_mean.unsqueeze(2)).squeeze(2)
        curvature = normal.unsqueeze(1) + torch.diag_embed(lifted.unsqueeze(2).expand(-1, -1, slope.shape[1]))
        y = -torch.linalg.solve(curvature, slope.unsqueeze(1).expand(-1, len(dampings), -1))  # (m, f, k)
        steps: Tensor = y @ self.basis
        return steps


def golub_kahan(forward: Products, backward: Products, residual: Tensor, slope: Tensor, count: int) -> Bidiagonal:
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


FIRST = 4  # pairs of products at the first linearisation, twice as many at each further one
DAMPINGS = (1e-12, 1e-3, 1e-1)  # of the largest curvature, all tried at once
STALLED = 0.99
LEFT = 0.5  # of the squared residual: if the linearisations leave more, nothing was found


class Reached(NamedTuple):
    """A game's current point, and the part of the Jacobian that the last products showed."""

    point: Point
    basis: Tensor  # (j, r)
    bidiagonal: Tensor  # (j + 1, j)
    moved: Tensor  # (v,) by the last step that helped
    unexplained: float  # share of the squared residual that the linearisations predict to remain after all steps
    steps: int = 1  # linearisations so far

    def after(self, before: Reached) -> Reached:
        """The same, with the steps before it counted in."""
        unexplained, stood = before.unexplained * self.unexplained, bool((self.moved == 0).all())
        moved = before.moved if stood else self.moved
        return self._replace(steps=before.steps + 1, moved=moved, unexplained=unexplained)


@dataclass(frozen=True, eq=False)
class MatrixFree:
    """A prepared Newton that forms no Jacobian.

    Steps are scaled by the prior's deviations, so that a few products find the directions that matter most: 4, then
    twice as many at each step. Residuals are computed in the release's own precision: this never reaches rounding.
    """

    problem: Problem
    prior: Coordinates  # principal components of known and prior records, in their deviations
    bank: Bank
    published: Published
    products: int  # pairs of J v and J^T w per game, at most
    like: Records  # one record, for shapes, dtypes and devices

    @cached_property
    def deviations(self) -> Tensor:
        """(r, v) the prior's, in the unknowns."""
        directions = self.problem.coordinates.directions  # (v, u)
        return self.prior.directions @ directions.mT / directions.square().sum(1)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess each model's secrets."""
        return as_guess(self.invert(release, hints), self.like, release.flat().device)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        released = self.problem.exact.in_units(release.flat().double().to(self.like.x.device))  # (g, p)
        labels = None if hints is None or self.like.y.is_floating_point() else hints.labels
        likeliest = self.bank.likeliest(released, labels, self.problem.quick, self.problem.coordinates)
        starts = [[likely.entries[0] for likely in mine[:CLASSES_RACED]] for mine in likeliest]
        floor = self._rounding([mine[0] for mine in starts])  # (g,)
        games = self._race(starts, released, floor)
        spent, count, running = FIRST, 2 * FIRST, list(range(len(games)))
        with progress("Newton's method: products with the Jacobian, at most", self.products) as advance:
            while spent < self.products:
                running = [g for g in running if games[g].point.distance > floor[g]]
                if not running:
                    break
                count = min(count, self.products - spent)
                before = [games[g] for g in running]
                moved = self._steps([one.point for one in before], released[running], floor[running], count)
                for g, one in zip(running, moved, strict=True):
                    games[g] = one.after(games[g])
                far = [STALLED * one.point.distance for one in before]
                running = [g for g, most in zip(running, far, strict=True) if games[g].point.distance <= most]
                advance(count)
                spent, count = spent + count, 2 * count
        found = [self._evidence(one, float(least)) for one, least in zip(games, floor, strict=True)]
        return [
            one.or_start(mine[0], self.problem.coordinates, weights)
            for one, mine, weights in zip(found, likeliest, released, strict=True)
        ]

    def _race(self, starts: list[list[Entry]], released: Tensor, floor: Tensor) -> list[Reached]:
        """One step from each of a game's starts; the one closest to the release continues."""
        entries = [(g, entry) for g, mine in enumerate(starts) for entry in mine]
        games = [g for g, _ in entries]
        a, label = (torch.stack(part) for part in zip(*((one.a, one.label) for _, one in entries), strict=True))
        points = self.problem.points(a, label, released[games])
        reached = self._steps(points, released[games], floor[games], min(FIRST, self.products))
        raced: list[list[Reached]] = [[] for _ in starts]
        for g, one in zip(games, reached, strict=True):
            raced[g].append(one)
        return [min(mine, key=lambda one: one.point.distance) for mine in raced]

    def _steps(self, points: list[Point], released: Tensor, floor: Tensor, count: int) -> list[Reached]:
        """A Gauss-Newton step by `count` products from every point, as many points at a time as fit into memory."""
        together = self.problem.quick.together
        parts = [slice(first, first + together) for first in range(0, len(points), together)]
        return [one for part in parts for one in self._stepped(points[part], released[part], floor[part], count)]

    def _stepped(self, points: list[Point], released: Tensor, floor: Tensor, count: int) -> list[Reached]:
        unknowns, deviations = self.problem.coordinates, self.deviations
        a, label, residual = (torch.stack(part) for part in zip(*points, strict=True))  # (g, v), (g, k), (g, p)
        training = Unrolled.of(self.problem.quick, unknowns(a), label)
        slope = training.backward(residual).double() @ unknowns.directions.mT  # (g, v) J^T residual
        # coordinates at a bound and pushed outwards are held, as in bounded_step
        free = ~(((a <= unknowns.low) & (slope > 0)) | ((a >= unknowns.high) & (slope < 0)))  # (g, v)
        reduced = golub_kahan(
            lambda s: training.forward((s @ deviations * free) @ unknowns.directions),
            lambda w: (training.backward(w).double() @ unknowns.directions.mT * free) @ deviations.mT,
            residual,
            (slope * free) @ deviations.mT,
            count,
        )
        noise = floor.square() / residual.shape[1]  # (g,) of a weight
        steps = reduced.steps(torch.tensor(DAMPINGS).to(a), noise, self.prior.of_records(unknowns(a)))  # (g, f, r)
        tried = unknowns.clamped(a.unsqueeze(1) + steps @ deviations * free.unsqueeze(1))  # (g, f, v)
        moved = self.problem.best(points, tried, released, self.problem.exact)
        by = torch.stack([point.a for point in moved]) - a
        unexplained = torch.where(by.any(1), reduced.unexplained, 1.0).tolist()  # no step helped
        return [Reached(*each) for each in zip(moved, reduced.basis, reduced.bidiagonal, by, unexplained, strict=True)]

    def _rounding(self, entries: list[Entry]) -> Tensor:
        z = self.problem.coordinates(torch.stack([entry.a for entry in entries]))
        exact = self.problem.exact.computed_in(torch.float64)
        return self.published.rounding(exact, z, torch.stack([entry.label for entry in entries]))

    def _evidence(self, game: Reached, rounding: float) -> Inversion:
        """The predicted error is the last step's length, about that of a next one.

        Where the linearisations leave most of the residual unexplained, the class is wrong or a kink was crossed, and
        the predicted error is the prior's variance. Whether the release determines the record follows from the last
        products alone: the unknowns have precision  I + V^T B^T B V / noise  and  B = U S T^T.
        """
        point, directions, k = game.point, self.prior.directions, self.problem.exact.secrets
        noise = max(point.distance, rounding) ** 2 / len(point.residual)
        _, sizes, turned = torch.linalg.svd(game.bidiagonal.nan_to_num(0.0), full_matrices=False)  # (j,), (j, j)
        known = 1 - 1 / (1 + sizes.square() / noise)  # (j,) share of the prior's variance that is gone
        gone = known @ (turned @ game.basis.nan_to_num(0.0) @ directions).square()  # (u,)
        prior, gone, moved = (
            part.view(k, -1)[:, : self.problem.exact.numbers]  # (k, d)
            for part in (directions.square().sum(0), gone, (game.moved @ self.problem.coordinates.directions).square())
        )
        share = moved.mean(1, keepdim=True) / prior.mean(1, keepdim=True)  # (k, 1)
        share = torch.where((share > 0) & (game.unexplained <= LEFT), share, 1).clamp_max(1)
        return Inversion(
            record=self.problem.coordinates(point.a),
            label=point.label,
            residual=point.distance,
            rounding=rounding,
            variance=prior * share,
            prior_variance=prior,
            directions=sizes,
            determined=determined(prior - gone, prior, pictures=self.problem.exact.known.x.ndim > 2),
            jacobians=game.steps,
        )
