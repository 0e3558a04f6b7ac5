"""What the parts of an audit state about themselves: a part that states nothing gets the defaults.

No other file asks a part of a user's for an attribute by its name (`tests/test_architecture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, TypeVar

from lostwax.games.notes import Note
from lostwax.released import LastWeights

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lostwax.games.fitted import Stationary
    from lostwax.games.notes import Noted
    from lostwax.games.nouns import Cohort, Knowledge, Release
    from lostwax.games.protocols import Attack, Loss, Trainer
    from lostwax.games.records import Records

Stated = TypeVar("Stated")


class HintFacts(NamedTuple):
    """What the adversary is given about each secret, besides the release."""

    labels: bool = False
    parts: Tensor | None = None  # (...) of a record's shape, True for the numbers that are given
    candidates: int | None = None  # this many records, of which one is the secret


class Mechanism(TypedDict):
    """What a ceiling depends on: `lw.bound(**mechanism, baseline=0.1)`: noise, rate and steps, or epsilon and delta."""

    noise_multiplier: NotRequired[float]
    sample_rate: NotRequired[float]  # the share of the steps that a record is in, on average
    steps: NotRequired[int]
    epsilon: NotRequired[float]  # of a mechanism that is stated by it alone, and its delta
    delta: NotRequired[float]
    sampling: NotRequired[Any]  # a value of `lw.bounds`; without one, Poisson sampling
    released: NotRequired[LastWeights]  # without it, the weights after every step


class ThreatFacts(NamedTuple):
    """What a threat states: `threat.facts()`."""

    known: Records | None = None  # all other records of a training set; None: the adversary does not have them
    secrets: int = 1  # secret records per training set
    given: HintFacts = HintFacts()


class ModelPairs(NamedTuple):
    """Differences of two models: trained with one more record than a base set, minus on the base set."""

    trainer: Trainer
    base: Callable[[Records, int], Records]  # (known records, number) -> the base set
    bases: int
    block: int  # models in a row that have the same base set, in turns
    scale: float  # by which differences are multiplied


class TrainerFacts(NamedTuple):
    """What a trainer states about training a net on n records: `trainer.facts(net, n)`."""

    deterministic: bool = False  # the model is a function of the training set alone
    private_start: bool = False  # each model begins at private weights
    differentiable: bool = False  # torch differentiates through it: it is a `trainers.descent.Descent`
    steps: int | None = None
    mechanism: Mechanism | None = None  # where it adds noise: what limits every attack
    publishes_steps: bool = False  # a `DPSGD` whose release tells its noisy steps
    objective: Callable[[Mapping[str, Tensor], int], Stationary] | None = None  # of (weights, n), minimised exactly
    one_by_one: bool = False  # models are trained separately: thousands of them take long
    noise: float | None = None  # how far private draws move the weights, over how far one record does, if measured
    loss: Loss | None = None  # what it minimises, per record
    ordered: bool = True  # the weights may depend on the order of the records
    private_order: bool = False  # which its `order_seed` would make public
    takes_tokens: bool = False  # inputs may be token numbers
    first_rounds: Callable[[int], tuple[Trainer, int] | None] | None = None  # cut short, see `Stepwise.first_rounds`
    settled: Callable[[nn.Module, Cohort], Trainer] | None = None  # itself, after it measured its randomness
    where_it_tells: Callable[[nn.Module, Cohort], Trainer] | None = None  # itself, the secret where it has an effect
    unlearns: Callable[..., Release] | None = None  # (net, cohort, before, seed=...) -> after: it trains, then forgets
    with_labels: Callable[[int, int], Trainer] | None = None  # itself, which gets labels as whole numbers low to high
    pairs: ModelPairs | None = None  # it releases differences of another trainer's models


class DefenceFacts(NamedTuple):
    """What a defence states: `defence.facts()`."""

    random: bool = True  # it draws private numbers


class AccessFacts(NamedTuple):
    """What an access states: `access.facts()`."""

    all_weights: bool = False  # in the order of `Release.flat()`
    rows: bool = False  # each number that is seen is one of the weights
    answers: bool = False  # the net answers any question: whoever has a record has its loss
    outputs: bool = False  # the outputs that a release of a refitted estimator holds, and nothing else


class LossFacts(NamedTuple):
    """What a loss states about a net of c outputs: `loss.facts(c)`."""

    classes: int | None = None  # labels are class numbers below this; None: one target per output
    fewest_outputs: int = 1
    attained: bool = True  # False: on separable data the minimum is at infinity
    quadratic: bool = False  # its residual is linear in outputs and label
    up_to_constant: bool = False  # a likelihood without its constant: ratios of it mean nothing
    slope: float | None = None  # the longest residual; None: not stated, or unbounded
    curvature: float | None = None  # the largest second derivative in the outputs, of a convex loss; None: not stated
    shortened: bool = False  # a residual that is cut to any length is still the gradient of a convex loss


class MetricFacts(NamedTuple):
    """What a metric states: `metric.facts()`."""

    of_parts: bool = False  # a mean over numbers, so that parts of a record can be scored
    deviation: Tensor | None = None  # (d,) in which it measures, feature by feature; None: in their own units


class AttackFacts(NamedTuple):
    """What an attack states: `attack.facts()`."""

    strength: int = 0  # where none is named, the strongest that fits into the time left runs first
    names_candidates: bool = False  # it answers one of the given candidates, not a record that it rebuilt
    device: str | None = None  # where it computes; None: where the prior is
    inside: Attack | None = None  # the attack that it makes use of, named in brackets behind its own name
    cheaper: Callable[[Knowledge], tuple[Attack, ...]] = lambda knowledge: ()  # forms that take less, the dearest first
    within: Callable[[float], Attack] | None = None  # itself, done within these seconds, if it goes by the clock
    minutes: float | None = None  # for which it learns, if it goes by the clock


class Facts(NamedTuple):
    """All that is stated about a game: what an attack's `objection` and `cost` ask for."""

    known: Records | None  # from the threat
    secrets: int
    given: HintFacts
    trainer: TrainerFacts
    access: AccessFacts

    @property
    def known_records(self) -> Records:
        """The known records, for an attack that is not applicable where there are none."""
        if self.known is None:
            raise ValueError("facts: expected known records, but the adversary knows none. Use threat=Informed(known).")
        return self.known

    def not_one_secret(self, threat: object, work: str) -> str | None:
        """Why an attack that looks for the one missing record, and does `work`, does not apply; None where it does."""
        if self.known is None:
            return f"{work}, but the adversary is {type(threat).__name__}. Use threat=Informed(known)."
        many = f"it looks for one secret record, and every training set has {self.secrets}"
        return f"{many}. Use Newton, or Informed(known, secrets=1)." if self.secrets > 1 else None


def states_facts(part: object) -> bool:
    """Whether a part states facts at all."""
    return hasattr(part, "facts")


def stated(part: Any, otherwise: Stated, *about: Any) -> Stated:
    """What a part states, about these things; the defaults for a part without `facts`."""
    statement: Stated = part.facts(*about) if states_facts(part) else otherwise
    return statement


def threat_facts(threat: Any) -> ThreatFacts:
    """What the threat states."""
    return stated(threat, ThreatFacts())


def hold_out_of(threat: Any) -> Callable[..., tuple[Records, Records]] | None:
    """How the threat splits a pool, `hold_out(pool, share, seed=...)`, where that is not class by class."""
    hold_out: Callable[..., tuple[Records, Records]] | None = getattr(threat, "hold_out", None)
    return hold_out


def trainer_facts(trainer: Any, net: nn.Module, n: int) -> TrainerFacts:
    """What the trainer states about training this net on n records."""
    facts = stated(trainer, TrainerFacts(), net, n)
    loss = getattr(trainer, "loss", None)
    return facts._replace(loss=loss) if facts.loss is None and hasattr(loss, "residual") else facts


def access_facts(access: Any) -> AccessFacts:
    """What the access states."""
    return stated(access, AccessFacts())


def loss_facts(loss: Any, outputs: int) -> LossFacts | None:
    """What the loss states about a net of this many outputs; None: nothing."""
    return stated(loss, None, outputs)


def attack_facts(attack: Any) -> AttackFacts:
    """What the attack states."""
    return stated(attack, AttackFacts(inside=getattr(attack, "attack", None)))


def attack_name(attack: object) -> str:
    """Its type, and in brackets that of the attack inside."""
    inside = attack_facts(attack).inside
    return type(attack).__name__ + (f"({attack_name(inside)})" if inside is not None else "")


def cost_of(attack: Any) -> Callable[..., Any] | None:
    """How the attack predicts its cost, `cost(knowledge, games, rate)`, if it does (`learning.costs.predicted`)."""
    cost: Callable[..., Any] | None = getattr(attack, "cost", None)
    return cost


def notes_of(reconstruct: Any) -> tuple[Noted, ...]:
    """What a prepared attack says about itself, in its `notes`, for the audit's: several, or a single one."""
    notes = getattr(reconstruct, "notes", ())
    return (notes,) if isinstance(notes, str | Note) else tuple(notes)
