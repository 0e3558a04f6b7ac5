"""Whole training sets of too many numbers for a Jacobian: steps and certificate by products with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from lostwax.attacks.least_squares import Point, conjugate_gradients
from lostwax.attacks.newton.inverter import CERTAIN, DETERMINED, Inversion, Posterior, TrainingSearch, noise_of
from lostwax.attacks.newton.set_problem import (
    FIRST_DAMPING,
    OUTSIDE,
    RULE,
    NumberRange,
    RangedProblem,
    SetPolisher,
    SetProblem,
)
from lostwax.attacks.newton.training_map import NEARLY, TrainingMap, Unrolled
from lostwax.games import Records, Release
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.seeds import generator

PRODUCTS = 400  # pairs J v, J^T w of a linearisation, at most
CHECKED = 4_000  # the same of a certificate
ENOUGH = 2  # products for each unknown
INEXACT = 0.01  # of the gradient: what steps may leave of it
DRAWS = 4  # of the prior, for a certificate


@dataclass(frozen=True)
class Repeated:
    """The coordinates of records one after the other, as `Coordinates.times` without its table."""

    record: Coordinates
    count: int

    def __call__(self, a: Tensor) -> Tensor:
        """(..., k r) -> z (..., k u)."""
        return self.record(self._each(a)).flatten(-2)

    def of_records(self, z: Tensor) -> Tensor:
        """(..., k u) -> a (..., k r)."""
        return self.record.of_records(self._each(z)).flatten(-2)

    def clamped(self, a: Tensor) -> Tensor:
        """(..., k r) within the bounds."""
        return self.record.clamped(self._each(a)).flatten(-2)

    def squared(self, deviations: Tensor) -> Tensor:
        """(..., k u) squared deviations."""
        return self.record.squared(self._each(deviations)).flatten(-2)

    def along(self, a: Tensor) -> Tensor:
        """(..., k u) how z moves with the unknowns."""
        return (self._each(a) @ self.record.directions).flatten(-2)

    def slope(self, z: Tensor) -> Tensor:
        """(..., k r) the derivative by the unknowns, from that by z."""
        return (self._each(z) @ self.record.directions.mT).flatten(-2)

    def _each(self, values: Tensor) -> Tensor:
        return values.view(*values.shape[:-1], self.count, -1)


@dataclass(frozen=True, eq=False)
class RangedProducts(RangedProblem):
    """The sum of `RangedProblem`, whose steps are by conjugate gradients; it is linearised in float64."""

    inside: NumberRange
    coordinates: Any  # Repeated

    def linear(self, a: Tensor, label: Tensor) -> Any:
        """The training itself."""
        return Unrolled.of(self.exact, self.coordinates(a)[None], label[None])

    def candidates(self, searches: Sequence[TrainingSearch], dampings: Tensor) -> Tensor:
        """(g, f, r) unknowns where steps with dampings (g, f) lead."""
        return torch.cat([self._tried(*each) for each in zip(searches, dampings, strict=True)])

    def _tried(self, search: TrainingSearch, dampings: Tensor) -> Tensor:
        a, weight = search.point.a, OUTSIDE * self.scale
        excess = self.inside.excess(a).flatten()
        training: Any = search.linear

        def curved(step: Tensor) -> Tensor:
            moved = self.coordinates.along(step)  # (1, u)
            drawn_back: Tensor = self.coordinates.slope((excess != 0) * moved)
            return products(training, self.coordinates, step) + weight * drawn_back

        slope = training.backward(search.point.residual[None]).double()[0] + weight * excess
        steps = conjugate_gradients(
            curved,
            -self.coordinates.slope(slope)[None],
            self.scale * dampings[None],
            min(PRODUCTS, ENOUGH * len(a)),
            INEXACT,
        )
        return a + steps


def products(training: Unrolled, coordinates: Repeated, along: Tensor) -> Tensor:
    """J^T J v in the unknowns, (m, r)."""
    moved = training.forward(coordinates.along(along)).double()
    return coordinates.slope(training.backward(moved).double())


@dataclass(frozen=True, eq=False)
class ProductSets(SetProblem):
    """A training set of which no space is seen."""

    @classmethod
    def of_numbers(cls, exact: TrainingMap, quick: TrainingMap, prior: Records, release: Release) -> Self:
        """All numbers are unknown."""
        released, record, k = exact.in_units(release.flat().double()), Coordinates.of(prior), exact.secrets
        inside, coordinates = NumberRange.of(prior, record, k), Repeated(record, k)
        mean, label = flat(prior).mean(0).repeat(k)[None], prior.y.new_zeros(1, k, dtype=torch.long)
        drawn = torch.from_numpy(generator(0, "curvature").standard_normal((1, k * len(record.directions)))).to(mean)
        moved = Unrolled.of(exact, mean, label).forward(coordinates.along(drawn))
        scale = float(moved.square().sum() / drawn.square().sum())
        return cls(RangedProducts(exact, quick, coordinates, inside, scale), released, prior, inside, None)

    def descend(self, a: Tensor, label: Tensor, jacobians: int, enough: float = 0.0) -> TrainingSearch:
        """From unknowns (r,) of classes (k,)."""
        point, linear = self.point(a, label), self.problem.linear(a, label)
        search = TrainingSearch(point, linear, self.released[0], enough, fresh=True, damping=FIRST_DAMPING)
        self.problem.descend([search], RULE, jacobians)
        return search


class ProductPolisher(SetPolisher):
    """Evidence by draws of the prior."""

    def solve(self, a: Tensor, label: Tensor, jacobians: int, released: Tensor) -> Inversion:
        """The records, from unknowns (r,) of classes (k,)."""
        assert isinstance(self.sets, ProductSets)
        enough = NEARLY * float(self._rounding([self.sets.point(a, label)]))
        search = self.sets.descend(a, label, jacobians, enough)
        point, rounding = search.point, float(self._rounding([search.point]))
        still = torch.zeros_like(point.a)
        explained = point.distance <= CERTAIN * rounding and not self.published.defended
        variance, sizes = self._left(point, rounding) if explained else (self.prior_variance, still[:0])
        posterior = Posterior(point.a, variance, sizes, still, still[None][:0])
        inversion = self._inversion(point, posterior, rounding, search.jacobians)
        return self._compared(inversion, point, released[0]) if inversion.certified else inversion

    def _left(self, point: Point, rounding: float) -> tuple[Tensor, Tensor]:
        """(r,) the variance that rounding leaves of the unknowns; and how far each draw moves the weights.

        Draws e of the prior are moved by conjugate gradients to where the weights show no difference, given noise w on
        them: what is left of e is a draw of the posterior (sample-then-optimise; Matthews et al. 2017). What the
        products have not seen is left as it was, so that too few of them cannot give a certificate.
        """
        coordinates: Any = self.problem.coordinates
        k = self.whole.secrets
        draw = generator(self.published.seed, "adversary", "posterior").standard_normal
        unit = torch.from_numpy(draw((DRAWS, len(point.a)))).to(point.a)
        drawn = unit * self.prior_variance.sqrt()
        z, label = coordinates(point.a).repeat(DRAWS, 1), point.label.repeat(DRAWS, 1)
        training = Unrolled.of(self.problem.exact, z, label)
        moved = training.forward(coordinates.along(drawn)).double()  # (s, p)
        noise = torch.from_numpy(draw(tuple(moved.shape))).to(moved) * noise_of(point, rounding) ** 0.5
        prior = coordinates.squared(self.prior_variance).view(k, -1).mean(1)  # (k,)

        def variance(x: Tensor) -> Tensor:
            return (drawn - x[:, 0]).square().mean(0)

        def enough(x: Tensor) -> bool:
            left = coordinates.squared(variance(x)).view(k, -1).mean(1)
            return bool((left <= DETERMINED / 10 * prior).all())

        x = conjugate_gradients(
            lambda v: products(training, coordinates, v),
            coordinates.slope(training.backward(moved + noise).double()),
            moved.new_zeros(DRAWS, 1),
            min(CHECKED, ENOUGH * len(point.a)),
            enough=enough,
        )
        return variance(x), moved.norm(dim=1)
