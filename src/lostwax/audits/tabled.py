"""Audits in rows and columns: a data frame with a row per game, and CSV with a row per line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lostwax import files
from lostwax.audits.text import FEWEST_NULLS
from lostwax.metrics import Null, true_positives

if TYPE_CHECKING:
    import pandas

    from lostwax.audits.audit import Audit, Finding

    Frame: TypeAlias = pandas.DataFrame

Row = dict[str, Any]


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
