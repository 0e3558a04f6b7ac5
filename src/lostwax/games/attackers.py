"""Who attacks, as a value with an order: what an attacker has, from the released file alone to all records but one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from lostwax.games.facts import access_facts


class Sees(StrEnum):
    """What the adversary has of the model."""

    MODEL = "model"  # with every number in its file
    PREDICTIONS = "predictions"
    PART = "part"  # such as some layers


class Attacker(StrEnum):
    """Kinds of attackers, the weakest first: each has what those before it have, and more."""

    ANYONE = "anyone"  # what was released, and nothing else
    OUTSIDER = "outsider"  # also public records of the same kind, and the way of training
    INSIDER = "insider"  # also training records: all but one, or all but a few


@dataclass(frozen=True)
class Adversary:
    """What the threat and the access of an audit state about the adversary."""

    known: int | None = None  # records of a training set that they know; None: not stated
    records: int | None = None  # ... of this many
    unit: Literal["record", "row", "word"] = "record"  # a table has rows, the texts of a language model words
    sees: Sees = Sees.MODEL
    access: str = "Weights()"  # the same by its name
    files: int = 1  # models that they have of one training set
    public: bool = False  # they have other records of the same kind, and know how the model was trained

    @classmethod
    def of(cls, access: object, known: int, records: int) -> Adversary:
        """From the access, and how many records of a training set the threat makes known; a prior is public."""
        facts = access_facts(access)
        predictions = facts.answers or facts.outputs
        sees = Sees.MODEL if facts.all_weights else Sees.PREDICTIONS if predictions else Sees.PART
        return cls(known, records, sees=sees, access=repr(access), public=True)

    @classmethod
    def insider(cls, records: int, unit: Literal["record", "row", "word"] = "record", *, missing: int = 1) -> Adversary:
        """Has the model, and knows all records but one, or but some."""
        return cls(records - missing, records, unit)

    @property
    def kind(self) -> Attacker:
        """Where knowledge is not stated, an insider: to call the attacker weaker would alarm for no reason."""
        if not self.knows_none:
            return Attacker.INSIDER
        return Attacker.OUTSIDER if self.public else Attacker.ANYONE

    @property
    def knows_none(self) -> bool:
        return self.known == 0

    @property
    def knows_all_others(self) -> bool:
        return self.missing == 1 and not self.knows_none

    @property
    def missing(self) -> int | None:
        """How many records of the training set they do not know; None: not stated."""
        return None if self.known is None or self.records is None else self.records - self.known

    @property
    def has(self) -> tuple[int, int, int, int]:
        """What they have, as numbers: kind, records, files, view of the model. Sorted by it, the weakest is first."""
        missing = 1 if self.missing is None else self.missing
        view = (Sees.PREDICTIONS, Sees.PART, Sees.MODEL).index(self.sees)
        return list(Attacker).index(self.kind), -missing, self.files, view

    def has_all_of(self, other: Adversary) -> bool:
        """Whether they have all that the other has: then they succeed wherever the other does."""
        return all(ours >= theirs for ours, theirs in zip(self.has, other.has, strict=True))


NOT_STATED = Adversary()
