"""Rebuild a record by inverting training itself: no shadow models, exact where training is deterministic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.access import Weights
from lostwax.attacks.newton.coordinates import Coordinates, flat
from lostwax.attacks.newton.inverter import Bank, Inverter
from lostwax.attacks.newton.solver import Problem
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.inits import trainable
from lostwax.seeds import generator
from lostwax.threats import Informed
from lostwax.trainers.descent import Descent
from lostwax.types import Attack, Knowledge, Records


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Solve  A(z) = theta  for the record z, by damped Gauss-Newton within the range of the data.

    When training is deterministic given the secret (everybody knows the start and the order of batches, and nobody adds
    noise), the released weights theta are a known smooth function A of the one missing record, with many more values
    than unknowns. The residual is its own certificate: where it falls to rounding, the record is found, truth or no
    truth.

    It begins with the records at hand, `bank` of them, and the mean of every class: those whose models come nearest the
    release. The Jacobians at the means are computed once and lead most of the way for every game; a game computes at
    most `jacobians` of its own. The guess of another attack, `start`, is one more place to begin. With `coordinates`,
    records are looked for among that many principal components of the records at hand: fewer tangents, and an answer
    that is only near.
    """

    bank: int = 1_000
    jacobians: int = 12
    coordinates: int | None = None
    start: Attack | None = None

    def __post_init__(self) -> None:
        for name, wanted, holds in (
            ("bank", ">= 0", self.bank >= 0),
            ("jacobians", ">= 0", self.jacobians >= 0),
            ("coordinates", ">= 1, or None", self.coordinates is None or self.coordinates >= 1),
        ):
            if not holds:
                raise ValueError(f"Newton: expected {name} {wanted}, got {getattr(self, name)}.")

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        refusal, trainer = "Newton cannot play this game: ", knowledge.trainer
        if not isinstance(knowledge.threat, Informed):
            return refusal + (
                "it solves for the one missing record, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Informed(known)."
            )
        if not isinstance(trainer, Descent):
            return refusal + (
                f"it differentiates through the steps of GD, SGD, Adam or AdamW, but the trainer is "
                f"{type(trainer).__name__}. For a linear model at its optimum use ClosedForm, else Ensemble or RecoNN."
            )
        if not trainer.public_start(knowledge.net):
            return refusal + (
                "the initialisation is private, so the weights are no function of the record alone. With a public one "
                "(init=LeCunNormal(seed=0)) it could."
            )
        if trainer.batches.size is not None and trainer.batches.order_seed is None:
            return refusal + (
                "the order of batches is private, so the weights are no function of the record alone. Use Ensemble or "
                "RecoNN."
            )
        if not isinstance(knowledge.access, Weights):
            return refusal + (
                f"it compares all weights with those it simulates, but the adversary sees {knowledge.access!r}. Use "
                "RecoNN."
            )
        if knowledge.threat.parts is not None:
            return refusal + "it solves for the whole record, and makes no use of the parts that are known. Use RecoNN."
        weights = sum(value.numel() for value in trainable(knowledge.net).values())
        if weights < (numbers := knowledge.prior.x.shape[1:].numel()):
            return refusal + (
                f"the net has {weights} weights, too few to determine the {numbers} numbers of a record. Use RecoNN."
            )
        if len(knowledge.prior) + len(knowledge.threat.known) < 2:
            return refusal + "it begins with the mean of the records at hand, and there are none. Bring a prior."
        if knowledge.prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        return None if self.start is None else self.start.objection(knowledge)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverter:
        """Train on the bank, and linearise training at the mean record of every class. The seed draws the bank."""
        objection, threat, trainer = self.objection(knowledge), knowledge.threat, knowledge.trainer
        if objection is not None or not isinstance(threat, Informed) or not isinstance(trainer, Descent):
            raise ValueError(objection)
        at_hand = _together(threat.known, knowledge.prior)
        released_by = TrainingMap(knowledge.net, trainer, threat.known).computed_in(trainer.dtype, tf32=trainer.tf32)
        problem = Problem(
            exact=released_by.computed_in(torch.float64),
            quick=released_by.computed_in(torch.float32, tf32=True),
            coordinates=self._coordinates(at_hand),
        )
        unknowns = problem.coordinates.of_records(flat(at_hand))  # (n, r)
        return Inverter(
            problem=problem,
            bank=_bank(problem, at_hand, at_hand[_some(len(at_hand), self.bank, seed).to(at_hand.x.device)]),
            released_by=released_by,
            prior_mean=unknowns.mean(0),
            prior_variance=unknowns.var(0, correction=0).clamp_min(1e-30),
            jacobians=self.jacobians,
            guess=None if self.start is None else self.start.prepare(knowledge, seed=seed),
            like=knowledge.prior[:1],
        )

    @classmethod
    def examples(cls) -> tuple[Newton, ...]:
        """Instances to test."""
        return cls(bank=10), cls(bank=0, jacobians=1, coordinates=2)

    def _coordinates(self, records: Records) -> Coordinates:
        if self.coordinates is None:
            return Coordinates.of(records)
        return Coordinates.principal(records, min(self.coordinates, len(records)))


def _together(known: Records, prior: Records) -> Records:
    """All records that the adversary has."""
    ours = known.to(prior.x.device)
    return Records(torch.cat([ours.x, prior.x]), torch.cat([ours.y, prior.y]))


def _some(count: int, most: int, seed: int) -> Tensor:
    return torch.from_numpy(generator(seed, "adversary", "bank").permutation(count)[:most])


def _bank(problem: Problem, at_hand: Records, some: Records) -> Bank:
    """The mean record of every class (of all, where labels are numbers), and some records as they are."""
    numbers, coordinates = at_hand.y.is_floating_point(), problem.coordinates
    none = torch.zeros(len(at_hand), dtype=torch.long, device=at_hand.x.device)
    y = none if numbers else at_hand.y
    classes, z = torch.unique(y), flat(at_hand)
    means = coordinates.of_records(torch.stack([z[y == label].mean(0) for label in classes]))  # (classes, r)
    a = torch.cat([means, coordinates.of_records(flat(some))])
    label = torch.cat([classes, none[: len(some)] if numbers else some.y])
    weights = problem.quick(coordinates(a), label)
    return Bank(a, label, weights, tuple(problem.linear(*each) for each in zip(means, classes, strict=True)))
