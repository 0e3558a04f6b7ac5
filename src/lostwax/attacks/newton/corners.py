"""Records as corners: within the space that a training set spans, few points have all their numbers in range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from lostwax.learning.coordinates import Coordinates
from lostwax.progress import progress

PROGRAMS = 40  # linear programs per record, at most
HOPELESS = 30  # programs without any record, after which it ends
FRUITLESS, FEWEST = 4, 100  # the same in a row, for each record, without a new one; and at least
APART, SPARSER = 3, 6  # programs from one template, at most: apart from the records found, and towards more bounds
NEAR = 0.05  # of the range: a number this close to its bound is priced as one half-way
SURPLUS = 4  # constraints that can be left out without freeing the corner: a coincidence has none to spare
SAME = 1e-5  # largest difference of two finds of one corner
APART_FROM = 1e-4  # of its distance: how far a point is from all mixtures of others
FREE = 1e-6  # a constraint with a leverage closer to 1 is needed
SOLVED = 1e-6  # how far the solver leaves a number from its bound
EXACT = 1e-9  # how far from it a number is where all constraints meet
DENSE = {"presolve": False}  # every constraint has every unknown: nothing to simplify, a third of the time saved

Array = NDArray[np.float64]


class Corners(NamedTuple):
    """Points of the space with many numbers at a bound."""

    sure: Tensor  # (c, r) records
    doubtful: Tensor  # (e, r) those that a few numbers alone hold in place, and no mixtures of others or of records


def corners(space: Coordinates, low: Tensor, high: Tensor, templates: Tensor, count: int, noise: float) -> Corners:
    """At most `count` records, each beyond coincidence, of those that span the space; d numbers each.

    A digit is black almost everywhere. Where it is, the other records of its training set are not all black, so that
    every step away from it within their space makes some number negative: the record is a corner of the polytope

        { a :  low <= origin + a directions <= high }

    with many more numbers at a bound than a corner needs. Corners without that surplus are not returned; those with a
    surplus that leaves some direction to a few numbers are doubtful. Neither the net nor its training matters beyond
    the space.

    Linear programs look for the point x with the most numbers at a bound. Each minimises  sum log(x - low + near)  and
    the same for `high`, linearised at the point before (reweighted l1: Candes, Wakin, Boyd 2008), from a template: one
    of the other records (t, d). The first of them stay apart from the records that are found already. `noise` is the
    error of the numbers of the space.
    """
    program = _Program.of(space, low, high, templates, noise)
    found: list[Array] = []
    doubtful: list[_Corner] = []
    fruitless, used, most = 0, 0, PROGRAMS * count

    def seen(point: Array, before: Iterable[Array]) -> bool:
        return any(np.abs(point - one).max() < SAME + 100 * noise for one in before)

    with progress("Newton's method: corners", most) as advance:
        for template in templates.double().cpu().numpy():
            for corner in program.search(template, found):
                used, fruitless = used + 1, fruitless + 1
                advance(1)
                if corner is None:
                    continue
                if not corner.sure:
                    if not seen(corner.point, (one.point for one in doubtful)):
                        doubtful.append(corner)
                elif not seen(corner.point, found):
                    found.append(corner.point)
                    fruitless = 0
            enough = max(FEWEST, FRUITLESS * count) if found else HOPELESS
            if len(found) == count or used >= most or fruitless > enough:
                break
    likely: list[Array] = []
    for one in sorted(doubtful, key=lambda each: -each.active):
        if len(found) + len(likely) < count and not _mixed(one.point, found + likely):
            likely.append(one.point)
    nothing = np.zeros((0, len(space.directions)))
    parts = (np.stack(part) if part else nothing for part in (found, likely))
    return Corners(*(torch.from_numpy(part).to(space.directions) for part in parts))


class _Corner(NamedTuple):
    point: Array  # (r,)
    active: int  # numbers at a bound
    sure: bool


class _Program(NamedTuple):
    """The polytope, of the numbers that are not the same in the whole space."""

    varies: NDArray[np.bool_]  # (d,) which
    origin: Array  # (v,)
    directions: Array  # (r, v)
    low: Array
    high: Array
    at_bounds: tuple[float, float]  # the share of the templates' numbers at either bound
    noise: float

    @classmethod
    def of(cls, space: Coordinates, low: Tensor, high: Tensor, templates: Tensor, noise: float) -> _Program:
        """In the space."""
        varies = space.directions.abs().amax(0) > SOLVED + 10 * noise
        parts = (space.origin[varies], space.directions[:, varies], low[varies], high[varies])
        origin, directions, low_, high_ = (part.double().cpu().numpy() for part in parts)
        shares = float((templates <= low).double().mean()), float((templates >= high).double().mean())
        return cls(varies.cpu().numpy(), origin, directions, low_, high_, shares, noise)

    def search(self, template: Array, found: list[Array]) -> Iterator[_Corner | None]:
        """After each program the corner that it led to, if it has a surplus; a record is the last."""
        numbers = template[self.varies]
        for _ in range(APART if found else 0):
            apart = self._apart(self._price(numbers), template[self.varies] - self.low, np.stack(found))
            if apart is None:
                break
            numbers = self.origin + apart @ self.directions
            yield (reached := self._corner(apart))
            if reached is not None and reached.sure:
                return
        before: Array | None = None
        for _ in range(SPARSER):
            corner = self._cheapest(self._price(numbers))
            yield (reached := None if corner is None else self._corner(corner))
            if corner is None or (before is not None and np.abs(corner - before).max() < SAME):
                return
            if reached is not None and reached.sure:
                return
            before, numbers = corner, self.origin + corner @ self.directions

    def _price(self, numbers: Array) -> Array:
        """(v,) the slope of  share_low log(x - low + near) + share_high log(high - x + near)  at numbers (v,)."""
        near = NEAR * (self.high - self.low)
        below, above = np.maximum(numbers - self.low, 0), np.maximum(self.high - numbers, 0)
        at_low, at_high = self.at_bounds
        price: Array = (at_low + SOLVED) / (below + near) - at_high / (above + near)
        return price

    def _cheapest(self, price: Array) -> Array | None:
        """(r,) the corner at which  price x  is least."""
        inside = LinearConstraint(
            self.directions.T, self.low - self.origin - self.noise, self.high - self.origin + self.noise
        )
        solved = milp(self.directions @ price, constraints=inside, bounds=Bounds(-np.inf, np.inf), options=DENSE)
        return None if solved.x is None else solved.x

    def _apart(self, price: Array, towards: Array, found: Array) -> Array | None:
        """(r,) the corner that is cheapest for what it has in common with `towards` (v,) beyond the records found.

        Multiples  t [a, 1]  of the polytope's points form a cone. Of its rays, those of the records found (f, r) have
        no point where a linear function is 1 that is 0 on them. That function is  towards x,  less its projection.
        """
        unit = float(np.linalg.norm(self.origin)) + 1e-300
        rays = np.concatenate([found, np.full((len(found), 1), unit)], 1)  # (f, r + 1)
        common = np.append(self.directions @ towards, (self.origin - self.low) @ towards / unit)  # of [a, unit]
        common = common - np.linalg.lstsq(rays.T, common, rcond=None)[0] @ rays
        common[-1] *= unit  # of [a, 1]
        above_low = np.concatenate([self.directions, [self.origin - self.low + self.noise]])  # (r + 1, v)
        below_high = np.concatenate([-self.directions, [self.high - self.origin + self.noise]])
        rows = np.concatenate([above_low.T, below_high.T, common[None]])
        least, most = np.zeros(len(rows)), np.full(len(rows), np.inf)
        least[-1] = most[-1] = 1.0
        anywhere = Bounds(np.append(np.full(len(common) - 1, -np.inf), 0.0), np.inf)
        cut = LinearConstraint(rows, least, most)
        solved = milp(above_low @ price, constraints=cut, bounds=anywhere, options=DENSE)
        if solved.x is None or solved.x[-1] <= 0:
            return None
        corner: Array = solved.x[:-1] / solved.x[-1]
        return corner

    def _corner(self, corner: Array) -> _Corner | None:
        """The point where all active constraints meet; None if they are not more than a corner needs."""
        numbers, near = self.origin + corner @ self.directions, SOLVED + 100 * self.noise
        at_low = numbers < self.low + near
        active = at_low | (numbers > self.high - near)
        rows = self.directions.T[active]  # (q, r)
        if len(rows) < len(corner) + SURPLUS:
            return None
        bound = np.where(at_low, self.low, self.high)[active] - self.origin[active]
        point = np.linalg.lstsq(rows, bound, rcond=None)[0].astype(np.float64)
        if np.abs(rows @ point - bound).max() > EXACT + 10 * self.noise:
            return None
        return _Corner(point, len(rows), _redundant(rows / np.linalg.norm(rows, axis=1, keepdims=True)))


def _mixed(point: Array, others: list[Array]) -> bool:
    """True if a point (r,) is a mixture of the others: a record that covers another has such corners beside it."""
    if not others:
        return False
    origin, *rest = others
    moved = point - origin
    along = np.stack(rest, 1) - origin[:, None] if rest else np.zeros((len(point), 1))  # (r, o)
    left = moved - along @ np.linalg.lstsq(along, moved, rcond=None)[0]
    return bool(np.linalg.norm(left) < APART_FROM * np.linalg.norm(moved))


def _redundant(rows: Array) -> bool:
    """True if rows (q, r) keep rank r without the few that matter most."""
    for _ in range(SURPLUS + 1):
        left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
        if sizes[-1] < FREE * sizes[0]:
            return False
        leverage = np.square(left).sum(1)
        rows = np.delete(rows, int(leverage.argmax()), 0)
    return True
