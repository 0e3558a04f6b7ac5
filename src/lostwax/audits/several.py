"""Several audits side by side: of one thing by several seeds, or of different things."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, overload

from lostwax.audits.audit import Audit
from lostwax.audits.tabled import Row, as_csv, games_frame, kept, line_rows
from lostwax.audits.text import cut_to_fit, terminal_columns
from lostwax.grades import Grade

if TYPE_CHECKING:
    from lostwax.audits.tabled import Frame

NUMBERS = ("rebuilt", "nearer", "median_error", "tpr")


@dataclass(frozen=True, repr=False, eq=False)
class Audits(Sequence[Audit]):
    """Audits by name, in order: `lw.audit(..., seed=range(5))`, or `lw.Audits({"plain": one, "rounded": another})`.

    A sequence of `Audit`: by number, or by name, `audits["seed 0"]`.
    """

    by_name: Mapping[str, Audit]

    def __post_init__(self) -> None:
        if not isinstance(self.by_name, Mapping) or not self.by_name:
            raise TypeError('Audits: expected audits by name, {"seed 0": audit, ...}, and at least one.')
        for name, audit in self.by_name.items():
            if not isinstance(name, str) or not isinstance(audit, Audit):
                raise TypeError(
                    f"Audits: expected names and results of lw.audit(...), got {type(name).__name__} and "
                    f"{type(audit).__name__}."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all audits."""
        return tuple(self.by_name)

    @property
    def grade(self) -> Grade:
        """The worst of all audits."""
        return max((audit.grade for audit in self), key=lambda grade: grade.severity)

    @property
    def alike(self) -> bool:
        """Are they the same audit by different seeds, so that their numbers have a mean?"""
        same = {(one.subject, one.kind, one.threat, one.metric, one.threshold) for one in self}
        lines = {frozenset(line.name for line in one.findings) for one in self}
        return len(same) == len(lines) == 1 and len({one.provenance.get("seed") for one in self}) == len(self)

    @overload
    def __getitem__(self, which: int | str) -> Audit: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[Audit]: ...
    def __getitem__(self, which: int | str | slice) -> Audit | Sequence[Audit]:
        """By number, by name, or several by a slice."""
        if not isinstance(which, str):
            return tuple(self.by_name.values())[which]
        if which not in self.by_name:
            raise KeyError(f"Audits: expected one of {', '.join(map(repr, self.names))}, got {which!r}.")
        return self.by_name[which]

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Audit]:
        return iter(self.by_name.values())

    def rows(self) -> list[Row]:
        """The numbers of every line and baseline of every audit."""
        return [{"audit": name, **row} for name, audit in self.by_name.items() for row in line_rows(audit)]

    def spread(self) -> list[Row]:
        """For each line that all audits have: mean, standard deviation, least and most over the audits."""
        if not self.alike:
            raise ValueError("Audits.spread: these are not the same audit by different seeds, and have no mean.")
        by_audit = [{row["line"]: row for row in line_rows(audit)} for audit in self]
        found: list[Row] = []
        for line in by_audit[0]:
            if not all(line in rows for rows in by_audit):
                continue
            row: Row = {"line": line, "audits": len(self)}
            for name in NUMBERS:
                values = [rows[line][name] for rows in by_audit]
                ends = dict.fromkeys((name, f"{name}_sd", f"{name}_least", f"{name}_most"))
                row |= ends if None in values else dict(zip(ends, _summed_up(values), strict=True))
            found.append(row)
        return found

    def to_frame(self) -> Frame:
        """A pandas DataFrame with one row per audit, line and game."""
        return games_frame(self.by_name)

    def to_csv(self, path: str | Path | None = None) -> str:
        """One row per audit and line, shares with their 95 % intervals; written to `path` too, if given."""
        return kept(as_csv(self.rows()), path, "Audits.to_csv")

    def __repr__(self) -> str:
        """A table, never the records."""
        grades = Counter(audit.grade for audit in self)
        said = ", ".join(f"{grade} ({count} of {len(self)})" for grade, count in grades.most_common())
        if self.alike:
            head = f"{len(self)} lostwax audits of {self[0].subject}: {', '.join(self.names)}"
            rows = [_shown(row, ("line",), spread=True) for row in self.spread()]
            under = "mean ± standard deviation over the audits (least to most)"
        else:
            head = f"{len(self)} lostwax audits"
            rows = [_shown(row, ("audit", "line"), spread=False) for row in self.rows()]
            under = "in brackets: 95 % intervals"
        titles = ("rebuilt", "nearer", "median error", "TPR at 1 % FPR")
        table = [("", *(() if self.alike else ("",)), *titles), *rows]
        if not any(row[-1] for row in rows):
            table = [row[:-1] for row in table]
        lines = cut_to_fit(table, terminal_columns())
        return "\n".join([head, f"grades: {said}", "", *lines, "", under])


def _summed_up(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, standard deviation, least and most; an infinite error makes the first two infinite."""
    if not all(map(math.isfinite, values)):
        return math.inf, math.inf, min(values), max(values)
    spread = stdev(values) if len(values) > 1 else 0.0
    return fmean(values), spread, min(values), max(values)


def _shown(row: Row, names: tuple[str, ...], *, spread: bool) -> tuple[str, ...]:
    """The cells of a printed row."""
    cells = [str(row[name]) for name in names]
    for name in NUMBERS:
        value = row[name]
        if value is None:
            cells.append("")
            continue
        is_error = name == "median_error"
        show = f"{value:.3g}" if is_error else f"{100 * value:.1f} %"
        low, high = (row.get(f"{name}_{end}") for end in (("least", "most") if spread else ("low", "high")))
        if spread:
            show += f" ± {row[f'{name}_sd']:.2g}" if is_error else f" ± {100 * row[f'{name}_sd']:.1f}"
        if low is not None and high is not None and low != high:
            show += f" ({low:.3g} to {high:.3g})" if is_error else f" ({100 * low:.1f}-{100 * high:.1f})"
        cells.append(show)
    return tuple(cells)
