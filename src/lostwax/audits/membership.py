"""Was this person in it? What the losses of victims tell about who was trained on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor

from lostwax.attacks import CalibratedLosses
from lostwax.clock import Clock, TimeUp, in_words
from lostwax.games import Cohort, Knowledge, Records, Release
from lostwax.games.judges import distinct_games
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
    return Asked(_compared(scores, members, distinct_games(cohort.own), models))


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
