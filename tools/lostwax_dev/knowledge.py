"""The tables of what comes back over the number of unknown records, from results: linear models, and S1's nets.

`python -m lostwax_dev.knowledge [ROOT]` rewrites them in docs/closed_form.md and docs/kernel_ridge.md.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from lostwax_dev.results import Row, read_rows

TABLES = {  # page -> where its results are
    "closed_form.md": Path("benchmarks") / "results" / "knowledge.json",
    "kernel_ridge.md": Path("papers") / "results" / "s1_partly_informed.json",
}
BEGIN, END = "<!-- unknown records -->", "<!-- end -->"
ATTACKS = {"kernel": "KernelRidge", "reconn": "RecoNN"}


def table(page: str, root: Path) -> str:
    """The table of a page with a link to its results; empty where there are none."""
    path = root / TABLES[page]
    if not path.exists():
        return ""
    rows = {row.id: row for row in read_rows(path)}
    return _linear(rows) if page == "closed_form.md" else _nets(rows)


def _percent(value: float | str) -> str:
    return f"{100 * float(value):.3g}"


def _share(row: Row) -> str:
    ends = "" if row.low in (None, row.value) and row.high in (None, row.value) else f" ({_ends(row)})"
    return f"{_percent(row.value)} %{ends}"


def _ends(row: Row) -> str:
    return f"{_percent(row.low or 0)} to {_percent(row.high or 0)}"


def _linear(rows: dict[str, Row]) -> str:
    shares = [re.fullmatch(r"(.+)\.(\d+)\.rebuilt", name) for name in rows]
    points = [(match[1], int(match[2])) for match in shares if match is not None]
    lines = ["| model | count | missing: share of them rebuilt (95 % interval) |", "|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in points):
        count = rows.get(f"{name}.count")
        curve = [f"{k}: {_share(rows[f'{name}.{k}.rebuilt'])}" for case, k in points if case == name]
        lines.append(f"| {name} | {'' if count is None else count.value} | {'; '.join(curve)} |")
    tested = [row for name, row in rows.items() if name.endswith(".false")]
    false = sum(int(row.value) for row in tested)
    games = [
        re.search(r"\((\d+) games\)", rows[f"{name}.{k}.rebuilt"].quantity)
        for name, k in points
        if f"{name}.{k}.false" in rows
    ]
    played = sum(int(match[1]) for match in games if match is not None)
    lines += [
        "",
        "Shares are of rows, intervals count games; the count is `most_missing`. "
        f"Certificates that were false in these {played:,} games: {false} "
        "(`benchmarks/knowledge.py`, [results](results.md#benchmarksknowledge)).",
        "",
        "![The share of missing rows that come back, over how many are missing.](figures/knowledge.svg)",
    ]
    return "\n".join(lines)


def _nets(rows: dict[str, Row]) -> str:
    unknown = sorted({int(match[1]) for name in rows if (match := re.fullmatch(r"(\d+)\.r2", name))})
    attacks = [name for name in ATTACKS if f"{unknown[0]}.{name}" in rows]
    head = [f"{ATTACKS[name]} | nearer than both" for name in attacks]
    lines = [f"| unknown | R² of responses | {' | '.join(head)} |", "|---|---|" + "---|---|" * len(attacks)]
    for k in unknown:
        cells = [f"{k:,}", f"{float(rows[f'{k}.r2'].value):.3f}"]
        for name in attacks:
            error, nearer = rows[f"{k}.{name}"], rows[f"{k}.{name}.beats"]
            cells += [f"{float(error.value):.4f} ({error.low:.4f} to {error.high:.4f})", _share(nearer)]
        lines.append(f"| {' | '.join(cells)} |")
    mean, nearest = (float(rows[name].value) for name in ("class_mean", "nearest"))
    lines += [
        "",
        f"The mean of the target's class has an error of {mean:.4f}, the nearest record of prior and known ones "
        f"{nearest:.4f} ([results](results.md#paperss1_partly_informed)).",
    ]
    return "\n".join(lines)


def main() -> None:
    """Rewrite the tables."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    for page in TABLES:
        path = root / "docs" / page
        before, _, rest = path.read_text().partition(BEGIN)
        lines = [BEGIN, *filter(None, [table(page, root)]), END]
        path.write_text(before + "\n".join(lines) + rest.partition(END)[2])


if __name__ == "__main__":
    main()
