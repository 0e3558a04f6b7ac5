"""Which of a few candidates a model was fitted on, where every fit is slow and may be random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.fields import at_least, check_fields
from lostwax.games import AttackFacts, Guess, Hints, Knowledge, Reconstructor, Records, Release
from lostwax.games.protocols import accepted
from lostwax.games.threats import InOrder
from lostwax.learning.candidates import candidates_in, choose, distinct, no_candidates, side_by_side, weighed
from lostwax.learning.costs import Cost, Rate
from lostwax.progress import progress
from lostwax.seeds import generator
from lostwax.shadows import Local

PARTS = 8  # chunks, so that progress shows
AGREES = 1e-3  # deviations of a feature between refits
SHARE = 50  # one in so many records, and at least one, may have a refit that is an outlier
CLEAR = 5.0  # standard errors by which a record's models differ from others in a number


@dataclass(frozen=True)
class LikeliestRefit:
    """Fit `repeats` models on `known` and each candidate; answer the one under which the release is likeliest.

    Unlike Refit, it fits a record once for all games in which it is a candidate. What is seen is modelled as
    independent Gaussians with variances pooled over candidates, as in the likelihood-ratio attack of Carlini et al.
    (2022); the largest deviations are left out, so that one fit which diverged hides no record. A candidate's mean is
    that of all others, except in the outputs at the candidate itself and in numbers where its models clearly differ
    from others: with few repeats the noise of all other numbers would hide these.

    `probes` are the row numbers (`Records.features`) at which the last part of a release shows outputs.
    """

    repeats: int = 1
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, repeats=at_least(1))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        work = "it fits all other records and a candidate"
        return no_candidates(knowledge) or knowledge.facts.not_one_secret(knowledge.threat, work)

    def facts(self) -> AttackFacts:
        """As Refit."""
        return AttackFacts(strength=80, names_candidates=True)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """`repeats` models for each record, if the candidates are the secrets of other games."""
        fits = self.repeats * games
        return Cost(fits * rate.training, 8.0 * 2 * fits * rate.features)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Nothing is fitted before the candidates are known."""
        knowledge = accepted(self, knowledge)
        return _Likeliest(knowledge, knowledge.facts.known_records, self.repeats, self.probes, seed)


class _Likeliest(NamedTuple):
    knowledge: Knowledge
    known: Records
    repeats: int
    probes: tuple[int, ...]
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        candidates = candidates_in(hints)  # (m, c, ...)
        flat = side_by_side(candidates)
        rows, number = distinct(flat)  # (r,), (m c,)
        refits = self._fitted(flat[rows])  # (r, repeats, features)
        seen = self.knowledge.access(self.knowledge.net, release).double()  # (m, features)
        own = self._own_outputs(flat[rows], release, seen.shape[1])
        score = nearest(seen, refits[:, 0]) if self.repeats == 1 else likelihood(seen, refits, own)  # (m, r)
        scores = score.gather(1, number.view(candidates.x.shape[:2]))  # (m, c)
        return choose(hints, scores if self.repeats == 1 else weighed(hints, scores))

    def _own_outputs(self, records: Records, release: Release, features: int) -> Tensor:
        """(r, features) True for the outputs at each record itself."""
        own = torch.zeros(len(records), features, dtype=torch.bool)
        if self.probes and records.features is not None:
            place = torch.searchsorted(torch.tensor(self.probes), records.features[:, 0].long())
            width = list(release.params.values())[-1].shape[1] // len(self.probes)
            first = features - width * (len(self.probes) - place)  # (r,)
            own.scatter_(1, first.unsqueeze(1) + torch.arange(width), True)
        return own

    def _fitted(self, records: Records) -> Tensor:
        """(r, repeats, features) what is seen of models fitted on each record."""
        net, trainer, access = self.knowledge.net, self.knowledge.trainer, self.knowledge.access
        pool = records[torch.arange(len(records)).repeat_interleave(self.repeats)]
        own_seed = int(generator(self.seed, "adversary", "likeliest refit").integers(2**63))
        engine, parts = Local(max(1, len(pool) // PARTS)), []
        with progress("refits", len(pool)) as advance:
            for cohort, release in engine(trainer, net, InOrder(self.known), pool, models=len(pool), seed=own_seed):
                parts.append(access(net, release).double())
                advance(len(cohort))
        return torch.cat(parts).view(len(records), self.repeats, -1)


def nearest(seen: Tensor, refits: Tensor) -> Tensor:
    """(m, r) minus the squared distances of (m, features) and (r, features), in deviations of each feature.

    Features in which a release agrees with no refit change by themselves, as the time of a fit does, and would hide the
    others: they do not count, unless that is so in all of them.
    """
    moves, deviation = _moving(refits), refits.std(0, correction=0)
    ours, theirs = (part[:, moves] / deviation[moves] for part in (seen, refits))
    return torch.stack([-_gaps(one, theirs).square().sum(1) for one in ours])


def _gaps(one: Tensor, refits: Tensor) -> Tensor:
    """(r, features) the differences of a release (features,), in features in which it agrees with some refit."""
    gaps = one - refits
    agrees = gaps.abs().amin(0) <= AGREES
    return gaps * agrees if agrees.any() else gaps


def likelihood(seen: Tensor, refits: Tensor, own: Tensor) -> Tensor:
    """(m, r) log p(seen | record) - log p(seen | another record), for seen (m, features) and (r, repeats, features).

    `own` (r, features) are the features that each record is expected to change.
    """
    centre = refits.flatten(0, 1).nan_to_num(torch.nan, torch.nan, torch.nan).nanmedian(0).values  # (features,)
    refits = torch.where(refits.isfinite(), refits, centre)  # a fit that diverged tells nothing
    moves = _moving(refits.flatten(0, 1))
    seen, refits, own = seen[:, moves], refits[..., moves], own[:, moves]
    records, repeats, _ = refits.shape
    mean = refits.mean(1)  # (r, features)
    outlying = records // SHARE + 1  # records of which a refit may be an outlier
    centre = _trimmed(mean, outlying, both_ends=True)
    squares = (refits - mean.unsqueeze(1)).square().flatten(0, 1)  # (r repeats, features)
    variance, whole = _trimmed(squares, repeats * outlying), squares.mean(0)
    variance = torch.where(variance > 0, variance, whole) * repeats / (repeats - 1)
    size = refits.abs().flatten(0, 1)
    usual = _trimmed(size, repeats * outlying)
    rounding = torch.finfo(refits.dtype).eps * torch.where(usual > 0, usual, size.amax(0))
    variance = variance + rounding.square()  # the least that can be resolved
    shift = mean - centre  # (r, features)
    clear = shift.abs() > CLEAR * (variance / repeats).sqrt()
    shift = torch.where(clear | own, shift, 0.0)
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
