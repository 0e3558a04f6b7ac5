"""From releases to records: a cloud of candidates that shrinks round by round."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.ensemble.simulation import Cloud, First, Simulator, inflation
from lostwax.attacks.newton import Inverter
from lostwax.games import Guess, Hints, Records, Release
from lostwax.learning.coordinates import flat
from lostwax.learning.kernel_regression import ClassRegression, Regression
from lostwax.progress import counted
from lostwax.seeds import generator

if TYPE_CHECKING:
    from lostwax.attacks.ensemble.attack import Ensemble


PATIENCE = 2  # rounds without a smaller expected error end a game
STUCK = 0.03  # share of the first expected error: above it, the cloud did not close in
DOUBT = 3.0  # classes whose doubt is within this factor of the least are likely
PROBES = 16  # records as far from the guess as its expected error
FEW, ENOUGH = 3, 4  # probes whose models are as far from the guess's as the release: below FEW the error is raised
WIDER = 4.0  # factor on the expected squared error, until ENOUGH probes reach as far
STILL = 1e-3  # in squared deviations of the ensemble: two simulations of a record that differ by less are equal


class Round(NamedTuple):
    """One regression, applied to the release."""

    estimate: Tensor  # (q,) coordinates of the record
    predicted: float  # expected mean squared error of a coordinate
    left_out: float  # the same for members left out
    novelty: float  # ratio of the two: 1 for a release like the members, more outside of the cloud
    variance: float  # of a coordinate of the members, on average
    errors: Tensor  # (s, q) those of members left out


class Narrowed(NamedTuple):
    """One game's guess and its evidence, computed without the truth."""

    estimate: Tensor  # (q,) coordinates of the record
    label: int
    predicted: float  # expected mean squared error of a coordinate, checked by models trained around the guess
    residual: float  # mean squared distance of the release from models trained on the guess, in ensemble deviations
    floor: float  # the same between two such models: 0 where training is deterministic
    rounds: tuple[Round, ...]  # none if the victim diverged: the guess is then the mean
    certified: bool = False  # Newton's steps ended at a record that reproduces the weights to rounding


class EnsembleInverter(NamedTuple):
    """A prepared Ensemble. Confidence is minus the expected mean squared error, in the units of `Span`.

    The residual does not select the guess: next to a kink, the model of a nearly right record can be far from the
    release. It only checks the expected error, against models of records that are off by as much.
    """

    simulator: Simulator
    firsts: dict[int, First]  # by class
    classes: Regression | None  # over all of them, one group per class in this order; None for a single class
    classifier: ClassRegression | None  # a second opinion on the class
    attack: Ensemble
    polish: Inverter | None  # Newton's last steps, where it is applicable

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess each model's secret; parts and labels in the hints are returned unchanged."""
        found = self.invert(release, hints)
        device = next(iter(release.params.values())).device
        records = [self.record(one) for one in found]
        x = torch.stack([one.x for one in records]).to(device)  # (m, 1, ...)
        y = torch.stack([one.y for one in records]).to(device)
        confidence = torch.tensor([[-one.predicted] for one in found], dtype=torch.float64, device=device)
        certified = torch.tensor([[one.certified] for one in found], device=device)
        return Guess(Records(x, y), confidence, certified=None if self.polish is None else certified)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Narrowed]:
        """Every model of the release, one after the other, with the evidence."""
        seen = self.simulator.knowledge.access(self.simulator.knowledge.net, release)
        seen = seen.to(self.simulator.frame.device)  # (m, features)
        numbers = counted(range(len(seen)), "Ensemble: games", len(seen))
        games = (self._game(seen[game : game + 1], game, hints) for game in numbers)
        if self.polish is None or (hints is not None and hints.parts is not None):  # Newton would not keep known parts
            return list(games)
        return [self._polished(one, weights) for one, weights in zip(games, release.flat().double(), strict=True)]

    def record(self, found: Narrowed) -> Records:
        """(1, ...) the guess as a record like the prior's."""
        return self.simulator.frame.records(found.estimate.unsqueeze(0), torch.full((1,), found.label))

    def _game(self, seen: Tensor, game: int, hints: Hints | None) -> Narrowed:
        known = self.simulator.frame.known(hints, game)
        starts = self._starts(seen, game, hints)
        if not seen.isfinite().all():  # the victim diverged
            label, _ = starts[0]
            mean = self.simulator.frame.within(self.firsts[label].regression.mean.unsqueeze(0), known)[0]
            return Narrowed(mean, label, predicted=math.inf, residual=math.inf, floor=math.inf, rounds=())
        found: list[Narrowed] = []
        for label, attempt in starts:
            first = self.simulator.first(label, attempt=attempt) if attempt else self.firsts[label]
            found.append(self._narrowed(seen, label, known, first, attempt))
            if found[-1].floor > STILL or found[-1].predicted <= STUCK * found[-1].rounds[0].predicted:
                break
        return min(found, key=lambda one: one.predicted)

    def _polished(self, found: Narrowed, released: Tensor) -> Narrowed:
        """The record that Newton's steps from the guess lead to, if they end in a certificate; else the guess."""
        if self.polish is None or found.floor > STILL:
            return found
        frame, near = self.simulator.frame, self.record(found)
        label = torch.full((1,), found.label, device=near.x.device)
        one = self.polish.polish(released.to(label.device), flat(near)[0], label)
        if one is None or not one.certified:
            return found
        estimate = frame.unknowns.of_records(one.record)
        unit = torch.where(frame.unit > 0, frame.unit, 1.0)[: one.variance.shape[1]]
        predicted = float((one.variance[0] / unit.square()).mean())
        return found._replace(estimate=estimate, predicted=predicted, certified=True)

    def _starts(self, seen: Tensor, game: int, hints: Hints | None) -> list[tuple[int, int]]:
        """Pairs (class, attempt) to start from: the given or likely classes, then other ensembles of the first."""
        if hints is not None and hints.labels is not None and not self.simulator.frame.like.y.is_floating_point():
            likely = [int(hints.labels[game, 0])]
            if likely[0] not in self.firsts:
                raise ValueError(
                    f"Ensemble: the hints give game {game} a label that no record of the prior has. Add such records."
                )
        else:
            likely = self._likely(seen)
        attempts = range(1, self.attack.restarts + 1)
        return [*((label, 0) for label in likely), *((likely[0], turn) for turn in attempts)][: len(attempts) + 1]

    def _likely(self, seen: Tensor) -> list[int]:
        """The likeliest class by doubt and classifier, then the others of little doubt."""
        if self.classes is None:
            return list(self.firsts)
        _, doubts = self.classes(seen)  # (classes, 1)
        doubts = doubts.nan_to_num(math.inf)
        weighed = doubts if self.classifier is None else self.classifier.combined(seen, doubts).nan_to_num(math.inf)
        first, *others = weighed[:, 0].argsort(stable=True).tolist()
        most, labels = DOUBT * float(doubts.min()), list(self.firsts)
        return [labels[place] for place in (first, *(other for other in others if doubts[other, 0] <= most))]

    def _narrowed(self, seen: Tensor, label: int, known: Tensor, first: First, attempt: int) -> Narrowed:
        """The best of all rounds, checked by two models trained on it."""
        rounds = self._rounds(seen, label, known, first, attempt)
        best = min(rounds, key=lambda one: one.predicted)
        twice = best.estimate.expand(2, -1)
        models = self.simulator.seen(twice, torch.full((2,), label), "answer", attempt)
        standardise = first.regression.view.standardise
        scaled = standardise(torch.cat([seen.to(models), models]))  # (3, kept)
        apart = (scaled[1:] - scaled[0]).square().mean(1)  # (2,)
        floor = float((scaled[1] - scaled[2]).square().mean())

        def reach(predicted: float) -> int:
            """How many models of records off by this error are as far from the guess's as the release."""
            cloud = Cloud(best.estimate, best.errors * math.sqrt(predicted / max(best.left_out, 1e-300)))
            random = generator(self.simulator.seed, "adversary", "probes", attempt)
            probes = self.simulator.frame.within(cloud.draw(PROBES, random), known)
            moved = self.simulator.seen(probes, torch.full((PROBES,), label), "probes", attempt)
            far = (standardise(moved) - scaled[1]).square().mean(1) >= apart[0]
            return int(far.sum())

        predicted = checked(best.predicted, first.variance, reach)
        return Narrowed(best.estimate, label, predicted, float(apart.mean()), floor, tuple(rounds))

    def _rounds(self, seen: Tensor, label: int, known: Tensor, first: First, attempt: int) -> list[Round]:
        frame, rounds = self.simulator.frame, list[Round]()
        regression, variance = first.regression, first.variance
        while True:
            read = regression(seen)
            centre = frame.within(read.coordinates.unsqueeze(0), known)[0]
            errors = torch.where(known.isnan(), regression.left_out, 0.0)  # (s, q)
            left_out = float(errors.square().mean())
            predicted = read.novelty * left_out * (_without_cloud(left_out, variance) if rounds else 1.0)
            rounds.append(Round(centre, predicted, left_out, read.novelty, variance, errors))
            if self._ended(rounds):
                return rounds
            wider = math.sqrt(inflation(read.novelty, self.attack.margin))
            cloud = Cloud(centre, wider * errors).no_wider_than(first.variance)
            random = generator(self.simulator.seed, "adversary", "cloud", attempt, len(rounds))
            members = frame.within(cloud.draw(self.attack.members, random), known)
            regression = self.simulator.regression(members, label, "round", attempt, len(rounds))
            variance = float(members.var(0).mean())

    def _ended(self, rounds: list[Round]) -> bool:
        """True after the last round, below the tolerance, or without progress for a while."""
        predicted, count = [one.predicted for one in rounds], len(rounds)
        stalled = count > predicted.index(min(predicted)) + PATIENCE
        return count == self.attack.rounds or predicted[-1] <= self.attack.tolerance or stalled


def checked(predicted: float, most: float, reach: Callable[[float], int]) -> float:
    """Raise an expected squared error that is too small to explain the distance of the release.

    As if the cloud missed the record. If hardly any model of `PROBES` records that are off by this error is as far from
    the guess's model as the release (`reach`), it is raised until enough are, at most to the prior's variance, `most`.
    """
    if not 0 < predicted < most or reach(predicted) >= FEW:
        return predicted
    while (predicted := WIDER * predicted) < most:
        if reach(predicted) >= ENOUGH:
            return predicted
    return most


def _without_cloud(left_out: float, variance: float) -> float:
    """The factor from the error S to that without the cloud as a prior:  R / S = 1 / (1 - S / C),  as 1/S = 1/C + 1/R.

    Clouds of covariance C after the first are drawn around what the release says: as priors they would count it twice.
    """
    return 1 / max(1 - left_out / max(variance, left_out, 1e-300), 1e-6)
