"""One row a game and line, for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lostwax.reports.gallery import labels

if TYPE_CHECKING:
    from lostwax.audits import Audit

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a cell of text that begins so is computed by spreadsheets


def as_csv(audit: Audit, *, records: bool) -> str:
    """Game number, line, errors by every metric, what came of it; the labels only where `records` are let in."""
    metrics = list(audit.findings[0].errors)
    header = ["game", "line", *metrics, *(f"{name}: {audit.criterion}" for name in audit.baselines)]
    header += [
        "rebuilt",
        "nearer than baselines",
        "verdict",
        "label right",
        "confidence",
        "certified",
        "predicted error",
    ]
    header += ["label", "guessed label"] if records else []
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow([_text(name) for name in header])
    table.writerows(_rows(audit, metrics, records))
    return text.getvalue()


def _rows(audit: Audit, metrics: list[str], records: bool) -> Iterator[list[object]]:
    true_labels = labels(audit, audit.truth.y) if records else []
    for finding in audit.findings:
        nearer = audit.beats_baselines(finding)
        guessed = labels(audit, finding.guess.records.y[:, 0]) if records else []
        for place, game in enumerate(audit.games.tolist()):
            yield [
                game,
                _text(finding.name),
                *(f"{finding.errors[metric][place]:.9g}" for metric in metrics),
                *(f"{errors[audit.criterion][place]:.9g}" for errors in audit.baselines.values()),
                _yes(bool(finding.rebuilt[place])),
                _yes(bool(nearer[place])),
                str(finding.verdicts[place]) if finding.verdicts else "",
                _yes(bool(finding.labels_right[place])),
                f"{float(finding.guess.confidence[place, 0]):.9g}",
                "" if finding.guess.certified is None else _yes(bool(finding.guess.certified[place, 0])),
                "" if finding.predicted is None else f"{finding.predicted[place]:.9g}",
                *((_text(true_labels[place]), _text(guessed[place])) if records else ()),
            ]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _text(value: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers may begin with a sign."""
    try:
        float(value)
    except ValueError:
        return f"'{value}" if value.startswith(FORMULA) else value
    return value
