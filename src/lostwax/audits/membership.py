"""Was this person in it? What the losses of victims tell about who was trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from lostwax.attacks import CalibratedLosses
from lostwax.audits.conclusion import MEMBERSHIP, Rung
from lostwax.clock import Clock, TimeUp, in_words
from lostwax.games import Adversary, Cohort, Knowledge, Records, Release, Weak
from lostwax.games.judges import distinct_games
from lostwax.grades import Grade
from lostwax.learning.candidates import distinct, side_by_side
from lostwax.learning.costs import Rate
from lostwax.metrics import Estimate
from lostwax.metrics.estimate import clopper_pearson
from lostwax.progress import progress
from lostwax.seeds import generator

FPR = 0.01  # at which true positives are counted
MODELS, FEWEST_MODELS = 64, 16  # reference models
MOST_VICTIMS = 200
SHARE = 0.25  # of the time left
NOT_MEASURED = "Membership was not measured:"
INSIDER_LEVEL, OUTSIDER_LEVEL = 0.01, 1e-3  # probabilities by chance: an outsider is tried where an insider succeeds
LARGE = 0.75  # share of pairs told apart, from which people are recognised


@dataclass(frozen=True, eq=False)
class MembershipFinding:
    """Each victim's own records beside the secrets of other games, which it was not trained on.

    An attack scores all of them without knowing which is whose (`CalibratedLosses`). Each record is the own one of one
    victim and another's of all others, so nothing but the victims tells them apart. Equal secrets count as one victim.
    """

    models: int  # reference models, for all games
    pairs_right: NDArray[np.float64]  # (v,) share of pairs, an own record and another, of which the own one scores more
    above: NDArray[np.float64]  # (v,) share of own records that score more than 99 % of all others

    @property
    def share(self) -> Estimate:
        """The share of pairs told apart, which is the area under the ROC curve; guessing gives 1/2."""
        return self._estimate(self.pairs_right)

    @property
    def true_positives(self) -> Estimate:
        """The share of people recognised at a false-positive rate of 1 %."""
        return self._estimate(self.above)

    @property
    def chance(self) -> float:
        """The probability of as large a share of pairs where the victims owe nothing to their records.

        Then an own record is equally likely to have any rank, so a victim's share of pairs has the variance of ranks,
        (v + 1) / (12 (v - 1)); those of two victims do not rise together, because both rank the same records.
        """
        v = len(self.pairs_right)
        return float(ndtr((0.5 - self.pairs_right.mean()) * math.sqrt(12 * v * (v - 1) / (v + 1))))

    def __str__(self) -> str:
        share, positives = (
            f"{100 * rate.value:.1f} % ({100 * rate.low:.1f}-{100 * rate.high:.1f})"
            for rate in (self.share, self.true_positives)
        )
        return (
            f"{share} of pairs right, {positives} of people recognised at a false-positive rate of 1 %; "
            f"{len(self.above):,} people, {self.models} reference models"
        )

    def _estimate(self, shares: NDArray[np.float64]) -> Estimate:
        v = len(shares)
        return Estimate(float(shares.mean()), *clopper_pearson(float(shares.sum()), v), v)


class Asked(NamedTuple):
    """What came of the question."""

    membership: MembershipFinding | None = None
    unanswered: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    rungs: tuple[Rung, ...] = ()  # what an outsider tells, whose reference models know none of the records


def was_in_it(
    knowledge: Knowledge, cohort: Cohort, release: Release, *, seed: int, clock: Clock, rate: Rate | None
) -> Asked:
    """Ask for each secret of some victims whether it was trained on; fewer reference models if time is short."""
    some = torch.arange(min(len(cohort), MOST_VICTIMS))
    cohort, release = cohort[some.to(cohort.index.device)], release.chosen(some)
    flat = side_by_side(cohort.own)
    rows, number = distinct(flat)
    order = torch.from_numpy(generator(seed, "adversary", "people").permutation(len(rows)))
    records, members = flat[rows[order].to(flat.x.device)], order.argsort()[number].view(len(cohort), -1)  # (m, k)
    if len(torch.unique(members.sort(1).values, dim=0)) < 2 or members.shape[1] == len(records):
        return Asked(left_out=(f"{NOT_MEASURED} it takes two games or more, with different secrets.",))
    models = min(MODELS, max(FEWEST_MODELS, len(cohort))) if knowledge.facts.trainer.one_by_one else MODELS
    if clock.end is not None and rate is not None:
        models = min(models, int(SHARE * clock.left / max(rate.training, 1e-9)))
        if models < FEWEST_MODELS:
            needed, left = in_words(FEWEST_MODELS * rate.training), in_words(clock.left)
            return Asked(
                unanswered=(
                    f"{NOT_MEASURED} {FEWEST_MODELS} reference models take {needed}, and a quarter of {left} was left "
                    "for it.",
                )
            )
    attack = CalibratedLosses(models)
    if (why := _unseen(attack, knowledge, release, records)) is not None:
        return Asked(left_out=(f"{NOT_MEASURED} {why}",))
    try:
        with progress("membership"):
            scores = clock.run(partial(attack.scores, knowledge, release, records, seed=seed))
    except TimeUp:
        return Asked(unanswered=(f"{NOT_MEASURED} {models} reference models were not done in time.",))
    except (ValueError, RuntimeError, MemoryError) as error:
        return Asked(unanswered=(f"{NOT_MEASURED} {' '.join(str(error).split())}",))
    if scores.isnan().all():
        return Asked(unanswered=(f"{NOT_MEASURED} losses of victims or reference models are not finite.",))
    groups = distinct_games(cohort.own)
    membership = _compared(scores, members, groups, models)
    outside = _outsider(knowledge, records, seed) if membership.chance <= INSIDER_LEVEL else None
    takes = 0.0 if rate is None else models * rate.training
    if outside is None or (clock.end is not None and takes > SHARE * clock.left):
        return Asked(membership)
    try:
        with progress("membership, public records alone"):
            scores = clock.run(partial(attack.scores, outside, release, outside.prior, seed=seed))
    except (TimeUp, ValueError, RuntimeError, MemoryError):
        return Asked(membership)
    without = _compared(scores[:, : len(records)], members, groups, models)
    grade = Grade.RECOGNISABLE if without.share.low > LARGE else Grade.BETTER_THAN_CHANCE
    rung = Rung(
        Adversary.of(knowledge.access, 0, cohort.records),
        grade if without.chance <= OUTSIDER_LEVEL else Grade.NOT_FOUND,
        type(attack).__name__,
        reason=f"{MEMBERSHIP} {without}",
        by_membership=True,
    )
    return Asked(membership, rungs=(rung,))


def _outsider(knowledge: Knowledge, records: Records, seed: int) -> Knowledge | None:
    """What an adversary has who knows no record: a public sample, `records` first, and sets drawn from it.

    Sets are halves of it, no larger than those of victims. None where nothing public is stated.
    """
    known, prior = knowledge.facts.known, knowledge.prior
    if known is None or prior is known:
        return None
    size = min(len(known) + 1, (len(prior) + len(records)) // 2)
    more = generator(seed, "adversary", "public records").permutation(len(prior))[: max(0, 2 * size - len(records))]
    public = Records.together([records, prior[torch.from_numpy(more).to(prior.x.device)]])
    if public.y.is_floating_point() or public.y.ndim > 1:
        return replace(knowledge, threat=Weak(size), prior=public)
    each = tuple((torch.bincount(public.y) * size // len(public)).tolist())
    return replace(knowledge, threat=Weak(sum(each), each), prior=public) if sum(each) else None


def _unseen(attack: CalibratedLosses, knowledge: Knowledge, release: Release, records: Records) -> str | None:
    """Why the loss of a record is not seen."""
    access = knowledge.facts.access
    if not (access.all_weights or access.answers):
        return f"it takes the loss of a record, and {knowledge.access!r} shows neither the whole net nor its answers."
    try:
        attack.seen(knowledge, release.chosen(torch.arange(1)), records[:2])
    except (ValueError, RuntimeError, TypeError, KeyError) as error:
        said = str(error).partition("\n")[0]
        return f"the loss of a record cannot be computed from the net and its release ({said:.200})."
    return None


def _compared(scores: Tensor, members: Tensor, groups: Tensor, models: int) -> MembershipFinding:
    """From scores (m, n) and the rows of each victim's own records (m, k); groups (m,) of equal secrets are one."""
    scores = torch.where(scores.isnan(), -torch.inf, scores)  # of a victim that diverged
    member = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, members, True)
    threshold = scores[~member].sort().values[math.ceil((1 - FPR) * int((~member).sum())) - 1]
    pairs, above = [], []
    for victim, rows in enumerate(members):
        ours, others = scores[victim, rows].unsqueeze(1), scores[victim, ~member[victim]]
        pairs.append(((others < ours).double() + (others == ours).double() / 2).mean())
        above.append((ours > threshold).double().mean())
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return MembershipFinding(models, *(np.bincount(group, torch.stack(shares)) / sizes for shares in (pairs, above)))
