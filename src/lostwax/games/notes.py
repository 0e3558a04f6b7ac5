"""What an audit says beside its numbers: sentences, each with what it is about and what would help."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Topic(StrEnum):
    """What a note is about, where something asks for it."""

    REMARK = "remark"  # plain information
    STORED_ROWS = "stored rows"  # the release holds rows of the table
    TOTAL = "total"  # ... or a sum or mean of all rows, the secret one included
    RANGE = "range"  # ... or the extreme values of columns
    EXACT_CELLS = "exact cells"  # which setting of the model most of them come from
    ATTRIBUTE = "attribute inference"  # one value of a record was guessed from all others, or this was not tried


@dataclass(frozen=True)
class Note:
    """A sentence for the report, and the values in it."""

    text: str
    topic: Topic = Topic.REMARK
    subject: str = ""  # the part of the release that it is about
    rows: tuple[int, int] | None = None  # how many, of how many
    cure: str = ""  # what would help, as a sentence for the list of advice

    def __str__(self) -> str:
        return self.text


Noted: TypeAlias = Note | str  # a plain string is a remark


def as_notes(notes: Iterable[Noted]) -> tuple[Note, ...]:
    """Every one as a value."""
    return tuple(Note(note) if isinstance(note, str) else note for note in notes)


def stored_rows(subject: str, rows: tuple[int, int] | None = None, columns: str = "") -> Note:
    """The release holds rows as they are: this many of so many, or all; only these columns, if any are named."""
    if rows is None:
        data, text = "the training data", f"{subject} holds the training data: anyone with this object has every row."
    else:
        data = f"{rows[0]:,} of {rows[1]:,} rows of this table as they reach it"
        text = f"{subject} holds {data}{f' ({columns})' if columns else ''}."
    cure = "do not give out this file. Release a model that stores no rows, or only its predictions."
    return Note(text, Topic.STORED_ROWS, subject, rows, f"{subject} holds {data}: {cure}")


BY_ITSELF = "includes the secret row and reveals it by itself (the total minus the known rows)"


def total_of_all_rows(subject: str, reveals: str = BY_ITSELF, *, of_model: bool = False) -> Note:
    """The release holds a total that the secret row is part of; `reveals`: how it gives that away, as a predicate.

    The total is that of a step before the model, or `of_model`.
    """
    step, model = ", whatever the model after it. Fit it on public data.", ". Release a model without such a total."
    text = f"{subject} {reveals}{model if of_model else step}"
    return Note(text, Topic.TOTAL, subject, cure=text[:1].upper() + text[1:])


def extreme_values(subject: str, reveals: str, *, plural: bool = False) -> Note:
    """The release holds the extreme values of columns; `reveals`: what it tells, as a predicate."""
    shows = f"{subject} {'show' if plural else 'shows'} the extreme values of columns"
    cure = f"{shows}: use limits that are known without the data."
    return Note(f"{subject} {reveals}.", Topic.RANGE, subject, cure=cure)
