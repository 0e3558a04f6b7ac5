"""An audit as a table a person can read, and as the text of its file."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from lostwax.audits.decision import decide
from lostwax.audits.saved import to_plain
from lostwax.metrics import ByClass, Null

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit

FEWEST_NULLS = 99  # to tell a false-positive rate of 1 %
WIDTH, NARROWEST = 120, 60  # columns
HEADER: tuple[str, ...] = "", "rebuilt", "nearer", "median error", "labels", "ms per record", "why the rest is not"


def as_json(audit: Audit) -> str:
    """What `Audit.to_json` writes."""
    return json.dumps(to_plain(audit), indent=1, allow_nan=False) + "\n"


def as_table(audit: Audit, columns: int | None = None, breaches: Sequence[str] | None = None) -> str:
    """Title, grade, suggestion, conclusion in plain words, one row per line or baseline, notes.

    `breaches` are those of a policy, empty if it is kept; None: there is no policy.

    No line is wider than `columns`; None: than the terminal. Where there is none, as in a file, lines are not folded.
    """
    widest = terminal_columns() if columns is None else columns
    width = min(widest, WIDTH)
    played, found, decision = len(audit.games), audit.conclusion, decide(audit, breaches)
    every = "all" if played == audit.population else str(played)
    lines = [
        f"lostwax audit of {audit.subject}",
        f"{audit.kind} · {every} of {audit.population} games · attack {audit.attack} · {audit.threat}",
        "",
        f"grade: {found.grade}",
        *wrap(
            f"suggestion{' (no policy)' if breaches is None else ''}: {decision.suggestion}. {decision.reason}", width
        ),
        *map(plain_spaces, wrap(str(found), width)),  # 5 % stays on one line
        "",
    ]
    rows = _rows(audit)
    reasons = [f"{row[0]}: {row[-1]}" for row in rows[1:] if row[-1]]
    if not reasons or sum(least_widths(rows)) + 2 * len(HEADER) - 2 > widest:
        rows = [row[:-1] for row in rows]  # no reasons to give, or no place: they come below
    else:
        reasons = []
    lines += [*cut_to_fit(rows, widest), "", *reasons]
    lines += [
        f"rebuilt: the right candidate is named; error: {audit.metric}"
        if audit.chance is not None
        else f"rebuilt: {audit.criterion} <= {audit.threshold:g}; error: {audit.metric}; nearer: smaller error than "
        "every guess made without the model",
    ]
    worst = audit.finding(found.line.name)
    if worst.cells is not None:
        which = f" ({worst.name})" if len(audit.findings) > 1 else ""
        lines.append(f"cells: {plain_spaces(str(worst.cells))}{which}")
    if audit.membership is not None:
        lines.append(f"was this person in it? {audit.membership}")
    if audit.ceiling is not None:
        lines.append(f"ceiling for every attack on this training: {audit.ceiling.sentence}")
        lines += [f"it assumes: {one}" for one in audit.ceiling.assumptions]
    if audit.privacy is not None:
        lines.append(f"in any game: {plain_spaces(audit.privacy.sentence)}")
    if audit.kind == "this procedure" and audit.chance is None:
        lines += _more_numbers(audit)
    lines += [f"note: {note}" for note in audit.notes]
    if not found.open:  # else the conclusion names them
        lines += [f"not answered: {why}" for why in audit.unanswered]
    lines += audit.left_out
    return "\n".join(part for line in lines for part in _folded(line, widest))


def _rows(audit: Audit) -> list[tuple[str, ...]]:
    """The header, and a row for each line and baseline."""
    rows, summary = [HEADER], audit.summary()
    for finding in audit.findings:
        numbers = summary[finding.name]
        rebuilt, error = _rate(numbers["rebuilt"], audit), _error(numbers["median_error"])
        nearer = "" if audit.chance is not None else _rate(numbers["beats_baselines"], audit)
        time = f"{numbers['milliseconds_per_record']:.3f}"
        rows.append((finding.name, rebuilt, nearer, error, _labels(numbers, audit), time, _reasons(numbers)))
    for name in audit.baselines:
        rebuilt, error = _rate(summary[name]["rebuilt"], audit), _error(summary[name]["median_error"])
        rows.append((name, rebuilt, "", error, "", "", ""))
    return rows


def terminal_columns() -> int:
    """How wide lines may be: as the terminal that stdout is, within limits; no limit where it is a file or a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return sys.maxsize
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDTH)


def cut_to_fit(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The rows of a table, its cells side by side; the widest columns are folded until no line is wider than this."""
    least = least_widths(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > width and widths != least:
        widest = max((place for place in range(len(widths)) if widths[place] > least[place]), key=widths.__getitem__)
        widths[widest] -= 1
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        folded = [wrap(cell, wide, break_long_words=False, break_on_hyphens=False) or [""] for cell, wide in cells]
        for parts in zip_longest(*folded, fillvalue=""):
            lines.append("  ".join(part.ljust(wide) for part, wide in zip(parts, widths, strict=True)).rstrip())
    return lines


def least_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column, the longest word."""
    return [max(len(word) for cell in column for word in cell.split() or [""]) for column in zip(*rows, strict=True)]


def _folded(line: str, width: int) -> list[str]:
    """Lines of a table fit already; others are broken between words, and go on below with an indent."""
    return [line] if len(line) <= width else wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)


def plain_spaces(text: str) -> str:
    """Text for a terminal, which may break lines anywhere."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _more_numbers(audit: Audit) -> list[str]:
    """Success at the oracle's mean error, true positives where there are games enough, and the mean by every metric."""
    released = audit.findings[0]
    limit = f"error <= {audit.oracle_error:.4g}, the mean error of the {audit.oracle}"
    lines = [f"success rate ({limit}): {audit.success()}"]
    lines += [str(audit.tpr(null=null)) for null, scores in released.null_errors.items() if len(scores) >= FEWEST_NULLS]
    lines += [str(one) for one in rates_by_class(audit)]
    means = [f"{name} {errors.mean():.4g}" for name, errors in released.errors.items() if np.isfinite(errors).all()]
    return [*lines, f"means: {'; '.join(means)}"]


def rates_by_class(audit: Audit) -> tuple[ByClass, ...]:
    """True positives at 1 % in every class, by each null, of a weak adversary with guesses enough of each.

    None for an audit that was read from a file, which holds no labels.
    """
    nulls, labels = audit.findings[0].null_errors, audit.guess.records.y.flatten().cpu().numpy()
    if Null.GAUSSIAN_WEIGHTS not in nulls or len(labels) != len(audit.errors):
        return ()
    classes, guesses = np.unique(labels, return_counts=True)
    if len(classes) < 2 or guesses.min() < FEWEST_NULLS:
        return ()
    return tuple(audit.tpr_by_class(null=null) for null in nulls)


def _labels(numbers: dict[str, float], audit: Audit) -> str:
    """Classes are right or wrong, none if they are not attacked; numbers are off by some deviations."""
    if audit.labels_given:
        return "given"
    if "label_error" in numbers:
        return f"off by {_error(numbers['label_error'])} dev."
    return f"{_rate(numbers['labels_right'], audit)} right" if numbers["labels_right"] else "none"


def _rate(share: float, audit: Audit) -> str:
    text = f"{100 * share:.1f} %"
    if audit.complete:
        return text
    low, high = audit.interval(round(share * len(audit.games)))
    return f"{text} ({100 * low:.1f}-{100 * high:.1f})"


def _error(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.1e}"


def _reasons(numbers: dict[str, float]) -> str:
    reasons = ("solver-limited", "information-limited", "attack-limited", "undecided")
    return ", ".join(f"{100 * numbers[one]:.1f} % {one}" for one in reasons if numbers.get(one, 0) > 0)
