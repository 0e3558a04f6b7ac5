"""Rebuild a record by inverting training itself: no shadow models, exact where training is deterministic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import MAX_TABLE_NUMBERS
from lostwax.attacks.newton.annealing import Annealing, ClassPrior, ErrorModel
from lostwax.attacks.newton.bank import MOST_WAYS, Bank, draws, ways
from lostwax.attacks.newton.inverter import Inverter
from lostwax.attacks.newton.matrix_free import MatrixFree
from lostwax.attacks.newton.misfit import MODELS, OtherRecords, compared_bytes
from lostwax.attacks.newton.set_problem import first_layer
from lostwax.attacks.newton.training_map import Problem, Published, TrainingMap
from lostwax.attacks.newton.whole_sets import DRAWN, MOST_NUMBERS, STARTS, WholeSets
from lostwax.defences import undefended
from lostwax.fields import at_least, check_fields, expect
from lostwax.games import Attack, AttackFacts, Cohort, Knowledge, Records, Trainer
from lostwax.games.facts import states_facts, trainer_facts
from lostwax.games.protocols import accepted, objection_to
from lostwax.inits import trainable
from lostwax.learning.coordinates import Coordinates, flat
from lostwax.learning.costs import DOUBLE, OPERATIONS, TABLES, Cost, Rate, classes
from lostwax.learning.shadow_tables import SWEEP
from lostwax.shadows import LinearResponse
from lostwax.shadows.linear_response import Responses, few_known, share_for_directions
from lostwax.trainers.descent import Descent, as_descent

NOISES = 16  # models on which the size of a defence's noise is measured
SINGLE = 4  # bytes
STEPPED, STEPPED_TOGETHER = 300, 10  # squares of the unknowns that steps take: of a game, and tables at most
JACOBIANS = 2  # that a game computes, about (docs/newton.md)
PAIR = 4  # trainings that a product with the Jacobian and one with its transpose take
FEWEST_DIRECTIONS, MOST_DIRECTIONS = 32, 1_000  # for which linear response is worth its sweep
TOLERANCE = 1e-3  # of the response's sums over few steps
ANNEALED = 40  # Jacobians that a game computes by a response of every weight, about as on MNIST (newton_mnist.py)
TRIED = 20  # models that a game trains with a linear response, about
SETS = 4  # times as many Jacobians for whole training sets, at most
SET_JACOBIANS = 12  # that one takes, about


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Solve  A(z) = theta  for the record z, by damped Gauss-Newton within the range of the data.

    If training is deterministic given the secret (public initialisation, public order of batches, no noise), the
    released weights theta are a known smooth function A of the missing record. A residual at rounding level certifies
    the guess, without knowing the truth.

    Starting points are the mean of every class, `bank` of the known and prior records and a regression on their models.
    A game computes at most `jacobians` besides those at the means, which all share. If the release is still
    unexplained, the guess of another attack, `start`, is tried (`Ensemble` works from far away). With `coordinates`,
    the search is restricted to that many principal components: fewer tangents, an approximate answer. With `products`,
    for records with thousands of features, no Jacobian is formed: a game costs at most that many products J v, and as
    many J^T w, each about one training. With `response`, the bank, the search and its Jacobians use the linear response
    of training, swept once for all games, and weights are compared in its directions; the end of the search trains
    models. Without `polish` it does not, and no answer is certified. With a response of every weight (its `rank` at
    least their number) the search minimises residuals in units of the response's measured error, with noise that is
    lowered in stages (`annealing.py`); `jacobians` then limits its end only.

    Where no record is known (`lw.Weak`), it solves for the whole training set, within the space that the first linear
    layer reveals (docs/newton.md). Of the options, only `jacobians` applies then.
    """

    bank: int = 1_000
    jacobians: int = 12
    coordinates: int | None = None
    products: int | None = None
    start: Attack | None = None
    response: LinearResponse | None = None
    polish: bool = True

    def __post_init__(self) -> None:
        check_fields(self, bank=at_least(0), jacobians=at_least(0), coordinates=at_least(1), products=at_least(1))
        expect(self, "start", "None where products are given", self.products is None or self.start is None)
        expect(self, "response", "None where products are given", self.products is None or self.response is None)
        expect(self, "polish", "True where no response is given", self.polish or self.response is not None)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        trainer = undefended(knowledge.trainer)
        known, secrets, given, _, access = knowledge.facts
        if not knowledge.prior.inputs.is_floating_point():
            return "it needs records of floating-point numbers. For token numbers use lw.attacks.Tokens."
        if known is None and not states_facts(knowledge.threat):
            return (
                "it solves for the records that are missing, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Informed(known), or Weak(size)."
            )
        stated = trainer_facts(trainer, knowledge.net, secrets if known is None else len(known) + secrets)
        if not stated.differentiable:
            return (
                f"it differentiates through the steps of GD, SGD, Adam or AdamW, but the trainer is "
                f"{type(trainer).__name__}. For a linear model at its optimum use ClosedForm, else Ensemble or RecoNN."
            )
        if stated.private_start:
            return (
                "the initialisation is private, so the weights are not a function of the record alone. Use a public "
                "one, init=LeCunNormal(seed=0)."
            )
        if not stated.deterministic:
            return (
                "the order of batches or dropout is private, so the weights are not a function of the record alone. "
                "Use Ensemble or RecoNN."
            )
        if not access.all_weights:
            return (
                f"it compares all weights with those it simulates, but the adversary sees {knowledge.access!r}. Use "
                "RecoNN."
            )
        if given.parts is not None:
            return "it solves for the whole record and cannot use known parts. Use RecoNN."
        if (weights := _weights(knowledge)) < (numbers := _numbers(knowledge)):
            return f"the net has {weights} weights, too few to determine the {numbers} secret numbers. Use RecoNN."
        if known is None:
            return self._objection_to_sets(knowledge, trainer)
        if numbers > MOST_NUMBERS:
            return (
                f"it keeps tables of {numbers} x {numbers} secret numbers, {8 * numbers**2 / 1e9:.0f} GB each. Use "
                "RecoNN, or smaller records."
            )
        if len(knowledge.prior) + len(known) < 2:
            return "it starts from the mean of the known and prior records, and there are none. Add a prior."
        labels = [part.y for part in (known, knowledge.prior)]
        kinds = len({label for y in labels if not y.is_floating_point() for label in torch.unique(y).tolist()})
        try:
            in_any_order = as_descent(trainer).batches.size is None
        except TypeError as error:
            return str(error)
        if secrets > 1 and (count := ways(kinds, secrets, in_any_order=in_any_order)) > MOST_WAYS:
            return (
                f"{secrets} secrets of {kinds} classes have {count:,} combinations of labels, each of which takes a "
                f"model, and at most {MOST_WAYS:,} are supported. Use fewer secrets or fewer classes."
            )
        if knowledge.prior.features is not None:
            return "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        if self.response is not None:
            if (sentence := self.response.objection(knowledge)) is not None:
                return sentence
            models = len(known) + len(knowledge.prior) - self.response.checked
            directions, wanted = min(self.response.directions, models - 1), min(self.coordinates or 0, numbers)
            if 1 <= directions <= wanted and not self.response.follows_all(weights):
                return (
                    f"{directions} directions of the response do not determine {wanted} coordinates: any release would "
                    "be explained. Set fewer coordinates, or more directions of the response."
                )
        return None if self.start is None else objection_to(self.start, knowledge)

    def _objection_to_sets(self, knowledge: Knowledge, trainer: Trainer) -> str | None:
        """The same where no record is known."""
        secrets, given = knowledge.facts.secrets, knowledge.facts.given
        options = {"products": self.products, "response": self.response, "coordinates": self.coordinates}
        for name, value in (options | {"start": self.start}).items():
            if value is not None:
                return f"{name} needs known records, and the adversary knows none. Leave it out."
        if knowledge.prior.features is not None:
            return (
                "the net trains on features of the records, through a backbone it cannot see. Use WeakRecoNN, or solve "
                "for the features: with Records(prior.features, prior.y) as prior."
            )
        if len(knowledge.prior) < max(2, secrets if trainer is not knowledge.trainer else 2):
            return "it starts from the means of the prior records, which are fewer than two. Add some."
        try:
            ordered = as_descent(trainer).batches.size is not None
        except TypeError as error:
            return str(error)
        if ordered and not given.labels and not knowledge.prior.y.is_floating_point():
            return (
                "with batches in an order, it needs the label of each record, which the adversary does not have. Use "
                "full batches (GD)."
            )
        if (unknowns := _unknowns(knowledge)) > MOST_NUMBERS:
            return f"{unknowns} secret numbers are too many for its tables. Use a smaller training set."
        return None

    def facts(self) -> AttackFacts:
        """Exact where training is a smooth function of the record."""
        return AttackFacts(strength=70, cheaper=self.cheaper)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        """Trainings for the bank, and about one for each tangent of a Jacobian."""
        groups, numbers = classes(knowledge), knowledge.prior.x.shape[1:].numel()
        if knowledge.facts.known is None:
            unknowns = _unknowns(knowledge)
            models = 2 * (DRAWN + 1) + (1 + STARTS) * SET_JACOBIANS * unknowns  # of a release and of a null
            memory = float(2 * DOUBLE * (rate.features * unknowns + unknowns**2))
            return Cost(models * games * rate.training, memory)
        bank = (TABLES + 1) * (self.bank + groups) * rate.features
        if self.products is not None:
            return Cost((self.bank + PAIR * self.products * games) * rate.training, float(SINGLE * bank))
        if self.response is not None:
            trainings = float(self.response.checked + (TRIED * games if self.polish else 0))
            if not self.response.follows_all(rate.parameters):
                share = share_for_directions(undefended(knowledge.trainer), len(knowledge.facts.known))
                trainings += share * (1 + SWEEP) * self.response.directions
                return Cost(trainings * rate.training, float(SINGLE * bank))
            steps = as_descent(undefended(knowledge.trainer)).batches.steps(len(knowledge.facts.known) + 1)
            hessians = steps * rate.parameters**2  # numbers; a tangent multiplies with each
            searched = ANNEALED * games * (self.coordinates or numbers) * 2 * hessians / OPERATIONS
            seconds = (trainings + SWEEP * rate.parameters) * rate.training + searched
            return Cost(seconds, float(SINGLE * (bank + hessians)))
        tangents = self.coordinates or numbers
        unknowns = numbers * knowledge.facts.secrets
        unseen = min(self.coordinates or unknowns, unknowns)
        jacobian = rate.features * unseen
        tested = 2 * MODELS if undefended(knowledge.trainer) is not knowledge.trainer else 0  # for a certificate
        return Cost(
            (self.bank + tangents * (groups + JACOBIANS * games) + tested * games) * rate.training,
            float(SINGLE * (bank + (groups + games) * jacobian) + 2 * DOUBLE * jacobian)
            + DOUBLE * min(STEPPED * games * unseen**2, STEPPED_TOGETHER * MAX_TABLE_NUMBERS)
            + compared_bytes(rate.parameters),
        )

    def cheaper(self, knowledge: Knowledge) -> tuple[Newton, ...]:
        """The same by linear response, where that is possible and there are enough records for it."""
        numbers, response = knowledge.prior.x.shape[1:].numel(), LinearResponse()
        there = len(knowledge.prior) + (0 if knowledge.facts.known is None else len(knowledge.facts.known))
        directions = min(2 * numbers, MOST_DIRECTIONS, there - response.checked)  # twice as many equations as unknowns
        if self.products is not None or self.response is not None or directions < FEWEST_DIRECTIONS:
            return ()
        coordinates = min(self.coordinates or numbers, directions // 2)
        form = replace(self, coordinates=coordinates, response=replace(response, directions=directions))
        return (form,) if form.objection(knowledge) is None else ()

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverter | MatrixFree | WholeSets:
        """Train on the bank, which the seed draws; training is linearised at a class mean when a game needs it."""
        knowledge = accepted(self, knowledge)
        prior = knowledge.prior
        if knowledge.facts.known is None:
            weights, published = self._training(knowledge, prior, seed)
            exact, quick = weights.computed_in(torch.float64), weights.computed_in(torch.float32, tf32=True)
            return WholeSets(exact, quick, prior, prior[:1], published, SETS * self.jacobians, seed)
        if self.products is None:
            return self.inverter(knowledge, seed=seed)
        parts = self._parts(knowledge, seed)
        problem: Problem[Any] = Problem(parts.released_by, parts.quick, parts.coordinates)
        components = Coordinates.principal(parts.available, self.coordinates).times(parts.quick.secrets)
        return MatrixFree(problem, components, parts.bank, parts.published, self.products, prior[:1])

    def inverter(self, knowledge: Knowledge, *, seed: int, responses: Responses | None = None) -> Inverter:
        """For known records, without products; with these responses if they were prepared before."""
        knowledge = accepted(self, knowledge)
        parts = self._parts(knowledge, seed, responses)
        z = flat(parts.available).repeat(1, parts.quick.secrets)  # (n, u)
        unknowns = parts.coordinates.of_records(z)  # (n, r)
        # float64 is only worth its time where Jacobians are exact enough to reach rounding
        exact = parts.released_by.computed_in(torch.float64) if self.response is None else parts.released_by
        annealing, y, quick_responses = None, parts.available.y, parts.quick.responses
        if self.response is not None and quick_responses is not None and self.response.follows_all(_weights(knowledge)):
            classes = torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y
            errors, priors = ErrorModel.of(quick_responses.errors), ClassPrior.each(unknowns, classes)
            annealing = Annealing(parts.quick, parts.quick, parts.coordinates, errors, priors)
        return Inverter(
            problem=Problem(exact, parts.quick, parts.coordinates),
            bank=parts.bank,
            published=parts.published,
            prior_mean=unknowns.mean(0),
            prior_variance=unknowns.var(0, correction=0).clamp_min(1e-30),
            left_out=(z - parts.coordinates(unknowns)).square().mean(0),
            others=OtherRecords.of(parts.available, seed),
            jacobians=self.jacobians,
            by_training=self.polish,
            guess=None if self.start is None else self.start.prepare(knowledge, seed=seed),
            like=knowledge.prior[:1],
            annealing=annealing,
        )

    def responses(self, knowledge: Knowledge, *, seed: int) -> Responses:
        """The linear response, its directions and its check from models trained on known and prior records."""
        known, engine = knowledge.facts.known, self.response
        if known is None or engine is None:
            raise ValueError("Newton: responses needs response=LinearResponse(...) and an adversary who knows records.")
        trainer, available = as_descent(undefended(knowledge.trainer)), _available(knowledge)
        follows_all = engine.follows_all(_weights(knowledge))
        drawn = engine.checked + (0 if follows_all else engine.directions + 1)  # less their mean they span one less
        rows = draws(len(available), drawn, 1, seed).to(available.y.device)
        checked, principal = rows[: engine.checked], rows[engine.checked :]
        if len(principal) < 2 and not follows_all:
            raise ValueError(
                f"Newton: {engine.checked} checked models leave {len(principal)} records to find directions. Set fewer "
                "checked models of the response, or add to the prior."
            )

        def models(known: Records, rows: Tensor, trainer: Descent) -> Tensor:
            cohort = Cohort(known.to(available.x.device), available[rows], torch.zeros_like(rows[:, 0]))
            return trainer(knowledge.net, cohort, seed=0).flat()

        seen, records = models(known, checked, trainer), available[checked[:, 0]]
        spread = None if follows_all else models(few_known(trainer, known), principal, replace(trainer, tf32=True))
        return engine.prepare(knowledge, spread, seen, records, tolerance=TOLERANCE)

    def _training(self, knowledge: Knowledge, available: Records, seed: int) -> tuple[TrainingMap, Published]:
        """Training as the owner does it, in units of a defence's noise, and how the release is made of it."""
        trainer, secrets = as_descent(undefended(knowledge.trainer)), knowledge.facts.secrets
        known = knowledge.prior[:0] if knowledge.facts.known is None else knowledge.facts.known
        weights = TrainingMap(knowledge.net, trainer, known.to(trainer.computes_in(knowledge.net)), secrets)
        published = Published(knowledge.trainer, seed)
        if not published.defended:
            return weights, published
        rows = draws(len(available), NOISES, secrets, seed).to(available.x.device)
        z, exact = flat(available)[rows].flatten(1), weights.computed_in(torch.float64)
        return replace(weights, units=published.units(exact, z, available.y[rows])), published

    def _parts(self, knowledge: Knowledge, seed: int, responses: Responses | None = None) -> _Parts:
        available = _available(knowledge)
        released_by, published = self._training(knowledge, available, seed)
        follows_all = self.response is not None and self.response.follows_all(_weights(knowledge))
        components = self.coordinates
        if components is None and self.response is not None:  # fewer unknowns than equations
            components = _numbers(knowledge) if follows_all else max(1, self.response.directions // 2)
        if components is None or self.products is not None:
            coordinates = Coordinates.of(available).times(released_by.secrets)
        else:
            coordinates = Coordinates.principal(available, components).times(released_by.secrets)
        quick = released_by.computed_in(torch.float32, tf32=True)
        if self.response is not None:
            if responses is None:
                responses = self.responses(knowledge, seed=seed)
            if not responses.check.holds:
                raise ValueError(f"Newton: {responses.check} That is too little for a Jacobian: leave response out.")
            equations, unknowns = int(responses.check.informative.sum()), len(coordinates.directions)
            if equations <= unknowns and not (follows_all and not self.polish):  # the prior determines the rest
                raise ValueError(
                    f"Newton: {equations} reliable directions do not determine {unknowns} coordinates: any release "
                    "would be explained. Set fewer coordinates, or more directions of the response."
                )
            released_by = replace(released_by, responses=responses)
            quick = replace(quick, responses=responses, trained=False)
        bank = Bank.of(quick, coordinates, available, self.bank, seed=seed)
        return _Parts(available, coordinates, released_by, quick, bank, published)


def _available(knowledge: Knowledge) -> Records:
    """Known and prior records."""
    known, prior = knowledge.facts.known_records.to(knowledge.prior.x.device), knowledge.prior
    return Records(torch.cat([known.x, prior.x]), torch.cat([known.y, prior.y]))


def _weights(knowledge: Knowledge) -> int:
    return sum(value.numel() for value in trainable(knowledge.net).values())


def _numbers(knowledge: Knowledge) -> int:
    """The secret numbers of a training set, labels included where they are numbers."""
    x, y = knowledge.prior.x, knowledge.prior.y
    return knowledge.facts.secrets * (x.shape[1:].numel() + (y.shape[1:].numel() if y.is_floating_point() else 0))


def _unknowns(knowledge: Knowledge) -> int:
    """How many numbers a whole training set leaves unknown, once its first layer was read (`record_span`)."""
    trainer, secrets, x = undefended(knowledge.trainer), knowledge.facts.secrets, knowledge.prior.x
    name = first_layer(knowledge.net, x.shape[1:].numel())
    if trainer is not knowledge.trainer or secrets < 2 or not as_descent(trainer).linear_update or name is None:
        return _numbers(knowledge)
    if len(knowledge.net.get_parameter(f"{name}bias")) < secrets:
        return _numbers(knowledge)
    return _numbers(knowledge) - secrets * (x.shape[1:].numel() - min(x.shape[1:].numel(), secrets - 1))


class _Parts(NamedTuple):
    """What both solvers need."""

    available: Records  # known and prior records
    coordinates: Coordinates
    released_by: TrainingMap
    quick: TrainingMap
    bank: Bank
    published: Published
