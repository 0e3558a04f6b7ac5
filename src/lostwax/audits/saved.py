"""An audit as JSON, and back: everything but the records themselves."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.audits.cells import CellsKept, TargetRead
from lostwax.audits.luck import Luck
from lostwax.audits.membership import MOST_VICTIMS, MembershipFinding
from lostwax.games import Adversary, Guess, Kind, Note, Records, Sees
from lostwax.metrics import Null

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits.audit import Audit, Finding
    from lostwax.audits.ceiling import Privacy
    from lostwax.audits.neurons import NeuronShares
    from lostwax.bounds import Ceiling

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
    rows = plain["provenance"].get("rows", plain["population"])  # a row without weight is none of the population
    if plain["kind"] == "this model" and (
        not len({*games}) == len(games) <= plain["population"] or not 0 <= min(games) <= max(games) < rows
    ):
        yield "games are not rows of the table, each at most once"
    lines = {**{finding["name"]: finding["errors"] for finding in plain["findings"]}, **plain["baselines"]}
    for name, errors in lines.items():
        if not {plain["metric"], plain["criterion"]} <= errors.keys():
            yield f"{name} has no errors by the headline metric, or by the criterion"
        elif not plain["findings"][0]["errors"].keys() <= errors.keys():
            yield f"{name} has no errors by a metric that others have"
        elif np.isnan([as_array(errors[metric]) for metric in (plain["metric"], plain["criterion"])]).any():
            yield f"{name} has errors that are NaN"
    for finding in plain["findings"]:
        yield from (f"{finding['name']} / {what}" for what in _in_finding(finding, plain))
    adversary = plain.get("adversary", {})
    if (adversary.get("known") or 0) > (adversary.get("records") or 0):
        yield "the adversary knows more records than there are"
    for percent in plain["oracle_percentiles"]:
        if percent.count(".") > 1 or not 0 <= float(percent) <= 100:
            yield "oracle_percentiles has a percentile that is none"
    asked = plain.get("membership")
    if asked is not None and not 2 <= len(asked["pairs_right"]) == len(asked["above"]) <= MOST_VICTIMS:
        yield "membership does not hold two numbers per victim, of two victims or more"
    for ceiling in (plain["ceiling"], (plain.get("privacy") or {}).get("membership")):
        if ceiling is not None:
            low, high, blind = (float(ceiling[name]) for name in LOGS)
            if not blind - ROUNDING <= low <= high + ROUNDING <= 2 * ROUNDING:
                yield "the ends of the ceiling are in no order"


def _in_finding(finding: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[str]:
    """What in one line of the file cannot be true."""
    games, cells, luck = len(plain["games"]), finding.get("cells"), finding.get("luck")
    if finding["rebuilt"] != (as_array(finding["errors"][plain["criterion"]]) <= plain["threshold"]).tolist():
        yield "rebuilt contradicts its errors and the threshold"
    if finding.get("neurons") is not None and not _fits(finding["neurons"], games):
        yield "neurons does not hold a number for each neuron, in three of the games"
    if cells is not None and cells["certified"] > cells["exact"]:
        yield "cells has more that are certified than exact"
    if (target := finding.get("target")) is not None:
        if len({len(target[name]) for name in ("read", "guessed", "certain")}) > 1:
            yield "target does not hold the same targets throughout"
        elif (np.array(target["certain"]) & ~np.array(target["read"])).any():
            yield "target has some that are certain and were not read"
    if luck is None:
        return
    if max(luck["rebuilt"], luck["nearer"], luck["games"]) > min(luck["games"], games):
        yield "luck has more games than there are"
    pairs = {name: luck[f"{name}_pairs"] for name in ("rebuilt", "nearer") if luck.get(f"{name}_pairs") is not None}
    if any(own[0] > luck[name] + 1 or sum(own) > luck["games"] for name, own in pairs.items()):
        yield "luck has more pairs than games"


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
        elif tensors[part].is_floating_point() and tensors[part].element_size() < 2:
            yield f"holds {part!r} of another dtype than the records"
    for name in names:
        x = tensors[f"{name}.x"]
        same_size = x[0].numel() == tensors["truth.x"][0].numel()  # guesses of pictures may be flat
        if not x.is_floating_point() or not same_size:
            yield f"holds {name + '.x'!r} of another shape or dtype than the records"
        if f"{name}.kept" in tensors and tensors[f"{name}.kept"].shape != tensors["truth.x"].flatten(1).shape:
            yield f"holds {name + '.kept'!r} of another shape than the records"
    truth = tensors["truth.x"]
    missing = truth.isnan() & (audit.kind == "this model" and truth.ndim == 2)  # a table may lack values
    if not (truth.isfinite() | missing).all():
        yield "holds NaN or infinite numbers in the records"
    if "categories" in tensors and not _can_be_named(tensors, names):
        yield "holds 'categories' that are not those of the records"


def as_tensor(categories: Sequence[Sequence[object]]) -> Tensor:
    """The values of each column as texts in JSON, for the file of records: (bytes,) uint8."""
    texts = json.dumps([[str(value) for value in values] for values in categories])
    return torch.tensor(list(texts.encode()), dtype=torch.uint8)


def as_categories(stored: Tensor) -> tuple[tuple[str, ...], ...]:
    """What `as_tensor` stored."""
    return tuple(tuple(map(str, values)) for values in json.loads(bytes(stored.tolist())))


def _can_be_named(tensors: Mapping[str, Tensor], names: Sequence[str]) -> bool:
    """Does every code of the records have a value in its column?"""
    try:
        categories = as_categories(tensors["categories"])
    except (ValueError, TypeError):
        return False
    cells = torch.cat([tensors[f"{name}.x"].flatten(1) for name in names])  # (lines x games, columns)
    if len(categories) != cells.shape[1]:
        return False
    codes = [(cells[:, place].nan_to_num(), len(values)) for place, values in enumerate(categories) if values]
    return all(bool((column == column.round()).all()) and column.min() >= 0 and column.max() < n for column, n in codes)


def _columns(plain: Mapping[str, Any]) -> list[tuple[str, Sequence[Any]]]:
    """Everything that has one number per game, by name."""
    columns = [] if plain["groups"] is None else [("groups", plain["groups"])]
    columns += [(f"{line} / {metric}", c) for line, by in plain["baselines"].items() for metric, c in by.items()]
    for finding in plain["findings"]:
        columns += [(f"{finding['name']} / {metric}", column) for metric, column in finding["errors"].items()]
        for name in ("rebuilt", "labels_right", "confidence", "predicted", "label_errors", "certified"):
            if finding[name] is not None:
                columns.append((f"{finding['name']} / {name}", finding[name]))
        for name, part in finding.get("target", {}).items():
            lists = [part] if name == "different" else part
            columns += [(f"{finding['name']} / target / {name}", column) for column in lists]
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


FORMAT = "lostwax audit"
SCHEMA = 4
BEFORE = 3  # can be read as well: it has no grade and no luck
HEAD = (
    *("subject", "kind", "threat", "attack", "metric", "criterion", "threshold", "oracle", "population", "chance"),
    "labels_given",
)
LOGS = ("log_lower", "log_upper", "log_baseline")  # of a ceiling

EDITED = "The file was edited or damaged: run the audit again, or write the file anew with Audit.to_json."


def to_plain(audit: Audit) -> dict[str, Any]:
    """What `audit.json` holds; it keeps to the schema, or this is a bug."""
    plain = {
        "format": FORMAT,
        "schema": SCHEMA,
        **{name: getattr(audit, name) for name in HEAD},
        "adversary": {**asdict(audit.adversary)},
        "notes": [_plain_note(note) for note in audit.notes],
        "left_out": list(audit.left_out),
        "unanswered": list(audit.unanswered),
        "classes": [str(name) for name in audit.classes],
        "columns": [] if audit.columns_are_words else list(audit.columns),
        "summary": {name: {key: _number(value) for key, value in row.items()} for name, row in audit.summary().items()},
        "games": audit.games.tolist(),
        "findings": [_plain_finding(finding) for finding in audit.findings],
        "baselines": {
            name: {metric: _numbers(errors) for metric, errors in by_metric.items()}
            for name, by_metric in audit.baselines.items()
        },
        "oracle_percentiles": {f"{percent:g}": _number(error) for percent, error in audit.oracle_percentiles.items()},
        "ceiling": None if audit.ceiling is None else _plain_ceiling(audit.ceiling),
        "privacy": None if audit.privacy is None else _plain_privacy(audit.privacy),
        "provenance": dict(audit.provenance),
        "conclusion": _plain_conclusion(audit),
        "groups": None if audit.groups is None else audit.groups.tolist(),
        "chance_by_victims": audit.chance_by_victims,
        "split_spread": audit.split_spread,
        **({} if audit.membership is None else {"membership": audit.membership.plain()}),
    }
    check(plain, "Audit.to_json")
    return plain


def from_plain(plain: Mapping[str, Any], source: str) -> Audit:
    """The audit, with records that have no numbers: (games, 0). `source` is named where it does not fit."""
    check(plain, source)
    try:
        contradiction = next(contradictions(plain), None)
        audit = None if contradiction else _audit(plain)
        if audit is not None and plain["conclusion"] is not None:  # files of the schema before have none
            contradiction = next(other_summary(audit, plain["summary"]), None)
            follows = _plain_conclusion(audit)  # its sentences may be worded otherwise, by another version
            # up to 0.2.0 the ceiling of the game alone limited a grade
            names = ("line",) if audit.ceiling is not None and audit.privacy is None else ("grade", "line")
            if any(plain["conclusion"][name] != follows[name] for name in names):
                contradiction = contradiction or "the conclusion does not follow from the numbers"
    except (OverflowError, KeyError) as error:
        raise ValueError(f"{source}: a number or a name does not fit ({type(error).__name__}). {EDITED}") from None
    if audit is None or contradiction is not None:
        raise ValueError(f"{source}: {contradiction}. {EDITED}")
    return audit


def _audit(plain: Mapping[str, Any]) -> Audit:
    from lostwax.audits.audit import Audit

    games = np.array(plain["games"], dtype=np.int64)
    return Audit(
        **{name: plain[name] for name in HEAD},
        games=games,
        truth=_no_records(len(games)),
        findings=tuple(_finding(part) for part in plain["findings"]),
        baselines={name: _errors(by_metric) for name, by_metric in plain["baselines"].items()},
        provenance=plain["provenance"],
        adversary=_adversary(plain),
        notes=tuple(_note(note) for note in plain["notes"]),
        left_out=tuple(plain["left_out"]),
        unanswered=tuple(plain.get("unanswered", ())),
        classes=tuple(plain["classes"]),
        columns=tuple(plain.get("columns", ())),
        oracle_percentiles={float(percent): float(error) for percent, error in plain["oracle_percentiles"].items()},
        ceiling=None if plain["ceiling"] is None else _ceiling(plain["ceiling"]),
        privacy=None if plain.get("privacy") is None else _privacy(plain["privacy"]),
        groups=None if plain["groups"] is None else np.array(plain["groups"], dtype=np.int64),
        chance_by_victims=plain.get("chance_by_victims"),
        split_spread=plain.get("split_spread", 0.0),
        membership=None if plain.get("membership") is None else MembershipFinding.from_plain(plain["membership"]),
    )


def _plain_note(note: Note) -> Any:
    """A remark is a string."""
    values = {name: value for name, value in asdict(note).items() if value}
    return note.text if note == Note(note.text) else {**values, **({"rows": list(note.rows)} if note.rows else {})}


def _note(plain: Any) -> Note:
    if isinstance(plain, str):
        return Note(plain)
    return Note(**{**plain, "kind": Kind(plain["kind"]), "rows": tuple(plain["rows"]) if "rows" in plain else None})


def _adversary(plain: Mapping[str, Any]) -> Adversary:
    if "adversary" in plain:
        return Adversary(**{**plain["adversary"], "sees": Sees(plain["adversary"]["sees"])})
    return _adversary_in_words(
        plain["threat"], str(plain["provenance"].get("access", "Weights()")), plain["population"]
    )


def _adversary_in_words(threat: str, access: str, population: int) -> Adversary:
    """Of files up to 0.3.0, which hold no adversary: from the sentence that was written for it."""
    seen = re.match(r"(?P<model>Weights\(\)$)|(?P<predictions>Outputs\(|Logits\()", access)
    sees = Sees.PART if seen is None else Sees.MODEL if seen["model"] else Sees.PREDICTIONS
    unit: Literal["row", "record"] = "row" if re.search(r"knows (no|every) row", threat) else "record"
    if re.search(r"knows every (row|record) but one", threat):
        return Adversary(population - 1, population, unit, sees, access)
    if re.search(r"knows no row", threat):
        return Adversary(0, population, unit, sees, access)
    counts = re.search(r"knows (\d+) of (\d+) records", threat)
    known, records = map(int, counts.groups()) if counts else (None, None)
    return Adversary(known, records, unit, sees, access)


def _plain_conclusion(audit: Audit) -> dict[str, Any]:
    found = audit.conclusion
    lists = {"sentences": list(found.sentences), "open": list(found.open)}
    return {"grade": str(found.grade), "line": found.line.name, "headline": found.headline, **lists}


def _upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """A file of the schema before as one of today's: candidates are named or not, whatever the threshold was."""
    if plain["schema"] != BEFORE:
        return plain
    new = {**plain, "schema": SCHEMA, "groups": None, "labels_given": False, "conclusion": None}
    if isinstance(plain.get("chance"), int | float) and isinstance(plain.get("findings"), list):
        new["threshold"] = 0
        new["findings"] = [_named_or_not(finding, plain.get("criterion")) for finding in plain["findings"]]
    return new


def _named_or_not(finding: Any, criterion: Any) -> Any:
    errors = finding.get("errors", {}) if isinstance(finding, dict) else {}
    if not isinstance(errors, dict) or not isinstance(errors.get(criterion), list):
        return finding  # the schema refuses it
    return {**finding, "rebuilt": [error == 0 for error in errors[criterion]]}


def read_plain(path: Path) -> dict[str, Any]:
    """The JSON of an audit, or an error that says why this is none."""
    if not path.is_file():
        raise FileNotFoundError(f"Audit.from_json: there is no file {path}. Audit.to_json and lw.report write one.")
    try:
        plain = json.loads(path.read_bytes(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        cause = f"({error}). It was cut short or is another file."
        raise ValueError(f"Audit.from_json: {path} is no JSON {cause}") from None
    if not isinstance(plain, dict) or plain.get("format", FORMAT) != FORMAT or "schema" not in plain:
        raise ValueError(f"Audit.from_json: {path} is JSON, but not an audit: expected what Audit.to_json writes.")
    plain = _upgraded(plain)
    if plain["schema"] != SCHEMA:
        raise ValueError(
            f"Audit.from_json: {path} has schema {plain['schema']!r:.20}, this lostwax reads schema {SCHEMA}. "
            "Read it with the lostwax that wrote it, or run the audit again."
        )
    return plain


def check(plain: Mapping[str, Any], source: str) -> None:
    """Hold it against the schema in the package."""
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(plain))
    if error is not None:
        rule = f"{error.validator} {error.validator_value!s:.150}"  # the message would quote what the file holds
        raise ValueError(f"{source}: {error.json_path:.200} does not fit the schema of audits: {rule}.")


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    text = resources.files("lostwax.audits").joinpath("audit.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))


def _plain_finding(finding: Finding) -> dict[str, Any]:
    guess = finding.guess
    return {
        "name": finding.name,
        "seconds": finding.seconds,
        "stationarity": finding.stationarity,
        "errors": {metric: _numbers(errors) for metric, errors in finding.errors.items()},
        "predicted": None if finding.predicted is None else _numbers(finding.predicted),
        "rebuilt": finding.rebuilt.tolist(),
        "labels_right": finding.labels_right.tolist(),
        "label_errors": None if finding.label_errors is None else _numbers(finding.label_errors),
        "null_errors": {null.name: _numbers(errors) for null, errors in finding.null_errors.items()},
        "verdicts": [str(verdict) for verdict in finding.verdicts],
        "confidence": _numbers(guess.confidence.double().cpu()[:, 0].numpy()),
        "certified": None if guess.certified is None else guess.certified.cpu()[:, 0].tolist(),
        "neurons": None if finding.neurons is None else _plain_neurons(finding.neurons),
        "luck": None if finding.luck is None else _plain_luck(finding.luck),
        **({} if finding.cells is None else {"cells": finding.cells.plain()}),
        **({} if finding.target is None else {"target": finding.target.plain()}),
    }


def _plain_luck(luck: Luck) -> dict[str, Any]:
    held = {name: value for name, value in luck._asdict().items() if value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in held.items()}


def _luck(plain: Mapping[str, Any]) -> Luck:
    held: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    return Luck(**held)


def _finding(plain: Mapping[str, Any]) -> Finding:
    from lostwax.audits.audit import Finding, Verdict

    guess = Guess(
        records=_no_records(len(plain["rebuilt"]), 1),
        confidence=torch.from_numpy(as_array(plain["confidence"]))[:, None],
        certified=None if plain["certified"] is None else torch.tensor(plain["certified"], dtype=torch.bool)[:, None],
    )
    return Finding(
        name=plain["name"],
        guess=guess,
        errors=_errors(plain["errors"]),
        rebuilt=np.array(plain["rebuilt"], dtype=bool),
        labels_right=np.array(plain["labels_right"], dtype=bool),
        seconds=plain["seconds"],
        predicted=None if plain["predicted"] is None else as_array(plain["predicted"]),
        verdicts=tuple(Verdict(name) for name in plain["verdicts"]),
        stationarity=plain["stationarity"],
        label_errors=None if plain["label_errors"] is None else as_array(plain["label_errors"]),
        null_errors={Null[name]: as_array(errors) for name, errors in plain["null_errors"].items()},
        neurons=None if plain.get("neurons") is None else _neurons(plain["neurons"]),
        luck=None if plain.get("luck") is None else _luck(plain["luck"]),
        cells=None if plain.get("cells") is None else CellsKept.from_plain(plain["cells"]),
        target=None if plain.get("target") is None else TargetRead.from_plain(plain["target"]),
    )


def _plain_neurons(held: NeuronShares) -> dict[str, Any]:
    return {
        "places": list(held.places),
        "rows": [list(row) for row in held.rows],
        "shares": [_numbers(game) for game in held.shares],
        "standard_errors": [_numbers(game) for game in held.standard_errors],
    }


def _neurons(plain: Mapping[str, Any]) -> NeuronShares:
    from lostwax.access import Neuron
    from lostwax.audits.neurons import NeuronShares

    best, median, worst = plain["places"]
    rows = tuple(Neuron(*row) for row in plain["rows"])
    shares, errors = (np.stack([as_array(game) for game in plain[name]]) for name in ("shares", "standard_errors"))
    return NeuronShares((best, median, worst), rows, shares, errors)


def _plain_ceiling(ceiling: Ceiling) -> dict[str, Any]:
    logs = {name: _number(getattr(ceiling, name)) for name in LOGS}
    proof = {"method": ceiling.method, "certified": ceiling.certified, "estimate": ceiling.estimate}
    return {**logs, **proof, "assumptions": list(ceiling.assumptions)}


def _ceiling(plain: Mapping[str, Any]) -> Ceiling:
    from lostwax.bounds import Ceiling

    low, high, blind = (float(plain[name]) for name in LOGS)
    return Ceiling(
        low,
        high,
        blind,
        method=plain["method"],
        certified=plain["certified"],
        estimate=plain["estimate"],
        assumptions=tuple(plain.get("assumptions", ())),
    )


def _plain_privacy(privacy: Privacy) -> dict[str, Any]:
    numbers = {"epsilon": _number(privacy.epsilon), "delta": privacy.delta, "adjacency": privacy.adjacency}
    return {"membership": _plain_ceiling(privacy.membership), **numbers}


def _privacy(plain: Mapping[str, Any]) -> Privacy:
    from lostwax.audits.ceiling import Privacy

    return Privacy(_ceiling(plain["membership"]), float(plain["epsilon"]), plain["delta"], plain["adjacency"])


def _no_records(*games: int) -> Records:
    return Records(torch.empty(*games, 0), torch.empty(*games, 0))


def _no_number(name: str) -> float:
    """Refuse what Python's JSON knows beyond the standard: they are written as text here."""
    raise ValueError(f"{name} is not a number in JSON")


def _number(value: float) -> Number:
    return value if math.isfinite(value) else str(float(value))


def _numbers(values: NDArray[np.float64]) -> list[Number]:
    return [_number(value) for value in values.tolist()]


def _errors(by_metric: Mapping[str, Sequence[Number]]) -> dict[str, NDArray[np.float64]]:
    return {metric: as_array(errors) for metric, errors in by_metric.items()}
