"""Rebuild a record by inverting training itself: no shadow models, exact where training is deterministic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import MAX_TABLE_NUMBERS
from lostwax.attacks.newton.annealing import Annealing, ClassPrior, ErrorModel
from lostwax.attacks.newton.assumed import AssumedSets
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
from lostwax.inits import Given, trainable
from lostwax.learning.coordinates import Coordinates, classes_of, flat, unsolvable
from lostwax.learning.costs import DOUBLE, OPERATIONS, TABLES, Cost, Rate, classes
from lostwax.learning.shadow_tables import SWEEP
from lostwax.shadows import LinearResponse
from lostwax.shadows.linear_response import Responses, few_known, share_for_directions
from lostwax.trainers.descent import Descent, as_descent
from lostwax.trainers.stacked import batch_norms

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
    layer reveals (docs/newton.md). Of the options, only `jacobians` applies then, and `assumed`: if the adversary does
    not know the training, trainers that it may have been, with any learning rate, for which it solves.
    """

    bank: int = 1_000
    jacobians: int = 12
    coordinates: int | None = None
    products: int | None = None
    start: Attack | None = None
    response: LinearResponse | None = None
    polish: bool = True
    assumed: tuple[Trainer, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, bank=at_least(0), jacobians=at_least(0), coordinates=at_least(1), products=at_least(1))
        expect(self, "start", "None where products are given", self.products is None or self.start is None)
        expect(self, "response", "None where products are given", self.products is None or self.response is None)
        expect(self, "polish", "True where no response is given", self.polish or self.response is not None)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable."""
        trainer, known = undefended(knowledge.trainer), knowledge.facts.known
        if known is None and not states_facts(knowledge.threat):
            return (
                "it solves for the records that are missing, but the adversary is "
                f"{type(knowledge.threat).__name__}. Use threat=Informed(known), or Weak(size)."
            )
        by_features = "Use WeakRecoNN, or solve for the features: with Records(prior.features, prior.y) as prior."
        if (reason := unsolvable(knowledge, by_features if known is None else "Use RecoNN.")) is not None:
            return reason
        stated = trainer_facts(trainer, knowledge.net, knowledge.facts.secrets + (0 if known is None else len(known)))
        if not stated.differentiable:
            return (
                f"it differentiates through the steps of GD, SGD, Adam or AdamW, but the trainer is "
                f"{type(trainer).__name__}. For a linear model at its optimum use ClosedForm, else Ensemble or RecoNN."
            )
        try:
            in_any_order = as_descent(trainer).batches.size is None
        except TypeError as error:
            return str(error)
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
        if not knowledge.facts.access.all_weights:
            return (
                "it compares all weights with those it simulates, but the adversary sees "
                f"{knowledge.access!r}. Use RecoNN."
            )
        if (weights := _weights(knowledge)) < (numbers := _numbers(knowledge)):
            return f"the net has {weights} weights, too few to determine the {numbers} secret numbers. Use RecoNN."
        if any(undefended(assumed) is not assumed for assumed in self.assumed):
            return "assumed ways of training cannot be defended ones. Leave the defences out."
        if known is None and self.assumed:
            reasons = (replace(self, assumed=()).objection(each) for each in self._assumed(knowledge))
            return next((reason for reason in reasons if reason is not None), None)
        if known is None:
            return self._objection_to_sets(knowledge, in_any_order)
        if self.assumed:
            return "assumed ways of training are tried where no record is known. Leave them out."
        return self._objection_to_records(knowledge, known, in_any_order)

    def _objection_to_records(self, knowledge: Knowledge, known: Records, in_any_order: bool) -> str | None:
        """The same where all other records are known."""
        secrets, numbers, prior = knowledge.facts.secrets, _numbers(knowledge), knowledge.prior
        if batch_norms(knowledge.net):
            return "it compares gradients of single records, and batch norm mixes them. Use Ensemble or RecoNN."
        if numbers > MOST_NUMBERS:
            return (
                f"it keeps tables of {numbers} x {numbers} secret numbers, {8 * numbers**2 / 1e9:.0f} GB each. Use "
                "RecoNN, or smaller records."
            )
        if len(prior) + len(known) < 2:
            return "it starts from the mean of the known and prior records, and there are none. Add a prior."
        labels = [part.y for part in (known, prior) if not part.y.is_floating_point()]
        kinds = len({label for y in labels for label in torch.unique(y).tolist()})
        if secrets > 1 and (count := ways(kinds, secrets, in_any_order=in_any_order)) > MOST_WAYS:
            return (
                f"{secrets} secrets of {kinds} classes have {count:,} combinations of labels, each of which takes a "
                f"model, and at most {MOST_WAYS:,} are supported. Use fewer secrets or fewer classes."
            )
        if self.response is not None:
            if (reason := self.response.objection(knowledge)) is not None:
                return reason
            models = len(known) + len(prior) - self.response.checked
            directions, wanted = min(self.response.directions, models - 1), min(self.coordinates or 0, numbers)
            if 1 <= directions <= wanted and not self._follows_all(knowledge):
                return (
                    f"{directions} directions of the response do not determine {wanted} coordinates: any release would "
                    "be explained. Set fewer coordinates, or more directions of the response."
                )
        return None if self.start is None else objection_to(self.start, knowledge)

    def _objection_to_sets(self, knowledge: Knowledge, in_any_order: bool) -> str | None:
        """The same where no record is known."""
        options = {"products": self.products, "response": self.response, "coordinates": self.coordinates}
        for name, value in (options | {"start": self.start}).items():
            if value is not None:
                return f"{name} needs known records, and the adversary knows none. Leave it out."
        defended = undefended(knowledge.trainer) is not knowledge.trainer
        if len(knowledge.prior) < max(2, knowledge.facts.secrets if defended else 2):
            return "it starts from the means of the prior records, which are fewer than two. Add some."
        if not in_any_order and not knowledge.facts.given.labels and not knowledge.prior.y.is_floating_point():
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
            models *= max(1, len(self.assumed))
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

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inverter | MatrixFree | WholeSets | AssumedSets:
        """Train on the bank, which the seed draws; training is linearised at a class mean when a game needs it."""
        knowledge = accepted(self, knowledge)
        prior = knowledge.prior
        if knowledge.facts.known is None and self.assumed:
            return AssumedSets(tuple(self._sets(each, seed) for each in self._assumed(knowledge)), prior[:1])
        if knowledge.facts.known is None:
            return self._sets(knowledge, seed)
        if self.products is None:
            return self.inverter(knowledge, seed=seed)
        available, problem, bank, published = self._game(knowledge, seed)
        components = Coordinates.principal(available, self.coordinates).times(problem.quick.secrets)
        return MatrixFree(problem, components, bank, published, self.products, prior[:1])

    def _assumed(self, knowledge: Knowledge) -> list[Knowledge]:
        """With each trainer that it may have been."""
        return [replace(knowledge, trainer=trainer) for trainer in self.assumed]

    def _sets(self, knowledge: Knowledge, seed: int) -> WholeSets:
        """For a training set of which no record is known."""
        weights, published = self._training(knowledge, knowledge.prior, seed)
        exact, quick = weights.computed_in(torch.float64), weights.computed_in(torch.float32, tf32=True)
        return WholeSets(exact, quick, knowledge.prior, knowledge.prior[:1], published, SETS * self.jacobians, seed)

    def inverter(self, knowledge: Knowledge, *, seed: int, responses: Responses | None = None) -> Inverter:
        """For known records, without products; with these responses if they were prepared before."""
        knowledge = accepted(self, knowledge)
        available, problem, bank, published = self._game(knowledge, seed, responses)
        z = flat(available).repeat(1, problem.quick.secrets)  # (n, u)
        unknowns, annealing = problem.coordinates.of_records(z), None  # (n, r)
        if problem.quick.responses is None:
            # float64 is only worth its time where Jacobians are exact enough to reach rounding
            problem = replace(problem, exact=problem.exact.computed_in(torch.float64))
        elif self._follows_all(knowledge):
            errors = ErrorModel.of(problem.quick.responses.errors)
            priors = ClassPrior.each(unknowns, classes_of(available.y))
            annealing = Annealing(problem.quick, problem.quick, problem.coordinates, errors, priors)
        return Inverter(
            problem=problem,
            bank=bank,
            published=published,
            prior_mean=unknowns.mean(0),
            prior_variance=unknowns.var(0, correction=0).clamp_min(1e-30),
            left_out=(z - problem.coordinates(unknowns)).square().mean(0),
            others=OtherRecords.of(available, seed),
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
        follows_all = self._follows_all(knowledge)
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
        # drawn once: torch's own draws cannot be repeated while it differentiates
        start = {name: value[0] for name, value in trainer.init(knowledge.net, [0], seed=0).items()}
        trainer = replace(trainer, init=Given(start))
        known = knowledge.prior[:0] if knowledge.facts.known is None else knowledge.facts.known
        weights = TrainingMap(knowledge.net, trainer, known.to(trainer.computes_in(knowledge.net)), secrets)
        published = Published(knowledge.trainer, seed)
        if not published.defended:
            return weights, published
        rows = draws(len(available), NOISES, secrets, seed).to(available.x.device)
        z, exact = flat(available)[rows].flatten(1), weights.computed_in(torch.float64)
        return replace(weights, units=published.units(exact, z, available.y[rows])), published

    def _game(self, knowledge: Knowledge, seed: int, responses: Responses | None = None) -> _Game:
        available = _available(knowledge)
        released_by, published = self._training(knowledge, available, seed)
        quick = released_by.computed_in(torch.float32, tf32=True)
        components = self.coordinates
        if components is None and self.response is not None:  # fewer unknowns than equations
            follows_all = self._follows_all(knowledge)
            components = _numbers(knowledge) if follows_all else max(1, self.response.directions // 2)
        every = components is None or self.products is not None
        coordinates = Coordinates.of(available) if every else Coordinates.principal(available, components)
        coordinates = coordinates.times(released_by.secrets)
        if self.response is not None:
            if responses is None:
                responses = self.responses(knowledge, seed=seed)
            if not responses.check.holds:
                raise ValueError(f"Newton: {responses.check} That is too little for a Jacobian: leave response out.")
            equations, unknowns = int(responses.check.informative.sum()), len(coordinates.directions)
            by_prior = self._follows_all(knowledge) and not self.polish  # it determines what the equations do not
            if equations <= unknowns and not by_prior:
                raise ValueError(
                    f"Newton: {equations} reliable directions do not determine {unknowns} coordinates: any release "
                    "would be explained. Set fewer coordinates, or more directions of the response."
                )
            released_by = replace(released_by, responses=responses)
            quick = replace(quick, responses=responses, trained=False)
        bank = Bank.of(quick, coordinates, available, self.bank, seed=seed)
        return _Game(available, Problem(released_by, quick, coordinates), bank, published)

    def _follows_all(self, knowledge: Knowledge) -> bool:
        """Whether it has a response of every weight."""
        return self.response is not None and self.response.follows_all(_weights(knowledge))


class _Game(NamedTuple):
    """What is prepared for known records."""

    available: Records  # known and prior records
    problem: Problem[Any]
    bank: Bank
    published: Published


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
    trainer, secrets, d = undefended(knowledge.trainer), knowledge.facts.secrets, knowledge.prior.x.shape[1:].numel()
    layer = first_layer(knowledge.net, d) if trainer is knowledge.trainer else None
    if layer is None or secrets < 2 or not as_descent(trainer).linear_update:
        return _numbers(knowledge)
    shown = len(knowledge.net.get_parameter(f"{layer}bias")) >= secrets
    return _numbers(knowledge) - (secrets * (d - min(d, secrets - 1)) if shown else 0)
