"""A report on disk: the page, and files for programs."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lostwax import files
from lostwax.fields import shown

if TYPE_CHECKING:
    from lostwax.audits import Audit, Finding
    from lostwax.policies import Policy
    from lostwax.reports.comparison import Comparison

WIDEST = 100  # columns of a table of which every cell is written
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # spreadsheets evaluate text that starts with these


def as_csv(audit: Audit, *, records: bool) -> str:
    """One row per game and line: errors by every metric, and results; labels and cells only with `records`.

    Cells are those of tables with up to `WIDEST` columns, each beside what was rebuilt of it, and what is known of it.
    """
    by_line = [_columns(audit, finding, records=records) for finding in audit.findings]
    header = [_text(name) for name, _ in by_line[0]]
    rows = [row for columns in by_line for row in zip(*(values for _, values in columns), strict=True)]
    return "".join(_line(row) for row in (header, *rows))


def _columns(audit: Audit, finding: Finding, *, records: bool) -> list[tuple[str, list[Any]]]:
    """Names, which a table may have twice, and a value for each game."""
    from lostwax.reports.gallery import cells, known_cells, labels

    target, guess, games = finding.target, finding.guess, len(audit.games)
    read = guessed = blank = [""] * games
    if target is not None:
        pairs = zip(target.certain.tolist(), target.read.tolist(), strict=True)  # of several targets all of them
        read = ["certain" if all(certain) else "exact" if all(right) else "estimated" for certain, right in pairs]
        guessed = _yes(map(all, target.guessed.tolist()))
    columns = [
        ("game", audit.games.tolist()),
        ("line", [_text(finding.name)] * games),
        *((metric, _digits(errors)) for metric, errors in finding.errors.items()),
        *((f"{name}: {audit.criterion}", _digits(by[audit.criterion])) for name, by in audit.baselines.items()),
        ("rebuilt", _yes(finding.rebuilt)),
        ("nearer than baselines", _yes(audit.beats_baselines(finding))),
        ("verdict", [str(verdict) for verdict in finding.verdicts] or blank),
        ("label right", _yes(finding.labels_right)),
        ("label read", read),
        ("label guessed without model", guessed),
        ("confidence", _digits(guess.confidence[:, 0].tolist())),
        ("certified", blank if guess.certified is None else _yes(guess.certified[:, 0].tolist())),
        ("predicted error", blank if finding.predicted is None else _digits(finding.predicted)),
    ]
    if records:
        columns.append(("label", [_text(label) for label in labels(audit, audit.truth.y)]))
        columns.append(("guessed label", [_text(label) for label in labels(audit, guess.records.y[:, 0])]))
    if records and (names := _shown_columns(audit)):
        tables = {"": cells(audit, audit.truth.x), " (rebuilt)": cells(audit, guess.records.x[:, 0])}
        if all(line.cells is not None and line.cells.each is not None for line in audit.findings):
            tables[" (known)"] = [known_cells(audit, finding, game) or [] for game in range(games)]
        for place, name in enumerate(names):
            columns += [(f"{name}{end}", [_text(row[place]) for row in table]) for end, table in tables.items()]
    return columns


def _shown_columns(audit: Audit) -> tuple[str, ...]:
    """The names of a table's columns; none for pictures and for wide tables."""
    from lostwax.reports.gallery import are_pictures, table_columns

    names = table_columns(audit).names
    return () if are_pictures(audit) or len(names) > WIDEST else names


def _line(cells: Sequence[object]) -> str:
    """One row. The writer's CRLF terminator makes it quote cells with any kind of line end."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _digits(values: Iterable[float]) -> list[str]:
    return [f"{value:.9g}" for value in values]


def _yes(values: Iterable[bool]) -> list[str]:
    return ["yes" if value else "no" for value in values]


def _text(value: str) -> str:
    """Text that spreadsheets do not evaluate, without control characters; numbers may start with a sign."""
    value = files.escaped(value)
    try:
        float(value)
    except ValueError:
        return f"'{value}" if value.startswith(FORMULA) else value
    return value


PAGE, NUMBERS, TABLE, RECORDS, FIGURES = "report.html", "audit.json", "records.csv", "records.safetensors", "figures"
NEURONS = ("neurons_best", "neurons_median", "neurons_worst")  # of reports up to 0.3.0
DRAWINGS = ("errors", "roc", "knowledge", "ceiling", *NEURONS, "rebuilt")
OURS = (PAGE, NUMBERS, TABLE, RECORDS, *(f"{FIGURES}/{name}.png" for name in DRAWINGS))
MARK = b"lostwax audit"  # near the start of audit.json
BOUNDS = ("low", "high", "maybe_missing")  # of cells, in the file of records


class _File(NamedTuple):
    content: bytes
    private: bool  # holds records: readable by the owner only


def write(
    audit: Audit,
    folder: str | Path,
    *,
    records: bool | None = None,
    fields: Mapping[str, Any] | None = None,
    policy: Policy | None = None,
    compared: Comparison | None = None,
) -> Path:
    """Write the report, each file atomically and the numbers first; an earlier report in the folder is replaced.

    Where the numbers cannot be written, an earlier report stays as it is. `fields` are those of `ReportFields`; fields
    and a policy that the audit was reported with before are kept. Unless `records` is True, a report that was written
    without records gets none.
    """
    from lostwax.audits import Audit
    from lostwax.reports.comparison import Comparison
    from lostwax.reports.fields import with_fields
    from lostwax.reports.gallery import has_records

    if not isinstance(audit, Audit):
        raise TypeError(f"report: expected the result of lw.audit(...), got {type(audit).__name__}.")
    if records is not None and not isinstance(records, bool):
        raise TypeError(f"report: expected records to be True, False or None, got {shown(records)}.")
    if compared is not None and type(compared) is not Comparison:
        raise TypeError(f"report: expected compared to be the result of lw.compare(...), got {shown(compared)}.")
    target = files.named("report", folder)
    check_folder(target)
    with files.locked("report", target):
        if records is None:
            records = not was_without_records(target)
        audit = with_fields(audit, fields or {}, policy, () if compared is None else compared.measured())
        contents = _contents(audit, records=records and has_records(audit))  # errors come before anything is written
        _publish(contents, target)
    return target / PAGE


def _publish(contents: Mapping[str, _File], target: Path) -> None:
    """Replace the report in the folder by these files."""
    files.make_folder("report", target / FIGURES)
    if remaining := [*files.sweep(target), *files.sweep(target / FIGURES)]:  # of killed processes
        raise PermissionError(
            f"report: {remaining[0]}, left by an earlier run, may hold records and cannot be deleted. Delete it."
        )
    before = (target / NUMBERS).read_bytes() if (target / NUMBERS).is_file() else b""
    files.write(target / NUMBERS, contents[NUMBERS].content, source="report")
    same = _without_digest(before) == _without_digest(contents[NUMBERS].content)
    for name in OURS:  # delete those of another audit: a folder never mixes two audits
        if name != NUMBERS and not (same and name in contents):
            files.remove("report", target / name)
    errors = list[OSError]()
    for name, (content, private) in contents.items():
        try:
            if name != NUMBERS:
                files.write(target / name, content, source="report", private=private)
        except OSError as error:  # what fits is there
            errors.append(error)
    if errors:
        raise errors[0]


def _without_digest(numbers: bytes) -> object:
    """What an audit.json says about the audit, whether or not its records stand beside it."""
    try:
        return {**json.loads(numbers), "records_sha256": None}
    except (ValueError, TypeError, RecursionError):  # damaged, or no file
        return numbers


def _contents(audit: Audit, *, records: bool) -> dict[str, _File]:
    """Every file of the report by name, audit.json first and the page last."""
    from lostwax.audits.saved import as_json
    from lostwax.reports.charts import as_png, drawn
    from lostwax.reports.figures import rebuilt_picture
    from lostwax.reports.gallery import are_pictures, rows
    from lostwax.reports.html import render

    drawings = drawn(audit)
    tensors = _record_tensors(audit) if records else b""
    digest = hashlib.sha256(tensors).hexdigest() if records else ""
    contents = {NUMBERS: _File(as_json(audit, records_sha256=digest).encode(), private=False)}
    if records:
        contents[RECORDS] = _File(tensors, private=True)
    contents |= {f"{FIGURES}/{name}.png": _File(as_png(chart), private=False) for name, chart in drawings.items()}
    if records and are_pictures(audit):
        shown = [pair.position for row in rows(audit) for pair in row.pairs[:3]]
        contents[f"{FIGURES}/rebuilt.png"] = _File(rebuilt_picture(audit, shown), private=True)
    contents[TABLE] = _File(files.as_utf8(as_csv(audit, records=records)), private=records)
    contents[PAGE] = _File(files.as_utf8(files.escaped(render(audit, drawings, records=records))), private=records)
    return contents


def read(folder: str | Path) -> Audit:
    """The audit of a report, with its records if the report has them."""
    from lostwax.audits.saved import from_plain, read_plain

    source = Path(folder)
    if not (source / NUMBERS).is_file():
        raise FileNotFoundError(
            f"reports.read: no report in {source}: {source / NUMBERS} does not exist. `lostwax audit` and lw.report "
            "write one."
        )
    plain = read_plain(source / NUMBERS)
    audit = from_plain(plain, f"reports.read: {source / NUMBERS}")
    if not (source / RECORDS).exists():
        return audit
    audit = _with_records(audit, source / RECORDS)
    with (source / RECORDS).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if plain.get("records_sha256", digest) != digest:  # reports up to 0.3.0 have none
        raise ValueError(
            f"reports.read: {source / RECORDS} is not the file that {NUMBERS} beside it was written with: it was "
            "edited or damaged, or is of another report. Run the audit again, or delete the file to read the report "
            "without records."
        )
    return audit


def was_without_records(folder: Path) -> bool:
    """Whether the folder holds a report without records, perhaps so that it can be shared."""
    return (folder / PAGE).is_file() and not (folder / RECORDS).exists()


def check_folder(folder: str | Path) -> None:
    """Raise if a report cannot be written there without replacing files of the user."""
    target = files.named("report", folder)
    if target.is_symlink():
        why = "is a symbolic link, which lostwax does not follow"
        raise FileExistsError(f"report: folder={target} {why}. Use the path of its target.")
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"report: folder={target} is a file. Name a new folder.")
    nearest = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not nearest.is_dir():
        why = f"cannot be created: {nearest} is a file"
        raise NotADirectoryError(f"report: folder={target} {why}. Name another folder.")
    try:
        files.check_writable(nearest)
    except OSError as error:
        why = f"{nearest}: {error.strerror or error}"
        raise OSError(f"report: folder={target} is not writable ({why}). Name a folder that you own.") from error
    if not target.is_dir() or not (names := _files(target)):
        return
    others = sorted(
        name for name in names if name not in OURS or (target / name).is_symlink() or not (target / name).is_file()
    )
    if not others and not _is_audit(target / NUMBERS):
        others = sorted(names)
    if others:
        raise FileExistsError(
            f"report: folder={target} holds {others[0]!r}, which is not part of a lostwax report. Nothing was written. "
            "Name a new or empty folder."
        )


def _files(folder: Path) -> list[str]:
    """All paths inside, except the folder of figures and temporary files of killed processes."""
    inside, figures = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}, folder / FIGURES
    if figures.is_dir() and not figures.is_symlink():
        del inside[FIGURES]
    return [name for name, path in inside.items() if not files.is_leftover(path)]


def _is_audit(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK in file.read(200)


def _record_tensors(audit: Audit) -> bytes:
    import torch

    from lostwax.audits.saved import as_tensor

    tensors = {"truth.x": audit.truth.x, "truth.y": audit.truth.y}
    for number, finding in enumerate(audit.findings):
        tensors |= {f"{number}.x": finding.guess.records.x, f"{number}.y": finding.guess.records.y}
        if finding.cells is not None and finding.cells.each is not None:
            _, kept, bounds = finding.cells.each
            parts = {"kept": kept, **({} if bounds is None else dict(zip(BOUNDS, bounds, strict=False)))}
            tensors |= {f"{number}.{name}": torch.from_numpy(part) for name, part in parts.items()}
    if audit.categories:
        tensors["categories"] = as_tensor(audit.categories)
    return files.as_bytes({name: value.clone() for name, value in tensors.items()})


def _with_records(audit: Audit, path: Path) -> Audit:
    from lostwax.audits.saved import as_categories, other_records
    from lostwax.games import Cells, Records
    from lostwax.games.cells import Bounds

    tensors = files.read_tensors("reports.read", path)
    for contradiction in other_records(audit, tensors):
        raise ValueError(
            f"reports.read: {path} {contradiction} of {NUMBERS} beside it, so they are from different reports. Run the "
            "audit again, or delete the file to read the report without records."
        )

    def with_records(number: int, finding: Finding) -> Finding:
        x, y, known = tensors[f"{number}.x"], tensors[f"{number}.y"], tensors.get(f"{number}.kept")
        finding = replace(finding, guess=replace(finding.guess, records=Records(x, y)))
        if finding.cells is None or known is None:
            return finding
        bounds = None
        if f"{number}.low" in tensors:
            low, high, maybe_missing = (tensors[f"{number}.{name}"].numpy() for name in BOUNDS)
            bounds = Bounds(low, high, maybe_missing)
        return replace(finding, cells=finding.cells._replace(each=Cells(x[:, 0].numpy(), known.numpy(), bounds)))

    return replace(
        audit,
        truth=Records(tensors["truth.x"], tensors["truth.y"]),
        findings=tuple(with_records(number, finding) for number, finding in enumerate(audit.findings)),
        categories=as_categories(tensors["categories"]) if "categories" in tensors else (),
    )
