"""The equations of a whole training set, in the space that its records span where that is seen, and their descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.inverter import MANY, WEAKEST, Inversion, Polisher, Posterior, noise_of
from lostwax.attacks.newton.least_squares import Factored, Linearised, Point, Rule, Search
from lostwax.attacks.newton.misfit import OtherRecords
from lostwax.attacks.newton.record_span import RecordSpan
from lostwax.attacks.newton.training_map import GOOD, NEARLY, Problem, Published, TrainingMap
from lostwax.games import Records, Release
from lostwax.inits import trainable
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.decoders import Span
from lostwax.progress import progress

STALLED = 0.999  # of the residual
FIRST_DAMPING = 1e-2  # of the mean curvature
RULE = Rule((0.04, 0.2, 1.0, 5.0, 25.0, 125.0), stalled=STALLED, raised=125.0, damping_range=(1e-15, 1e4))
FINISHED = 1e-5  # of the weights: from here on it is polished
NEAR = 1e-3  # of the weights: from here on a few steps of all records are enough; one wrong label among 100 leaves 0.06
EXACT = 3  # Jacobians in float64, at most
OUTSIDE = 0.02  # of the mean curvature: the price of a number outside its range


class NumberRange(NamedTuple):
    """Numbers of some of the unknown records, and their range: those outside are drawn back."""

    record: Coordinates  # from the unknowns of a record to all its numbers
    low: Tensor  # (d,), -inf for none
    high: Tensor  # (d,)
    records: int  # k; their unknowns come first

    @classmethod
    def of(cls, prior: Records, record: Coordinates, records: int) -> NumberRange:
        """[0, 1] or [-1, 1] for pixels; else any number."""
        span, d = Span.of(prior.x.double()), prior.x.shape[1:].numel()
        high = torch.full_like(record.origin, torch.inf)
        low = -high
        if span.bounded:
            low[:d], high[:d] = float(span.shift[span.scale > 0].min()) if (span.scale > 0).any() else 0.0, 1.0
        return cls(record, low, high, records)

    @property
    def bounded(self) -> bool:
        """True if all numbers are pixels."""
        return bool(self.low.isfinite().all())

    def numbers(self, a: Tensor) -> Tensor:
        """(..., k, d) of unknowns (..., r)."""
        mine = a[..., : self.records * len(self.record.directions)]
        return self.record(mine.reshape(*a.shape[:-1], self.records, len(self.record.directions)))

    def excess(self, a: Tensor) -> Tensor:
        """(..., k, d) how far the numbers are outside: negative below, positive above, else 0."""
        z = self.numbers(a)
        return (z - self.high).clamp_min(0) - (self.low - z).clamp_min(0)

    def add(self, normal: Tensor, slope: Tensor, weight: float, excess: Tensor) -> None:
        """Add  w P^T P  to the normal matrix and  w P^T e  to the slope, P the directions in the numbers outside."""
        along, r = self.record.directions, len(self.record.directions)
        for record, mine in enumerate(excess):
            if (out := mine != 0).any():
                part, outward = slice(record * r, (record + 1) * r), along[:, out]  # (r, o)
                normal[part, part] += weight * outward @ outward.mT
                slope[part] += weight * outward @ mine[out]


@dataclass(frozen=True, eq=False)
class SetProblem:
    """Training on k unknown records, and the release that it is to give."""

    problem: Problem[Any]
    released: Tensor  # (1, p')
    prior: Records  # with the inputs of the problem's maps
    inside: NumberRange
    span: RecordSpan | None  # None: not seen, all numbers are unknown

    @classmethod
    def of(
        cls, exact: TrainingMap, quick: TrainingMap, prior: Records, release: Release, span: RecordSpan | None
    ) -> SetProblem:
        """In the space, if it is seen: the training map has r inputs instead of d then."""
        k, whole = exact.secrets, Coordinates.of(prior)
        if span is None:
            released = exact.in_units(release.flat().double())
            inside = NumberRange.of(prior, whole, k)
            return cls(Problem(exact, quick, whole.times(k)), released, prior, inside, None)
        reduced = Records(span.inputs(prior.x), prior.y)
        d, r = exact.numbers, len(span.rows)
        labels = whole.directions[whole.directions[:, d:].any(1)][:, d:]  # of a label, if a number
        numbers, mean = span.points, whole.origin[d:]
        record = _beside(numbers, mean, labels)
        inputs = torch.eye(r).to(numbers.origin)
        ours = _beside(numbers._replace(origin=span.constant * inputs[-1], directions=inputs[:-1]), mean, labels)
        problem: Problem[Any] = Problem(span.reduced_map(exact), span.reduced_map(quick), ours.times(k))
        released = problem.exact.in_units(span.reduced(release))
        return cls(problem, released, reduced, NumberRange.of(prior, record, k), span)

    def unknowns(self, record: Tensor) -> Tensor:
        """(r,) of all numbers (u,) of k records."""
        coordinates = self.inside.record
        return coordinates.of_records(record.view(self.inside.records, len(coordinates.origin))).flatten()

    def point(self, a: Tensor, label: Tensor) -> Point:
        """Unknowns (r,) of classes (k,), trained on."""
        return self.problem.points(a[None], label[None], self.released)[0]

    def near(self, a: Tensor, label: Tensor) -> bool:
        """True if unknowns (r,) of classes (k,) need no more than a few steps."""
        return self.point(a, label).distance <= NEAR * float(self.released.norm())

    def descend(self, a: Tensor, label: Tensor, jacobians: int) -> SetSearch:
        """From unknowns (r,) of classes (k,)."""
        return descend(self.problem, self.inside, self.point(a, label), self.released, jacobians)


def _beside(records: Coordinates, mean: Tensor, labels: Tensor) -> Coordinates:
    """The coordinates of records, each followed by a label with this mean and these directions."""
    (r, d), (s, e) = records.directions.shape, labels.shape
    directions = records.directions.new_zeros(r + s, d + e)
    directions[:r, :d], directions[r:, d:] = records.directions, labels
    anywhere = torch.full_like(directions[:, 0], torch.inf)
    return Coordinates(torch.cat([records.origin, mean]), directions, -anywhere, anywhere)


@dataclass(frozen=True, eq=False)
class SetPolisher(Polisher):
    """The end of a search for a training set: evidence for all numbers, by training on them."""

    sets: SetProblem
    whole: TrainingMap  # of all numbers

    @classmethod
    def of(cls, sets: SetProblem, whole: TrainingMap, published: Published, jacobians: int) -> SetPolisher:
        """With mean and variance of the prior's unknowns, and that of numbers which they leave out."""
        z = flat(sets.prior).repeat(1, whole.secrets)  # (n, u')
        unknowns = sets.problem.coordinates.of_records(z)  # (n, r)
        left_out = (z - sets.problem.coordinates(unknowns)).square().mean(0)
        variance = unknowns.var(0, correction=0).clamp_min(1e-30)
        others = OtherRecords.of(sets.prior, published.seed)
        return cls(sets.problem, published, unknowns.mean(0), variance, left_out, others, jacobians, sets, whole)

    def solve(self, a: Tensor, label: Tensor, jacobians: int, released: Tensor) -> Inversion:
        """The records, from unknowns (r,) of classes (k,), with at most so many Jacobians until they are near.

        By quick Jacobians, and by factors where these do not explain what is nearly explained; of many unknowns, quick
        Jacobians do not see enough. Residual and rounding are those of all weights (1, p).
        """
        sets, inversion = self.sets, None
        if len(a) > MANY and not self.published.defended and sets.near(a, label):
            inversion = self._by_factors(sets.point(a, label), 0)
        if inversion is None or not inversion.explained:
            (inversion,) = self.finish([sets.descend(a, label, jacobians)])
            nearly = inversion.residual <= FINISHED * float(sets.released.norm()) and not inversion.explained
            if nearly and not self.published.defended:
                point = sets.point(self.problem.coordinates.of_records(inversion.record), inversion.label)
                again = self._by_factors(point, inversion.jacobians)
                inversion = inversion if again is None or again.residual >= inversion.residual else again
        if sets.span is None:
            return inversion
        squares, r, d = sets.inside.record.directions.square(), len(sets.span.rows), self.whole.numbers
        variance, prior = (
            part[:, : r - 1] @ squares[: r - 1, :d] for part in (inversion.variance, inversion.prior_variance)
        )  # (k, d)
        record = sets.inside.numbers(self.problem.coordinates.of_records(inversion.record)).flatten()
        residual = inversion.residual  # of a defended release only what is within the space
        if not self.published.defended:
            residual = float((self.whole(record[None], inversion.label[None]) - released).norm())
        complete = inversion.determined and sets.span.complete
        return inversion._replace(
            record=record, residual=residual, variance=variance, prior_variance=prior, determined=complete
        )

    def _by_factors(self, point: Point, jacobians: int) -> Inversion | None:
        """From records nearby, with Jacobians in float64; None if these do not see all directions either."""
        deviation, rounding = self.prior_variance.sqrt(), float(self._rounding([point]))
        with progress("Newton's method: Jacobians in float64, at most", EXACT) as advance:
            for _ in range(EXACT):
                factored = self._factored(point)
                if not factored.seen:
                    return None
                before, left, jacobians = point.distance, 0.0, jacobians + 1
                while left < GOOD and point.distance > rounding:  # with one Jacobian, while each leaves little
                    a = self.problem.coordinates.clamped(point.a + deviation * factored.step(point.residual))
                    tried = self.sets.point(a, point.label)
                    if not tried.distance < point.distance:
                        break
                    left, point = tried.distance / point.distance, tried
                advance(1)
                if point.distance <= NEARLY * rounding or point.distance > STALLED * before:
                    break
        weakest = factored.weakest_directions(WEAKEST)
        if not self.problem.moves(point, deviation * weakest, factored.jacobian @ weakest.mT):
            factored, jacobians = self._factored(point), jacobians + 1
            if not factored.seen:
                return None
        moved = deviation * factored.step(point.residual)
        variance = factored.variance(noise_of(point, rounding)) * self.prior_variance
        likeliest = Posterior(point.a, variance, factored.directions, moved, deviation * weakest)
        return self._inversion(point, likeliest, rounding, jacobians)

    def _factored(self, point: Point) -> Factored:
        """Training in float64, linearised at a point, in deviations of the prior."""
        return Factored.of(self.problem.exact_tangents(point.a, point.label).double() * self.prior_variance.sqrt())

    def unexplained(self, nearby: Inversion, a: Tensor, label: Tensor, released: Tensor) -> Inversion:
        """Other unknowns (r,), although training on them gives other weights; their errors if `nearby` had its own."""
        record = self.sets.inside.numbers(a).flatten()
        residual = float((self.whole(record[None], label[None]) - released).norm())
        moved = (record - nearby.record).view(self.whole.secrets, -1)[:, : self.whole.numbers]  # (k, d)
        variance = nearby.variance + moved.square()
        return nearby._replace(record=record, label=label, residual=residual, variance=variance, determined=False)

    def _rounding(self, points: list[Point]) -> Tensor:
        z = torch.stack([self.sets.inside.numbers(point.a).flatten() for point in points])
        label, exact = torch.stack([point.label for point in points]), self.whole.computed_in(torch.float64)
        rounding = self.published.rounding(exact, z, label)
        if self.published.defended and self.sets.span is not None:  # noise is the same in all weights, in their units
            weights = sum(value.numel() for value in trainable(self.whole.net).values())
            rounding = rounding * (self.sets.released.numel() / weights) ** 0.5
        return rounding

    def _is_noise(self, point: Point, jacobian: Tensor) -> bool:
        """Within the space of a defended release nothing is certified, so that nothing is tested."""
        return self.sets.span is not None or super()._is_noise(point, jacobian)

    def _compared(self, inversion: Inversion, point: Point, released: Tensor) -> Inversion:
        """Only if the first layer shows no space: one that does is linear in the records, and mirrors none."""
        return inversion if self.sets.span is not None else super()._compared(inversion, point, released)


@dataclass(eq=False)
class SetSearch(Search[Linearised]):
    """The search for one training set."""

    scale: float = 1.0  # the mean curvature at its start


@dataclass(frozen=True, eq=False)
class RangedProblem(Problem[SetSearch]):
    """|A(z) - theta|^2 + w |excess of z|^2.

    The second term is 0 at the records. It keeps the path away from records that no data set has, where it gets stuck.
    """

    inside: NumberRange | None

    @property
    def bounds(self) -> None:
        """None: numbers outside have a price."""

    def values(self, searches: Sequence[SetSearch], tried: Tensor, residuals: Tensor) -> Tensor:
        """(g, f) the sum."""
        values = residuals.square().sum(2)
        if self.inside is None:
            return values
        weight = values.new_tensor([OUTSIDE * search.scale for search in searches]).unsqueeze(1)
        return values + weight * self.inside.excess(tried).square().sum((2, 3))

    def quadratic(self, search: SetSearch) -> tuple[Tensor, Tensor, Tensor | float]:
        """With the second term, in which the numbers that are outside stay there."""
        normal, slope, _ = super().quadratic(search)
        if self.inside is not None:
            normal = normal.clone()
            self.inside.add(normal, slope, OUTSIDE * search.scale, self.inside.excess(search.point.a))
        return normal, slope, search.scale


def descend(
    problem: Problem[Any],
    inside: NumberRange | None,
    point: Point,
    released: Tensor,
    jacobians: int,
    solved: Callable[[Point], bool] | None = None,
) -> SetSearch:
    """From one point to where the release (1, p) is nearly explained, or to a point that is `solved`."""
    linear, enough = problem.linear(point.a, point.label), FINISHED * float(released.norm())
    scale = float(linear.normal.diagonal().mean())
    search = SetSearch(point, linear, released[0], enough, fresh=True, damping=FIRST_DAMPING, scale=scale)
    if jacobians:
        ranged = RangedProblem(problem.exact, problem.quick, problem.coordinates, inside)
        ranged.descend([search], RULE, jacobians, solved)
    return search
