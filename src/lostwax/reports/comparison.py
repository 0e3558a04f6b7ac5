"""Audits side by side: what a defence does to the attack's success, and to the accuracy of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lostwax import files
from lostwax.audits.decision import Suggestion, decide
from lostwax.cards import card
from lostwax.fields import shown
from lostwax.grades import Grade
from lostwax.numerals import SIGN, at_most, count, interval, percent, side_by_side
from lostwax.reports.fields import policy_of

if TYPE_CHECKING:
    from lostwax.audits import Audit
    from lostwax.reports.charts import Chart

MOST_AUDITS = 12  # on one page


class Compared(NamedTuple):
    """One audit of a comparison."""

    name: str
    grade: Grade
    suggestion: Suggestion
    headline: str
    games: int
    success: float  # share of records rebuilt, or of candidates named, by the worst line
    low: float  # ends of its 95 % interval
    high: float
    nearer: float | None  # share of guesses closer than every baseline; None among candidates
    ceiling: float | None  # on the success of any attack
    certified: bool
    accuracy: float | None

    def success_in_words(self) -> str:
        """12 % (10 % to 15 %)."""
        sure = "" if self.low == self.high else f" ({interval(self.low, self.high)})"
        return f"{percent(self.success)}{sure}"

    def ceiling_in_words(self) -> str:
        """Empty without one."""
        certainty = "" if self.certified else " (not certified)"
        return "" if self.ceiling is None else f"{at_most(self.ceiling)}{certainty}"

    @property
    def detail(self) -> str:
        """Grade, suggestion and accuracy, on a card."""
        accuracy = "" if self.accuracy is None else f"; accuracy {self.accuracy_in_words()}"
        return f"success; {self.grade}: {self.suggestion}{accuracy}"

    def accuracy_in_words(self) -> str:
        """Empty if it is not known."""
        return "" if self.accuracy is None else f"{100 * self.accuracy:.1f}{SIGN}"


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of `lw.compare`: printed as a table, shown in a notebook, written as a page by `to_html`."""

    audits: tuple[Compared, ...]  # the first is what the others are compared with
    differences: tuple[str, ...]  # of how they were audited: numbers may not be comparable

    def to_html(self, path: str | Path) -> Path:
        """Write one page that opens offline. It holds no records."""
        from lostwax.reports.html import render_comparison

        target = files.named("Comparison.to_html", path)
        return files.write(target, files.escaped(render_comparison(self)), source="Comparison.to_html")

    def measured(self) -> tuple[str, ...]:
        """What each defence does to success and accuracy, one sentence each."""
        first, *others = self.audits
        return tuple(_effect(first, other) for other in others)

    def chart(self) -> Chart:
        """Success, ceiling and accuracy of each audit."""
        from lostwax.reports.charts import draw_comparison

        return draw_comparison(self.audits)

    def __repr__(self) -> str:
        columns: dict[str, Callable[[Compared], str]] = {
            "": lambda audit: audit.name,
            "grade": lambda audit: str(audit.grade),
            "success": Compared.success_in_words,
            "closer": lambda audit: "" if audit.nearer is None else percent(audit.nearer),
            "ceiling": Compared.ceiling_in_words,
            "accuracy": Compared.accuracy_in_words,
            "suggestion": lambda audit: str(audit.suggestion),
        }
        cells = [(title, *map(cell, self.audits)) for title, cell in columns.items()]
        lines = side_by_side([*zip(*(column for column in cells if any(column[1:])), strict=True)])
        return "\n".join((*lines, *(f"note: {text}" for text in self.differences))).replace(SIGN[0], " ")

    def _repr_html_(self) -> str:
        """A card, for notebooks."""
        return card(
            Suggestion.RELEASE.tone,  # no colour: a comparison suggests nothing by itself
            kicker="comparison",
            headline=f"{len(self.audits)} audits side by side",
            text=(*self.measured(), *self.differences),
            facts=[(percent(audit.success), audit.name, audit.detail) for audit in self.audits],
        )


def compare(
    *audits: Audit, names: Sequence[str] | None = None, accuracy: Sequence[float | None] | None = None
) -> Comparison:
    """`lw.compare`, which documents it."""
    from lostwax.audits import Audit

    for audit in audits:
        if not isinstance(audit, Audit):
            raise TypeError(f"compare: expected audits, results of lw.audit(...), got {shown(audit)}.")
    if not 2 <= len(audits) <= MOST_AUDITS:
        raise ValueError(f"compare: expected 2 to {MOST_AUDITS} audits, got {len(audits)}.")
    for what, values in (("names", names), ("accuracy", accuracy)):
        if values is not None and (not isinstance(values, list | tuple) or len(values) != len(audits)):
            raise ValueError(
                f"compare: expected {what} to have one entry per audit ({len(audits)}), got {shown(values)}."
            )
    titles = _titles(audits) if names is None else [str(name) for name in names]
    if len(set(titles)) < len(titles):
        raise ValueError("compare: expected names that differ.")
    scores = [None] * len(audits) if accuracy is None else list(accuracy)
    for score in scores:
        if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
            raise ValueError(f"compare: expected accuracy to be shares from 0 to 1, or None, got {shown(score)}.")
    entries = tuple(map(_compared, titles, audits, scores))
    return Comparison(entries, tuple(_differences(audits, titles)))


def _titles(audits: Sequence[Audit]) -> list[str]:
    """before and after; of more, what was audited, numbered where that is the same."""
    if len(audits) == 2:
        return ["before", "after"]
    subjects = [audit.subject for audit in audits]
    return [
        subject if subjects.count(subject) == 1 else f"{subject} ({number})"
        for number, subject in enumerate(subjects, start=1)
    ]


def _compared(name: str, audit: Audit, accuracy: float | None) -> Compared:
    line, games, ceiling = audit.conclusion.line, len(audit.games), audit.ceiling
    share = line.rebuilt / games
    low, high = audit.ends(line.rebuilt)
    policy = policy_of(audit)  # of the report that it was read from
    breaches = None if policy is None else [str(breach) for breach in policy.breaches(audit)]
    return Compared(
        name=name,
        grade=audit.grade,
        suggestion=decide(audit, breaches).suggestion,
        headline=audit.conclusion.headline,
        games=games,
        success=share,
        low=low,
        high=high,
        nearer=None if audit.chance is not None else line.nearer / games,
        ceiling=None if ceiling is None else ceiling.upper,
        certified=ceiling is not None and ceiling.certified,
        accuracy=None if accuracy is None else float(accuracy),
    )


def _differences(audits: Sequence[Audit], titles: Sequence[str]) -> Iterator[str]:
    """What differs in how they were audited."""
    asked: dict[str, Callable[[Audit], object]] = {
        "what was audited (a model or a way of training) differs": lambda audit: audit.kind,
        "the attacker differs": lambda audit: (audit.threat, audit.chance, audit.provenance.get("access")),
        "the measure of success differs": lambda audit: (audit.criterion, audit.threshold),
        "the records attacked differ": lambda audit: audit.games.tolist(),
        "the data differ": lambda audit: audit.provenance.get("data"),
    }
    for what, value in asked.items():
        others = [name for name, audit in zip(titles, audits, strict=True) if value(audit) != value(audits[0])]
        if others:
            quoted = " and ".join(
                ", ".join(f"“{name}”" for name in names) for names in (others[:-1], others[-1:]) if names
            )
            yield f"Not like for like: {what} between “{titles[0]}” and {quoted}."
    for name, audit in zip(titles, audits, strict=True):
        if audit.grade is Grade.UNDECIDED:
            yield f"{name} is undecided: its success rate shows nothing."


def _effect(first: Compared, other: Compared) -> str:
    """What one defence does, measured, as a sentence."""
    grade = f"still {other.grade}" if other.grade is first.grade else f"{other.grade} instead of {first.grade}"
    games = f"{count(other.games)} and {count(first.games)} games"
    games = f"{count(first.games)} games each" if other.games == first.games else games
    success, accuracy = _change(percent(first.success), percent(other.success)), ""
    if first.accuracy is not None and other.accuracy is not None:
        accuracy = f"; accuracy {_change(first.accuracy_in_words(), other.accuracy_in_words())}"
    return f"Measured, {other.name}: grade {grade}, success {success} ({games}){accuracy}."


def _change(before: str, after: str) -> str:
    return f"still {after}" if after == before else f"{after} instead of {before}"
