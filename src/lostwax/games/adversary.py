"""Who attacks, as a value: what they see of the model, and how many of its records they know."""

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
