"""Newton's iteration from releases to records, each with a certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.annealing import Annealed, Annealing
from lostwax.attacks.newton.bank import Bank, Classes, Entry, Likely
from lostwax.attacks.newton.factored import ROUNDED
from lostwax.attacks.newton.misfit import AnswerCheck, OtherRecords, is_noise
from lostwax.attacks.newton.published import Published
from lostwax.attacks.newton.solver import STALLED, Ended, Linearised, Point, Problem
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


def explained_up_to(weights: int) -> float:
    """The largest residual, as a multiple of a defence's noise on p weights, that the noise explains.

    The squared norms of two draws of the noise differ by a share of about 2 / sqrt(p).
    """
    return math.sqrt(1 + 6 / math.sqrt(weights))


def better(before: Inversion, one: Inversion) -> Inversion:
    """That which explains the release, or else comes closer to it."""
    return min(before, one, key=lambda each: (not each.explained, each.residual))


def determined(variance: Tensor, prior_variance: Tensor, *, pictures: bool) -> bool:
    """True if the predicted error of every number (k, d) is far below that of a blind guess, in its own unit.

    Numbers of pictures have one unit: their mean counts. Some pixels hardly ever vary.
    """
    if pictures:
        variance, prior_variance = variance.mean(1), prior_variance.mean(1)
    return bool((variance <= DETERMINED * prior_variance).all())


def as_guess(found: Sequence[Inversion], like: Records, device: torch.device) -> Guess:
    """The answers, in the shapes and dtypes of the prior's records."""
    m, k = len(found), len(found[0].label)
    z = torch.stack([one.record for one in found]).view(m * k, -1)  # (m k, d + targets)
    records = as_records(z, torch.stack([one.label for one in found]).flatten(), like).to(device)
    x = records.x.view(m, k, *like.x.shape[1:])
    return Guess(
        Records(x, records.y.view(m, k, *like.y.shape[1:])),
        confidence=torch.stack([-one.variance.mean(1) for one in found]).to(device),
        certified=torch.tensor([[one.certified] * k for one in found], device=device),
        undetermined=torch.stack([one.left_to_the_prior for one in found]).to(device).view(x.shape),
    )


GAMES = 128  # inverted together
PREDICTED = 3e-3  # of what the record changes: a linear response is not more accurate
UNLIKELY = 0.2  # of it: with a larger residual another start is tried
FOLLOWED = 2  # starts that a search by linear response follows, at most
SLOW = 0.7  # of the residual: if a step with a new Jacobian by linear response leaves more, the search ends
FAR = 100  # times the rounding error of one model: a residual above is no rounding
NEARBY = 0.01  # deviations of the prior: training that is smooth this far around can be polished

MANY = 2_000  # unknowns: from here on their directions come from J^T J
TF32 = 2.0**-11  # relative rounding of its products
SETTLING = 6  # steps towards the likeliest record of a defended release, at most
WEAKEST = 8  # directions that are looked at again where an answer would be certified
SETTLED = 0.1  # of the predicted squared error: the most that the last of them may move the record

Begun = tuple[Point, Linearised]


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


@dataclass(frozen=True, eq=False)
class Polisher:
    """The end of a search: from records nearby to the records, with evidence."""

    problem: Problem
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
        released = self.problem.exact.in_units(released[None])  # (1, p)
        (point,) = self.problem.points(a[None], label[None], released)
        (found,) = self._finish([(point, self.problem.linear(a, label))], released)
        return found

    def polished(self, ended: Ended, released: Tensor) -> Inversion:
        """The same from where a search ended, with what it took."""
        (found,) = self._finish([(ended.point, ended.linear)], released)
        return found._replace(jacobians=found.jacobians + ended.jacobians)

    def _finish(self, raced: list[Begun], released: Tensor) -> list[Inversion]:
        """Iterate from the best first step to convergence, all games (g, p) together."""
        a, label = torch.stack([point.a for point, _ in raced]), torch.stack([point.label for point, _ in raced])
        points = self.problem.points(a, label, released)
        linears = [linear for _, linear in raced]
        slow = STALLED if self.problem.quick.trained else SLOW  # Jacobians by response are never exact
        ended = self.problem.descend(points, linears, released, self._rounding(points), self.jacobians, slow)
        if self.published.defended:  # the step to the likeliest record is large
            ended = self._settled([self._afresh(game) for game in ended], released)
        rounding = self._rounding([game.point for game in ended])
        return [self._evidence(*each) for each in zip(ended, rounding.tolist(), released, strict=True)]

    def _afresh(self, game: Ended) -> Ended:
        """The same game, linearised at its current point."""
        return game._replace(linear=self.problem.linear(game.point.a, game.point.label))

    def _settled(self, ended: list[Ended], released: Tensor) -> list[Ended]:
        """Move games that nearly explain their release to the likeliest record, given noise and prior.

        Steps are repeated until one moves the record by less than a share of the predicted error.
        """
        games, rounding = list(ended), self._rounding([game.point for game in ended]).tolist()
        moving = [g for g, game in enumerate(games) if game.point.distance <= CERTAIN * rounding[g]]
        for _ in range(SETTLING):
            likeliest = {g: self._likeliest_record(games[g], rounding[g]) for g in moving}
            moving = [g for g in moving if not likeliest[g].settled]
            if not moving:
                break
            a = torch.stack([likeliest[g].a for g in moving])
            points = self.problem.points(a, torch.stack([games[g].point.label for g in moving]), released[moving])
            for g, point in zip(moving, points, strict=True):
                games[g] = self._afresh(games[g]._replace(point=point))
        return games

    def _rounding(self, points: list[Point]) -> Tensor:
        """(g,) of each point's model; that of the first stands for all where residuals are far above it."""
        z = self.problem.coordinates(torch.stack([point.a for point in points]))
        label, exact = torch.stack([point.label for point in points]), self.problem.exact.computed_in(torch.float64)
        first = self.published.rounding(exact, z[:1], label[:1])
        if all(point.distance > FAR * float(first) for point in points):
            return first.expand(len(points))
        return torch.cat([first, self.published.rounding(exact, z[1:], label[1:])]) if len(points) > 1 else first

    def _likeliest_record(self, game: Ended, rounding: float) -> Posterior:
        """The likeliest record under the prior, if the rest of the residual is noise of one size on all weights.

        In deviations of the prior the unknowns have precision  I + J^T J / noise,  and J = U S V^T. Undetermined
        directions move to the prior mean; determined ones by no more than the noise.
        """
        point, deviation = game.point, self.prior_variance.sqrt()
        noise = noise_of(point, rounding)
        directions, turned, slope = self._turned(game.linear, deviation, point.residual)
        precision = 1 + directions.square() / noise  # (r,) along the rows of turned
        spread = (turned.square() / precision.unsqueeze(1)).sum(0) * self.prior_variance  # (r,)
        step = turned.mT @ ((turned @ ((self.prior_mean - point.a) / deviation) - slope / noise) / precision)
        a = self.problem.coordinates.clamped(point.a + deviation * step)
        weakest = turned[directions.square() > noise][-WEAKEST:]
        return Posterior(a, spread, directions, a - point.a, deviation * weakest)

    @staticmethod
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

    def _evidence(self, game: Ended, rounding: float, released: Tensor | None = None) -> Inversion:
        """The likeliest record and its predicted error; not certified if the last step still moved it far.

        Compared with other records if the release (p,) is given.
        """
        likeliest = self._likeliest_record(game, rounding)
        found = self._inversion(game.point, likeliest, rounding, game.jacobians)
        if found.certified and self.published.defended:
            found = found._replace(is_noise=self._is_noise(game))
        if found.certified and self.problem.quick.trained:
            expected = game.linear.jacobian.double() @ likeliest.weakest.mT  # (p, w)
            if not (
                self._accurate(likeliest.directions) and self.problem.moves(game.point, likeliest.weakest, expected)
            ):
                game = game._replace(linear=self.problem.exact_linear(game.point.a, game.point.label))
                found = self._inversion(game.point, self._likeliest_record(game, rounding), rounding, game.jacobians)
        return self._compared(found, game.point, released) if found.certified and released is not None else found

    def _compared(self, found: Inversion, point: Point, released: Tensor) -> Inversion:
        """The same beside other records: not certified if it has no effect, or if another explains the release."""
        prior = self.prior_mean, self.prior_variance, self.left_out
        beside = AnswerCheck(self.problem, self.others, *prior, point, released)
        if not self.published.defended and not beside.effect() > 2 * CERTAIN * found.rounding:
            return found._replace(has_effect=False)
        doubles = beside.doubles(self.jacobians, found.rounding)
        explaining = [one for one in doubles if one.distance <= found.explained_up_to * found.rounding]
        return found._replace(double=self.problem.coordinates(explaining[0].a)) if explaining else found

    def _is_noise(self, game: Ended) -> bool:
        """True if what the answer leaves unexplained does not point to other records."""
        coordinates, label = self.problem.coordinates, game.point.label
        here, exact = coordinates(game.point.a), self.problem.exact.computed_in(torch.float64)
        z = torch.cat([here[None], coordinates(coordinates.of_records(self.others.near(here, label)))])
        models, noise = self.published.simulated(exact, z, label.expand(len(z), -1))
        return is_noise(game.point.residual, game.linear.jacobian, models[1:] - models[0], noise)

    def _accurate(self, directions: Tensor) -> bool:
        """True if no singular value (r,) of the Jacobian is as small as its own rounding makes them.

        Of a direction that the weights do not see at all, rounding leaves a small number that looks like a view of it.
        """
        trainer = self.problem.quick.trainer
        eps = TF32 if trainer.tf32 and directions.is_cuda else torch.finfo(trainer.dtype or directions.dtype).eps
        return bool(directions[-1] > ROUNDED * eps * directions.norm())

    def _inversion(self, point: Point, likeliest: Posterior, rounding: float, jacobians: int) -> Inversion:
        coordinates = self.problem.coordinates
        k, d = self.problem.exact.secrets, self.problem.exact.numbers
        squares, left_out = coordinates.directions.square(), self.left_out
        variance, prior, moved = (
            part.view(k, -1)[:, :d]
            for part in (
                likeliest.variance @ squares + left_out,
                self.prior_variance @ squares + left_out,
                likeliest.moved.square() @ squares,
            )
        )
        size, pictures = coordinates(self.prior_mean).view(k, -1)[:, :d], self.problem.exact.known.x.ndim > 2
        return Inversion(
            record=coordinates(likeliest.a),
            label=point.label,
            residual=point.distance,
            rounding=rounding,
            variance=variance,
            prior_variance=prior,
            directions=likeliest.directions,
            determined=determined(variance + moved, prior + (CONSTANT * size).square(), pictures=pictures)
            and (likeliest.settled or not self.published.defended),
            jacobians=jacobians,
            explained_up_to=explained_up_to(len(point.residual)) if self.published.defended else CERTAIN,
        )


def noise_of(point: Point, rounding: float) -> float:
    """Variance of the noise on a weight, from what the answer leaves of the residual, or at least rounding."""
    free = max(1, len(point.residual) - len(point.a))  # a fit of r unknowns makes residuals smaller than the noise
    return max(point.distance**2 / free, rounding**2 / len(point.residual))


@dataclass(frozen=True, eq=False)
class Inverter(Polisher):
    """A prepared Newton."""

    bank: Bank
    by_training: bool  # train models at the end of a search by linear response
    guess: Reconstructor | None  # another attack, for games whose starts do not explain the release
    like: Records  # one record, for shapes, dtypes and devices
    annealing: Annealing | None = None  # the search by a response of every weight
    at_means: dict[Classes, Linearised] = field(default_factory=dict)  # training linearised at class means, on demand

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess each model's secrets; certified where they reproduce the weights to rounding."""
        return as_guess(self.invert(release, hints), self.like, release.flat().device)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        released = self.problem.exact.in_units(release.flat().double().to(self.like.x.device))  # (g, p)
        likeliest = self._likeliest(released, hints)
        found = self._from(released, [[entry for likely in mine for entry in likely.entries] for mine in likeliest])
        finite = released.isfinite().all(1).tolist()  # models that did not diverge
        lost = [g for g, one in enumerate(found) if finite[g] and not one.explained]
        if self.guess is not None and lost:
            rest = Release({name: value[lost] for name, value in release.params.items()})
            given = None if hints is None else hints[torch.tensor(lost)]
            starts = self._guessed(self.guess(rest, given).records.to(self.like.x.device))
            rescued = self._from(released[[lost[turn] for turn in starts]], [[start] for start in starts.values()])
            for turn, one in zip(starts, rescued, strict=True):
                found[lost[turn]] = better(found[lost[turn]], one)
        return [
            one.or_start(mine[0], self.problem.coordinates, weights)
            for one, mine, weights in zip(found, likeliest, released, strict=True)
        ]

    def _from(self, released: Tensor, starts: list[list[Entry]]) -> list[Inversion]:
        """From these starts of each game, some games at a time."""
        parts = [slice(first, first + GAMES) for first in range(0, len(released), GAMES)]
        return [one for part in parts for one in self._inverted(released[part], starts[part])]

    def _inverted(self, released: Tensor, starts: list[list[Entry]]) -> list[Inversion]:
        """Each game's starts in turn, the most promising first, until one explains the release."""
        spent = [0] * len(released)  # Jacobians, before the end that trains models
        if self.annealing is not None:
            annealed = self.annealing(released, starts)
            if not self.by_training:
                sizes = released.norm(dim=1).tolist()
                return [self._by_response(*each) for each in zip(annealed, sizes, strict=True)]
            raced = [[(one.point, one.linear)] for one in annealed]
            spent = [one.jacobians for one in annealed]
        else:
            raced = self._race(released, starts)
            if not self.problem.quick.trained:
                predicted = self._predicted(raced, released)
                if not self.by_training:
                    return self._unpolished(predicted, released)
                raced = [[one] for one in predicted]
        best: list[Inversion | None] = [None] * len(released)
        for turn in range(max(map(len, raced))):
            again = [g for g, one in enumerate(best) if (one is None or not one.explained) and turn < len(raced[g])]
            if not again:
                break
            found = self._finish([raced[g][turn] for g in again], released[again])
            for g, one in zip(again, found, strict=True):
                before = best[g]
                best[g] = one if before is None else better(before, one)
        found = [one for one in best if one is not None]
        return [one._replace(jacobians=one.jacobians + more) for one, more in zip(found, spent, strict=True)]

    def _likeliest(self, released: Tensor, hints: Hints | None) -> list[list[Likely]]:
        """For each game, classes and records of the bank to start from."""
        labels = None if hints is None or self.like.y.is_floating_point() else hints.labels
        return self.bank.likeliest(released, labels, self.problem.quick, self.problem.coordinates)

    def _guessed(self, answer: Records) -> dict[int, Entry]:
        """The other attack's guesses (g, k, ...) as starts, except for classes that are not in the bank."""
        g, k = answer.x.shape[:2]
        label = answer.x.new_zeros(g, k, dtype=torch.long) if self.like.y.is_floating_point() else answer.y
        begun = [game for game, classes in enumerate(label.tolist()) if tuple(classes) in self.bank.classes]
        if not begun:
            return {}
        z = flat(Records(answer.x.flatten(0, 1), answer.y.flatten(0, 1))).view(g, -1)  # (g, u)
        a, label = self.problem.coordinates.of_records(z[begun]), label[begun]
        weights = self.problem.quick(self.problem.coordinates(a), label)
        return {game: Entry(*each) for game, *each in zip(begun, a, label, weights, strict=True)}

    def _race(self, released: Tensor, starts: list[list[Entry]]) -> list[list[Begun]]:
        """One step from every start; those closest to the release first."""
        entries = [(g, entry) for g, mine in enumerate(starts) for entry in mine]
        points = [Point(entry.a, entry.label, entry.weights.double() - released[g]) for g, entry in entries]
        linears = [self.at_mean(entry.classes) for _, entry in entries]
        games = [g for g, _ in entries]
        moved = self.problem.first_steps(points, linears, released[games])
        raced: list[list[Begun]] = [[] for _ in released]
        for g, point, linear in sorted(zip(games, moved, linears, strict=True), key=lambda each: each[1].distance):
            raced[g].append((point, linear))
        return raced

    def _predicted(self, raced: list[list[Begun]], released: Tensor) -> list[Begun]:
        """Where the search by linear response ends, from each game's starts in turn until one predicts the release."""
        problem, enough = replace(self.problem, exact=self.problem.quick), PREDICTED * released.norm(dim=1)  # (g,)
        best: list[Begun | None] = [None] * len(released)
        for turn in range(FOLLOWED):
            again = [
                g
                for g, one in enumerate(best)
                if turn < len(raced[g]) and (one is None or one[0].distance > UNLIKELY * released[g].norm())
            ]
            if not again:
                break
            points, linears = zip(*(raced[g][turn] for g in again), strict=True)
            ended = problem.descend(points, linears, released[again], enough[again], self.jacobians, SLOW)
            for g, (point, linear, _) in zip(again, ended, strict=True):
                before = best[g]
                best[g] = (point, linear) if before is None or point.distance < before[0].distance else before
        return [one for one in best if one is not None]

    def _unpolished(self, predicted: list[Begun], released: Tensor) -> list[Inversion]:
        """The likeliest records by linear response alone, whose own error takes the place of rounding."""
        error = PREDICTED * released.norm(dim=1)  # (g,)
        found = [self._evidence(Ended(*begun, 0), float(one)) for begun, one in zip(predicted, error, strict=True)]
        return [one._replace(determined=False) for one in found]  # no model was trained on it

    def _by_response(self, found: Annealed, size: float) -> Inversion:
        """The answer of an annealed search, with its predicted error; no model was trained on it.

        The response's error grows with the square of `size`, what the record changed; a share of it that says nothing
        about the record explains no release.
        """
        a, none, accurate = found.point.a, found.linear.jacobian[:0], PREDICTED * size
        variance = found.variance if found.explained else self.prior_variance
        posterior = Posterior(a, variance, found.directions, torch.zeros_like(a), none)
        one = self._inversion(found.point, posterior, found.error, found.jacobians)
        share = accurate / found.error if found.error > accurate else 1.0
        return one._replace(determined=False, is_noise=found.explained, explained_up_to=CERTAIN * share)

    def at_mean(self, classes: Classes) -> Linearised:
        """Training, linearised at the means of these classes; kept for later games."""
        if classes not in self.at_means:
            row = self.bank.classes.index(classes)
            self.at_means[classes] = self.problem.linear(self.bank.a[row], self.bank.label[row])
        return self.at_means[classes]
