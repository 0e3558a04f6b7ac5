"""Rebuild a record by regressing records on models, in a cloud of candidates that closes in on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from lostwax.attacks.ensemble.reconstructor import Inverting
from lostwax.attacks.ensemble.simulation import First, Frame, Simulator
from lostwax.attacks.newton import Newton
from lostwax.fields import above, at_least, check_fields
from lostwax.games import Knowledge
from lostwax.learning.costs import TABLES, Cost, Rate, classes
from lostwax.learning.kernel_regression import ClassRegression, Regression
from lostwax.learning.standardise import Standardise

FEWEST = 10  # members of a regression
POLISH = 4  # Jacobians of Newton's last steps, at most


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """Train a model on each of many candidates, regress candidates on models, read the release, look closer there.

    For victims whose training is no smooth function of the record. With ReLU it jumps whenever a known record crosses a
    neuron's kink, and a derivative knows nothing of the next jump; a regression over a cloud of candidates averages
    over jumps, and the smaller the cloud, the fewer there are. For victims that are not quite deterministic (a private
    batch order) they are noise like any other.

    Each of `rounds` trains `members` models. The first, on records of the prior for every class, is shared by all
    games. The next candidates are drawn around the estimate, with the covariance of the errors that the regression
    makes on members left out, times what it expects for the release in particular (`Reading`), times `margin`: where
    the release lies outside of the cloud, the next one is larger; where it lies in the middle, smaller. Of all
    estimates the one of the least expected error answers. A game ends early where that is below `tolerance` (a mean
    squared error, in the units of `Span`), or falls no more. Where it hardly fell at all and training is deterministic,
    the game is played again up to `restarts` times: from another class where that is in doubt, then from other records.
    Where training turns out to be smooth around the answer, Newton's steps from there have the last word, if they end
    with a certificate.

    All is computed where the prior lies. A GPU computes whole tiles of models (docs/trainers.md), so that a power of
    two is a good number of members there.
    """

    strength: ClassVar[int] = 60
    members: int = 1_500
    rounds: int = 8
    margin: float = 3.0
    tolerance: float = 1e-8
    restarts: int = 2

    def __post_init__(self) -> None:
        check_fields(
            self,
            members=at_least(FEWEST),
            rounds=at_least(1),
            margin=above(0),
            tolerance=above(0),
            restarts=at_least(0),
        )

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        refusal, prior, facts = "Ensemble is not applicable: ", knowledge.prior, knowledge.facts
        sentence = facts.not_one_secret(knowledge.threat, "it looks for the one missing record")
        if sentence is not None:
            return refusal + sentence
        if facts.trainer.private_start:
            return refusal + (
                "the initialisation is private, and moves the weights so much more than one record does that no number "
                "of simulated models would show it. With a public one (init=LeCunNormal(seed=0)) it could."
            )
        if not prior.x.is_floating_point():
            return refusal + f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
        if not prior.y.is_floating_point() and prior.y.ndim > 1:
            return refusal + f"it needs one class a record, or real labels, but the prior's have {prior.y.shape[1:]}."
        if prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        groups = torch.zeros(len(prior)) if prior.y.is_floating_point() else prior.y
        if not (torch.unique(groups, return_counts=True)[1] > 1).any():
            return refusal + (
                "it draws candidates that differ as records of a class do, and needs at least 2 of one class in the "
                f"prior; of its {len(prior)} records no two are of the same. Bring more of them."
            )
        return None

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """The first round is trained for every class, the others for every game."""
        groups = classes(knowledge)
        tables = knowledge.prior.x.element_size() * (TABLES + 1) * self.members * groups * rate.features
        return Cost(self.members * (groups + (self.rounds - 1) * games) * rate.training, float(tables))

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverting:
        """Train the first ensemble of every class, and regress its records on its models."""
        objection, known, prior = self.objection(knowledge), knowledge.facts.known, knowledge.prior
        if objection is not None or known is None:
            raise ValueError(objection)
        simulator = Simulator(knowledge, known.to(prior.x.device), Frame.of(prior), self.members, seed)
        labels = torch.zeros(1, dtype=torch.long) if prior.y.is_floating_point() else torch.unique(prior.y).cpu()
        firsts = {int(label): simulator.first(int(label), attempt=0) for label in labels}
        newton = Newton(bank=0, jacobians=POLISH)
        polish = newton.inverter(knowledge, seed=seed) if newton.objection(knowledge) is None else None
        return Inverting(simulator, firsts, *_classes(list(firsts.values())), self, polish)


def _classes(firsts: list[First]) -> tuple[Regression | None, ClassRegression | None]:
    """All first ensembles, a group each, and who tells them apart; nobody where there is one, or all look the same."""
    sizes = [len(first.seen) for first in firsts]
    seen, members = torch.cat([first.seen for first in firsts]), torch.cat([first.members for first in firsts])
    if len(firsts) == 1 or not Standardise.moves(seen):
        return None, None
    regression = Regression.fit(seen, members, torch.split(torch.arange(len(seen), device=seen.device), sizes))
    groups = torch.arange(len(firsts), device=seen.device).repeat_interleave(torch.tensor(sizes, device=seen.device))
    return regression, ClassRegression.fit(regression, seen, groups)
