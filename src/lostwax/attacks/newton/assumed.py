"""Whole training sets where the training is not known: learning rates are solved for, the rest is tried in turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from lostwax.attacks.least_squares import Point
from lostwax.attacks.newton.inverter import Inversion, Inverting, determined, noise_of
from lostwax.attacks.newton.set_problem import SetPolisher, SetProblem, descend
from lostwax.attacks.newton.training_map import Problem, TrainingMap
from lostwax.attacks.newton.whole_sets import RACING, WholeSets
from lostwax.games import Hints, Records, Release
from lostwax.learning.coordinates import Coordinates
from lostwax.progress import counted
from lostwax.trainers.descent import as_descent

FACTORS = torch.linspace(-4.0, 4.0, 17)  # logarithms of learning rates over the assumed one, tried at the start
DIFFERENCE = 1e-4  # of the logarithm, for the derivative
DIGITS = 4  # of a learning rate that somebody set, at most
SEEN = 1e-6  # of the derivative: with less that records do not explain, it may be the difference's own error
ROUND = 1e-6  # share by which a rate may differ from one with so few digits


@dataclass(frozen=True, eq=False)
class RatedMap(TrainingMap):
    """Training whose learning rate is unknown: the last number of z is the logarithm of its factor."""

    def at(self, log_factor: float) -> TrainingMap:
        """With this learning rate."""
        trainer = replace(self.trainer, lr=self.trainer.lr * math.exp(log_factor))
        return TrainingMap(self.net, trainer, self.known, self.secrets)

    def __call__(self, z: Tensor, label: Tensor) -> Tensor:
        """(m, u + 1) and classes (m, k) -> (m, p)."""
        models = [self.at(float(row[-1]))(row[None, :-1], mine[None]) for row, mine in zip(z, label, strict=True)]
        return torch.cat(models)

    def tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor:
        """(p, r) along directions (r, u + 1); by the learning rate as a difference."""
        along = self.at(float(z[-1])).tangents(z[:-1], label, directions[:, :-1])
        return along + self.by_rate(z, label)[:, None] * directions[:, -1].to(along)

    def by_rate(self, z: Tensor, label: Tensor) -> Tensor:
        """(p,) the derivative by the logarithm."""
        moves = DIFFERENCE, -DIFFERENCE
        ahead, behind = (self.at(float(z[-1]) + move)(z[None, :-1], label[None])[0] for move in moves)
        return (ahead - behind) / (2 * DIFFERENCE)


@dataclass(frozen=True, eq=False)
class AssumedSets(Inverting):
    """A prepared Newton against an adversary who knows neither a record nor the learning rate."""

    each: tuple[WholeSets, ...]  # of the ways of training that are assumed
    like: Records

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        games = range(len(release.flat()))
        labels = None if hints is None else hints.labels
        return [
            self._inverted(release.chosen(torch.tensor([number])), None if labels is None else labels[number])
            for number in counted(games, "Newton's method: training sets", len(games))
        ]

    def _inverted(self, release: Release, labels: Tensor | None) -> Inversion:
        """All ways take a few steps; the closest are followed first, until one explains the release."""
        raced = [
            begun
            for sets in self.each
            for begun in self._begun(sets, release, labels)
            if math.isfinite(begun[2].distance)
        ]
        if not raced:
            return self.each[0].blind(labels)
        best: Inversion | None = None
        for sets, problem, point in sorted(raced, key=lambda begun: begun[2].distance):
            inversion = self._solved(sets, problem, point, release)
            if inversion.explained:
                return inversion
            best = inversion if best is None or inversion.residual < best.residual else best
        assert best is not None
        return best

    def _begun(self, sets: WholeSets, release: Release, labels: Tensor | None) -> list[tuple[WholeSets, Any, Point]]:
        """A few steps from the likeliest starts, with the best learning rate for each."""
        exact, quick = (RatedMap(part.net, part.trainer, part.known, part.secrets) for part in (sets.exact, sets.quick))
        of_records = Coordinates.of(sets.prior).times(exact.secrets)
        origin, directions = pad(of_records.origin, (0, 1)), pad(of_records.directions, (0, 1, 0, 1))
        directions[-1, -1] = 1.0
        problem: Problem[Any] = Problem(exact, quick, Coordinates.anywhere(origin, directions))
        known = SetProblem.of(sets.exact, sets.quick, sets.prior, release, None)
        begun = []
        for classes in sets.labellings(known, labels):
            label = torch.tensor(classes, device=known.released.device)
            for start in sets.starts(known, classes)[:2]:
                a = known.problem.coordinates.of_records(start)
                tried = torch.cat([a.expand(len(FACTORS), -1), FACTORS.to(a)[:, None]], 1)
                far = (quick(problem.coordinates(tried), label.expand(len(tried), -1)) - known.released).norm(dim=1)
                first = tried[far.nan_to_num(torch.inf).argmin()]
                (point,) = problem.points(first[None], label[None], known.released)
                ended = descend(problem, known.inside, point, known.released, RACING).point
                begun.append((sets, problem, ended))
        return begun

    def _solved(self, sets: WholeSets, problem: Any, point: Point, release: Release) -> Inversion:
        """The end of the search; then with the learning rate that it found, as if that had been known."""
        released = problem.exact.in_units(release.flat().double())
        known = SetProblem.of(sets.exact, sets.quick, sets.prior, release, None)
        rounding = float(sets.published.rounding(*_at(problem.exact, point)))
        ended = descend(problem, known.inside, point, released, sets.jacobians, enough=rounding).point
        rate = problem.exact.at(float(ended.a[-1])).trainer.lr
        nearby = float(f"{rate:.{DIGITS}g}")  # which somebody may have typed
        rate = nearby if abs(nearby - rate) <= ROUND * rate else rate
        exact, quick = (replace(part, trainer=replace(part.trainer, lr=rate)) for part in (sets.exact, sets.quick))
        published = sets.published._replace(trainer=replace(as_descent(sets.published.trainer), lr=rate))
        found = SetProblem.of(exact, quick, sets.prior, release, None)
        polisher = SetPolisher.of(found, exact, published, sets.jacobians)
        inversion = polisher.solve(ended.a[:-1], ended.label, RACING, released)._replace(trainer=published.trainer)
        return (
            inversion._replace(determined=self._determined(inversion, problem, polisher))
            if inversion.certified
            else inversion
        )

    def _determined(self, inversion: Inversion, problem: Any, polisher: SetPolisher) -> bool:
        """True if the weights tell the records from the learning rate, too.

        The part of its derivative d that no records explain,  d - J s,  holds the logarithm of the rate to a variance
        of  noise / |d - J s|^2,  with which the records move along s.
        """
        assert inversion.trainer is not None
        a = polisher.problem.coordinates.of_records(inversion.record)
        point = polisher.sets.point(a, inversion.label)
        log_factor = a.new_tensor([math.log(inversion.trainer.lr / problem.exact.trainer.lr)])
        by_rate = problem.exact.by_rate(torch.cat([inversion.record, log_factor]), inversion.label).double()
        deviation, k = polisher.prior_variance.sqrt(), len(inversion.label)
        jacobian = polisher.problem.exact_tangents(a, inversion.label).double() * deviation
        along = torch.linalg.lstsq(jacobian, by_rate[:, None]).solution[:, 0]
        left = (by_rate - jacobian @ along).square().sum()
        if float(left) <= (SEEN * float(by_rate.norm())) ** 2:
            return False
        of_rate = noise_of(point, inversion.rounding) / left.clamp_min(1e-300)
        squared = polisher.problem.coordinates.squared
        variance, prior = (
            squared(part).view(k, -1) for part in ((deviation * along).square() * of_rate, polisher.prior_variance)
        )
        return determined(variance, prior, pictures=self.like.x.ndim > 2)


def _at(weights: RatedMap, point: Point) -> tuple[TrainingMap, Tensor, Tensor]:
    return weights.at(float(point.a[-1])), point.a[None, :-1], point.label[None]
