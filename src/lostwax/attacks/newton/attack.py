"""Rebuild a record by inverting training itself: no shadow models, exact where training is deterministic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch

from lostwax.attacks.newton.bank import MOST_WAYS, Bank, draws, ways
from lostwax.attacks.newton.inverter import Inverter, Published
from lostwax.attacks.newton.matrix_free import MatrixFree
from lostwax.attacks.newton.solver import Problem
from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.defences import undefended
from lostwax.fields import at_least, check_fields, expect
from lostwax.games import Attack, Knowledge, Records
from lostwax.games.facts import trainer_facts
from lostwax.inits import trainable
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.costs import DOUBLE, TABLES, Cost, Rate, classes
from lostwax.trainers.descent import as_descent

NOISES = 16  # models, by which the size of a defence's noise is measured
SINGLE = 4  # bytes
JACOBIANS = 2  # that a game computes, about (docs/newton.md)
PAIR = 4  # trainings that a product with the Jacobian and one with its transpose take
MOST_NUMBERS = 20_000  # of the secrets: a table of so many by so many takes 3 GB


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Solve  A(z) = theta  for the record z, by damped Gauss-Newton within the range of the data.

    When training is deterministic given the secret (everybody knows the start and the order of batches, and nobody adds
    noise), the released weights theta are a known smooth function A of the one missing record, with many more values
    than unknowns. The residual is its own certificate: where it falls to rounding, the record is found, truth or no
    truth.

    It trains on `bank` of the records at hand and on the mean of every class, and begins with those whose models come
    nearest the release, and with what a regression on them makes of it (`KernelRidge`). The Jacobians at the means are
    computed once and lead most of the way for every game; a game computes at most `jacobians` of its own. Where all
    this leaves the release unexplained, the guess of another attack, `start`, is one more place to begin; `Ensemble`
    finds a good one from far away. With `coordinates`, records are looked for among that many principal components of
    the records at hand: fewer tangents, and an answer that is only near. With `products` no Jacobian is formed: a game
    costs at most so many products J v, and as many J^T w, each about one training. For records of thousands of numbers,
    of which a few dozen products find most.
    """

    strength: ClassVar[int] = 70
    bank: int = 1_000
    jacobians: int = 12
    coordinates: int | None = None
    products: int | None = None
    start: Attack | None = None

    def __post_init__(self) -> None:
        check_fields(self, bank=at_least(0), jacobians=at_least(0), coordinates=at_least(1), products=at_least(1))
        expect(self, "start", "None where products are given", self.products is None or self.start is None)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        refusal, trainer = "Newton is not applicable: ", undefended(knowledge.trainer)
        known, secrets, given, _, access = knowledge.facts
        if known is None:
            return refusal + (
                "it solves for the missing record, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Informed(known)."
            )
        stated = trainer_facts(trainer, knowledge.net, len(known) + secrets)
        if not stated.differentiable:
            return refusal + (
                f"it differentiates through the steps of GD, SGD, Adam or AdamW, but the trainer is "
                f"{type(trainer).__name__}. For a linear model at its optimum use ClosedForm, else Ensemble or RecoNN."
            )
        if stated.private_start:
            return refusal + (
                "the initialisation is private, so the weights are no function of the record alone. With a public one "
                "(init=LeCunNormal(seed=0)) it could."
            )
        if not stated.deterministic:
            return refusal + (
                "the order of batches is private, so the weights are no function of the record alone. Use Ensemble or "
                "RecoNN."
            )
        if not access.all_weights:
            return refusal + (
                f"it compares all weights with those it simulates, but the adversary sees {knowledge.access!r}. Use "
                "RecoNN."
            )
        if given.parts is not None:
            return refusal + "it solves for the whole record, and makes no use of the parts that are known. Use RecoNN."
        weights = sum(value.numel() for value in trainable(knowledge.net).values())
        if weights < (numbers := secrets * knowledge.prior.x.shape[1:].numel()):
            return refusal + (
                f"the net has {weights} weights, too few to determine the {numbers} secret numbers. Use RecoNN."
            )
        if numbers > MOST_NUMBERS:
            return refusal + (
                f"it keeps tables of {numbers} x {numbers} secret numbers, {8 * numbers**2 / 1e9:.0f} GB each. Use "
                "RecoNN, or smaller pictures."
            )
        if len(knowledge.prior) + len(known) < 2:
            return refusal + "it begins with the mean of the records at hand, and there are none. Bring a prior."
        labels = [part.y for part in (known, knowledge.prior)]
        kinds = len({label for y in labels if not y.is_floating_point() for label in torch.unique(y).tolist()})
        in_any_order = as_descent(trainer).batches.size is None
        if secrets > 1 and (count := ways(kinds, secrets, in_any_order=in_any_order)) > MOST_WAYS:
            return refusal + (
                f"{secrets} secrets can be of {kinds} classes in {count:,} ways, each of which takes a model to "
                f"begin with, and {MOST_WAYS:,} are the most. Play for fewer secrets, or among fewer classes."
            )
        if knowledge.prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        return None if self.start is None else self.start.objection(knowledge)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """Trainings for the bank, and about one for each tangent of a Jacobian."""
        groups, numbers = classes(knowledge), knowledge.prior.x.shape[1:].numel()
        bank = (TABLES + 1) * (self.bank + groups) * rate.features
        if self.products is not None:
            return Cost((self.bank + PAIR * self.products * games) * rate.training, float(SINGLE * bank))
        tangents = self.coordinates or numbers
        unknowns = numbers * knowledge.facts.secrets
        jacobian = rate.features * min(self.coordinates or unknowns, unknowns)
        return Cost(
            (self.bank + tangents * (groups + JACOBIANS * games)) * rate.training,
            float(SINGLE * (bank + (groups + games) * jacobian) + 2 * DOUBLE * jacobian),
        )

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverter | MatrixFree:
        """Train on the bank, which the seed draws, and linearise training at the mean record of every class.

        With several secrets there are too many pairs of classes: those that a game asks for are linearised then.
        """
        if self.products is not None:
            parts = self._parts(knowledge, seed)
            problem = Problem(parts.released_by, parts.quick, parts.coordinates)
            prior = Coordinates.principal(parts.at_hand, self.coordinates).times(parts.quick.secrets)
            return MatrixFree(problem, prior, parts.bank, parts.published, self.products, knowledge.prior[:1])
        inverter = self.inverter(knowledge, seed=seed)
        if inverter.problem.exact.secrets == 1:
            for classes in inverter.bank.classes:
                inverter.at_mean(classes)
        return inverter

    def inverter(self, knowledge: Knowledge, *, seed: int) -> Inverter:
        """The same, with no Jacobian computed yet."""
        parts = self._parts(knowledge, seed)
        unknowns = parts.coordinates.of_records(flat(parts.at_hand).repeat(1, parts.quick.secrets))  # (n, r)
        return Inverter(
            problem=Problem(parts.released_by.computed_in(torch.float64), parts.quick, parts.coordinates),
            bank=parts.bank,
            published=parts.published,
            prior_mean=unknowns.mean(0),
            prior_variance=unknowns.var(0, correction=0).clamp_min(1e-30),
            jacobians=self.jacobians,
            guess=None if self.start is None else self.start.prepare(knowledge, seed=seed),
            like=knowledge.prior[:1],
        )

    def _parts(self, knowledge: Knowledge, seed: int) -> _Parts:
        objection, known, secrets = self.objection(knowledge), knowledge.facts.known, knowledge.facts.secrets
        if objection is not None or known is None:
            raise ValueError(objection)
        trainer = as_descent(undefended(knowledge.trainer))
        at_hand = _together(known, knowledge.prior)
        coordinates = self._coordinates(at_hand).times(secrets)
        known = known.to(trainer.computes_in(knowledge.net))
        released_by = TrainingMap(knowledge.net, trainer, known, secrets)
        published = Published(knowledge.trainer, seed)
        if published.defended:
            z, rows = flat(at_hand), draws(len(at_hand), NOISES, secrets, seed).to(at_hand.x.device)
            units = published.units(released_by.computed_in(torch.float64), z[rows].flatten(1), at_hand.y[rows])
            released_by = replace(released_by, units=units)
        quick = released_by.computed_in(torch.float32, tf32=True)
        bank = Bank.of(quick, coordinates, at_hand, self.bank, seed=seed)
        return _Parts(at_hand, coordinates, released_by, quick, bank, published)

    def _coordinates(self, records: Records) -> Coordinates:
        if self.coordinates is None or self.products is not None:
            return Coordinates.of(records)
        return Coordinates.principal(records, self.coordinates)


class _Parts(NamedTuple):
    """What both ways to solve have in common."""

    at_hand: Records  # all records that the adversary has
    coordinates: Coordinates
    released_by: TrainingMap
    quick: TrainingMap
    bank: Bank
    published: Published


def _together(known: Records, prior: Records) -> Records:
    """All records that the adversary has."""
    ours = known.to(prior.x.device)
    return Records(torch.cat([ours.x, prior.x]), torch.cat([ours.y, prior.y]))
