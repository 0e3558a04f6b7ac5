"""A report on disk: the page, and beside it what programs read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lostwax.audits import Audit
    from lostwax.reports.charts import Chart

PAGE, NUMBERS, TABLE, RECORDS, FIGURES = "report.html", "audit.json", "records.csv", "records.safetensors", "figures"
DRAWINGS = ("errors", "roc", "ceiling", "neurons_best", "neurons_median", "neurons_worst", "rebuilt")
MARK = b"lostwax audit"  # near the beginning of our audit.json


def write(audit: Audit, folder: str | Path, *, records: bool = True) -> Path:
    """Write the report, file by file, each whole or not at all; an earlier report in the folder is replaced."""
    from lostwax.audits import Audit
    from lostwax.reports.charts import drawn
    from lostwax.reports.gallery import has_records
    from lostwax.reports.html import render
    from lostwax.reports.records_csv import as_csv

    if not isinstance(audit, Audit):
        raise TypeError(f"report: expected what lw.audit(...) gives, got {type(audit).__name__}.")
    target = Path(folder)
    check_folder(target)
    records = records and has_records(audit)
    drawings = drawn(audit)
    page = render(audit, drawings, records=records)  # what fails, fails before anything is written
    table = as_csv(audit, records=records)
    (target / FIGURES).mkdir(parents=True, exist_ok=True)
    (target / RECORDS).unlink(missing_ok=True)  # those of an earlier report first: never beside another's numbers
    audit.to_json(target / NUMBERS)
    if records:
        _write_records(audit, target / RECORDS)
    _write_figures(audit, drawings, target / FIGURES, records)
    _write_text(target / TABLE, table)
    return _write_text(target / PAGE, page)


def read(folder: str | Path) -> Audit:
    """The audit of a report, with its records where they were let into it."""
    from lostwax.audits import Audit

    source = Path(folder)
    if not (source / NUMBERS).is_file():
        raise FileNotFoundError(
            f"reports.read: there is no report in {source}: expected {source / NUMBERS}. `lostwax audit` and lw.report "
            "write one."
        )
    audit = Audit.from_json(source / NUMBERS)
    return _with_records(audit, source / RECORDS) if (source / RECORDS).exists() else audit


def check_folder(folder: str | Path) -> None:
    """Raise where a report must not be written: nothing of the user's is ever overwritten."""
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"report: folder={target} is a file. Name a new folder.")
    nearest = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"report: folder={target} cannot be made: {nearest} is a file. Name another folder.")
    if not os.access(nearest, os.W_OK):
        raise PermissionError(f"report: folder={target} cannot be written to. Name a folder of your own.")
    if not target.is_dir() or not (found := _files(target)):
        return
    ours = {PAGE, NUMBERS, TABLE, RECORDS, *(f"{FIGURES}/{name}.png" for name in DRAWINGS)}
    strange = sorted(name for name in found if name not in ours and ".part" not in name)
    if not strange and not _is_audit(target / NUMBERS):
        strange = sorted(name for name in found if ".part" not in name)
    if strange:
        raise FileExistsError(
            f"report: folder={target} holds {strange[0]!r}, which is no part of an earlier lostwax report. Nothing was "
            "written. Name a new or an empty folder."
        )


def _files(folder: Path) -> list[str]:
    """The paths of everything inside but our own folder of figures."""
    inside = (path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return [path for path in inside if path != FIGURES]


def _is_audit(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return MARK in file.read(200)


def _write_text(path: Path, text: str) -> Path:
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(path)
    return path


def _write_figures(audit: Audit, drawings: Mapping[str, Chart], folder: Path, records: bool) -> None:
    from lostwax.reports.charts import save_png
    from lostwax.reports.figures import draw_rebuilt
    from lostwax.reports.gallery import are_pictures, rows

    for name in DRAWINGS:
        if name in drawings:
            save_png(drawings[name], folder / f"{name}.png")
        else:
            (folder / f"{name}.png").unlink(missing_ok=True)
    if records and are_pictures(audit):
        shown = [pair.place for row in rows(audit) for pair in row.pairs[:3]]
        draw_rebuilt(audit, folder / "rebuilt.part.png", shown).replace(folder / "rebuilt.png")


def _write_records(audit: Audit, path: Path) -> None:
    from lostwax.tensor_files import write_tensors

    tensors = {"truth.x": audit.truth.x, "truth.y": audit.truth.y}
    for number, finding in enumerate(audit.findings):
        tensors |= {f"{number}.x": finding.guess.records.x, f"{number}.y": finding.guess.records.y}
    write_tensors(path, {name: value.clone() for name, value in tensors.items()})


def _with_records(audit: Audit, path: Path) -> Audit:
    from lostwax.audits.contradictions import other_records
    from lostwax.tensor_files import read_tensors
    from lostwax.types import Records

    tensors = read_tensors("reports.read", path)
    for contradiction in other_records(audit, tensors):
        raise ValueError(
            f"reports.read: {path} {contradiction} of {NUMBERS} beside it. The two are not of one report: run the "
            "audit again, or delete the file to do without records."
        )

    def records(name: str) -> Records:
        return Records(tensors[f"{name}.x"], tensors[f"{name}.y"])

    findings = tuple(
        replace(finding, guess=replace(finding.guess, records=records(str(number))))
        for number, finding in enumerate(audit.findings)
    )
    return replace(audit, truth=records("truth"), findings=findings)
