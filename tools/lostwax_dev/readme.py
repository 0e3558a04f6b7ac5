"""The gate of README's numbers: each is that of a result, and a result that is not of this version says so beside it.

`tools/readme_numbers.toml` names the row of a results file behind every number of the table "What it finds" and of the
caption of the picture; all other numbers there are declared as settings. A row is of this version if it was measured by
it, from a commit, with a digest of the code. A number of another row carries a dagger in README, and one of this
version does not. `python -m lostwax_dev.readme` names what is wrong, and fails.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from lostwax import __version__
from lostwax_dev.results import Row, not_of_version, read_rows

DECLARED = Path("tools") / "readme_numbers.toml"
MARK = "†"
FOOTNOTE = f"{MARK} Measured by earlier code"
NUMBER = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")


@dataclass(frozen=True)
class Shown:
    """What README says of one row of results."""

    text: str  # as it stands there, without the mark
    row: str  # papers/newton_mnist:elu
    value: float | None = None  # of words: "each certified" stands for 1.0
    below: Decimal | None = None  # of a claim "under 1 %": 0.01
    paper: bool = False  # the paper's number, which the row holds beside ours


@dataclass(frozen=True)
class Line:
    """One line of README."""

    begins: str
    shown: tuple[Shown, ...] = ()
    settings: tuple[str, ...] = ()  # numbers that are no results: of records, games, models


def read_lines(path: Path) -> list[Line]:
    """What is declared."""
    entries = tomllib.loads(path.read_text(), parse_float=Decimal)["line"]
    return [
        Line(
            entry["begins"], tuple(Shown(**shown) for shown in entry.get("shown", ())), tuple(entry.get("settings", ()))
        )
        for entry in entries
    ]


def objections(readme: str, lines: Sequence[Line], rows: Mapping[str, Row], version: str = __version__) -> list[str]:
    """What must be mended, or run again."""
    found = []
    texts = {line.begins: [text for text in _claims(readme) if text.startswith(line.begins)] for line in lines}
    for text in _claims(readme):
        if not any(text.startswith(line.begins) for line in lines):
            found.append(f"{DECLARED} does not name this line of README: {text[:60]}")
    for line in lines:
        if len(texts[line.begins]) != 1:
            found.append(f"README has {len(texts[line.begins])} lines that begin with {line.begins!r}, expected one.")
            continue
        found += [f"README, {line.begins!r}: {words}" for words in _of_line(texts[line.begins][0], line, rows, version)]
    if MARK in "".join(_claims(readme)) and FOOTNOTE not in readme:
        found.append(f"README has numbers marked {MARK}, and no footnote that begins with {FOOTNOTE!r}.")
    return found


def _of_line(text: str, line: Line, rows: Mapping[str, Row], version: str) -> list[str]:
    found, left = [], text
    for shown in line.shown:
        place = text.find(shown.text)
        if place < 0:
            found.append(f"{shown.text!r} is not there any more.")
            continue
        left = left.replace(shown.text, " ", 1)
        if shown.row not in rows:
            found.append(f"there is no row {shown.row}.")
            continue
        row, marked = rows[shown.row], text[place + len(shown.text) :].startswith(MARK)
        if not _agrees(shown, row):
            found.append(f"{shown.text!r} is not what {shown.row} has, {row.paper if shown.paper else row.value}.")
        why = not_of_version(row, version)
        if why and not marked and not shown.paper:
            found.append(
                f"{shown.text!r} comes from {shown.row}, {why}: run it again, or mark it {shown.text + MARK!r}."
            )
        if marked and not why:
            found.append(f"{shown.text!r} is marked {MARK}, but {shown.row} is of this version: remove the mark.")
    for setting in line.settings:
        if setting not in left:
            found.append(f"the setting {setting!r} is not there any more.")
        left = left.replace(setting, " ", 1)
    if numbers := NUMBER.findall(left):
        found.append(f"{DECLARED} names no row for {', '.join(numbers)}, nor declares it as a setting.")
    return found


def _agrees(shown: Shown, row: Row) -> bool:
    """Rounded to the digits that are shown, the row's value is this number."""
    value = row.paper if shown.paper else row.value
    if isinstance(value, str) or value is None:
        return False
    if shown.below is not None:
        return value < shown.below
    if shown.value is not None:
        return value == shown.value
    (number,) = NUMBER.findall(shown.text)
    printed = Decimal(number.replace(",", "")) / (100 if "%" in shown.text else 1)
    half = Decimal(5).scaleb(int(printed.as_tuple().exponent) - 1)
    return bool(printed - half <= Decimal(value) <= printed + half)


def _claims(readme: str) -> list[str]:
    """The caption of the picture, and the lines of the table, with no links and no marks of bold."""
    table = readme.partition("## What it finds")[2].partition("\n\nMore, ")[0]
    lines = [text.strip("| ") for text in table.splitlines() if text.startswith("| ")][1:]
    captions = [text.strip("*") for text in readme.splitlines() if re.fullmatch(r"\*[^*].*\*", text)]
    return [re.sub(r"\]\([^)]*\)", "]", text) for text in (*captions, *lines)]


def every_row(root: Path) -> dict[str, Row]:
    """All rows, by folder, script and id: papers/newton_mnist:elu."""
    paths = [path for folder in ("papers", "benchmarks") for path in (root / folder / "results").glob("*.json")]
    return {f"{path.parent.parent.name}/{path.stem}:{row.id}": row for path in paths for row in read_rows(path)}


def main() -> None:
    """`python -m lostwax_dev.readme [ROOT]` fails where README shows a number that it should not."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    found = objections((root / "README.md").read_text(), read_lines(root / DECLARED), every_row(root))
    if found:
        sys.exit("\n".join(["README's numbers:", *found]))


if __name__ == "__main__":
    main()
