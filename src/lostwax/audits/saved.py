"""An audit as JSON, and back: everything but the records themselves.

What is written of each value is what the schema names; what is read becomes what the types of the fields say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.audits.conclusion import worst_lines
from lostwax.audits.membership import MOST_VICTIMS
from lostwax.games import Guess, Note, Records

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits.audit import Audit, Finding

FORMAT = "lostwax audit"
SCHEMA = 4
EDITED = "The file was edited or damaged: run the audit again, or write the file anew with Audit.to_json."
ROUNDING = 1e-9
LOGS = ("log_lower", "log_upper", "log_baseline")  # of a ceiling

Number = float | str  # JSON has no infinity: "inf", "-inf" and "nan" stand for themselves


def as_json(audit: Audit, *, records_sha256: str | None = None) -> str:
    """What `Audit.to_json` writes; a report adds the digest of its file of records, "" if it has none."""
    return json.dumps(to_plain(audit, records_sha256), indent=1, allow_nan=False) + "\n"


def to_plain(audit: Audit, records_sha256: str | None = None) -> dict[str, Any]:
    """What `audit.json` holds; it keeps to the schema, or this is a bug."""
    values = {
        **_parts(audit),
        "format": FORMAT,
        "schema": SCHEMA,
        "notes": [note.text if note == Note(note.text) else note for note in audit.notes],  # a remark is a string
        "classes": [str(name) for name in audit.classes],
        "columns": () if audit.columns_are_words else audit.columns,
        "summary": audit.summary(),
        "records_sha256": records_sha256,
        "knowledge_margin": audit.attackers.margin,
        "conclusion": _concluded(audit),
        "findings": [_with_guess(finding) for finding in audit.findings],
    }
    plain: dict[str, Any] = _plain(values, _schema())
    check(plain, "Audit.to_json")
    return plain


def _with_guess(finding: Finding) -> dict[str, Any]:
    """Its parts, of guesses only how sure they are; a list per target."""
    guess, target = finding.guess, finding.target
    return {
        **_parts(finding),
        "confidence": guess.confidence.double().cpu()[:, 0].numpy(),
        "certified": None if guess.certified is None else guess.certified.cpu()[:, 0].numpy(),
        "target": None if target is None else {name: part.T for name, part in target._asdict().items()},
    }


def _concluded(audit: Audit) -> dict[str, Any]:
    conclusion = audit.conclusion
    return {
        "grade": str(conclusion.grade),
        "line": conclusion.line.name,
        "headline": conclusion.headline,
        "sentences": conclusion.sentences,
        "open": conclusion.open,
    }


def _parts(value: Any) -> Mapping[str, Any]:
    """The fields of a dataclass or a named tuple, by name; those of a mapping are its entries."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return value if isinstance(value, Mapping) else dict(value._asdict())


def _plain(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value as the schema writes it: what it does not name is left out, and so is None where it may not be."""
    schema = schema["anyOf"][-1] if "anyOf" in schema else schema  # the first is null, or a string
    schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value  # of an enumeration its value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray):
        return value.tolist() if np.isfinite(value).all() else [_plain(part, {}) for part in value.tolist()]
    if "required" in schema:
        parts, known = _parts(value), schema["properties"]
        nullable = {name for name, part in known.items() if {"type": "null"} in part.get("anyOf", ())}
        names = [name for name in known if parts.get(name) is not None or name in {*schema["required"], *nullable}]
        return {name: _plain(parts[name], known[name]) for name in names}
    if isinstance(value, Mapping):
        return {_key(name): _plain(part, schema.get("additionalProperties", {})) for name, part in value.items()}
    return [_plain(part, schema.get("items") or {}) for part in value]


def _key(name: Any) -> str:
    """Enumerations stand under their names."""
    return name.name if isinstance(name, Enum) else f"{name:g}" if isinstance(name, float) else str(name)


def from_plain(plain: Mapping[str, Any], source: str) -> Audit:
    """The audit, with records that have no numbers: (games, 0). `source` is named where it does not fit."""
    check(plain, source)
    try:
        contradiction = next(contradictions(plain), None)
        audit = None if contradiction else _audit(plain)
        if audit is not None:
            contradiction = next(_contradicts_summary(audit, plain["summary"]), None)
            stored = plain["conclusion"]  # its sentences may be worded otherwise, by another version
            # up to 0.2.0 the ceiling of the game alone limited a grade
            limited_otherwise = audit.ceiling is not None and audit.privacy is None
            follows = limited_otherwise or stored["grade"] == str(audit.conclusion.grade)
            if not follows or stored["line"] not in worst_lines(audit):
                contradiction = contradiction or "the conclusion does not follow from the numbers"
    except (OverflowError, KeyError) as error:
        raise ValueError(f"{source}: a number or a name does not fit ({type(error).__name__}). {EDITED}") from None
    if audit is None or contradiction is not None:
        raise ValueError(f"{source}: {contradiction}. {EDITED}")
    return audit


def _audit(plain: Mapping[str, Any]) -> Audit:
    from lostwax.audits.audit import Audit, Finding, TargetRead
    from lostwax.audits.ceiling import Privacy
    from lostwax.bounds import Ceiling

    def finding(stored: Mapping[str, Any]) -> Finding:
        certified, target = stored["certified"], stored.get("target")
        guess = Guess(
            records=_no_records(len(stored["rebuilt"]), 1),
            confidence=torch.from_numpy(as_array(stored["confidence"]))[:, None],
            certified=None if certified is None else torch.tensor(certified, dtype=torch.bool)[:, None],
        )
        columns = {} if target is None else {name: np.array(part, dtype=bool).T for name, part in target.items()}
        parts = _values(Finding, {name: part for name, part in stored.items() if name != "target"})
        return Finding(guess=guess, target=TargetRead(**columns) if columns else None, **parts)

    notes = [note if isinstance(note, Mapping) else {"text": note} for note in plain["notes"]]
    stored = {**plain, "notes": notes}  # files up to 0.3.0 hold no adversary: it is not stated
    del stored["findings"]
    return Audit(
        truth=_no_records(len(plain["games"])),
        findings=tuple(finding(part) for part in plain["findings"]),
        **_values(Audit, stored, Ceiling=Ceiling, Privacy=Privacy),
    )


def _values(kind: type, plain: Mapping[str, Any], **names: type) -> dict[str, Any]:
    """The fields of a class that are stored, each of the type that it states; `names` are types it names by name."""
    hints = get_type_hints(kind, localns=names)
    return {name: _value(hints[name], part) for name, part in plain.items() if name in hints}


def _value(hint: Any, plain: Any) -> Any:
    """What is stored of a value of this type, as that value."""
    kind, parts = get_origin(hint), get_args(hint)
    if type(None) in parts:
        return None if plain is None else _value(parts[0], plain)
    if kind is np.ndarray:
        return np.array(plain, dtype=get_args(parts[1])[0])  # "inf" is a number to it
    if kind is tuple:
        each = [parts[0]] * len(plain) if parts[-1] is ... else parts
        return tuple(_value(part, stored) for part, stored in zip(each, plain, strict=True))
    if kind is Mapping:
        by_name = issubclass(parts[0], Enum)
        return {parts[0][name] if by_name else parts[0](name): _value(parts[1], part) for name, part in plain.items()}
    if hint is float or (isinstance(hint, type) and issubclass(hint, Enum)):
        return hint(plain)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return hint(*plain) if isinstance(plain, list) else hint(**_values(hint, plain))
    return plain


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
    if plain["schema"] != SCHEMA:
        raise ValueError(
            f"Audit.from_json: {path} has schema {plain['schema']!r:.20}, this lostwax reads schema {SCHEMA}. "
            "Read it with the lostwax that wrote it, or run the audit again."
        )
    return plain


def check(plain: Mapping[str, Any], source: str) -> None:
    """Hold it against the schema in the package."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(_schema()).iter_errors(plain))
    if error is not None:
        rule = f"{error.validator} {error.validator_value!s:.150}"  # the message would quote what the file holds
        raise ValueError(f"{source}: {error.json_path:.200} does not fit the schema of audits: {rule}.")


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("lostwax.audits").joinpath("audit.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


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
    rungs = plain.get("rungs", [])
    for attacker in (plain.get("adversary", {}), *(rung["attacker"] for rung in rungs)):
        if (attacker.get("known") or 0) > (attacker.get("records") or 0):
            yield "the adversary knows more records than there are"
    if any(not rung["certified"] <= rung["rebuilt"] <= rung["tried"] for rung in rungs):
        yield "an attacker rebuilt more records than were tried"
    for percent in plain["oracle_percentiles"]:
        if percent.count(".") > 1 or not 0 <= float(percent) <= 100:
            yield "oracle_percentiles has a percentile that is none"
    asked = plain.get("membership")
    if asked is not None and not 2 <= len(asked["pairs_right"]) == len(asked["above"]) <= MOST_VICTIMS:
        yield "membership does not hold two numbers per victim, of two victims or more"
    privacy = plain.get("privacy") or {}
    for ceiling in (plain["ceiling"], privacy.get("membership"), privacy.get("reconstruction")):
        if ceiling is not None:
            low, high, blind = (float(ceiling[name]) for name in LOGS)
            if not blind - ROUNDING <= low <= high + ROUNDING <= 2 * ROUNDING:
                yield "the ends of the ceiling are in no order"


def _in_finding(finding: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[str]:
    """What in one line of the file cannot be true."""
    games, cells, luck = len(plain["games"]), finding.get("cells"), finding.get("luck")
    if finding["rebuilt"] != (as_array(finding["errors"][plain["criterion"]]) <= plain["threshold"]).tolist():
        yield "rebuilt contradicts its errors and the threshold"
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
    if any(pair[0] > luck[name] + 1 or sum(pair) > luck["games"] for name, pair in pairs.items()):
        yield "luck has more pairs than games"


def _contradicts_summary(audit: Audit, stored: Mapping[str, Mapping[str, Number]]) -> Iterator[str]:
    """Where the summary says something else than the errors that it was made of."""
    summary = audit.summary()
    if summary.keys() != stored.keys():
        yield "the summary has other lines than the audit"
    for name, line in summary.items():
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
    for part, value in tensors.items():
        if value.is_floating_point() and value.element_size() < 2:
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


def _no_records(*games: int) -> Records:
    return Records(torch.empty(*games, 0), torch.empty(*games, 0))


def _no_number(name: str) -> float:
    """Refuse what Python's JSON knows beyond the standard: they are written as text here."""
    raise ValueError(f"{name} is not a number in JSON")


def as_array(values: Sequence[Number]) -> NDArray[np.float64]:
    """A list of the file as numbers."""
    return np.array(values, dtype=np.float64)
