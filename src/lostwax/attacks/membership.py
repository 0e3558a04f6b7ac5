"""Which of a few candidates a model was trained on (Balle et al. 2022, section II-D)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.fields import at_least, check_fields
from lostwax.games import Attack, AttackFacts, Guess, Hints, Knowledge, Metric, Noted, Reconstructor, Records, Release
from lostwax.games.facts import attack_facts, notes_of
from lostwax.games.protocols import accepted, objection_to
from lostwax.games.threats import InOrder
from lostwax.learning.candidates import candidates_in, choose, no_candidates, side_by_side, weighed
from lostwax.learning.costs import DOUBLE, Cost, Rate, predicted
from lostwax.metrics import MSE
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.shadows import Local

VARIANCES = 4  # tables of one game: scatter, variance, and what is compared with them


@dataclass(frozen=True)
class NearestCandidate:
    """Rebuild the record with another attack, and answer the candidate nearest to the result.

    Under a metric it is right whenever the reconstruction error is less than half the distance between the candidates.
    The candidates' chances (`Hints.chances`) only break ties.
    """

    attack: Attack
    metric: Metric = field(default_factory=MSE)

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable, or why the attack inside is not."""
        return no_candidates(knowledge) or objection_to(self.attack, knowledge)

    def facts(self) -> AttackFacts:
        """As strong as the attack inside."""
        return AttackFacts(attack_facts(self.attack).strength, names_candidates=True, inside=self.attack)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """That of the attack inside."""
        return predicted(self.attack, knowledge, games, rate)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Prepare the attack inside."""
        return _Nearest(self.attack.prepare(accepted(self, knowledge), seed=seed), self.metric)


class _Nearest(NamedTuple):
    reconstruct: Reconstructor
    metric: Metric

    @property
    def notes(self) -> tuple[Noted, ...]:
        """Those of the attack inside."""
        return notes_of(self.reconstruct)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        candidates = candidates_in(hints)  # (m, c, ...)
        rebuilt = self.reconstruct(release, hints).records.x[:, 0].to(candidates.x)  # (m, ...)
        closeness = torch.stack([self.metric(rebuilt, one) for one in candidates.x.unbind(1)], 1)  # (m, c)
        return choose(hints, closeness if self.metric.better == "higher" else -closeness)


@dataclass(frozen=True)
class Refit:
    """Train on `known` and each candidate with the victim's own trainer; answer the one whose model is nearest.

    Where training is deterministic it reproduces the release. With private randomness, it trains `repeats` times
    on each candidate with its own draws, and answers the candidate under which the release is likeliest, modelling what
    is seen as independent Gaussians with variances pooled over candidates. Likelihoods are multiplied by the
    candidates' chances (`Hints.chances`), which only break ties if there is one repeat, and so no variance.
    """

    repeats: int = 1

    def __post_init__(self) -> None:
        check_fields(self, repeats=at_least(1))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        work = "it trains on all other records and a candidate"
        return no_candidates(knowledge) or knowledge.facts.not_one_secret(knowledge.threat, work)

    def facts(self) -> AttackFacts:
        """Exact where training is deterministic."""
        return AttackFacts(strength=80, names_candidates=True)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """`repeats` models for each candidate, whose means are kept, and the variances of each game."""
        candidates = knowledge.facts.given.candidates or 0
        numbers = (candidates + VARIANCES) * games * rate.features
        return Cost(self.repeats * candidates * games * rate.training, float(DOUBLE * numbers))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Nothing is trained before the candidates are known."""
        knowledge = accepted(self, knowledge)
        return _Refitting(knowledge, knowledge.facts.known_records, self.repeats, seed)


class _Refitting(NamedTuple):
    knowledge: Knowledge
    known: Records
    repeats: int
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        candidates = candidates_in(hints)  # (m, c, ...)
        seen = self.knowledge.access(self.knowledge.net, release)  # (m, features)
        mean, variance = self._moments(side_by_side(candidates), seen)  # (m c, features), (m, features)
        of_candidates = mean.view(len(seen), -1, seen.shape[1]).unbind(1)  # c times (m, features)
        wrong = [((seen - one).square() / variance).sum(1) for one in of_candidates]  # (m,) each
        scores = -torch.stack(wrong, 1) / 2  # log N(seen; mean, variance), except for a constant
        return choose(hints, scores if self.repeats == 1 else weighed(hints, scores))

    def _moments(self, candidates: Records, like: Tensor) -> tuple[Tensor, Tensor]:
        """Each candidate's mean over its repeats, and the variance of the release around it, in float64 (Welford)."""
        mean = like.new_zeros(len(candidates), like.shape[1], dtype=torch.float64)
        scatter, count = torch.zeros_like(like, dtype=torch.float64), len(candidates) // len(like)  # per game
        with progress("refits", self.repeats * len(candidates)) as advance:
            for turn in range(self.repeats):
                for rows, seen in self._trained(candidates, turn):
                    moved = seen - mean[rows]
                    mean[rows] += moved / (turn + 1)
                    products = (moved * (seen - mean[rows])).nan_to_num(0, 0, 0)  # a diverged model affects no other
                    scatter.index_add_(0, rows // count, products)
                    advance(len(rows))
        if self.repeats == 1:
            return mean, torch.ones_like(scatter)
        variance = scatter / (count * (self.repeats - 1)) * (1 + 1 / self.repeats)  # plus that of the mean
        largest = like.nan_to_num(0, 0, 0).abs().amax(1, keepdim=True).double()
        rounding = torch.finfo(like.dtype).eps * largest  # the least variance that can be resolved
        return mean, variance + rounding.square()

    def _trained(self, candidates: Records, turn: int) -> Iterator[tuple[Tensor, Tensor]]:
        """By chunks: rows of candidates, and what is seen of models trained on them, with new draws each turn."""
        net, trainer, access = self.knowledge.net, self.knowledge.trainer, self.knowledge.access
        own_seed = int(generator(self.seed, "adversary", "refit", turn).integers(2**63))
        chunk = None
        if self.knowledge.facts.trainer.one_by_one:  # the first of two or more models is trained twice: once is enough
            chunk = 2 if turn == 0 else 1
        engine = Local(chunk)
        chunks = engine(trainer, net, InOrder(self.known), candidates, models=len(candidates), seed=own_seed)
        for cohort, release in chunks:
            yield cohort.index, access(net, release)  # (chunk,), (chunk, features)
