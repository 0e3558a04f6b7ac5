"""Results files of `papers/` and `benchmarks/`, and the page of the site that shows them."""

from __future__ import annotations

import argparse
import ast
import json
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from lostwax import __version__, files
from lostwax.provenance import machine
from lostwax_dev.freshness import Code, as_code, changed, code_of, commit_of, state

LATER = {"version", "commit", "code", "scale"}  # fields that older files do not have
SIZES = {  # options that set the scale of a run -> what rows call them
    **{name: name for name in ("known", "targets", "games", "sets", "samples", "starts", "attacked", "pool", "people")},
    **{"shadows": "shadow models", "prior": "shadow models", "repetitions": "games"},
}
TIMES = {"once": 1, "twice": 2}
MOST, FIRST = 40, 10  # scripts with more than MOST rows show FIRST, and fold the others
GROUPS = {  # by prefix of the script: title and summary
    "papers/s1_": (
        "S1",
        "*Reconstructing Training Data with Informed Adversaries* (Balle, Cherubin, Hayes 2022). Here: "
        "[the closed form](closed_form.md), [RecoNN](reconn.md), [ceilings](bounds.md).",
    ),
    "papers/s2_": (
        "S2",
        "*Vulnerability of Transfer-Learned Neural Networks to Data Reconstruction Attacks in Small-Data Regime* "
        "(Maciazek, Allison 2025). Here: [the weak adversary](weak.md).",
    ),
    "papers/s3_": (
        "S3",
        "*Bounding Training Data Reconstruction in DP-SGD* (Hayes, Mahloujifar, Balle 2023). Here: "
        "[ceilings](bounds.md), [DP-SGD](dpsgd.md).",
    ),
    "papers/s4_": (
        "S4",
        "*Mnemonist: Locating Model Parameters that Memorize Training Examples* (Shamsabadi, Hayes, Balle, Weller "
        "2023). Here: [Mnemonist](mnemonist.md).",
    ),
    "papers/": (
        "Beyond the papers",
        "[Inverting training](newton.md), [ensemble](ensemble.md), [defences](defences.md).",
    ),
    "benchmarks/": ("Benchmarks", "Speed and accuracy, compared with alternatives."),
}


Marks = Mapping[Code | None, str]  # how code stands to that of today


@dataclass(frozen=True)
class Row:
    """One measured quantity, with an interval and the paper's number if there are any."""

    id: str
    quantity: str
    value: float | str
    low: float | None = None
    high: float | None = None
    paper: float | str | None = None
    command: str = ""
    machine: str = ""
    seed: int | None = None
    version: str | None = None  # of this package; None in older files, and so are commit and code
    commit: str | None = None
    code: Code | None = None  # digests of what the run used, to notice that it has changed since
    scale: Mapping[str, int] | None = None  # of the run: known, shadow models, targets, games


def not_of_version(row: Row, version: str = __version__) -> str:
    """Why a row does not count as measured by this version; "" if it does: from a commit, with a digest of its code."""
    if row.version != version:
        return f"measured by version {row.version}" if row.version else "measured before versions were recorded"
    if row.commit is None or row.code is None:
        return "whose commit or code is not recorded"
    return f"measured from code that was {row.commit}" if row.commit.startswith("uncommitted") else ""


def add_options(parser: argparse.ArgumentParser, sizes: Mapping[str, float]) -> None:
    """Options that say where rows go; `sizes` are the script's sizes at full scale."""
    parser.add_argument("--out", type=Path, help="folder for the rows, instead of results/ beside the script")
    parser.add_argument("--replace", action="store_true", help="replace tracked rows, even by those of a smaller run")
    parser.set_defaults(full_scale={name: int(size) for name, size in sizes.items() if name in SIZES})


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line of a benchmark, with --out and --replace; its full scale is that of its defaults."""
    defaults = {action.dest: action.default for action in parser._actions if type(action.default) is int}
    add_options(parser, defaults)
    vars(_RUN).update(vars(options := parser.parse_args()))
    return options


_RUN = argparse.Namespace()  # what `parse` read in this process: benchmarks write rows in several places


def write_rows(
    script: str,
    rows: Sequence[Row],
    *,
    keep_others: bool = False,
    into: Path | None = None,
    options: argparse.Namespace | None = None,
) -> Path:
    """Write `results/<script>.json` beside the script, with command, machine, package version, code and scale.

    `keep_others` keeps rows of earlier runs with other ids, for long scripts that run in parts; with `into`, a part
    writes its rows into another folder. Rows with a command were read from a results file, and stay as they are.
    With `options` (see `add_options`; by default, what `parse` read), rows of a run that is smaller than full scale, or
    than the rows that they would replace, go to artefacts/ instead, from where `tools/merge_results.py` takes them.
    """
    path, options = Path(script).resolve(), options or (_RUN if vars(_RUN) else None)
    tracked = path.parent / "results"
    run_scale: dict[str, int] | None = None
    if options is not None:
        run_scale = {SIZES[name]: getattr(options, name) for name in options.full_scale}
        into = options.out or into
    origin = {"command": _command(path), "scale": run_scale} | measured_now(script)
    complete = [
        row if row.command else replace(row, **origin | ({"machine": row.machine} if row.machine else {}))
        for row in rows
    ]
    if options is not None and not options.replace and (into or tracked).resolve() == tracked:
        small = [
            f"{getattr(options, name):,} of {size:,} {SIZES[name]}"
            for name, size in options.full_scale.items()
            if getattr(options, name) < size
        ]
        if small := small or smaller(complete, tracked / f"{path.stem}.json", keep_others=keep_others):
            into = path.parent.parent / "artefacts" / path.parent.name / "results"
            print(f"A smaller run ({'; '.join(small[:3])}): its rows go to {into}. --replace puts them into {tracked}.")
    target = (into or tracked) / f"{path.stem}.json"
    if target.exists():
        written, earlier = {row.id for row in complete}, read_rows(target)
        others = [row for row in earlier if row.id not in written]
        fate = "keeps" if keep_others else "drops"
        print(f"{target}: replaces {len(earlier) - len(others)} rows, {fate} {len(others)} others.")
        complete = others + complete if keep_others else complete
    codes: list[Code] = list(dict.fromkeys(row.code for row in complete if row.code is not None))
    numbered = [{**vars(row), "code": None if row.code is None else codes.index(row.code)} for row in complete]
    files.make_folder("write_rows", target.parent)
    text = json.dumps(numbered, indent=1, allow_nan=False)
    code = ",\n ".join(json.dumps(code) for code in codes)
    return files.write(target, f'{{"rows": {text},\n"code": [{code}]}}\n', source="write_rows")


def _command(script: Path) -> str:
    """The command line, without where its rows go."""
    words = list(sys.argv[1:])
    if "--out" in words:
        del words[words.index("--out") : words.index("--out") + 2]
    words = [word for word in words if word != "--replace" and not word.startswith("--out=")]
    return f"python {script.parent.name}/{script.name} {shlex.join(words)}".strip()


def smaller(rows: Sequence[Row], results: Path, *, keep_others: bool = True) -> list[str]:
    """How rows are at a smaller scale than those of their ids in a results file, or fewer, as far as both state it."""
    if not results.exists():
        return []
    new, old = ({row.id: row for row in some} for some in (rows, read_rows(results)))
    differences = []
    for name in [name for name in new if name in old]:
        ours, theirs = scale_of(name, new), scale_of(name, old)
        short = [unit for unit, amount in ours.items() if amount < theirs.get(unit, 0)]
        differences += [f"{name}: {ours[unit]:,} for {theirs[unit]:,} {unit}" for unit in short]
    if not keep_others and (lost := old.keys() - new.keys()):
        differences.append(f"{len(lost)} of {len(old)} rows would be lost, such as {min(lost)}")
    return differences


def scale_of(name: str, rows: Mapping[str, Row]) -> dict[str, int]:
    """The scale of a row: of its run, or as it states, or the row that it extends states: a.kernel for a.kernel.kl."""
    row = rows[name]
    words = shlex.split(row.command)
    asked = {SIZES[option[2:]]: word for option, word in pairwise(words) if option[2:] in SIZES and word.isdecimal()}
    scale = {unit: int(word) for unit, word in asked.items()} | dict(row.scale or {})
    parents = [name]
    while parent := parents[-1].rpartition(".")[0]:
        parents.append(parent)
    for parent in reversed(parents):
        if parent in rows:
            scale |= stated_scale(rows[parent].quantity)
    return scale


def stated_scale(quantity: str) -> dict[str, int]:
    """The numbers that a row's quantity states: "10,000 known, 59,000 prior twice, 1,000 targets"."""
    statements = re.findall(
        r"([\d,]*\d) ([a-z]+(?: models)?)((?: trained on each)?)(?: (once|twice|(\d+) times))?", quantity
    )
    scale = {}
    for amount, unit, each, times, count in statements:
        copies = int(count) if count else TIMES.get(times, 1)
        name = "shadow models" if unit == "prior" else f"{unit}{each}"
        scale[name] = int(amount.replace(",", "")) * copies
    return scale


def measured_now(script: str) -> dict[str, Any]:
    """Fields of a row that say by what it is measured: machine, package version, commit and code."""
    path = Path(script).resolve()
    return {"machine": machine(), "version": __version__, "commit": commit_of(path), "code": code_of(path)}


def read_rows(path: Path) -> list[Row]:
    """Read a results file; a missing or unknown field is an error. Older files are lists of rows without `LATER`."""
    names = {field.name for field in fields(Row)}
    content = json.loads(path.read_text())
    is_old = isinstance(content, list)
    rows, codes = (content, []) if is_old else (content["rows"], [as_code(code) for code in content["code"]])
    for number, row in enumerate(rows):
        if set(row) | LATER != names:
            odd = ", ".join(sorted((set(row) | LATER) ^ names))
            raise ValueError(f"{path.name}, row {number}: expected the fields {sorted(names)}; differs in {odd}.")
    return [Row(**{**row, "code": None if row.get("code") is None else codes[row["code"]]}) for row in rows]


def page(root: Path) -> str:
    """docs/results.md with its tables, as the site shows it."""
    return (root / "docs" / "results.md").read_text() + "\n" + tables(root)


def tables(root: Path) -> str:
    """Every results file under `papers/` and `benchmarks/`."""
    every = _every(root)
    codes = {row.code for rows in every.values() for row in rows}
    marks: Marks = {code: state(code, root) for code in codes}
    parts = [_contents(_questions(root), every)]
    for name, rows in every.items():
        commands = "".join(f"`{command}`  \n" for command in sorted({row.command for row in rows}))
        machines = "; ".join(sorted({row.machine for row in rows}))
        parts.append(f"## {name}\n\n{commands}on {machines}\n\n{_tables(rows, marks)}")
    return "\n".join(parts)


def outdated(root: Path) -> list[str]:
    """A line for each results file with rows that earlier code made, and where the code has changed since."""
    lines = []
    for name, rows in _every(root).items():
        since = {code: changed(code, root) for code in {row.code for row in rows} if code is not None}
        if old := [row for row in rows if row.code is not None and since[row.code]]:
            folders = sorted({folder for row in old if row.code is not None for folder in since[row.code]})
            lines.append(f"{name}: {len(old)} of {len(rows)} rows; {', '.join(folders)}")
    return lines


def _every(root: Path) -> dict[str, list[Row]]:
    """All rows, by the name of the script: papers/s1_table2."""
    paths = [path for folder in ("papers", "benchmarks") for path in sorted((root / folder / "results").glob("*.json"))]
    return {f"{path.parent.parent.name}/{path.stem}": read_rows(path) for path in paths}


def _questions(root: Path) -> dict[str, str]:
    """The first line of every script's docstring, by script name."""
    paths = [path for folder in ("papers", "benchmarks") for path in sorted((root / folder).glob("*.py"))]
    sources = {f"{path.parent.name}/{path.stem}": path.read_text() for path in paths}
    return {
        name: (ast.get_docstring(ast.parse(source)) or name).splitlines()[0]
        for name, source in sources.items()
        if "__main__" in source  # others are shared modules
    }


def _contents(questions: Mapping[str, str], every: Mapping[str, Sequence[Row]]) -> str:
    """The table of contents, paper by paper, with links; scripts that have not been run are listed too."""
    lines, left = [], dict(questions)
    for prefix, (title, about) in GROUPS.items():
        group = {name: left.pop(name) for name in list(left) if name.startswith(prefix)}
        if not group:
            continue
        lines += [f"## {title}", "", about]
        if answered := [_content(name, group[name], every[name]) for name in group if name in every]:
            lines += ["", "| script | rows | with a paper's number or a goal |", "|---|---|---|", *answered]
        if missing := [f"`{name}.py`" for name in group if name not in every]:
            lines += ["", f"No results yet: {', '.join(missing)}."]
        lines.append("")
    return "\n".join(lines)


def _content(name: str, question: str, rows: Sequence[Row]) -> str:
    compared = sum(row.paper is not None for row in rows)
    return f"| [{question}](#{name.replace('/', '')}) | {len(rows)} | {compared or ''} |"


def _tables(rows: Sequence[Row], marks: Marks) -> str:
    """All rows; if there are many, those with a paper's number or a goal, or the first, with the rest folded."""
    if len(rows) <= MOST:
        return _table(rows, marks)
    compared = [row for row in rows if row.paper is not None]
    shown = compared if 0 < len(compared) <= MOST else rows[:FIRST]
    others = [row for row in rows if row not in shown]
    folded = f"<details>\n<summary>{len(others)} more rows</summary>\n\n{_table(others, marks)}\n</details>\n"
    return f"{_table(shown, marks)}\n{folded}"


def _table(rows: Sequence[Row], marks: Marks) -> str:
    head = "| quantity | value | interval | paper or goal | seed | version |\n|---|---|---|---|---|---|\n"
    return head + "".join(_line(row, marks) for row in rows)


def _line(row: Row, marks: Marks) -> str:
    interval = "" if row.low is None or row.high is None else f"{number(row.low)} to {number(row.high)}"
    seed = "" if row.seed is None else str(row.seed)
    version = row.version or "not recorded"
    if mark := marks.get(row.code):
        version += f"; {mark}"
    cells = (row.quantity, number(row.value), interval, number(row.paper), seed, version)
    return "| " + " | ".join(cells) + " |\n"


def number(value: float | str | None) -> str:
    """A number as the pages show it: four digits."""
    if value is None:
        return ""
    if isinstance(value, str):
        return re.sub(r"<(?=\w)", "&lt;", value)  # or it would be taken for HTML
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.4g}" if 1e-3 <= abs(value) < 1e6 else f"{value:.2e}"


def main() -> None:
    """`python -m lostwax_dev.results [ROOT]` names results of earlier code."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    if old := outdated(root):
        print("Made by earlier code, which has changed since in the folders named:", *old, sep="\n  ")


if __name__ == "__main__":
    main()
