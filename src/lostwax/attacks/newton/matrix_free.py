"""Newton's method for large records, by products with the Jacobian alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import Bidiagonal, GameSearch, LeastSquares, Rule, golub_kahan
from lostwax.attacks.newton.bank import CLASSES_RACED, Bank
from lostwax.attacks.newton.inverter import Inversion, Inverting, determined
from lostwax.attacks.newton.training_map import Problem, Published, Unrolled
from lostwax.games import Hints, Records, Release
from lostwax.learning.coordinates import Coordinates

FIRST = 4  # pairs of products at the first linearisation, twice as many at each further one
RULE = Rule((1e-12, 1e-3, 1e-1), stalled=0.99)
LEFT = 0.5  # of the squared residual: if the linearisations leave more, nothing was found


class Shown(NamedTuple):
    """The part of a game's Jacobian that products showed, as in `Bidiagonal`."""

    basis: Tensor  # (j, r)
    bidiagonal: Tensor  # (j + 1, j)
    length: Tensor  # ()
    unexplained: Tensor  # () share of the squared residual
    free: Tensor  # (v,) unknowns that are not held at a bound


@dataclass(eq=False)
class ProductSearch(GameSearch[Shown | None]):
    """One game's search."""

    unexplained: float = 1.0  # share of the squared residual that the linearisations predict to remain after all steps


@dataclass(frozen=True, eq=False)
class MatrixFree(LeastSquares[ProductSearch], Inverting):
    """A prepared Newton that forms no Jacobian.

    Steps are scaled by the prior's deviations, so that a few products find the directions that matter most: 4, then
    twice as many at each step. Residuals are computed in the release's own precision: this never reaches rounding.
    """

    problem: Problem[ProductSearch]
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

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        unknowns, exact = self.problem.coordinates, self.problem.exact
        released = exact.in_units(release.flat().double().to(self.like.x.device))  # (g, p)
        likeliest = self.bank.likeliest(released, self.labels(hints), self.problem.quick, unknowns)
        entries = [(g, likely.entries[0]) for g, mine in enumerate(likeliest) for likely in mine[:CLASSES_RACED]]
        a, label = (torch.stack(part) for part in zip(*((entry.a, entry.label) for _, entry in entries), strict=True))
        games = torch.tensor([g for g, _ in entries])
        first = [games.tolist().index(g) for g in range(len(released))]
        floor = self.published.rounding(exact.computed_in(torch.float64), unknowns(a[first]), label[first])  # (g,)
        raced: list[list[ProductSearch]] = [[] for _ in released]
        for g, point in zip(games.tolist(), self.problem.points(a, label, released[games]), strict=True):
            raced[g].append(ProductSearch(point, None, released[g], enough=float(floor[g])))
        every = [search for mine in raced for search in mine]
        self.linearise(every)
        self.step(every, RULE)
        searches = [min(mine, key=lambda search: search.point.distance) for mine in raced]
        rounds = 1
        while FIRST * (2**rounds - 1) < self.products:
            rounds += 1
        if rounds > 1:
            running = [search for search in searches if search.point.distance > search.enough]
            self.linearise(running)
            self.descend(running, RULE, rounds - 2)
        return [
            self._evidence(search).or_start(mine[0], unknowns, weights)
            for search, mine, weights in zip(searches, likeliest, released, strict=True)
        ]

    def linearise(self, searches: Sequence[ProductSearch]) -> None:
        """By a few products at each point, as many points at a time as fit into memory."""
        together = self.problem.quick.together
        for first in range(0, len(searches), together):
            part = searches[first : first + together]
            before = FIRST * (2 ** part[0].jacobians - 1)  # products
            for search, shown in zip(part, self._shown(part, min(FIRST + before, self.products - before)), strict=True):
                search.linear, search.jacobians, search.fresh = shown, search.jacobians + 1, True

    def _shown(self, searches: Sequence[ProductSearch], count: int) -> list[Shown]:
        unknowns, deviations = self.problem.coordinates, self.deviations
        a, label, residual = (torch.stack(part) for part in zip(*(s.point for s in searches), strict=True))
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
        return [Shown(*each) for each in zip(*reduced, reduced.unexplained, free, strict=True)]

    def candidates(self, searches: Sequence[ProductSearch], dampings: Tensor) -> Tensor:
        """(g, f, v) by the bases that products showed, with the floor of each search as noise."""
        unknowns, a = self.problem.coordinates, torch.stack([search.point.a for search in searches])
        basis, bidiagonal, length, _, free = (
            torch.stack(part) for part in zip(*(search.linear or () for search in searches), strict=True)
        )
        noise = a.new_tensor([search.enough for search in searches]).square() / len(searches[0].released)  # of a weight
        steps = Bidiagonal(basis, bidiagonal, length).steps(dampings, noise, self.prior.of_records(unknowns(a)))
        return unknowns.clamped(a.unsqueeze(1) + steps @ self.deviations * free.unsqueeze(1))

    def residuals(self, searches: Sequence[ProductSearch], tried: Tensor) -> Tensor:
        """(g, f, p) of models trained on the records with these unknowns (g, f, v)."""
        return self.problem.residuals(searches, tried)

    def step(self, searches: Sequence[ProductSearch], rule: Rule) -> list[float]:
        """The same for what the linearisations predict to remain."""
        shares = super().step(searches, rule)
        for search, share in zip(searches, shares, strict=True):
            if share < 1 and search.linear is not None:
                search.unexplained *= float(search.linear.unexplained)
        return shares

    def _evidence(self, search: ProductSearch) -> Inversion:
        """The predicted error is the last step's length, about that of a next one.

        Where the linearisations leave most of the residual unexplained, the class is wrong or a kink was crossed, and
        the predicted error is the prior's variance. Whether the release determines the record follows from the last
        products alone: the unknowns have precision  I + V^T B^T B V / noise  and  B = U S T^T.
        """
        point, shown, k = search.point, search.linear, self.problem.exact.secrets
        assert shown is not None
        directions, coordinates = self.prior.directions, self.problem.coordinates
        noise = max(point.distance, search.enough) ** 2 / len(point.residual)
        _, sizes, turned = torch.linalg.svd(shown.bidiagonal.nan_to_num(0.0), full_matrices=False)  # (j,), (j, j)
        known = 1 - 1 / (1 + sizes.square() / noise)  # (j,) share of the prior's variance that is gone
        gone = known @ (turned @ shown.basis.nan_to_num(0.0) @ directions).square()  # (u,)
        moved = torch.zeros_like(point.a) if search.moved is None else search.moved
        prior, gone, moved = (
            part.view(k, -1)[:, : self.problem.exact.numbers]  # (k, d)
            for part in (directions.square().sum(0), gone, (moved @ coordinates.directions).square())
        )
        share = moved.mean(1, keepdim=True) / prior.mean(1, keepdim=True)  # (k, 1)
        share = torch.where((share > 0) & (search.unexplained <= LEFT), share, 1).clamp_max(1)
        return Inversion(
            record=coordinates(point.a),
            label=point.label,
            residual=point.distance,
            rounding=search.enough,
            variance=prior * share,
            prior_variance=prior,
            directions=sizes,
            determined=determined(prior - gone, prior, pictures=self.problem.exact.known.x.ndim > 2),
            jacobians=search.jacobians,
        )
