"""What threats, trainers, accesses and losses state about themselves; one without `facts` states nothing.

The `Adversary` of an audit is what its threat and access state together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypedDict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lostwax.games.fitted import Stationary
    from lostwax.games.records import Records


class HintFacts(NamedTuple):
    """What the adversary is given about each secret, besides the release."""

    labels: bool = False
    parts: Tensor | None = None  # (...) of a record's shape, True for the numbers that are given
    candidates: int | None = None  # this many records, of which one is the secret


class Mechanism(TypedDict):
    """What a ceiling depends on: `lw.bound(**mechanism, baseline=0.1)`."""

    noise_multiplier: float
    sample_rate: float  # the share of the steps that a record is in, on average
    steps: int
    sampling: NotRequired[Any]  # a value of `lw.bounds`; without one, Poisson sampling


class ThreatFacts(NamedTuple):
    """What a threat states: `threat.facts()`."""

    known: Records | None = None  # all other records of a training set; None: the adversary does not have them
    secrets: int = 1  # secret records per training set
    given: HintFacts = HintFacts()


class TrainerFacts(NamedTuple):
    """What a trainer states about training a net on n records: `trainer.facts(net, n)`."""

    deterministic: bool = False  # the model is a function of the training set alone
    private_start: bool = False  # each model begins at private weights
    differentiable: bool = False  # torch differentiates through it: a `trainers.descent.Descent` whose steps are smooth
    steps: int | None = None
    mechanism: Mechanism | None = None  # where it adds noise: what limits every attack
    publishes_steps: bool = False  # a `DPSGD` whose release tells its noisy steps
    objective: Callable[[Mapping[str, Tensor], int], Stationary] | None = None  # of (weights, n), minimised exactly
    one_by_one: bool = False  # models are trained separately: thousands of them take long
    noise: float | None = None  # how far private draws move the weights, over how far one record does, if measured


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


class Facts(NamedTuple):
    """All that is stated about a game: what an attack's `objection` and `cost` ask for."""

    known: Records | None  # from the threat
    secrets: int
    given: HintFacts
    trainer: TrainerFacts
    access: AccessFacts

    def not_one_secret(self, threat: object, work: str) -> str | None:
        """Why an attack that looks for the one missing record, and does `work`, does not apply; None where it does."""
        if self.known is None:
            return f"{work}, but the adversary is {type(threat).__name__}. Use threat=Informed(known)."
        many = f"it looks for one secret record, and every training set has {self.secrets}"
        return f"{many}. Use Newton, or Informed(known, secrets=1)." if self.secrets > 1 else None


def threat_facts(threat: Any) -> ThreatFacts:
    """What the threat states."""
    facts: ThreatFacts = threat.facts() if hasattr(threat, "facts") else ThreatFacts()
    return facts


def trainer_facts(trainer: Any, net: nn.Module, n: int) -> TrainerFacts:
    """What the trainer states about training this net on n records."""
    facts: TrainerFacts = trainer.facts(net, n) if hasattr(trainer, "facts") else TrainerFacts()
    return facts


def access_facts(access: Any) -> AccessFacts:
    """What the access states."""
    facts: AccessFacts = access.facts() if hasattr(access, "facts") else AccessFacts()
    return facts


def loss_facts(loss: Any, outputs: int) -> LossFacts | None:
    """What the loss states about a net of this many outputs; None: nothing."""
    facts: LossFacts | None = loss.facts(outputs) if hasattr(loss, "facts") else None
    return facts


class Sees(StrEnum):
    """What the adversary has of the model."""

    MODEL = "model"  # with every number in its file
    PREDICTIONS = "predictions"
    PART = "part"  # such as some layers


@dataclass(frozen=True)
class Adversary:
    """What the threat and the access of an audit state about the adversary."""

    known: int | None = None  # records of a training set that they know; None: not stated
    records: int | None = None  # ... of this many
    unit: Literal["record", "row"] = "record"  # a table has rows
    sees: Sees = Sees.MODEL
    access: str = "Weights()"  # the same by its name
    files: int = 1  # models that they have of one training set

    @classmethod
    def of(cls, access: object, known: int, records: int) -> Adversary:
        """From the access, and how many records of a training set the threat makes known."""
        facts = access_facts(access)
        predictions = facts.answers or facts.outputs
        sees = Sees.MODEL if facts.all_weights else Sees.PREDICTIONS if predictions else Sees.PART
        return cls(known, records, sees=sees, access=repr(access))

    @classmethod
    def insider(cls, records: int, unit: Literal["record", "row"] = "record") -> Adversary:
        """Has the model, and knows all records but one."""
        return cls(records - 1, records, unit)

    @property
    def knows_none(self) -> bool:
        """No record: an outsider."""
        return self.known == 0

    @property
    def knows_all_others(self) -> bool:
        """Every record but the one secret: an insider."""
        return not self.knows_none and self.known is not None and self.known + 1 == self.records


NOT_STATED = Adversary()
