"""Records as corners: within the space that a training set spans, few points have all their numbers in range."""

from __future__ import annotations

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
FRUITLESS = 10  # times as many as there are records: programs in a row without a new record, after which it ends
SURPLUS = 4  # constraints that can be left out without freeing the corner: a coincidence has none to spare
SAME = 1e-5  # largest difference of two finds of one corner
FREE = 1e-6  # a constraint with a leverage closer to 1 is needed
SOLVED = 1e-6  # how far the solver leaves a number from its bound
EXACT = 1e-9  # how far from it a number is where all constraints meet

Array = NDArray[np.float64]


def corners(space: Coordinates, low: Tensor, high: Tensor, templates: Tensor, count: int, noise: float) -> Tensor:
    """(c, r) at most `count` records, each beyond coincidence, of those that span the space; d numbers each.

    A digit is black almost everywhere. Where it is, the other records of its training set are not all black, so that
    every step away from it within their space makes some number negative: the record is a corner of the polytope

        { a :  low <= origin + a directions <= high },

    and a linear program finds it, if its objective is a record that looks like it. Records have many more numbers at a
    bound than a corner needs; corners without that surplus are not returned. Neither the net nor its training matters
    beyond the space. `templates` (t, d) are other records, `noise` the error of the numbers of the space.
    """
    program = _Program.of(space, low, high, noise)
    found: list[Array] = []
    fruitless = 0
    with progress("Newton's method: corners", PROGRAMS * count) as advance:
        goals = iter(templates.double().cpu().numpy())
        goal, avoid = next(goals), False
        for _ in range(PROGRAMS * count):
            corner = program.corner(goal, found if avoid else [])
            seen = corner is not None and any(np.abs(corner - one).max() < SAME + 100 * noise for one in found)
            fruitless += 1
            if corner is not None and not seen:
                found.append(corner)
                fruitless = 0
            advance(1)
            if len(found) == count or fruitless > (FRUITLESS * count if found else HOPELESS):
                break
            if seen and not avoid:
                avoid = True  # the same template once more, without those found
                continue
            avoid, following = False, next(goals, None)
            if following is None:
                break
            goal = following
    if not found:
        return space.directions.new_zeros(0, len(space.directions))
    return torch.from_numpy(np.stack(found)).to(space.directions)


class _Program(NamedTuple):
    """The polytope, of the numbers that are not the same in the whole space."""

    varies: NDArray[np.bool_]  # (d,) which
    origin: Array  # (v,)
    directions: Array  # (r, v)
    low: Array
    high: Array
    noise: float

    @classmethod
    def of(cls, space: Coordinates, low: Tensor, high: Tensor, noise: float) -> _Program:
        """In the space."""
        varies = space.directions.abs().amax(0) > SOLVED + 10 * noise
        parts = (space.origin[varies], space.directions[:, varies], low[varies], high[varies])
        origin, directions, low_, high_ = (part.double().cpu().numpy() for part in parts)
        return cls(varies.cpu().numpy(), origin, directions, low_, high_, noise)

    def corner(self, template: Array, avoided: list[Array]) -> Array | None:
        """(r,) the corner furthest towards the template, where all points to avoid are equally far; None if none."""
        towards = self.directions @ (template[self.varies] - (self.low + self.high) / 2)  # (r,)
        if avoided:
            points = np.stack(avoided)  # (f, r)
            reached = points @ towards
            towards = towards + np.linalg.lstsq(points, reached.min() - reached, rcond=None)[0]
        inside = LinearConstraint(
            self.directions.T, self.low - self.origin - self.noise, self.high - self.origin + self.noise
        )
        solved = milp(-towards, constraints=inside, bounds=Bounds(-np.inf, np.inf))
        return None if solved.x is None else self._record(solved.x)

    def _record(self, corner: Array) -> Array | None:
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
        return point if _redundant(rows / np.linalg.norm(rows, axis=1, keepdims=True)) else None


def _redundant(rows: Array) -> bool:
    """True if rows (q, r) keep rank r without the few that matter most."""
    for _ in range(SURPLUS + 1):
        left, sizes, _ = np.linalg.svd(rows, full_matrices=False)
        if sizes[-1] < FREE * sizes[0]:
            return False
        leverage = np.square(left).sum(1)
        rows = np.delete(rows, int(leverage.argmax()), 0)
    return True
