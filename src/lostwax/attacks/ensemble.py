"""Rebuild a record by regressing candidate records on models, in ever smaller clouds of candidates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.least_squares import MAX_TABLE_NUMBERS
from lostwax.attacks.newton import Inverter, Newton, compared_bytes
from lostwax.fields import above, at_least, check_fields
from lostwax.games import AttackFacts, Guess, Hints, Knowledge, Records, Release
from lostwax.games.protocols import accepted
from lostwax.games.threats import InOrder
from lostwax.learning.coordinates import Coordinates, as_records, classes_of, flat, unsolvable
from lostwax.learning.costs import DOUBLE, TABLES, Cost, Rate, classes, in_training
from lostwax.learning.kernel_regression import ClassRegression, LocalRegression, Regression
from lostwax.learning.shadow_tables import adversary_seed, finite_models
from lostwax.learning.standardise import Standardise
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.shadows import models_of

PATIENCE = 2  # rounds without a smaller expected error end a game
STUCK = 0.03  # share of the first expected error: above it, the cloud did not close in
DOUBT = 3.0  # classes whose doubt is within this factor of the least are likely
PROBES = 16  # records as far from the guess as its expected error
FEW_PROBES = 3  # with models as far from the guess's as the release: with fewer the error is raised ...
ENOUGH_PROBES = 4  # ... until there are so many
WIDER = 4.0  # factor on the expected squared error, until enough probes reach as far
STEPPED = 40  # squares of the numbers of a record, that Newton's last steps take in a game
STILL = 1e-3  # in squared deviations of the ensemble: two simulations of a record that differ by less are equal


class Cloud(NamedTuple):
    """A Gaussian cloud of candidates with covariance  deviations^T deviations / s."""

    centre: Tensor  # (q,)
    deviations: Tensor  # (s, q)

    @property
    def variance(self) -> float:
        return float(self.deviations.square().mean())

    def no_wider_than(self, variance: float) -> Cloud:
        """Shrunk if needed: undetermined coordinates would otherwise grow from round to round."""
        if self.variance <= variance:
            return self
        return self._replace(deviations=self.deviations * math.sqrt(variance / self.variance))

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """(count, q) random sums of deviations: no covariance matrix is formed."""
        s = len(self.deviations)
        weights = torch.from_numpy(random.standard_normal((count, s))).to(self.deviations)
        return self.centre + weights @ self.deviations / math.sqrt(s)


def inflation(novelty: float, margin: float) -> float:
    """Factor on the covariance of left-out errors for the next cloud.

    The release's novelty gives a larger cloud after one that missed the record (`benchmarks/ensemble_inflation.py`).
    """
    return margin * novelty


def like_the_prior(members: Tensor, pooled: Tensor, count: int, random: np.random.Generator) -> Tensor:
    """(count, q) of one class: its members (n, q), then draws with the covariance of `pooled` deviations (s, q)."""
    chosen, scattered = (
        part[torch.from_numpy(random.permutation(len(part))[:count]).to(part.device)] for part in (members, pooled)
    )
    return torch.cat([chosen, Cloud(members.mean(0), scattered).draw(count - len(chosen), random)])


class First(NamedTuple):
    """The regression of the first round, over records like the prior's of one class."""

    regression: LocalRegression
    seen: Tensor  # (s, features) of its models
    members: Tensor  # (s, q) their records

    @property
    def variance(self) -> float:
        """Of a coordinate of its members, on average."""
        return float(self.members.var(0).mean())


class Simulator(NamedTuple):
    """The adversary's trainings. Their seed is never the game's, so they repeat none of the victim's private draws."""

    knowledge: Knowledge
    unknowns: Coordinates  # of a record: one per number, and one for its label if that is a number; a class is none
    members: int
    seed: int

    @property
    def like(self) -> Records:
        """One record, for shapes and dtypes."""
        return self.knowledge.prior[:1]

    def records(self, coordinates: Tensor, classes: Tensor) -> Records:
        """(n, q) and (n,) -> records in the prior's dtype; where labels are numbers, the classes are not used."""
        return as_records(self.unknowns(coordinates), classes, self.like)

    def within(self, coordinates: Tensor, known: Tensor) -> Tensor:
        """(n, q) clamped to the prior's range, with the `known` coordinates (q,) filled in where they are not NaN."""
        return torch.where(known.isnan(), self.unknowns.clamped(coordinates), known)

    def hinted(self, hints: Hints | None, game: int) -> Tensor:
        """(q,) the coordinates of a game's secret that the hints give, NaN for the others."""
        x, y = (part.new_full(part.shape, torch.nan, dtype=torch.float64) for part in (self.like.x, self.like.y))
        if hints is not None and hints.parts is not None:
            x = hints.parts[game].to(x)  # (1, ...), k = 1
        if hints is not None and hints.labels is not None:
            y = hints.labels[game].to(y)
        z = flat(Records(x, y if self.like.y.is_floating_point() else self.like.y))[0]  # (q,)
        numbers = self.unknowns.of_records(torch.where(z.isnan(), self.unknowns.origin, z))
        return torch.where(z.isnan(), torch.nan, numbers)

    def first(self, label: int, *, attempt: int) -> First:
        """The first ensemble of a class, shared by all games; each attempt has its own."""
        z, y = self.unknowns.of_records(flat(self.knowledge.prior)), classes_of(self.knowledge.prior.y)  # (n, q)
        classes, group = torch.unique(y, return_inverse=True)
        means = torch.stack([z[group == number].mean(0) for number in range(len(classes))])  # (classes, q)
        random = generator(self.seed, "adversary", "prior", label, attempt)
        drawn = like_the_prior(z[y == label], z - means[group], self.members, random)
        members = self.within(drawn, torch.full_like(z[0], torch.nan))
        return self.regressed(members, label, "first", attempt)

    def regressed(self, members: Tensor, label: int, *purpose: int | str) -> First:
        """The regression over models trained on each of the members (s, q), without those that diverged."""
        seen = self.seen(members, torch.full((len(members),), label), *purpose)
        finite = finite_models("Ensemble", seen, "simulated", broken_share=0.5)  # (s,)
        seen, members = seen[finite], members[finite]
        return First(LocalRegression.fit(seen, members), seen, members)

    def seen(self, members: Tensor, labels: Tensor, *purpose: int | str) -> Tensor:
        """(s, features) what the adversary would see if the secret were each of the members (s, q)."""
        net, access = self.knowledge.net, self.knowledge.access
        candidates = self.records(members, labels)
        draws = adversary_seed(self.seed, *purpose)
        chunks = models_of(
            self.knowledge, InOrder(self.knowledge.facts.known_records), candidates, models=len(candidates), seed=draws
        )
        return torch.cat([access(net, release) for _, release in chunks]).to(members.device)


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
        narrowed = self.invert(release, hints)
        device, records = release.flat().device, [self.record(game) for game in narrowed]
        x, y = (torch.stack(part).to(device) for part in zip(*((each.x, each.y) for each in records), strict=True))
        confidence = torch.tensor([[-game.predicted] for game in narrowed], dtype=torch.float64, device=device)
        certified = torch.tensor([[game.certified] for game in narrowed], device=device)
        return Guess(Records(x, y), confidence, certified=None if self.polish is None else certified)

    def invert(self, release: Release, hints: Hints | None = None) -> list[Narrowed]:
        """Every model of the release, one after the other, with the evidence."""
        seen = self.simulator.knowledge.access(self.simulator.knowledge.net, release)
        seen = seen.to(self.simulator.unknowns.origin.device)  # (m, features)
        numbers = counted(range(len(seen)), "Ensemble: games", len(seen))
        games = (self._game(seen[game : game + 1], game, hints) for game in numbers)
        if self.polish is None or (hints is not None and hints.parts is not None):  # Newton would not keep known parts
            return list(games)
        pairs = zip(games, release.flat().double(), strict=True)
        return [self._polished(game, self.polish, weights) for game, weights in pairs]

    def record(self, found: Narrowed) -> Records:
        """(1, ...) the guess as a record like the prior's."""
        return self.simulator.records(found.estimate.unsqueeze(0), torch.full((1,), found.label))

    def _game(self, seen: Tensor, game: int, hints: Hints | None) -> Narrowed:
        known = self.simulator.hinted(hints, game)
        starts = self._starts(seen, game, hints)
        if not seen.isfinite().all():  # the victim diverged
            label, _ = starts[0]
            mean = self.simulator.within(self.firsts[label].regression.mean.unsqueeze(0), known)[0]
            return Narrowed(mean, label, predicted=math.inf, residual=math.inf, floor=math.inf, rounds=())
        attempts: list[Narrowed] = []
        for label, attempt in starts:
            first = self.simulator.first(label, attempt=attempt) if attempt else self.firsts[label]
            attempts.append(self._narrowed(seen, label, known, first, attempt))
            if attempts[-1].floor > STILL or attempts[-1].predicted <= STUCK * attempts[-1].rounds[0].predicted:
                break
        return min(attempts, key=lambda attempt: attempt.predicted)

    def _polished(self, found: Narrowed, newton: Inverter, released: Tensor) -> Narrowed:
        """The record that Newton's steps from the guess lead to, if they end in a certificate; else the guess."""
        if found.floor > STILL:
            return found
        unknowns, near = self.simulator.unknowns, self.record(found)
        label = torch.full((1,), found.label, device=near.x.device)
        inversion = newton.polish(released.to(label.device), flat(near)[0], label)
        if inversion is None or not inversion.certified:
            return found
        unit = unknowns.directions.diagonal()[: inversion.variance.shape[1]]  # of a coordinate, in its own number
        predicted = float((inversion.variance[0] / torch.where(unit > 0, unit, 1.0).square()).mean())
        return found._replace(estimate=unknowns.of_records(inversion.record), predicted=predicted, certified=True)

    def _starts(self, seen: Tensor, game: int, hints: Hints | None) -> list[tuple[int, int]]:
        """Pairs (class, attempt) to start from: the given or likely classes, then other ensembles of the first."""
        if hints is not None and hints.labels is not None and not self.simulator.like.y.is_floating_point():
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
        likely = [first, *(place for place in others if doubts[place, 0] <= DOUBT * float(doubts.min()))]
        return [list(self.firsts)[place] for place in likely]

    def _narrowed(self, seen: Tensor, label: int, known: Tensor, first: First, attempt: int) -> Narrowed:
        """The best of all rounds, checked by two models trained on it."""
        rounds = self._rounds(seen, label, known, first, attempt)
        best = min(rounds, key=lambda turn: turn.predicted)
        twice = best.estimate.expand(2, -1)
        models = self.simulator.seen(twice, torch.full((2,), label), "answer", attempt)
        standardise = first.regression.view.standardise
        scaled = standardise(torch.cat([seen.to(models), models]))  # (3, kept)
        distances = (scaled[1:] - scaled[0]).square().mean(1)  # (2,)
        floor = float((scaled[1] - scaled[2]).square().mean())

        def reach(predicted: float) -> int:
            """How many models of records off by this error are as far from the guess's as the release."""
            cloud = Cloud(best.estimate, best.errors * math.sqrt(predicted / max(best.left_out, 1e-300)))
            random = generator(self.simulator.seed, "adversary", "probes", attempt)
            probes = self.simulator.within(cloud.draw(PROBES, random), known)
            moved = self.simulator.seen(probes, torch.full((PROBES,), label), "probes", attempt)
            far = (standardise(moved) - scaled[1]).square().mean(1) >= distances[0]
            return int(far.sum())

        predicted = checked(best.predicted, first.variance, reach)
        return Narrowed(best.estimate, label, predicted, float(distances.mean()), floor, tuple(rounds))

    def _rounds(self, seen: Tensor, label: int, known: Tensor, first: First, attempt: int) -> list[Round]:
        simulator, rounds = self.simulator, list[Round]()
        regression, variance = first.regression, first.variance
        while True:
            read = regression(seen)
            centre = simulator.within(read.coordinates.unsqueeze(0), known)[0]
            errors = torch.where(known.isnan(), regression.left_out, 0.0)  # (s, q)
            left_out = float(errors.square().mean())
            predicted = read.novelty * left_out
            if rounds:
                # Clouds of covariance C after the first are drawn around what the release says: as priors they would
                # count it twice. Without them the error S is  R = S / (1 - S / C),  as  1 / S = 1 / C + 1 / R.
                predicted *= 1 / max(1 - left_out / max(variance, left_out, 1e-300), 1e-6)
            rounds.append(Round(centre, predicted, left_out, read.novelty, variance, errors))
            every = [turn.predicted for turn in rounds]
            stalled = len(every) > every.index(min(every)) + PATIENCE
            if len(every) == self.attack.rounds or predicted <= self.attack.tolerance or stalled:
                return rounds
            wider = math.sqrt(inflation(read.novelty, self.attack.margin))
            cloud = Cloud(centre, wider * errors).no_wider_than(first.variance)
            random = generator(self.simulator.seed, "adversary", "cloud", attempt, len(rounds))
            members = simulator.within(cloud.draw(self.attack.members, random), known)
            regression = self.simulator.regressed(members, label, "round", attempt, len(rounds)).regression
            variance = float(members.var(0).mean())


def checked(predicted: float, most: float, reach: Callable[[float], int]) -> float:
    """Raise an expected squared error that is too small to explain the distance of the release.

    As if the cloud missed the record. If hardly any model of `PROBES` records that are off by this error is as far from
    the guess's model as the release (`reach`), it is raised until enough are, at most to the prior's variance, `most`.
    """
    if not 0 < predicted < most or reach(predicted) >= FEW_PROBES:
        return predicted
    while (predicted := WIDER * predicted) < most:
        if reach(predicted) >= ENOUGH_PROBES:
            return predicted
    return most


FEWEST_MEMBERS = 100  # of a cheaper form
POLISH = 4  # Jacobians of Newton's last steps, at most


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Train a model on each of many candidates, regress candidates on models, apply that to the release, repeat nearby.

    For victims whose training is not smooth in the record (ReLU), or not quite deterministic (a private batch order): a
    regression over a cloud of candidates averages over jumps and noise.

    Each of `rounds` trains `members` models. The first round, on records of the prior for every class, is shared by all
    games. Later candidates are drawn around the estimate, with the covariance of the regression's left-out errors times
    the release's novelty (`LocalRegression`) times `margin`. The estimate of the smallest expected error is the answer.
    A game ends early if that is below `tolerance` (a mean squared error, in the units of `Span`) or stops falling. If
    it hardly fell and training is deterministic, the game is repeated up to `restarts` times: from another likely
    class, then from other records. If training is smooth around the answer, Newton's steps refine it, if they end in a
    certificate.
    """

    members: int = 1_500
    rounds: int = 8
    margin: float = 3.0
    tolerance: float = 1e-8
    restarts: int = 2

    def __post_init__(self) -> None:
        check_fields(
            self, members=at_least(10), rounds=at_least(1), margin=above(0), tolerance=above(0), restarts=at_least(0)
        )

    def objection(self, knowledge: Knowledge) -> str | None:
        prior, facts = knowledge.prior, knowledge.facts
        work = "it looks for the one missing record"
        reason = facts.not_one_secret(knowledge.threat, work) or unsolvable(knowledge, keeps_parts=True)
        if reason is not None:
            return reason
        if facts.trainer.private_start:
            return (
                "the initialisation is private and moves the weights far more than one record does. Use a public one, "
                "init=LeCunNormal(seed=0)."
            )
        if facts.trainer.noise is not None and facts.trainer.noise > 1:
            return (
                f"private random draws move the weights {facts.trainer.noise:.2g} times as far as one record does, so "
                "that its rounds would not close in. KernelRidge is its first round."
            )
        if not prior.y.is_floating_point() and prior.y.ndim > 1:
            return f"it needs one class per record, or real labels, but the prior's have {prior.y.shape[1:]}."
        if not (torch.unique(classes_of(prior.y), return_counts=True)[1] > 1).any():
            return (
                "it draws candidates with the covariance within classes, and needs at least 2 of one class in the "
                f"prior; no two of its {len(prior)} records have the same class. Add records to the prior."
            )
        return None

    def facts(self) -> AttackFacts:
        """It works from far away, where training is not differentiable."""
        return AttackFacts(strength=60, cheaper=self.cheaper)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        groups = classes(knowledge)
        tables = knowledge.prior.x.element_size() * (TABLES + 1) * self.members * groups * rate.features
        numbers = knowledge.prior.x.shape[1:].numel()
        newton = min(STEPPED * games * numbers**2, MAX_TABLE_NUMBERS) + TABLES * rate.features * numbers
        seconds = self.members * (groups + (self.rounds - 1) * games) * rate.training
        return Cost(seconds, tables + DOUBLE * newton + compared_bytes(rate.parameters) + in_training(rate))

    def cheaper(self, knowledge: Knowledge) -> tuple[Ensemble, ...]:
        """Fewer members, the dearest form first: two per number of a record can still be regressed."""
        fewest = max(FEWEST_MEMBERS, 2 * knowledge.prior.x.shape[1:].numel())
        sizes = [size for size in (self.members // 3, self.members // 8) if fewest <= size]
        return tuple(replace(self, members=size, rounds=min(self.rounds, 5), restarts=0) for size in sizes)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> EnsembleInverter:
        knowledge = accepted(self, knowledge)
        prior = knowledge.prior
        simulator = Simulator(knowledge, Coordinates.of(prior, constants=True), self.members, seed)
        labels = torch.unique(classes_of(prior.y)).tolist()
        firsts = {
            label: simulator.first(label, attempt=0) for label in counted(labels, "Ensemble: classes", len(labels))
        }
        newton = Newton(bank=0, jacobians=POLISH)
        polish = newton.inverter(knowledge, seed=seed) if newton.objection(knowledge) is None else None
        seen, members = (torch.cat(part) for part in zip(*(first[1:] for first in firsts.values()), strict=True))
        if len(firsts) == 1 or not Standardise.moves(seen):
            return EnsembleInverter(simulator, firsts, None, None, self, polish)
        sizes = torch.tensor([len(first.seen) for first in firsts.values()], device=seen.device)
        rows = torch.split(torch.arange(len(seen), device=seen.device), sizes.tolist())
        regression = Regression.fit(seen, members, rows)
        groups = torch.arange(len(firsts), device=seen.device).repeat_interleave(sizes)
        classifier = ClassRegression.fit(regression, seen, groups)
        return EnsembleInverter(simulator, firsts, regression, classifier, self, polish)
