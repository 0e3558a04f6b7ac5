"""Rebuild a record by regressing records on models, in a cloud of candidates that closes in on it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lostwax.attacks.ensemble.reconstructor import Inverting
from lostwax.attacks.ensemble.simulation import First, Frame, Simulator
from lostwax.attacks.newton import Newton
from lostwax.defences import undefended
from lostwax.fields import above, at_least, check_fields
from lostwax.games import Informed, Knowledge
from lostwax.learning.kernel_regression import ClassRegression, Regression
from lostwax.learning.objections import not_informed, several_secrets
from lostwax.learning.standardise import Standardise
from lostwax.trainers.stepwise import Stepwise

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
        refusal, prior, trainer = "Ensemble is not applicable: ", knowledge.prior, undefended(knowledge.trainer)
        stranger = not_informed("Ensemble", "it looks for the one missing record", knowledge)
        if (sentence := stranger or several_secrets("Ensemble", knowledge)) is not None:
            return sentence
        if isinstance(trainer, Stepwise) and not trainer.public_start(knowledge.net):
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

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverting:
        """Train the first ensemble of every class, and regress its records on its models."""
        objection, threat, prior = self.objection(knowledge), knowledge.threat, knowledge.prior
        if objection is not None or not isinstance(threat, Informed):
            raise ValueError(objection)
        simulator = Simulator(knowledge, threat.known.to(prior.x.device), Frame.of(prior), self.members, seed)
        classes = torch.zeros(1, dtype=torch.long) if prior.y.is_floating_point() else torch.unique(prior.y).cpu()
        firsts = {int(label): simulator.first(int(label), attempt=0) for label in classes}
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
