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
from lostwax.learning.candidates import candidates_in, choose, no_candidates, scored_once, side_by_side, weighed
from lostwax.learning.costs import DOUBLE, Cost, Rate, predicted
from lostwax.learning.shadow_tables import adversary_seed
from lostwax.metrics import MSE
from lostwax.progress import progress
from lostwax.shadows import models_of

VARIANCES = 4  # tables of one game: scatter, variance, and what is compared with them
REFITTED = 6  # tables of one candidate: its mean, its model, and what they are compared by
CHUNKS = 8  # of the refits of distinct records, so that progress shows
AGREES = 1e-3  # deviations of a feature between refits
OUTLIER_SHARE = 50  # one in so many records, and at least one, may have a refit that is an outlier
CLEAR = 5.0  # standard errors by which a record's models differ from others in a number


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
        return no_candidates(knowledge) or objection_to(self.attack, knowledge)

    def facts(self) -> AttackFacts:
        return AttackFacts(attack_facts(self.attack).strength, names_candidates=True, inside=self.attack)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        return predicted(self.attack, knowledge, games, rate)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        return _Nearest(self.attack.prepare(accepted(self, knowledge), seed=seed), self.metric)


class _Nearest(NamedTuple):
    reconstruct: Reconstructor
    metric: Metric

    @property
    def notes(self) -> tuple[Noted, ...]:
        return notes_of(self.reconstruct)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        candidates = candidates_in(hints)  # (m, c, ...)
        rebuilt = self.reconstruct(release, hints).records.x[:, 0].to(candidates.x)  # (m, ...)
        closeness = torch.stack([self.metric(rebuilt, x) for x in candidates.x.unbind(1)], 1)  # (m, c)
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
        work = "it trains on all other records and a candidate"
        return no_candidates(knowledge) or knowledge.facts.not_one_secret(knowledge.threat, work)

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=80, names_candidates=True)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """`repeats` models for each candidate, whose means are kept, and the variances of each game."""
        candidates = knowledge.facts.given.candidates or 0
        numbers = (REFITTED * candidates + VARIANCES) * games * rate.features
        return Cost(self.repeats * candidates * games * rate.training, float(DOUBLE * numbers))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        knowledge = accepted(self, knowledge)
        return _Refitting(knowledge, knowledge.facts.known_records, self, seed)

    def scores(self, refitting: _Refitting, release: Release, candidates: Records) -> Tensor:
        """(m, c) log-likelihoods of candidates (m, c, ...), up to a constant."""
        seen = refitting.knowledge.access(refitting.knowledge.net, release)  # (m, features)
        mean, variance = refitting.moments(side_by_side(candidates), seen)  # (m c, features), (m, features)
        means = mean.view(len(seen), -1, seen.shape[1]).unbind(1)  # c times (m, features)
        return -torch.stack([((seen - each).square() / variance).sum(1) for each in means], 1) / 2


@dataclass(frozen=True)
class LikeliestRefit(Refit):
    """The same where every fit is slow: a record is fitted once for all games in which it is a candidate.

    What is seen is modelled as independent Gaussians with variances pooled over candidates, as in the likelihood-ratio
    attack of Carlini et al. (2022); the largest deviations are left out, so that one fit which diverged hides no
    record. A candidate's mean is that of all others, except in the outputs at the candidate itself and in numbers where
    its models clearly differ from others: with few repeats the noise of all other numbers would hide these.

    `probes` are the row numbers (`Records.features`) at which the last part of a release shows outputs.
    """

    probes: tuple[int, ...] = ()

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """`repeats` models for each record, if the candidates are the secrets of other games."""
        fits = self.repeats * games
        return Cost(fits * rate.training, 8.0 * 2 * fits * rate.features)

    def scores(self, refitting: _Refitting, release: Release, candidates: Records) -> Tensor:
        """(m, c) log-likelihoods of candidates (m, c, ...), or minus squared distances if there is one repeat."""
        seen = refitting.knowledge.access(refitting.knowledge.net, release).double()  # (m, features)

        def score(records: Records) -> Tensor:
            refits = refitting.each(records)  # (r, repeats, features)
            if self.repeats == 1:
                return nearest(seen, refits[:, 0])  # (m, r)
            return likelihood(seen, refits, self._own_outputs(records, release, seen.shape[1]))

        return scored_once(candidates, score)

    def _own_outputs(self, records: Records, release: Release, features: int) -> Tensor:
        """(r, features) True for the outputs at each record itself."""
        at_itself = torch.zeros(len(records), features, dtype=torch.bool)
        if self.probes and records.features is not None:
            place = torch.searchsorted(torch.tensor(self.probes), records.features[:, 0].long())
            width = list(release.params.values())[-1].shape[1] // len(self.probes)
            first = features - width * (len(self.probes) - place)  # (r,)
            at_itself.scatter_(1, first.unsqueeze(1) + torch.arange(width), True)
        return at_itself


class _Refitting(NamedTuple):
    knowledge: Knowledge
    known: Records
    attack: Refit
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        scores = self.attack.scores(self, release, candidates_in(hints))
        return choose(hints, scores if self.attack.repeats == 1 else weighed(hints, scores))

    def moments(self, candidates: Records, like: Tensor) -> tuple[Tensor, Tensor]:
        """Each candidate's mean over its repeats, and the variance of the release around it, in float64 (Welford)."""
        repeats, one_by_one = self.attack.repeats, self.knowledge.facts.trainer.one_by_one
        mean = like.new_zeros(len(candidates), like.shape[1], dtype=torch.float64)
        scatter, count = torch.zeros_like(like, dtype=torch.float64), len(candidates) // len(like)  # per game
        with progress("refits", repeats * len(candidates)) as advance:
            for turn in range(repeats):
                # the first of two or more models is trained twice: once is enough
                chunk = (2 if turn == 0 else 1) if one_by_one else None
                for rows, seen in self._trained(candidates, chunk, "refit", turn):
                    moved = seen - mean[rows]
                    mean[rows] += moved / (turn + 1)
                    products = (moved * (seen - mean[rows])).nan_to_num(0, 0, 0)  # a diverged model affects no other
                    scatter.index_add_(0, rows // count, products)
                    advance(len(rows))
        if repeats == 1:
            return mean, torch.ones_like(scatter)
        variance = scatter / (count * (repeats - 1)) * (1 + 1 / repeats)  # plus that of the mean
        largest = like.nan_to_num(0, 0, 0).abs().amax(1, keepdim=True).double()
        rounding = torch.finfo(like.dtype).eps * largest  # the least variance that can be resolved
        return mean, variance + rounding.square()

    def each(self, records: Records) -> Tensor:
        """(r, repeats, features) what is seen of models fitted on each record, in float64."""
        pool, parts = records[torch.arange(len(records)).repeat_interleave(self.attack.repeats)], []
        with progress("refits", len(pool)) as advance:
            for rows, seen in self._trained(pool, max(1, len(pool) // CHUNKS), "likeliest refit"):
                parts.append(seen.double())
                advance(len(rows))
        return torch.cat(parts).view(len(records), self.attack.repeats, -1)

    def _trained(self, pool: Records, chunk: int | None, *purpose: int | str) -> Iterator[tuple[Tensor, Tensor]]:
        """By chunks: rows of the pool, and what is seen of models trained on them, with draws of their own."""
        net, access, draws = self.knowledge.net, self.knowledge.access, adversary_seed(self.seed, *purpose)
        threat = InOrder(self.known)
        for cohort, release in models_of(self.knowledge, threat, pool, models=len(pool), seed=draws, chunk=chunk):
            yield cohort.index, access(net, release)  # (chunk,), (chunk, features)


def nearest(seen: Tensor, refits: Tensor) -> Tensor:
    """(m, r) minus the squared distances of (m, features) and (r, features), in deviations of each feature.

    Features in which a release agrees with no refit change by themselves, as the time of a fit does, and would hide the
    others: they do not count, unless that is so in all of them.
    """
    moves, deviation = _moving(refits), refits.std(0, correction=0)
    ours, theirs = (part[:, moves] / deviation[moves] for part in (seen, refits))
    scores = []
    for release in ours:
        gaps = release - theirs  # (r, features)
        agrees = gaps.abs().amin(0) <= AGREES
        scores.append(-(gaps * agrees if agrees.any() else gaps).square().sum(1))
    return torch.stack(scores)


def likelihood(seen: Tensor, refits: Tensor, expected: Tensor) -> Tensor:
    """(m, r) log p(seen | record) - log p(seen | another record), for seen (m, features) and (r, repeats, features).

    `expected` (r, features) are the features that each record is expected to change.
    """
    centre = refits.flatten(0, 1).nan_to_num(torch.nan, torch.nan, torch.nan).nanmedian(0).values  # (features,)
    refits = torch.where(refits.isfinite(), refits, centre)  # a fit that diverged tells nothing
    moves = _moving(refits.flatten(0, 1))
    seen, refits, expected = seen[:, moves], refits[..., moves], expected[:, moves]
    records, repeats, _ = refits.shape
    mean = refits.mean(1)  # (r, features)
    outlying = records // OUTLIER_SHARE + 1  # records of which a refit may be an outlier
    centre = _trimmed(mean, outlying, both_ends=True)
    squares = (refits - mean.unsqueeze(1)).square().flatten(0, 1)  # (r repeats, features)
    variance = _trimmed(squares, repeats * outlying)
    variance = torch.where(variance > 0, variance, squares.mean(0)) * repeats / (repeats - 1)
    size = refits.abs().flatten(0, 1)
    usual = _trimmed(size, repeats * outlying)
    rounding = torch.finfo(refits.dtype).eps * torch.where(usual > 0, usual, size.amax(0))
    variance = variance + rounding.square()  # the least that can be resolved
    shift = mean - centre  # (r, features)
    clear = shift.abs() > CLEAR * (variance / repeats).sqrt()
    shift = torch.where(clear | expected, shift, 0.0)
    # log N(s; c + d, v) - log N(s; c, v) = (d (s - c) - d^2 / 2) / v, with the variance of the estimated mean
    spread = variance * (1 + 1 / repeats)
    return (seen - centre) / spread @ shift.mT - (shift.square() / spread).sum(1) / 2


def _trimmed(values: Tensor, count: int, *, both_ends: bool = False) -> Tensor:
    """(features,) mean over the rows (n, features) without the `count` largest, and smallest, of each feature."""
    count = min(count, (len(values) - 1) // 2)
    inner: Tensor = values.sort(0).values[count if both_ends else 0 : len(values) - count]
    return inner.mean(0)


def _moving(refits: Tensor) -> Tensor:
    """(features,) which differ between models (n, features), by more than rounding."""
    return refits.std(0, correction=0) > torch.finfo(refits.dtype).eps * refits.abs().amax(0)
