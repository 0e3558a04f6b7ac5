"""Audits in rows and columns, one or several side by side: a row per game in a data frame, a row per line in CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from lostwax import files
from lostwax.audits.text import FEWEST_NULLS, cut_to_fit, terminal_columns
from lostwax.grades import Grade
from lostwax.metrics import Null, true_positives

if TYPE_CHECKING:
    import pandas

    from lostwax.audits.audit import Audit, Finding

    Frame: TypeAlias = pandas.DataFrame

Row = dict[str, Any]
NUMBERS = ("rebuilt", "nearer", "median_error", "tpr")


def games_frame(audits: Mapping[str, Audit]) -> Frame:
    """One row per audit, line and game; errors are by the headline metric unless the column is named for another."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("to_frame: pandas is not installed. Install lostwax[tables].") from error

    parts = [
        pandas.DataFrame({"audit": name, **_columns(audit, finding)})
        for name, audit in audits.items()
        for finding in audit.findings
    ]
    frame = pandas.concat(parts, ignore_index=True)
    if "certified" in frame:
        frame["certified"] = frame["certified"].astype("boolean")  # NA where a line has no certificates
    first = next(iter(audits.values()))
    frame.attrs = {"error": first.metric, "rebuilt": f"{first.criterion} <= {first.threshold:g}"}
    return frame


def _columns(audit: Audit, finding: Finding) -> Row:
    """By short name, a value for all games or one for each."""
    others = {name: errors for name, errors in finding.errors.items() if name != audit.metric}
    baselines = {name: errors[audit.metric] for name, errors in audit.baselines.items()}
    columns: Row = {"line": finding.name, "game": audit.games, "error": finding.errors[audit.metric]}
    columns |= {"rebuilt": finding.rebuilt, "nearer": audit.beats_baselines(finding)}
    columns |= {} if audit.labels_given else {"label_right": finding.labels_right}
    if finding.target is not None:  # of several targets all of them
        columns |= {"target_read": finding.target.read.all(1), "target_guessed": finding.target.guessed.all(1)}
    columns |= {"verdict": [str(verdict) for verdict in finding.verdicts]} if finding.verdicts else {}
    columns["confidence"] = finding.guess.confidence[:, 0].double().cpu().numpy()
    if finding.guess.certified is not None:
        columns["certified"] = finding.guess.certified[:, 0].cpu().numpy()
    if finding.predicted is not None:
        columns["predicted_error"] = finding.predicted
    for name, values in (*baselines.items(), *others.items()):
        short = short_name(name)
        columns[short if short not in columns else short_name(name, whole=True)] = values
    return columns


def short_name(name: str, *, whole: bool = False) -> str:
    """A column's name without brackets and units: "RMSE in feature standard deviations" is rmse."""
    short = name if whole else name.partition(" (")[0].partition(" in ")[0]
    return re.sub(r"\W+", "_", short.lower()).strip("_")


def line_rows(audit: Audit) -> list[Row]:
    """The numbers of every line and baseline, shares with the ends of their 95 % intervals; None for none."""
    games, summary = len(audit.games), audit.summary()
    rows: list[Row] = []
    for finding in audit.findings:
        numbers = summary[finding.name]
        nulls = finding.null_errors.get(Null.OTHER_SECRETS, np.empty(0))
        rate = None
        if len(nulls) >= FEWEST_NULLS:
            rate = true_positives(finding.errors[audit.metric], nulls, null=Null.OTHER_SECRETS, fpr=0.01)
        rows.append(
            {
                "line": finding.name,
                "games": games,
                **_share("rebuilt", numbers["rebuilt"], audit),
                **_share("nearer", None if audit.chance is not None else numbers["beats_baselines"], audit),
                "median_error": numbers["median_error"],
                "tpr": None if rate is None else rate.rate,
                "tpr_low": None if rate is None else rate.low,
                "tpr_high": None if rate is None else rate.high,
                "labels_right": None if audit.labels_given else numbers["labels_right"],
                "labels_guessed": None if finding.target is None else float(finding.target.guessed.all(1).mean()),
                "ms_per_record": numbers["milliseconds_per_record"],
            }
        )
    for name in audit.baselines:
        numbers = summary[name]
        blank: Row = dict.fromkeys(rows[0])
        shares = {**_share("rebuilt", numbers["rebuilt"], audit), "median_error": numbers["median_error"]}
        rows.append({**blank, "line": name, "games": games, **shares})
    return rows


def _share(name: str, share: float | None, audit: Audit) -> Row:
    """It and its ends; all three the same where every record was tried, and nothing is estimated."""
    if share is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    low, high = audit.ends(round(share * len(audit.games)))
    return {name: share, f"{name}_low": low, f"{name}_high": high}


def as_csv(rows: Sequence[Row]) -> str:
    """With a header; None is an empty cell."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def kept(text: str, path: str | Path | None, source: str) -> str:
    """The text, which is also written to the file if one is named."""
    if path is not None:
        files.write(files.named(source, path), text, source=source)
    return text


@dataclass(frozen=True, repr=False, eq=False)
class Audits(Sequence[Audit]):
    """Audits by name, in order: `lw.audit(..., seed=range(5))`, or `lw.Audits({"plain": one, "rounded": another})`.

    A sequence of `Audit`: by number, or by name, `audits["seed 0"]`.
    """

    by_name: Mapping[str, Audit]

    def __post_init__(self) -> None:
        if not isinstance(self.by_name, Mapping) or not self.by_name:
            raise TypeError('Audits: expected audits by name, {"seed 0": audit, ...}, and at least one.')
        from lostwax.audits.audit import Audit

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
