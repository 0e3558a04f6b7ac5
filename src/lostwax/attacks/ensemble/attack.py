"""Rebuild a record by regressing candidate records on models, in ever smaller clouds of candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from lostwax.attacks.ensemble.reconstructor import EnsembleInverter
from lostwax.attacks.ensemble.simulation import First, Frame, Simulator
from lostwax.attacks.newton import Newton
from lostwax.fields import above, at_least, check_fields
from lostwax.games import Knowledge
from lostwax.learning.costs import TABLES, Cost, Rate, classes
from lostwax.learning.kernel_regression import ClassRegression, Regression
from lostwax.learning.standardise import Standardise
from lostwax.progress import counted

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

    strength: ClassVar[int] = 60
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
        """Why it is not applicable."""
        refusal, prior, facts = "Ensemble is not applicable: ", knowledge.prior, knowledge.facts
        sentence = facts.not_one_secret(knowledge.threat, "it looks for the one missing record")
        if sentence is not None:
            return refusal + sentence
        if facts.trainer.private_start:
            return refusal + (
                "the initialisation is private and moves the weights far more than one record does. Use a public one, "
                "init=LeCunNormal(seed=0)."
            )
        if facts.trainer.noise is not None and facts.trainer.noise > 1:
            return refusal + (
                f"private random draws move the weights {facts.trainer.noise:.2g} times as far as one record does, so "
                "that its rounds would not close in. KernelRidge is its first round."
            )
        if not prior.x.is_floating_point():
            return refusal + f"it needs records of floating-point numbers, but the prior is {prior.x.dtype}."
        if not prior.y.is_floating_point() and prior.y.ndim > 1:
            return refusal + f"it needs one class per record, or real labels, but the prior's have {prior.y.shape[1:]}."
        if prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        groups = torch.zeros(len(prior)) if prior.y.is_floating_point() else prior.y
        if not (torch.unique(groups, return_counts=True)[1] > 1).any():
            return refusal + (
                "it draws candidates with the covariance within classes, and needs at least 2 of one class in the "
                f"prior; no two of its {len(prior)} records have the same class. Add records to the prior."
            )
        return None

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """The first round is trained for every class, the others for every game."""
        groups = classes(knowledge)
        tables = knowledge.prior.x.element_size() * (TABLES + 1) * self.members * groups * rate.features
        return Cost(self.members * (groups + (self.rounds - 1) * games) * rate.training, float(tables))

    def cheaper(self, knowledge: Knowledge) -> tuple[Ensemble, ...]:
        """Fewer members, the dearest form first: two per number of a record can still be regressed."""
        fewest = max(FEWEST_MEMBERS, 2 * knowledge.prior.x.shape[1:].numel())
        sizes = [size for size in (self.members // 3, self.members // 8) if fewest <= size]
        return tuple(replace(self, members=size, rounds=min(self.rounds, 5), restarts=0) for size in sizes)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> EnsembleInverter:
        """Train the first ensemble of every class and regress its records on its models."""
        objection, known, prior = self.objection(knowledge), knowledge.facts.known, knowledge.prior
        if objection is not None or known is None:
            raise ValueError(objection)
        simulator = Simulator(knowledge, known.to(prior.x.device), Frame.of(prior), self.members, seed)
        labels = torch.zeros(1, dtype=torch.long) if prior.y.is_floating_point() else torch.unique(prior.y).cpu()
        every = counted(labels.tolist(), "Ensemble: classes", len(labels))
        firsts = {int(label): simulator.first(int(label), attempt=0) for label in every}
        newton = Newton(bank=0, jacobians=POLISH)
        polish = newton.inverter(knowledge, seed=seed) if newton.objection(knowledge) is None else None
        return EnsembleInverter(simulator, firsts, *_classes(list(firsts.values())), self, polish)


def _classes(firsts: list[First]) -> tuple[Regression | None, ClassRegression | None]:
    """A regression with one group per class, and a classifier; None if there is one class or all models are equal."""
    sizes = [len(first.seen) for first in firsts]
    seen, members = torch.cat([first.seen for first in firsts]), torch.cat([first.members for first in firsts])
    if len(firsts) == 1 or not Standardise.moves(seen):
        return None, None
    regression = Regression.fit(seen, members, torch.split(torch.arange(len(seen), device=seen.device), sizes))
    groups = torch.arange(len(firsts), device=seen.device).repeat_interleave(torch.tensor(sizes, device=seen.device))
    return regression, ClassRegression.fit(regression, seen, groups)
