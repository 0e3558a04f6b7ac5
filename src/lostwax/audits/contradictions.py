"""What in the JSON of an audit cannot be true at once: the file was edited, or damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits.audit import Audit

ROUNDING = 1e-9

Number = float | str  # JSON has no infinity: "inf", "-inf" and "nan" stand for themselves


def contradictions(plain: Mapping[str, Any]) -> Iterator[str]:
    """What in the file cannot be true of one audit, as sentences."""
    games, names = plain["games"], [finding["name"] for finding in plain["findings"]]
    for name, column in _columns(plain):
        if len(column) != len(games):
            yield f"{name} holds {len(column)} numbers for {len(games)} games"
    if len({*names, *plain["baselines"]}) < len(names) + len(plain["baselines"]):
        yield "two lines have one name"
    if plain["oracle"] not in plain["baselines"]:
        yield "the oracle is none of the baselines"
    if plain["kind"] == "this model" and (
        len({*games}) < len(games) or not 0 <= min(games) <= max(games) < plain["population"]
    ):
        yield "games are not rows of the table, each at most once"
    lines = {**{finding["name"]: finding["errors"] for finding in plain["findings"]}, **plain["baselines"]}
    for name, errors in lines.items():
        if not {plain["metric"], plain["criterion"]} <= errors.keys():
            yield f"{name} has no errors by the headline metric, or by the criterion"
        elif np.isnan([as_array(errors[metric]) for metric in (plain["metric"], plain["criterion"])]).any():
            yield f"{name} has errors that are NaN"
    for finding in plain["findings"]:
        if finding["rebuilt"] != (as_array(finding["errors"][plain["criterion"]]) <= plain["threshold"]).tolist():
            yield f"{finding['name']} / rebuilt contradicts its errors and the threshold"
        if finding.get("neurons") is not None and not _fits(finding["neurons"], len(games)):
            yield f"{finding['name']} / neurons does not hold a number for each neuron, in three of the games"
        luck = finding.get("luck")
        if luck is not None and max(luck["rebuilt"], luck["nearer"], luck["games"]) > min(luck["games"], len(games)):
            yield f"{finding['name']} / luck has more games than there are"
    for percent in plain["oracle_percentiles"]:
        if percent.count(".") > 1 or not 0 <= float(percent) <= 100:
            yield "oracle_percentiles has a percentile that is none"
    if plain["ceiling"] is not None:
        low, high, blind = (float(plain["ceiling"][f"log_{end}"]) for end in ("lower", "upper", "baseline"))
        if not blind - ROUNDING <= low <= high + ROUNDING <= 2 * ROUNDING:
            yield "the ends of the ceiling are in no order"


def other_summary(audit: Audit, stored: Mapping[str, Mapping[str, Number]]) -> Iterator[str]:
    """Where the summary says something else than the errors that it was made of."""
    found = audit.summary()
    if found.keys() != stored.keys():
        yield "the summary has other lines than the audit"
    for name, line in found.items():
        numbers = {key: float(value) for key, value in stored[name].items()}
        if line.keys() != numbers.keys() or not np.allclose(
            [*line.values()], [numbers[key] for key in line], rtol=ROUNDING, atol=0, equal_nan=True
        ):
            yield f"the summary of {name} contradicts its errors"


def other_records(audit: Audit, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    """Why these are not the records of this audit: `truth.x`, `truth.y`, and `0.x`, `0.y` of the first finding."""
    games, names = len(audit.games), ("truth", *(str(number) for number in range(len(audit.findings))))
    for part in (f"{name}.{part}" for name in names for part in "xy"):
        if part not in tensors or tensors[part].shape[:1] != (games,):
            yield f"does not hold {part!r} for the {games} games"
    for name in names:
        x = tensors[f"{name}.x"]
        if (
            not x.is_floating_point()
            or x.element_size() < 2
            or x[0].numel() != tensors["truth.x"][0].numel()  # guesses of pictures may be flat
        ):
            yield f"holds {name + '.x'!r} of another shape or dtype than the records"
    if not tensors["truth.x"].isfinite().all():
        yield "holds NaN or infinite numbers in the records"


def _columns(plain: Mapping[str, Any]) -> list[tuple[str, Sequence[Any]]]:
    """Everything that has one number per game, by name."""
    columns = [] if plain["groups"] is None else [("groups", plain["groups"])]
    columns += [(f"{line} / {metric}", c) for line, by in plain["baselines"].items() for metric, c in by.items()]
    for finding in plain["findings"]:
        columns += [(f"{finding['name']} / {metric}", column) for metric, column in finding["errors"].items()]
        for name in ("rebuilt", "labels_right", "confidence", "predicted", "label_errors", "certified"):
            if finding[name] is not None:
                columns.append((f"{finding['name']} / {name}", finding[name]))
        if finding["verdicts"]:
            columns.append((f"{finding['name']} / verdicts", finding["verdicts"]))
    return columns


def _fits(plain: Mapping[str, Any], games: int) -> bool:
    """Is there a list per place, and a number per row in each?"""
    tables, rows = (plain["shares"], plain["standard_errors"]), len(plain["rows"])
    whole = all(len(table) == len(plain["places"]) and {rows} == {len(row) for row in table} for table in tables)
    return whole and max(plain["places"]) < games


def as_array(values: Sequence[Number]) -> NDArray[np.float64]:
    """A list of the file as numbers."""
    return np.array([float(value) for value in values], dtype=np.float64)
