"""Records as corners: within the space that a training set spans, few points have all their numbers in range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.learning.coordinates import Coordinates
from lostwax.progress import progress

TOGETHER = 20  # templates; the next ones stay apart from what they find
TURNS = 8  # with all templates, then with means of two of them
HOPELESS = 40  # templates without any record, after which it ends
FRUITLESS = 20  # templates in a row without a new record, for each record of the set, after which it ends
FEWEST = 100  # the same for the whole set, at least; or where doubtful corners make up for the records not found
SURPLUS = 4  # constraints that can be left out without freeing the corner: a coincidence has none to spare
LIKELY = 0.8  # of the numbers at a bound of any record found: a doubtful corner with fewer is hardly one
SAME = 1e-5  # largest difference of two finds of one corner
APART_FROM = 1e-4  # of its distance: how far a point is from all mixtures of others
FREE = 1e-6  # a constraint with a leverage closer to 1 is needed
SOLVED = 1e-6  # how far the steps leave a number from its bound
EXACT = 1e-9  # how far from it a number is where all constraints meet
BLUR = 3  # times the noise: how far noise moves a number from its bound

Array = NDArray[np.float64]


DIGITS = np.geomspace(3e-4, 1e-7, 4)  # the last few steps are for these
# `near` of the template's weights  1 / (y^2 + near^2)  and of each step's, and the weight of a number outside its range
# over that of one at its bound
LOCAL = (0.003, *np.geomspace(0.003, 0.001, 30), *DIGITS), 100.0  # finds what is like the template
GLOBAL = (0.03, *np.geomspace(0.2, 0.01, 35), *DIGITS), 3_000.0  # ... has most numbers at a bound


class Corners(NamedTuple):
    """Points of the space with many numbers at a bound."""

    sure: Tensor  # (c, r) records
    doubtful: Tensor  # (e, r) those that a few numbers alone hold in place, and no mixtures of others or of records


def corners(
    space: Coordinates,
    low: Tensor,
    high: Tensor,
    templates: Tensor,
    count: int,
    noise: float,
    before: Corners | None = None,
    near: Tensor | None = None,
) -> Corners:
    """At most `count` records, each beyond coincidence, of those that span the space; d numbers each.

    A digit is black almost everywhere. Where it is, the other records of its training set are not all black, so that
    every step away from it within their space makes some number negative: the record is a corner of the polytope

        { a :  low <= origin + a directions <= high }

    with many more numbers at a bound than a corner needs. Corners without that surplus are not returned; those with a
    surplus that leaves some direction to a few numbers are doubtful. Neither the net nor its training matters beyond
    the space. Templates (t, d) are other records; `noise` is the error of the numbers of the space. With corners found
    `before`, others are looked for; with guesses `near` them (g, d), from these alone.
    """
    cone, same = _Cone.of(space, low, high, templates, noise), SAME + 10 * noise
    sure, doubtful = (
        [corner for a in part.cpu().numpy() if (corner := cone.corner(a)) is not None]
        for part in before or Corners(templates[:0], templates[:0])
    )
    starts, turns = (templates, TURNS) if near is None else (near, 1)
    starts, fruitless, likely = starts.to(space.directions), 0, _likely(sure, doubtful, count, same)
    # templates, then means of two, a few at a time
    batches = (part for turn in range(turns) for part in torch.split((starts + starts.roll(turn, 0)) / 2, TOGETHER))
    with progress("Newton's method: templates for corners", turns * len(starts)) as advance:
        for number, batch in enumerate(batches):
            known_before = len(sure)
            for point in cone.sparse(batch, [corner.point for corner in sure], GLOBAL if number % 2 else LOCAL):
                # what was doubtful may be held by numbers that were not seen at their bound
                if (corner := cone.corner(point)) is not None and _is_new(corner, sure, same):
                    if cone.holds(corner):
                        sure.append(corner)
                    elif _is_new(corner, doubtful, same):
                        doubtful.append(corner)
            advance(len(batch))
            fruitless = 0 if len(sure) > known_before else fruitless + len(batch)
            likely = _likely(sure, doubtful, count, same)
            enough = FEWEST if len(sure) + len(likely) >= count else max(FEWEST, FRUITLESS * count)
            if len(sure) >= count or fruitless >= (enough if sure else HOPELESS):
                break
    nothing = np.zeros((0, len(space.directions)))
    parts = ([corner.point for corner in part] for part in (sure[:count], likely))
    return Corners(*(torch.from_numpy(np.stack(part) if part else nothing).to(space.directions) for part in parts))


class _Corner(NamedTuple):
    point: Array  # (r,)
    active: NDArray[np.bool_]  # (v,) the numbers at a bound


def _is_new(corner: _Corner, among: list[_Corner], same: float) -> bool:
    return all(np.abs(corner.point - other.point).max() >= same for other in among)


def _likely(sure: list[_Corner], doubtful: list[_Corner], count: int, same: float) -> list[_Corner]:
    """Doubtful corners that may be the records not found, those with most numbers at a bound first."""
    enough = LIKELY * min((corner.active.sum() for corner in sure), default=0)
    likely: list[_Corner] = []
    for corner in sorted(doubtful, key=lambda each: -each.active.sum()):
        before = sure + likely
        wanted = len(before) < count and corner.active.sum() >= enough
        if wanted and _is_new(corner, before, same) and not _mixed(corner.point, [each.point for each in before]):
            likely.append(corner)
    return likely


class _Cone(NamedTuple):
    """The multiples  t [a, 1]  of the polytope's points, of the numbers that are not the same in the whole space."""

    varies: Tensor  # (d,) which
    rows: Tensor  # (r + 1, v): [t a, t unit] rows = t y, with numbers y from 0 to 1 in their range
    unit: float
    at_bounds: tuple[float, float]  # how often the templates' numbers are at either; the larger is 1
    low: Tensor  # (v,)
    extent: Tensor  # (v,)
    noise: float

    @classmethod
    def of(cls, space: Coordinates, low: Tensor, high: Tensor, templates: Tensor, noise: float) -> _Cone:
        varies = space.directions.abs().amax(0) > SOLVED + 10 * noise
        shares = [float((templates <= low).double().mean()), float((templates >= high).double().mean())]
        often = max(*shares, SOLVED)
        low, high = low.to(space.directions)[varies], high.to(space.directions)[varies]
        begin = (space.origin[varies] - low) / (high - low)
        unit = float(begin.norm()) + 1e-300
        rows = torch.cat([space.directions[:, varies] / (high - low), begin[None] / unit])
        at_bounds = max(shares[0], SOLVED) / often, shares[1] / often
        return cls(varies, rows, unit, at_bounds, low, high - low, noise)

    def sparse(self, templates: Tensor, records: list[Array], weights: tuple[tuple[float, ...], float]) -> Array:
        """(s, r) points with many numbers at a bound, from templates (t, d); s <= t, not all are corners.

        Each minimises  sum log(y^2 + near^2)  over its numbers y, and the same for 1 - y, in the cone, where a linear
        function is 1: what a point has in common with the template, less its projection, so that it is 0 on all
        records found. Each step is least squares, weighted by  1 / (y^2 + near^2)  of the step before, with a smaller
        `near` (iteratively reweighted: Chartrand, Yin 2008); numbers outside their range weigh more.
        """
        y = (templates[:, self.varies] - self.low) / self.extent  # (t, v)
        common = y @ self.rows.mT  # (t, r + 1)
        if records:
            rays = torch.from_numpy(np.stack(records)).to(common)
            rays = torch.cat([rays, torch.full_like(rays[:, :1], self.unit)], 1)
            basis = torch.linalg.qr(rays.mT).Q  # (r + 1, f)
            common = common - common @ basis @ basis.mT
        above = 1 - y
        closeness, outside = weights
        for near in (max(each, self.noise) for each in closeness):
            at_low, at_high = (
                torch.where(each >= 0, often / (each.square() + near**2), outside / near**2)
                for each, often in zip((y, above), self.at_bounds, strict=True)
            )
            # (t, r + 1, r + 1) of  sum at_low (t y)^2 + at_high (t - t y)^2,  with weights (t, v)
            normal = (self.rows * (at_low + at_high).unsqueeze(1)) @ self.rows.mT
            crossed = at_high @ self.rows.mT / self.unit  # (t, r + 1)
            normal[:, -1] -= crossed
            normal[:, :, -1] -= crossed
            normal[:, -1, -1] += at_high.sum(1) / self.unit**2
            solved = torch.linalg.solve_ex(normal, common).result
            solved = torch.where(solved[:, -1:] < 0, -solved, solved)  # where the function is 1 or -1; any multiple
            numbers, multiple = solved @ self.rows, solved[:, -1:] / self.unit  # t y, t
            size = torch.maximum(multiple, numbers.abs().mean(1, keepdim=True))
            y, above = numbers / size, (multiple - numbers) / size
        points = solved[:, :-1] / multiple
        usable = (multiple[:, 0] > 0) & points.isfinite().all(1)
        result: Array = points[usable].cpu().numpy()
        return result

    def corner(self, point: Array) -> _Corner | None:
        """The point where all numbers near a bound are at it; None if they are not more than a corner needs."""
        directions, begin = self._affine()
        numbers, near = begin + point @ directions, SOLVED + BLUR * self.noise
        at_low, at_high = numbers < near, numbers > 1 - near
        active = at_low | at_high
        rows = directions.T[active]  # (q, r)
        if len(rows) < len(point) + SURPLUS:
            return None
        bound = np.where(at_low, 0.0, 1.0)[active] - begin[active]
        exact = np.linalg.lstsq(rows, bound, rcond=None)[0].astype(np.float64)
        if np.abs(rows @ exact - bound).max() > EXACT + 10 * self.noise:
            return None
        numbers = begin + exact @ directions
        return _Corner(exact, active) if numbers.min() > -near and numbers.max() < 1 + near else None

    def holds(self, corner: _Corner) -> bool:
        """True if the numbers at a bound hold the corner in place without the few that matter most: rank r is kept."""
        rows = self._affine()[0].T[corner.active]  # (q, r)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for _ in range(SURPLUS + 1):
            left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
            if sizes[-1] < FREE * sizes[0]:
                return False
            leverage = np.square(left).sum(1)
            rows = np.delete(rows, int(leverage.argmax()), 0)
        return True

    def _affine(self) -> tuple[Array, Array]:
        """(r, v) and (v,):  y = begin + a directions."""
        rows = self.rows.cpu().numpy()
        return rows[:-1], rows[-1] * self.unit


def _mixed(point: Array, others: list[Array]) -> bool:
    """True if a point (r,) is a mixture of the others: a record that covers another has such corners beside it."""
    if not others:
        return False
    origin, *further = others
    moved = point - origin
    along = np.stack(further, 1) - origin[:, None] if further else np.zeros((len(point), 1))  # (r, o)
    left = moved - along @ np.linalg.lstsq(along, moved, rcond=None)[0]
    return bool(np.linalg.norm(left) < APART_FROM * np.linalg.norm(moved))
