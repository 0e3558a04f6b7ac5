"""Newton's iteration from releases to records, each with a certificate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import ROUNDED, GameSearch, Linearised, Point, in_turn
from lostwax.attacks.newton.annealing import AnnealedSearch, Annealing
from lostwax.attacks.newton.bank import Bank, Classes, Entry, Likely
from lostwax.attacks.newton.misfit import AnswerCheck, OtherRecords, is_noise
from lostwax.attacks.newton.training_map import CAREFUL, POLISHING, Problem, Published
from lostwax.games import Guess, Hints, Reconstructor, Records, Release
from lostwax.learning.coordinates import Coordinates, as_records, flat

CERTAIN = 10  # times the rounding error of the weights: a residual up to this is explained
CONSTANT = 1e-8  # of a number's mean: with a smaller deviation in the prior it is known
DETERMINED = 0.01  # of a number's variance in the prior: the most that rounding may leave


class Inversion(NamedTuple):
    """One game's guess and its evidence, computed without the truth."""

    record: Tensor  # (u,) the k records, one after the other, each with its label where that is a number
    label: Tensor  # (k,) their classes
    residual: float  # |A(z) - theta|
    rounding: float  # norm of what the release's arithmetic and defences change in A(z)
    variance: Tensor  # (k, d) predicted squared error of each number
    prior_variance: Tensor  # (k, d) over known and prior records
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights: singular values of the Jacobian
    determined: bool  # rounding leaves less than a hundredth of the prior's variance, in every column of a table
    jacobians: int  # computed for this game; matrix-free: how often training was linearised
    explained_up_to: float = CERTAIN  # times the rounding: the largest residual that it explains
    is_noise: bool = True  # False: the residual is small, but points to other records (tested if defended)
    has_effect: bool = True  # False: so would a record that training ignores (tested if not defended)
    double: Tensor | None = None  # (u,) other records that explain the release as well
    trainer: Any = None  # the training that was found; None: it was known

    @property
    def predicted(self) -> float:
        """Predicted mean squared error."""
        return float(self.variance.mean())

    @property
    def blind(self) -> float:
        """The same for the mean of known and prior records."""
        return float(self.prior_variance.mean())

    @property
    def explained(self) -> bool:
        """True if the records reproduce the release to rounding."""
        return self.residual <= self.explained_up_to * self.rounding and self.is_noise

    @property
    def certified(self) -> bool:
        """True if the records reproduce the release to rounding, the release determines them, and no double was found.

        Then no records nearby reproduce the weights as well, nor their mirror images; other records far away might
        (Balle et al. 2022, Theorem 8).
        """
        return self.explained and self.determined and self.has_effect and self.double is None

    @property
    def undetermined(self) -> int:
        """Number of directions of the records that move the weights by less than rounding."""
        return int((self.directions < self.rounding).sum())

    @property
    def left_to_the_prior(self) -> Tensor:
        """(k, d) True for numbers that the release hardly determines: these stay near the prior mean."""
        return self.variance > self.prior_variance / 2

    def or_start(self, likely: Likely, coordinates: Coordinates, released: Tensor) -> Inversion:
        """The inversion, or its start if that has the smaller predicted error and the release is not explained.

        Newton fails if the class is wrong or training has kinks. If the victim diverged, the start is the class mean.
        """
        start, unit = likely.regressed, float(coordinates.directions.square().sum(0).mean())
        start_error = likely.predicted_error * unit  # from unknowns to numbers
        if start is None or not start_error <= self.blind:  # so also where it is NaN
            start, start_error = likely.mean or likely.nearest, self.blind
        if self.explained or self.predicted <= start_error:
            return self
        return self._replace(
            record=coordinates(start.a),
            label=start.label,
            residual=float((start.weights - released).norm()),
            variance=self.prior_variance * (start_error / self.blind),
            determined=False,
        )


def determined(variance: Tensor, prior_variance: Tensor, *, pictures: bool) -> bool:
    """True if the predicted error of every number (k, d) is far below that of a blind guess, in its own unit.

    Numbers of pictures have one unit: their mean counts. Some pixels hardly ever vary.
    """
    if pictures:
        variance, prior_variance = variance.mean(1), prior_variance.mean(1)
    return bool((variance <= DETERMINED * prior_variance).all())


class Inverting(ABC):
    """A prepared Newton."""

    like: Records  # one record, for shapes, dtypes and devices

    @abstractmethod
    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""

    def labels(self, hints: Hints | None) -> Tensor | None:
        """(g, k) the classes that are given."""
        return None if hints is None or self.like.y.is_floating_point() else hints.labels

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess each model's secrets; certified where they reproduce the weights to rounding."""
        inversions, like, device = self.invert(release, hints), self.like, release.flat().device
        m, k = len(inversions), len(inversions[0].label)
        z = torch.stack([inversion.record for inversion in inversions]).view(m * k, -1)  # (m k, d + targets)
        labels = torch.stack([inversion.label for inversion in inversions]).flatten()
        records = as_records(z, labels, like).to(device)
        x = records.x.view(m, k, *like.x.shape[1:])
        return Guess(
            Records(x, records.y.view(m, k, *like.y.shape[1:])),
            confidence=torch.stack([-inversion.variance.mean(1) for inversion in inversions]).to(device),
            certified=torch.tensor([[inversion.certified] * k for inversion in inversions], device=device),
            undetermined=torch.stack([each.left_to_the_prior for each in inversions]).to(device).view(x.shape),
        )


GAMES = 128  # inverted together
PREDICTED = 3e-3  # of what the record changes: a linear response is not more accurate
UNLIKELY = 0.2  # of it: with a larger residual another start is tried
FOLLOWED = 2  # starts that a search by linear response follows, at most
BY_RESPONSE = POLISHING._replace(stalled=0.7)  # its Jacobians are never exact
FAR = 100  # times the rounding error of one model: a residual above is no rounding
NEARBY = 0.01  # deviations of the prior: training that is smooth this far around can be polished

MANY = 2_000  # unknowns: from here on their directions come from J^T J
TF32 = 2.0**-11  # relative rounding of its products
SETTLING = 6  # steps towards the likeliest record of a defended release, at most
WEAKEST = 8  # directions that are looked at again where an answer would be certified
SETTLED = 0.1  # of the predicted squared error: the most that the last of them may move the record


class Posterior(NamedTuple):
    """The unknowns of a game, given its release and the prior."""

    a: Tensor  # (r,) the likeliest
    variance: Tensor  # (r,)
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights: singular values of the Jacobian
    moved: Tensor  # (r,) from the point where training was linearised
    weakest: Tensor  # (w, r) a few directions of those that the weights see least

    @property
    def settled(self) -> bool:
        """True if the linear model of training, by which errors are predicted, still holds at `a`."""
        return bool(self.moved.square().sum() <= SETTLED * self.variance.sum())


TrainingSearch = GameSearch[Linearised]


@dataclass(frozen=True, eq=False)
class Polisher:
    """The end of a search: from records nearby to the records, with evidence."""

    problem: Problem[Any]
    published: Published
    prior_mean: Tensor  # (r,) of the unknowns over known and prior records
    prior_variance: Tensor  # (r,)
    left_out: Tensor  # (u,) variance of known and prior records that the unknowns do not span
    others: OtherRecords
    jacobians: int

    def polish(self, released: Tensor, z: Tensor, label: Tensor) -> Inversion | None:
        """Refine records (u,) of classes (k,) near the secrets of one model (p,); None where training has kinks."""
        a = self.problem.coordinates.of_records(z)
        around = self.problem.coordinates(a + NEARBY * self.prior_variance.sqrt()) - self.problem.coordinates(a)
        if not self.problem.exact.smooth(self.problem.coordinates(a), label, around):
            return None
        (released,) = self.problem.exact.in_units(released[None])  # (p,)
        near = Point(a, label, torch.full_like(released, torch.nan))  # trained on in the end
        return self.finish([TrainingSearch(near, self.problem.linear(a, label), released)])[0]

    def finish(self, searches: list[TrainingSearch]) -> list[Inversion]:
        """Iterate from where these searches are to convergence, all games together."""
        a, label = (torch.stack(part) for part in zip(*(search.point[:2] for search in searches), strict=True))
        released = torch.stack([search.released for search in searches])
        points = self.problem.points(a, label, released)
        ended = [
            replace(search, point=point, enough=enough, fresh=False, damping=1.0)
            for search, point, enough in zip(searches, points, self._rounding(points).tolist(), strict=True)
        ]
        self.problem.descend(ended, POLISHING if self.problem.quick.trained else BY_RESPONSE, self.jacobians)
        if self.published.defended:  # the step to the likeliest record is large
            self._settle(ended)
        rounding = self._rounding([search.point for search in ended])
        return [self._evidence(*each) for each in zip(ended, rounding.tolist(), released, strict=True)]

    def _settle(self, searches: list[TrainingSearch]) -> None:
        """Move games that nearly explain their release to the likeliest record, given noise and prior.

        Steps are repeated until one moves the record by less than a share of the predicted error.
        """
        for search in searches:
            search.linear = self.problem.linear(search.point.a, search.point.label)
        rounding = self._rounding([search.point for search in searches]).tolist()
        pairs = zip(searches, rounding, strict=True)
        moving = [(search, noise) for search, noise in pairs if search.point.distance <= CERTAIN * noise]
        for _ in range(SETTLING):
            likeliest = [self._likeliest_record(search.point, search.linear, noise) for search, noise in moving]
            unsettled = [each for each in zip(moving, likeliest, strict=True) if not each[1].settled]
            if not unsettled:
                break
            moving = [pair for pair, _ in unsettled]
            points = self.problem.points(
                torch.stack([posterior.a for _, posterior in unsettled]),
                torch.stack([search.point.label for search, _ in moving]),
                torch.stack([search.released for search, _ in moving]),
            )
            for (search, _), point in zip(moving, points, strict=True):
                search.point, search.linear = point, self.problem.linear(point.a, point.label)

    def _rounding(self, points: list[Point]) -> Tensor:
        """(g,) of each point's model; that of the first stands for all where residuals are far above it."""
        z = self.problem.coordinates(torch.stack([point.a for point in points]))
        label, exact = torch.stack([point.label for point in points]), self.problem.exact.computed_in(torch.float64)
        first = self.published.rounding(exact, z[:1], label[:1])
        if all(point.distance > FAR * float(first) for point in points):
            return first.expand(len(points))
        return torch.cat([first, self.published.rounding(exact, z[1:], label[1:])]) if len(points) > 1 else first

    def _likeliest_record(self, point: Point, linear: Linearised, rounding: float) -> Posterior:
        """The likeliest record under the prior, if the rest of the residual is noise of one size on all weights.

        In deviations of the prior the unknowns have precision  I + J^T J / noise,  and J = U S V^T. Undetermined
        directions move to the prior mean; determined ones by no more than the noise.
        """
        deviation, noise = self.prior_variance.sqrt(), noise_of(point, rounding)
        directions, turned, slope = _turned(linear, deviation, point.residual)
        precision = 1 + directions.square() / noise  # (r,) along the rows of turned
        spread = (turned.square() / precision.unsqueeze(1)).sum(0) * self.prior_variance  # (r,)
        step = turned.mT @ ((turned @ ((self.prior_mean - point.a) / deviation) - slope / noise) / precision)
        a = self.problem.coordinates.clamped(point.a + deviation * step)
        weakest = turned[directions.square() > noise][-WEAKEST:]
        return Posterior(a, spread, directions, a - point.a, deviation * weakest)

    def _evidence(self, search: TrainingSearch, rounding: float, released: Tensor | None = None) -> Inversion:
        """The likeliest record and its predicted error; not certified if the last step still moved it far.

        Compared with other records if the release (p,) is given.
        """
        point, jacobian = search.point, search.linear.jacobian
        likeliest = self._likeliest_record(point, search.linear, rounding)
        inversion = self._inversion(point, likeliest, rounding, search.jacobians)
        if inversion.certified and self.published.defended:
            inversion = inversion._replace(is_noise=self._is_noise(point, jacobian))
        if inversion.certified and self.problem.quick.trained:
            expected = jacobian.double() @ likeliest.weakest.mT  # (p, w)
            trainer, directions = self.problem.quick.trainer, likeliest.directions
            eps = TF32 if trainer.tf32 and directions.is_cuda else torch.finfo(trainer.dtype or directions.dtype).eps
            # of a direction that the weights do not see at all, rounding leaves a small number that looks like a view
            accurate = bool(directions[-1] > ROUNDED * eps * directions.norm())
            if not (accurate and self.problem.moves(point, likeliest.weakest, expected)):
                exact = Linearised.of(self.problem.exact_tangents(point.a, point.label))
                likeliest = self._likeliest_record(point, exact, rounding)
                inversion = self._inversion(point, likeliest, rounding, search.jacobians)
        if released is None or not inversion.certified:
            return inversion
        return self._compared(inversion, point, released)

    def _compared(self, inversion: Inversion, point: Point, released: Tensor) -> Inversion:
        """The same beside other records: not certified if it has no effect, or if another explains the release."""
        prior = self.prior_mean, self.prior_variance, self.left_out
        beside = AnswerCheck(self.problem, self.others, *prior, point, released)
        if not self.published.defended and not beside.effect() > 2 * CERTAIN * inversion.rounding:
            return inversion._replace(has_effect=False)
        for double in beside.doubles(self.jacobians, inversion.rounding):
            if double.distance <= inversion.explained_up_to * inversion.rounding:
                return inversion._replace(double=self.problem.coordinates(double.a))
        return inversion

    def _is_noise(self, point: Point, jacobian: Tensor) -> bool:
        """True if what the answer leaves unexplained does not point to other records."""
        coordinates, label = self.problem.coordinates, point.label
        here, exact = coordinates(point.a), self.problem.exact.computed_in(torch.float64)
        z = torch.cat([here[None], coordinates(coordinates.of_records(self.others.near(here, label)))])
        models, noise = self.published.simulated(exact, z, label.expand(len(z), -1))
        return is_noise(point.residual, jacobian, models[1:] - models[0], noise)

    def _inversion(self, point: Point, likeliest: Posterior, rounding: float, jacobians: int) -> Inversion:
        coordinates = self.problem.coordinates
        k, d = self.problem.exact.secrets, self.problem.exact.numbers
        squared, left_out = coordinates.squared, self.left_out
        of_unknowns = squared(likeliest.variance) + left_out, squared(self.prior_variance) + left_out
        parts = (*of_unknowns, squared(likeliest.moved.square()))
        variance, prior, moved = (part.view(k, -1)[:, :d] for part in parts)
        size, pictures = coordinates(self.prior_mean).view(k, -1)[:, :d], self.problem.exact.known.x.ndim > 2
        sure = determined(variance + moved, prior + (CONSTANT * size).square(), pictures=pictures)
        record, seen = coordinates(likeliest.a), likeliest.directions
        inversion = Inversion(
            record, point.label, point.distance, rounding, variance, prior, seen, determined=sure, jacobians=jacobians
        )
        if not self.published.defended:
            return inversion
        # the squared norms of two draws of a defence's noise differ by a share of about 2 / sqrt(p)
        most = math.sqrt(1 + 6 / math.sqrt(len(point.residual)))
        return inversion._replace(determined=sure and likeliest.settled, explained_up_to=most)


def _turned(linear: Linearised, deviation: Tensor, residual: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """S (r,), 0 for what is lost in rounding, V^T (r, r) and S U^T residual, in deviations of the prior.

    With many unknowns from J^T J, in which directions below about 1e-6 of the largest are lost: they count as not
    seen, which can take a certificate and never gives one.
    """
    eps = torch.finfo(deviation.dtype).eps * max(ROUNDED, len(deviation))
    if len(deviation) > MANY:
        squares, columns = torch.linalg.eigh(deviation[:, None] * linear.normal * deviation)
        directions = torch.where(squares > eps * squares[-1], squares, 0.0).sqrt()
        slope = columns.mT @ (linear.jacobian.double().mT @ residual * deviation)
        return directions.flip(0), columns.mT.flip(0), torch.where(directions > 0, slope, 0.0).flip(0)
    wide, small = torch.linalg.qr(linear.jacobian.double() * deviation)  # (p, r), (r, r)
    left, directions, turned = torch.linalg.svd(small)  # (r, r), (r,), (r, r)
    directions = torch.where(directions > eps * directions[0], directions, 0.0)
    return directions, turned, directions * (left.mT @ (wide.mT @ residual))


def noise_of(point: Point, rounding: float) -> float:
    """Variance of the noise on a weight, from what the answer leaves of the residual, or at least rounding."""
    free = max(1, len(point.residual) - len(point.a))  # a fit of r unknowns makes residuals smaller than the noise
    return max(point.distance**2 / free, rounding**2 / len(point.residual))


@dataclass(frozen=True, eq=False)
class Inverter(Polisher, Inverting):
    """A prepared Newton, with known records."""

    bank: Bank
    by_training: bool  # train models at the end of a search by linear response
    guess: Reconstructor | None  # another attack, for games whose starts do not explain the release
    like: Records  # one record, for shapes, dtypes and devices
    annealing: Annealing | None = None  # the search by a response of every weight
    at_means: dict[Classes, Linearised] = field(default_factory=dict)  # training linearised at class means, on demand

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        released = self.problem.exact.in_units(release.flat().double().to(self.like.x.device))  # (g, p)
        likeliest = self.bank.likeliest(released, self.labels(hints), self.problem.quick, self.problem.coordinates)
        starts = [[entry for likely in mine for entry in likely.entries] for mine in likeliest]
        inversions = self._inverted(released, starts)
        finite = released.isfinite().all(1).tolist()  # models that did not diverge
        lost = [g for g, inversion in enumerate(inversions) if finite[g] and not inversion.explained]
        if self.guess is not None and lost:
            their_hints = None if hints is None else hints[torch.tensor(lost)]
            answer = self.guess(Release({name: value[lost] for name, value in release.params.items()}), their_hints)
            guesses = {lost[turn]: [start] for turn, start in self._guessed(answer.records).items()}
            rescued = self._inverted(released[list(guesses)], list(guesses.values())) if guesses else []
            for g, inversion in zip(guesses, rescued, strict=True):
                inversions[g] = _better(inversions[g], inversion)
        return [
            inversion.or_start(mine[0], self.problem.coordinates, weights)
            for inversion, mine, weights in zip(inversions, likeliest, released, strict=True)
        ]

    def _inverted(self, released: Tensor, starts: list[list[Entry]]) -> list[Inversion]:
        """Each game's starts in turn, the most promising first, until one explains it; some games at a time."""
        if len(released) > GAMES:
            parts = slice(None, GAMES), slice(GAMES, None)
            return [inversion for part in parts for inversion in self._inverted(released[part], starts[part])]
        if self.annealing is not None:
            annealed = self.annealing(released, starts)
            if not self.by_training:
                return [self._by_response(search) for search in annealed]
            raced: list[list[TrainingSearch]] = [[search] for search in annealed]
        else:
            raced = self._race(released, starts)
            if not self.problem.quick.trained:
                predicted = self._predicted(raced, released)
                if not self.by_training:  # the response's error takes the place of rounding
                    errors = (PREDICTED * released.norm(dim=1)).tolist()
                    evidence = [self._evidence(*each) for each in zip(predicted, errors, strict=True)]
                    return [inversion._replace(determined=False) for inversion in evidence]  # no model was trained
                raced = [[search] for search in predicted]
        return in_turn(
            raced, lambda _, searches: self.finish(searches), lambda _, inversion: inversion.explained, _better
        )

    def _guessed(self, answer: Records) -> dict[int, Entry]:
        """The other attack's guesses (g, k, ...) as starts, except for classes that are not in the bank."""
        answer = answer.to(self.like.x.device)
        g, k = answer.x.shape[:2]
        label = answer.x.new_zeros(g, k, dtype=torch.long) if self.like.y.is_floating_point() else answer.y
        begun = [game for game, classes in enumerate(label.tolist()) if tuple(classes) in self.bank.classes]
        if not begun:
            return {}
        z = flat(Records(answer.x.flatten(0, 1), answer.y.flatten(0, 1))).view(g, -1)  # (g, u)
        a, label = self.problem.coordinates.of_records(z[begun]), label[begun]
        weights = self.problem.quick(self.problem.coordinates(a), label)
        return {game: Entry(*each) for game, *each in zip(begun, a, label, weights, strict=True)}

    def _race(self, released: Tensor, starts: list[list[Entry]]) -> list[list[TrainingSearch]]:
        """One step from every start; those closest to the release first."""
        raced = [
            [TrainingSearch(entry.point(weights), self.at_mean(entry.classes), weights) for entry in mine]
            for mine, weights in zip(starts, released, strict=True)
        ]
        by_quick = replace(self.problem, exact=self.problem.quick)
        by_quick.step([search for mine in raced for search in mine], CAREFUL)
        return [sorted(mine, key=lambda search: search.point.distance) for mine in raced]

    def _predicted(self, raced: list[list[TrainingSearch]], released: Tensor) -> list[TrainingSearch]:
        """Where the search by linear response ends, from each game's starts in turn until one predicts the release."""
        problem, sizes = replace(self.problem, exact=self.problem.quick), released.norm(dim=1).tolist()  # (g,)

        def descend(games: Sequence[int], begun: list[TrainingSearch]) -> list[TrainingSearch]:
            searches = [replace(search, enough=PREDICTED * sizes[g]) for g, search in zip(games, begun, strict=True)]
            problem.descend(searches, BY_RESPONSE, self.jacobians)
            return searches

        best = in_turn(
            [mine[:FOLLOWED] for mine in raced],
            descend,
            lambda g, search: not search.point.distance > UNLIKELY * sizes[g],
            lambda before, after: min(before, after, key=lambda search: search.point.distance),
        )
        return [replace(search, jacobians=0) for search in best]

    def _by_response(self, search: AnnealedSearch) -> Inversion:
        """The answer of an annealed search, with its predicted error; no model was trained on it.

        The response's error grows with the square of what the record changed; a share of it that says nothing about
        the record explains no release.
        """
        a, accurate = search.point.a, PREDICTED * search.size
        variance, directions = search.posterior()
        likeliest = Posterior(
            a, variance if search.explained else self.prior_variance, directions, torch.zeros_like(a), a[None][:0]
        )
        inversion = self._inversion(search.point, likeliest, search.error, search.jacobians)
        share = accurate / search.error if search.error > accurate else 1.0
        return inversion._replace(determined=False, is_noise=search.explained, explained_up_to=CERTAIN * share)

    def at_mean(self, classes: Classes) -> Linearised:
        """Training, linearised at the means of these classes; kept for later games."""
        if classes not in self.at_means:
            row = self.bank.classes.index(classes)
            self.at_means[classes] = self.problem.linear(self.bank.a[row], self.bank.label[row])
        return self.at_means[classes]


def _better(before: Inversion, after: Inversion) -> Inversion:
    """First what explains the release, then what comes closer to it."""
    return min(before, after, key=lambda inversion: (not inversion.explained, inversion.residual))
