"""Newton's method for a whole training set of which no record is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.bank import Classes, means_of
from lostwax.attacks.newton.inverter import Inversion, Polisher, Published, as_guess
from lostwax.attacks.newton.record_span import record_span
from lostwax.attacks.newton.solver import Ended, Linearised, Point, Problem
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Guess, Hints, Records, Release
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.decoders import Span
from lostwax.progress import progress
from lostwax.seeds import generator

RACED, RACING = 16, 3  # combinations of labels that take this many steps, where labels are unknown
LABELLINGS = 4  # of them that are followed to the end
STARTS = 5  # for each of them, at most
MOST_NUMBERS = 20_000  # unknown: a square table of them takes 3 GB
DRAWN, AVERAGED = 256, 3  # starts that are compared, and prior records that one averages for each secret
DAMPINGS = (0.04, 0.2, 1.0, 5.0, 25.0, 125.0)  # times the last damping, all tried at once
FIRST_DAMPING, MOST_DAMPING, LEAST_DAMPING = 1e-2, 1e4, 1e-15  # of the mean curvature
STALLED = 0.999  # of the objective
FINISHED = 1e-5  # of the weights: from here on it is polished
OUTSIDE = 0.02  # of the mean curvature: the price of a number outside its range


@dataclass(frozen=True, eq=False)
class WholeSets:
    """A prepared Newton against an adversary who knows no record."""

    exact: TrainingMap
    quick: TrainingMap
    prior: Records
    published: Published
    jacobians: int
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess each model's records; certified where they reproduce the weights to rounding."""
        return as_guess(self.invert(release, hints), self.prior[:1], release.flat().device)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        games = len(release.flat())
        given = [None] * games if hints is None or hints.labels is None else list(hints.labels)
        found = []
        with progress("Newton's method: training sets", games) as advance:
            for number in range(games):
                one = Release({name: value[number : number + 1] for name, value in release.params.items()})
                found.append(self._inverted(one, given[number]))
                advance(1)
        return found

    def _inverted(self, release: Release, labels: Tensor | None) -> Inversion:
        """From one start after another, until one explains the release."""
        device = self.prior.x.device
        release = Release({name: value.to(device) for name, value in release.params.items()})
        released = self.exact.in_units(release.flat().double())  # (1, p)
        if not released.isfinite().all():
            return self._blind(labels)
        whole = Coordinates.of(self.prior)
        seen = None if self.published.defended else record_span(self.exact, release, whole)
        if seen is None and self.exact.unknowns > MOST_NUMBERS:
            raise ValueError(
                f"Newton: the first layer does not show the space of the records, and {self.exact.unknowns} unknown "
                "numbers are too many for its tables. Use a smaller training set."
            )
        problem = Problem(self.exact, self.quick, seen.coordinates if seen else whole.times(self.exact.secrets))
        polisher = self._polisher(problem, spanned=seen is not None and seen.complete)
        best: Inversion | None = None
        for start, classes in self._tries(problem, released, labels):
            one = polisher.polished(self._search(problem, start, classes, released, self.jacobians), released)
            best = one if best is None or one.residual < best.residual else best
            if best.explained:
                return best
        assert best is not None  # there is a first start
        if labels is None and not self.prior.y.is_floating_point():
            for classes in self._relabelled(best, released):
                ended = self._search(problem, best.record, classes, released, self.jacobians)
                one = polisher.polished(ended, released)
                if one.explained:
                    return one
        return best

    def _blind(self, labels: Tensor | None) -> Inversion:
        """Class means, for a victim whose training diverged."""
        z, y, k = flat(self.prior), self._classes(), self.exact.secrets
        classes: Classes = (int(y.mode().values),) * k if labels is None else tuple(labels.tolist())
        variance = z.var(0, correction=0)[: self.exact.numbers].expand(k, -1)
        return Inversion(
            record=means_of(z, y, classes),
            label=torch.tensor(classes, device=z.device),
            residual=torch.inf,
            rounding=0.0,
            variance=variance,
            prior_variance=variance,
            directions=z.new_zeros(1),
            determined=False,
            jacobians=0,
        )

    def _tries(self, problem: Problem, released: Tensor, labels: Tensor | None) -> Iterator[tuple[Tensor, Classes]]:
        for classes in self._labellings(problem, released, labels):
            for start in self._starts(problem, classes, released):
                yield start, classes

    def _relabelled(self, found: Inversion, released: Tensor) -> list[Classes]:
        """The labels of these records with one changed, whose models are closest to the release first."""
        here, present = found.label.tolist(), torch.unique(self.prior.y).tolist()
        changed = [
            (*here[:place], other, *here[place + 1 :])
            for place in range(len(here))
            for other in present
            if other != here[place]
        ]
        models = self.quick(found.record.expand(len(changed), -1), torch.tensor(changed, device=released.device))
        far = (models.double() - released).norm(dim=1).nan_to_num(torch.inf)
        return [changed[row] for row in far.argsort()[:LABELLINGS].tolist()]

    def _polisher(self, problem: Problem, *, spanned: bool) -> Polisher:
        z = flat(self.prior).repeat(1, self.exact.secrets)  # (n, u)
        unknowns = problem.coordinates.of_records(z)  # (n, r)
        left_out = (z - problem.coordinates(unknowns)).square().mean(0)
        return Polisher(
            problem=problem,
            published=self.published,
            prior_mean=unknowns.mean(0),
            prior_variance=unknowns.var(0, correction=0).clamp_min(1e-30),
            left_out=torch.zeros_like(left_out) if spanned else left_out,  # the release says that it is zero
            jacobians=self.jacobians,
        )

    def _search(self, problem: Problem, start: Tensor, classes: Classes, released: Tensor, jacobians: int) -> Ended:
        label = torch.tensor(classes, device=start.device)
        (point,) = problem.points(problem.coordinates.of_records(start)[None], label[None], released)
        return descend(problem, NumberRange.of(self.prior, self.exact.secrets), point, released, jacobians)

    def _starts(self, problem: Problem, classes: Classes, released: Tensor) -> Tensor:
        """(s, u) the means of the classes or of a few drawn records each, those whose models are closest first."""
        z, y = flat(self.prior), self._classes()
        random = generator(self.seed, "adversary", "sets")
        rows = [(y == label).nonzero()[:, 0].cpu().numpy() for label in classes]
        drawn = [
            torch.cat([z[random.choice(mine, min(AVERAGED, len(mine)), replace=False)].mean(0) for mine in rows])
            for _ in range(DRAWN)
        ]
        starts = torch.stack([means_of(z, y, classes), *drawn])
        label = torch.tensor(classes, device=z.device).expand(len(starts), -1)
        models = self.quick(problem.coordinates(problem.coordinates.of_records(starts)), label).double()
        far = (models - released).norm(dim=1).nan_to_num(torch.inf)
        return starts[far.argsort()[:STARTS]]

    def _classes(self) -> Tensor:
        y = self.prior.y
        return torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y

    def _labellings(self, problem: Problem, released: Tensor, labels: Tensor | None) -> list[Classes]:
        """The labels, if given; else the likeliest.

        Labels change one at a time, while the last layers of models trained on class means come closer to the release;
        of the closest, those are the likeliest that explain most of it after a few steps.
        """
        if self.prior.y.is_floating_point():
            return [(0,) * self.exact.secrets]
        present = torch.unique(self.prior.y).tolist()
        if labels is not None:
            if not set(labels.tolist()) <= set(present):
                raise ValueError(
                    "Newton: the hints give a secret a label that no prior record has. Add some to the prior."
                )
            return [tuple(labels.tolist())]
        here: Classes = tuple(sorted(present[place % len(present)] for place in range(self.exact.secrets)))
        distances = self._distances(problem, [here], released)
        while True:
            near = {
                tuple(sorted((*here[:place], other, *here[place + 1 :])))
                for place in range(len(here))
                for other in present
            }
            distances |= self._distances(problem, sorted(near - distances.keys()), released)
            closest = min(distances, key=lambda one: distances[one])
            if closest == here:
                break
            here = closest
        raced = {}
        for classes in sorted(distances, key=lambda one: distances[one])[:RACED]:
            start = self._starts(problem, classes, released)[0]
            raced[classes] = self._search(problem, start, classes, released, RACING).point.distance
        return sorted(raced, key=lambda one: raced[one])[:LABELLINGS]

    def _distances(self, problem: Problem, labellings: list[Classes], released: Tensor) -> dict[Classes, float]:
        """How far the last layers of models trained on class means are from that of the release."""
        if not labellings:
            return {}
        z, label = flat(self.prior), torch.tensor(labellings, device=released.device)
        means = torch.stack([means_of(z, self.prior.y, one) for one in labellings])
        trained = self.quick(problem.coordinates(problem.coordinates.of_records(means)), label).double()
        sizes = [value.numel() for value in self.exact.net.parameters() if value.requires_grad]
        last = slice(-sum(sizes[-2:]), None)  # its bias moves by the counts of the labels, less the predictions
        far = (trained - released)[:, last].norm(dim=1).nan_to_num(torch.inf)
        return dict(zip(labellings, far.tolist(), strict=True))


class NumberRange(NamedTuple):
    """The range of the numbers of k records: those outside are drawn back."""

    low: Tensor  # (u,), -inf for none
    high: Tensor  # (u,)

    @classmethod
    def of(cls, prior: Records, k: int) -> NumberRange:
        """[0, 1] or [-1, 1] for pixels; else any number."""
        span, z = Span.of(prior.x.double()), flat(prior)
        anywhere = torch.full_like(z[0], torch.inf)
        if not span.bounded:
            return cls(-anywhere.repeat(k), anywhere.repeat(k))
        low, high, d = -anywhere, anywhere.clone(), span.shift.numel()
        low[:d], high[:d] = span.shift.flatten(), (span.shift + span.scale).flatten()
        return cls(low.repeat(k), high.repeat(k))

    def excess(self, z: Tensor) -> Tensor:
        """How far the numbers (..., u) are outside: negative below, positive above, else 0."""
        return (z - self.high).clamp_min(0) - (self.low - z).clamp_min(0)


def descend(problem: Problem, inside: NumberRange, point: Point, released: Tensor, jacobians: int) -> Ended:
    """Levenberg's method on  |A(z) - theta|^2 + w |excess of z|^2,  with several dampings tried at once.

    The second term is 0 at the records. It keeps the path away from records that no data set has, where it gets stuck.
    """
    damping, count, directions = FIRST_DAMPING, 0, problem.coordinates.directions
    linear = problem.linear(point.a, point.label)
    scale = float(linear.normal.diagonal().mean())
    weight, fresh = OUTSIDE * scale, True
    with progress("Newton's method: Jacobians", jacobians) as advance:
        while count < jacobians and point.distance > FINISHED * float(released.norm()):
            if not fresh:
                linear, count = problem.linear(point.a, point.label), count + 1
                advance(1)
            excess = inside.excess(problem.coordinates(point.a))
            normal, slope = _penalised(linear, point, directions, weight, excess)
            value = float(point.residual.square().sum() + weight * excess.square().sum())
            dampings = [damping * factor for factor in DAMPINGS]
            tried = torch.stack([point.a - _solve(normal, slope, one * scale) for one in dampings])  # (f, r)
            labels, z = point.label.expand(len(tried), -1), problem.coordinates(tried)
            residuals = problem.exact(z, labels).double() - released
            values = residuals.square().sum(1) + weight * inside.excess(z).square().sum(1)
            best = int(values.nan_to_num(torch.inf).argmin())
            fresh = not bool(values[best] < value)
            if fresh and damping > MOST_DAMPING:
                break
            damping = damping * DAMPINGS[-1] if fresh else max(dampings[best], LEAST_DAMPING)
            if not fresh:
                point = Point(tried[best], point.label, residuals[best])
                if float(values[best]) > STALLED * value:
                    break
    return Ended(point, linear, count)


def _penalised(
    linear: Linearised, point: Point, directions: Tensor, weight: float, excess: Tensor
) -> tuple[Tensor, Tensor]:
    """J^T J + w P^T P and J^T r + w P^T e, P the directions in the numbers that are outside."""
    out = excess != 0
    outward = directions[:, out]  # (r, o)
    normal = linear.normal + weight * outward @ outward.mT
    return normal, linear.jacobian.double().mT @ point.residual + weight * outward @ excess[out]


def _solve(normal: Tensor, slope: Tensor, damping: float) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(normal + damping * torch.eye(len(normal)).to(normal))
    step = torch.cholesky_solve(slope.unsqueeze(1), factor)[:, 0]
    return torch.full_like(step, torch.nan) if failed else step
