"""The inversion of training, from releases to records, each with its own certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.coordinates import flat
from lostwax.attacks.newton.solver import Ended, Linear, Point, Problem
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.types import Guess, Hints, Reconstructor, Records, Release

CLASSES_RACED = 3
CERTAIN = 10  # times what rounding alone does to the weights: a residual up to that is explained
DETERMINED = 0.01  # of a blind guess's error: what may be left to rounding
GAMES = 128  # inverted together


Begun = tuple[Point, Linear]


class Entry(NamedTuple):
    """A record to begin with."""

    a: Tensor  # (r,)
    label: Tensor  # ()
    weights: Tensor  # (p,) of the model trained on it


class Inversion(NamedTuple):
    """What is known of one guess, without the truth."""

    record: Tensor  # (u,)
    label: Tensor  # () its class; the record's last numbers hold labels that are numbers
    residual: float  # |A(z) - theta|
    rounding: float  # what the release's arithmetic alone does to A(z), as a norm
    predicted: float  # mean squared error of the record's numbers, foretold
    blind: float  # the same for the mean of the records at hand
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights: singular values of the Jacobian
    jacobians: int  # how many were computed for this game alone

    @property
    def certified(self) -> bool:
        """Does the record explain the release to rounding, and does the release determine it?

        Then the iteration has converged, and no record nearby explains the weights as well. It is no proof that none
        far away does: a short training of a small net can have several roots (S1 Theorem 8 has two).
        """
        return self.residual <= CERTAIN * self.rounding and self.predicted <= DETERMINED * self.blind

    @property
    def undetermined(self) -> int:
        """How many directions of the record move the weights by less than rounding: they are left as they began."""
        return int((self.directions < self.rounding).sum())


class Bank(NamedTuple):
    """Records at hand and the models trained on them: the same for all games, and somewhere to begin.

    First the mean record of every class, with training linearised there, and then records as they are. What the model
    of an unusual record looks like is best told by that of another unusual one.
    """

    a: Tensor  # (b, r)
    label: Tensor  # (b,)
    weights: Tensor  # (b, p), quickly computed
    linears: tuple[Linear, ...]  # one a class, at the first entries of the bank

    @property
    def classes(self) -> list[int]:
        """Those that have a Jacobian, in its order."""
        return [int(label) for label in self.label[: len(self.linears)]]

    def starts(self, released: Tensor, only: int | None) -> list[int]:
        """Where to begin for a release (p,): of the likeliest classes the mean and the record of the nearest model."""
        if only is not None and only not in self.classes:
            raise ValueError(
                f"Newton: the secret's label is told to be {only}, but no known or prior record has it. Bring one."
            )
        distance = (self.weights - released.to(self.weights)).norm(dim=1).nan_to_num(torch.inf)
        places = []
        for mean, label in enumerate(self.classes):
            here = torch.where(self.label == label, distance, torch.inf)
            nearest = int(here.argmin())
            if only is None or label == only:
                places.append((float(here[nearest]), {mean, nearest}))
        likeliest = sorted(places, key=lambda place: place[0])[:CLASSES_RACED]
        return [entry for _, entries in likeliest for entry in sorted(entries)]


@dataclass(frozen=True, eq=False)
class Inverter:
    """A prepared Newton."""

    problem: Problem
    bank: Bank
    released_by: TrainingMap  # in the arithmetic of the release
    prior_mean: Tensor  # (r,) of the unknowns in the records at hand
    prior_variance: Tensor  # (r,)
    jacobians: int
    guess: Reconstructor | None  # another attack, whose guesses are worth a start
    like: Records  # one record, for shapes, dtypes and devices

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """The records that training must have seen; certified where they explain the weights to rounding."""
        found = self.invert(release, hints)
        d, device = self.problem.exact.numbers, release.flat().device
        z = torch.stack([one.record for one in found]).to(device)
        x = z[:, :d].reshape(len(z), 1, *self.like.x.shape[1:]).to(self.like.x.dtype)
        y = torch.stack([one.label for one in found]).unsqueeze(1).to(device)
        if self.like.y.is_floating_point():
            y = z[:, d:].reshape(len(z), 1, *self.like.y.shape[1:]).to(self.like.y.dtype)
        confidence = torch.tensor([[-one.predicted] for one in found], dtype=torch.float64, device=device)
        certified = torch.tensor([[one.certified] for one in found], device=device)
        return Guess(Records(x, y), confidence, certified=certified)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Inversion]:
        """Every model of the release, with the evidence."""
        released = release.flat().double().to(self.like.x.device)  # (g, p)
        starts = self._starts(release, released, hints)
        parts = [slice(first, first + GAMES) for first in range(0, len(released), GAMES)]
        return [one for part in parts for one in self._inverted(released[part], starts[part])]

    def _inverted(self, released: Tensor, starts: list[list[Entry]]) -> list[Inversion]:
        """From each game's starts in turn, the most promising first, until one is certified."""
        raced = self._race(released, starts)
        best: list[Inversion | None] = [None] * len(released)
        for turn in range(max(map(len, raced))):
            again = [g for g, one in enumerate(best) if (one is None or not one.certified) and turn < len(raced[g])]
            if not again:
                break
            found = self._finish([raced[g][turn] for g in again], released[again])
            for g, one in zip(again, found, strict=True):
                before = best[g]
                best[g] = one if before is None or one.residual < before.residual else before
        return [one for one in best if one is not None]

    def _starts(self, release: Release, released: Tensor, hints: Hints | None) -> list[list[Entry]]:
        """For each game records to begin with: of the bank, and the other attack's guess."""
        bank, told = self.bank, None if hints is None else hints.labels
        starts = []
        for g, one in enumerate(released):
            only = None if told is None or self.like.y.is_floating_point() else int(told[g, 0])
            starts.append([Entry(bank.a[row], bank.label[row], bank.weights[row]) for row in bank.starts(one, only)])
        if self.guess is not None:
            answer, device = self.guess(release, hints).records, self.like.x.device
            guessed = Records(answer.x[:, 0].to(device), answer.y[:, 0].to(device))
            a = self.problem.coordinates.of_records(flat(guessed))
            label = bank.label[:1].expand(len(a)) if guessed.y.is_floating_point() else guessed.y
            weights = self.problem.quick(self.problem.coordinates(a), label)
            for g, entry in enumerate(zip(a, label, weights, strict=True)):
                if int(entry[1]) in bank.classes:
                    starts[g].append(Entry(*entry))
        return starts

    def _race(self, released: Tensor, starts: list[list[Entry]]) -> list[list[Begun]]:
        """One step from every start; those that came nearest the release first."""
        entries = [(g, entry) for g, mine in enumerate(starts) for entry in mine]
        points = [Point(entry.a, entry.label, entry.weights.double() - released[g]) for g, entry in entries]
        linears = [self.bank.linears[self.bank.classes.index(int(entry.label))] for _, entry in entries]
        games = [g for g, _ in entries]
        moved = self.problem.first_steps(points, linears, released[games])
        raced: list[list[Begun]] = [[] for _ in released]
        for g, point, linear in sorted(zip(games, moved, linears, strict=True), key=lambda each: each[1].distance):
            raced[g].append((point, linear))
        return raced

    def _finish(self, raced: list[Begun], released: Tensor) -> list[Inversion]:
        """From where the race was won to where nothing leads on, for all games (g, p) in step."""
        a, label = torch.stack([point.a for point, _ in raced]), torch.stack([point.label for point, _ in raced])
        points = self.problem.points(a, label, released)
        ended = self.problem.descend(
            points, [linear for _, linear in raced], released, self._rounding(points), self.jacobians
        )
        rounding = self._rounding([game.point for game in ended])
        return [self._evidence(game, float(floor)) for game, floor in zip(ended, rounding, strict=True)]

    def _rounding(self, points: list[Point]) -> Tensor:
        """(g,) how far training in the release's arithmetic ends from training in float64; or what that rounds."""
        z = self.problem.coordinates(torch.stack([point.a for point in points]))
        label = torch.stack([point.label for point in points])
        exact, as_released = self.problem.exact(z, label), self.released_by(z, label).double()
        steps = self.released_by.trainer.batches.steps(len(self.released_by.known) + 1)
        own = torch.finfo(torch.float64).eps * steps**0.5 * exact.norm(dim=1)  # steps that round independently
        return torch.maximum((as_released - exact).norm(dim=1), own)

    def _evidence(self, game: Ended, rounding: float) -> Inversion:
        """Errors are foretold as if what is left of the residual were noise, alike on all weights.

        In deviations of the prior the unknowns have precision  I + J^T J / noise,  and J = U S V^T. Where the weights
        are not explained to rounding, somebody added noise or the iteration stands still, and the answer is the
        likeliest record under that noise and the prior: one more step, towards the mean in what is not determined.
        """
        point, deviation = game.point, self.prior_variance.sqrt()
        noise = max(point.distance, rounding) ** 2 / len(point.residual)
        small = torch.linalg.qr(game.linear.jacobian.double() * deviation, mode="r").R  # (r, r), J but for a rotation
        _, directions, turned = torch.linalg.svd(small)  # (r,), (r, r)
        precision = 1 + directions.square() / noise  # (r,) along the rows of turned
        spread = (turned.square() / precision.unsqueeze(1)).sum(0) * self.prior_variance  # (r,)
        a, coordinates = point.a, self.problem.coordinates
        if point.distance > CERTAIN * rounding:
            pull = deviation * (game.linear.jacobian.double().mT @ point.residual) / noise
            step = turned.mT @ ((turned @ ((self.prior_mean - a) / deviation - pull)) / precision)
            a = torch.minimum(torch.maximum(a + deviation * step, coordinates.low), coordinates.high)
        numbers = spread @ coordinates.directions.square()  # (u,)
        d = self.problem.exact.numbers
        return Inversion(
            record=coordinates(a),
            label=point.label,
            residual=point.distance,
            rounding=rounding,
            predicted=float(numbers[:d].mean()),
            blind=float((self.prior_variance @ coordinates.directions.square())[:d].mean()),
            directions=directions,
            jacobians=game.jacobians,
        )
