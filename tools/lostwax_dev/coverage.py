"""The site's page of papers: every table and figure of the four papers, and what was measured of it.

`papers/coverage.toml` declares one item per table or figure, with its cells: the row of a results file that answers it,
the paper's number and its scale. Numbers, intervals and our scale are read from the results, so the page agrees with
them; verdicts follow from the intervals, beside the digits that the paper prints, and from what differs from the paper.
A row that does not exist, a scale that a row does not state and a missed cell without a sentence about its cause are
errors.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from lostwax import __version__
from lostwax_dev.freshness import EARLIER, UNKNOWN, state
from lostwax_dev.results import Row, not_of_version, number, read_rows, scale_of

BETTER = ("lower", "higher", "equal", "exact", "below", "above")
RUN = ("beaten", "matched", "corrected", "another attack", "another victim", "both fail", "missed", "not comparable")
WORST_FIRST = ("missed", "both fail", "another victim", "another attack", "matched", "corrected", "beaten")
SCALES = ("full", "part", "not run")
QUOTED = re.compile(r"Of their \d+ numbers and figures [^.]*\. Of the \d+ rows behind them [^.]*\.")


@dataclass(frozen=True)
class PaperCell:
    """One number of a paper. Without a row it was not run: `why`, or for want of `data`."""

    name: str = ""
    row: str = ""  # id in the results of the item's script, or file:id
    order: tuple[str, ...] = ()  # instead of a row: rows that the paper finds in increasing order
    theirs: Decimal | float | str = ""  # as printed, digits and all; a string: what the paper says without a number
    like: str = ""  # instead of a number: a row of ours that the paper finds equal to this one
    better: str = "lower"  # or one of BETTER, see `MeasuredCell.verdict`
    within: float = 0.0
    by: str = ""  # the attack
    needs: Mapping[str, int] = field(default_factory=dict)  # the paper's scale, in the words of our rows
    scale_row: str = ""  # states the scale, if the row itself does not
    instead: str = ""  # what differs from the paper apart from numbers: then the scale is a part
    victim: str = ""  # how the victim differs: base model, accuracy, clip norm, data
    untested: str = ""  # what the paper claims beyond what this cell tests
    fails: Mapping[str, Any] = field(default_factory=dict)  # row, theirs: errors; baseline: a row without the model
    data: str = ""  # data that cannot be had, if that alone limits the cell
    also: Mapping[str, str] = field(default_factory=dict)  # other attacks: name -> row
    why: str = ""
    note: str = ""


@dataclass(frozen=True)
class PaperItem:
    """A table or figure, or a section with numbers. Without cells, `none` says why there are none."""

    paper: str
    item: str
    what: str
    script: str = ""
    cells: tuple[PaperCell, ...] = ()
    count: str = ""  # the line of counts it belongs to; figures count as one each
    none: str = ""
    note: str = ""


@dataclass(frozen=True)
class MeasuredCell:
    """A cell beside its results."""

    cell: PaperCell
    rows: tuple[Row, ...]
    scales: Mapping[str, int]  # what the rows state of the paper's scale
    also: Mapping[str, Row]
    like: Row | None = None
    own_attack: bool = True  # the attack is the paper's
    both_fail: bool = False

    @cached_property
    def scale(self) -> str:
        """full, part, or not run."""
        if not self.rows:
            return "not run"
        short = any(self.scales[unit] < least for unit, least in self.cell.needs.items())
        return "part" if short or self.cell.instead else "full"

    @cached_property
    def verdict(self) -> str:
        """The verdict by numbers, unless it is not about the paper's attack on a victim like the paper's.

        *corrected*: ours is exact, the paper's an estimate. *both fail*: neither is better than a guess without the
        model. *another victim*, *another attack*: beaten or matched, but not as the paper did it.
        """
        if self.both_fail:
            return "both fail"
        if self.by_numbers not in {"beaten", "matched"}:
            return self.by_numbers
        if self.cell.untested:
            return "not comparable"
        if self.by_numbers == "beaten" and self.cell.better == "exact":
            return "corrected"
        if not self.own_attack:
            return "another attack"
        return "another victim" if self.cell.victim else self.by_numbers

    @cached_property
    def by_numbers(self) -> str:
        """beaten, matched or missed; "not comparable" if the paper has no number or ours no interval; "not run".

        Matched: our interval meets the paper's number as printed, 0.43 being all from 0.425 to 0.435, or our value is
        `within` of it. Otherwise beaten or missed, by its side. `exact`: ours is no estimate, so a difference is
        theirs. `below` and `above`: the paper claims that side, and our whole interval must lie there. `order`: the
        intervals must be apart. Without an interval nothing is beaten, no side proved and no order.
        """
        if not self.rows:
            return "not run"
        verdict = self._by_ends()
        proved = verdict == "matched" and not self.cell.order and self.cell.better not in {"below", "above"}
        return verdict if self._has_intervals or proved or verdict == "missed" else "not comparable"

    @property
    def _has_intervals(self) -> bool:
        rows = self.rows if self.like is None else (*self.rows, self.like)
        return all(row.low is not None and row.high is not None for row in rows)

    def _by_ends(self) -> str:
        cell = self.cell
        if cell.order:
            ends = [_interval(row) for row in self.rows]
            return "matched" if all(a[1] < b[0] for a, b in pairwise(ends)) else "missed"
        low, high = _interval(self.rows[0])
        if self.like is not None:
            their_low, their_high = _interval(self.like)
        elif isinstance(cell.theirs, str):
            return "not comparable"
        else:
            their_low, their_high = _printed(cell.theirs)
        if cell.better in {"below", "above"}:
            return "matched" if (high < their_low if cell.better == "below" else low > their_high) else "missed"
        off = max(their_low - float(self.rows[0].value), float(self.rows[0].value) - their_high)
        if (low <= their_high and their_low <= high) or off <= cell.within:
            return "matched"
        if cell.better == "equal":
            return "missed"
        return "beaten" if cell.better == "exact" or (high < their_low) == (cell.better == "lower") else "missed"

    @property
    def words(self) -> str:
        """The verdict and the scale."""
        if self.verdict == "not run":
            return "not run"
        verdict = self.verdict
        if verdict in {"another victim", "another attack"}:
            differs = ["by another attack"] * (not self.own_attack) + ["on another victim"] * bool(self.cell.victim)
            verdict = f"{self.by_numbers} {', '.join(differs)}"
        elif verdict == "not comparable" and self.by_numbers == "matched":
            verdict = "run, the claim is tested only in part"
        elif verdict == "not comparable":
            unclear = self._has_intervals or isinstance(self.cell.theirs, str)
            verdict = f"run, {'no number to compare with' if unclear else 'without an interval to compare by'}"
        return f"{verdict}, at a part of the scale" if self.scale == "part" else verdict

    @property
    def ours(self) -> str:
        """Our numbers, and the attack."""
        values = (" < " if self.by_numbers == "matched" else ", ").join(number(row.value) for row in self.rows)
        return f"{values} ({self.cell.by})" if self.cell.by and values else values

    @property
    def interval(self) -> str:
        """Of one number; an order has none."""
        low, high = (None, None) if len(self.rows) != 1 else (self.rows[0].low, self.rows[0].high)
        return "" if low is None or high is None else f"{number(low)} to {number(high)}"

    @property
    def theirs(self) -> str:
        """The paper's number or claim."""
        if self.cell.order:
            return f"in this order{': ' if self.cell.theirs else ''}{self.cell.theirs}"
        sides = {"below": "below ", "above": "above "}
        printed = str(self.cell.theirs) if isinstance(self.cell.theirs, Decimal) else number(self.cell.theirs)
        theirs = f"as {number(self.like.value)} of ours" if self.like else printed
        return f"{sides.get(self.cell.better, '')}{theirs}"

    @property
    def scale_words(self) -> str:
        """Ours of the paper's scale."""
        words = [_scaled(unit, self.scales.get(unit), least) for unit, least in self.cell.needs.items()]
        words = [*words, self.cell.instead, self.cell.victim]
        if not self.rows:
            return f"none of {', '.join(filter(None, words))}" if any(words) else "none"
        return ", ".join(filter(None, words)) or "the same"

    @property
    def note(self) -> str:
        """Why it was not run, the cause if it was missed, and other attacks."""
        others = "; ".join(f"{name} {number(row.value)}" for name, row in self.also.items())
        untested = f"Not tested: {self.cell.untested}." if self.cell.untested else ""
        data = f"Data that cannot be had: {self.cell.data}." if self.cell.data else ""
        return " ".join(filter(None, [self.cell.why, self.cell.note, untested, data, f"{others}." if others else ""]))


class Declared(NamedTuple):
    """What coverage.toml says."""

    attacks: Mapping[str, Sequence[str]]  # those of each paper
    items: list[PaperItem]


def read_items(path: Path) -> Declared:
    """The papers' attacks and the items; cells take what they do not state from `default`."""
    names = {field_.name for field_ in fields(PaperItem)}
    items = []
    declared = tomllib.loads(path.read_text(), parse_float=Decimal)
    for entry in declared["item"]:
        default, cells = entry.pop("default", {}), entry.pop("cells", [])
        _known(f"{path.name}, {entry.get('item')}", entry, names)
        paper_cells = tuple(_cell(f"{path.name}, {entry.get('item')}", {**default, **cell}) for cell in cells)
        items.append(PaperItem(**entry, cells=paper_cells))
    return Declared(declared.get("attacks", {}), items)


def answers(
    item: PaperItem, results: Mapping[str, Mapping[str, Row]], attacks: Sequence[str] = ()
) -> list[MeasuredCell]:
    """Each cell with the rows it names; `results` are rows by id, by script, `attacks` those of the paper."""
    return [_answer(item, cell, results, attacks) for cell in item.cells]


def page(root: Path) -> str:
    """docs/papers.md with its tables, as the site shows it."""
    answered = read(root)
    title, _, prose = (root / "docs" / "papers.md").read_text().partition("\n\n")
    parts = [f"{title}\n", _records(answered, root), prose, _counts(answered)]
    for paper in dict.fromkeys(item.paper for item, _ in answered):
        lines = [pair for pair in answered if pair[0].paper == paper]
        parts += [
            f"## {paper}: every table and figure\n",
            _lines(lines, root),
            *(_details(pair, root) for pair in lines),
        ]
    return "\n".join(filter(None, parts))


def read(root: Path) -> list[tuple[PaperItem, list[MeasuredCell]]]:
    """Every item with its answers."""
    attacks, items = read_items(root / "papers" / "coverage.toml")
    paths = sorted((root / "papers" / "results").glob("*.json"))
    results = {path.stem: {row.id: row for row in read_rows(path)} for path in paths}
    return [(item, answers(item, results, attacks.get(item.paper, ()))) for item in items]


def _cell(place: str, entry: Mapping[str, Any]) -> PaperCell:
    _known(f"{place}, {entry.get('name')}", entry, {field_.name for field_ in fields(PaperCell)})
    cell = PaperCell(**{**entry, "order": tuple(entry.get("order", ())), "within": float(entry.get("within", 0))})
    if cell.better not in BETTER:
        raise ValueError(f"{place}, {cell.name}: better is {cell.better!r}, expected one of {', '.join(BETTER)}.")
    if bool(cell.row or cell.order) == bool(cell.why) and not (cell.data and not cell.why):
        raise ValueError(f"{place}, {cell.name}: name a row, or say in `why` why it was not run, and not both.")
    return cell


def _known(place: str, entry: Mapping[str, Any], names: set[str]) -> None:
    if odd := set(entry) - names:
        raise ValueError(f"{place}: unknown {', '.join(sorted(odd))}; expected {', '.join(sorted(names))}.")


def _answer(
    item: PaperItem, cell: PaperCell, results: Mapping[str, Mapping[str, Row]], attacks: Sequence[str]
) -> MeasuredCell:
    def row(name: str) -> Row:
        file, _, id_ = name.rpartition(":")
        file = file or item.script
        if id_ not in results.get(file, {}):
            raise ValueError(f"{place}: there is no row {id_!r} in {file}.json.")
        return results[file][id_]

    def stated(name: str) -> dict[str, int]:
        row(name)
        file, _, id_ = name.rpartition(":")
        return scale_of(id_, results[file or item.script])

    place = f"coverage.toml, {item.paper} {item.item}, {cell.name}"
    rows = tuple(row(name) for name in (cell.order or ((cell.row,) if cell.row else ())))
    scales: dict[str, int] = {}
    for name in filter(None, (cell.scale_row, *cell.order, cell.row)):
        for unit, amount in stated(name).items():
            scales[unit] = min(amount, scales.get(unit, amount))
    also = {by: row(name) for by, name in cell.also.items()}
    own_attack = not cell.by or cell.by in attacks
    both_fail = bool(cell.fails) and bool(rows)
    if both_fail:
        ours, baseline = row(cell.fails["row"]), row(cell.fails["baseline"])
        if min(_interval(ours)[1], float(cell.fails["theirs"])) < float(baseline.value):
            raise ValueError(f"{place}: not both fail: one has less error than {baseline.id}, {baseline.value:.4g}.")
    like = row(cell.like) if cell.like else None
    answer = MeasuredCell(cell, rows, scales, also, like, own_attack, both_fail)
    if rows and (missing := [unit for unit in cell.needs if unit not in scales]):
        raise ValueError(f"{place}: the row {cell.row or cell.order} does not state its {', '.join(missing)}.")
    if answer.verdict == "missed" and not (cell.note or item.note):
        raise ValueError(f"{place} is missed: say in `note` what was tried and what is known of the cause.")
    return answer


def _scaled(unit: str, ours: int | None, theirs: int) -> str:
    if ours is None:
        return f"{theirs:,} {unit}"
    if ours < theirs:
        return f"{ours:,} of {theirs:,} {unit}"
    return f"{ours:,} {unit}" if ours == theirs else f"{ours:,} {unit} (paper: {theirs:,})"


def _interval(row: Row) -> tuple[float, float]:
    value = float(row.value)
    return (value, value) if row.low is None or row.high is None else (row.low, row.high)


def _printed(theirs: Decimal | float) -> tuple[float, float]:
    """All that is printed as this number; an int or a float is taken as exact."""
    if not isinstance(theirs, Decimal):
        return float(theirs), float(theirs)
    half = Decimal(5).scaleb(int(theirs.as_tuple().exponent) - 1)
    return float(theirs - half), float(theirs + half)


def _lines(answered: Sequence[tuple[PaperItem, Sequence[MeasuredCell]]], root: Path) -> str:
    columns = "", "shows", "script", "scale: ours of the paper's", "ours", "interval", "theirs", "verdict"
    return _head(*columns) + "".join(_line(item, measured, root) for item, measured in answered)


def _script(name: str, root: Path) -> str:
    """With a link to its results, if there are any."""
    if not name:
        return "no script"
    return f"[{name}](results.md#papers{name})" if (root / "papers" / "results" / f"{name}.json").exists() else name


def _line(item: PaperItem, measured: Sequence[MeasuredCell], root: Path) -> str:
    script = _script(item.script, root)
    if not measured:
        return _row(item.item, item.what, "", "", "", "", "", item.none)
    shown = next((answer for answer in measured if answer.rows), measured[0])
    name = f"{shown.cell.name}: " if len(measured) > 1 and shown.cell.name else ""
    ours = f"{name}{shown.ours}" if shown.ours else ""
    verdict = measured[0].words if len(measured) == 1 else _tally(answer.words for answer in measured)
    verdict += _marks(measured, root)
    notes = " ".join(filter(None, [item.note, measured[0].note if len(measured) == 1 else ""]))
    columns = script, shown.scale_words, ours, shown.interval, shown.theirs, _noted(verdict, notes)
    return _row(item.item, item.what, *columns)


def _marks(measured: Iterable[MeasuredCell], root: Path) -> str:
    """What code the rows come from, if not today's."""
    states = {state(row.code, root) for answer in measured for row in answer.rows}
    return "".join(f"; {mark}" for mark in (EARLIER, UNKNOWN) if mark in states)


def _details(pair: tuple[PaperItem, Sequence[MeasuredCell]], root: Path) -> str:
    """The cells of an item that has several, folded."""
    item, measured = pair
    if len(measured) < 2:
        return ""
    lines = [
        _row(
            *(cell.cell.name, cell.scale_words, cell.ours, cell.interval, cell.theirs),
            _noted(cell.words + _marks([cell], root), cell.note),
        )
        for cell in measured
    ]
    head = _head("", "scale: ours of the paper's", "ours", "interval", "theirs", "verdict")
    title = f"{item.paper} {item.item}: {len(measured)} cells"
    note = f"{item.note}\n\n" if item.note else ""
    return f"<details>\n<summary>{title}</summary>\n\n{note}{head}{''.join(lines)}\n</details>\n"


def counted(answered: Iterable[tuple[PaperItem, Sequence[MeasuredCell]]]) -> dict[str, Counter[str]]:
    """Cells by scale and verdict, for each line of counts; a figure counts once, for all its cells.

    The same row beside the same number of the paper counts once: in other places it is "again".
    """
    totals: dict[str, Counter[str]] = {}
    seen: set[object] = set()
    for item, cells in answered:
        if not item.count:
            continue
        counter = totals.setdefault(item.count, Counter())
        if not cells:
            counter["no number"] += 1
        for group in [cells] if item.item.startswith("Figure") and cells else [[cell] for cell in cells]:
            measured = [_measurement(cell) for cell in group]
            if None not in measured and set(measured) <= seen:
                counter["again"] += 1
                continue
            seen.update(measured)
            scale, verdict = _together(group)
            limited = scale != "full" and all(cell.cell.data for cell in group if cell.scale != "full")
            counter.update([scale, *([verdict] if verdict in RUN else []), *(["data"] if limited else [])])
    return totals


def _measurement(cell: MeasuredCell) -> object:
    """Our numbers and the paper's; None if it was not run."""
    ours = tuple((row.value, row.low, row.high) for row in cell.rows)
    return (ours, str(cell.cell.theirs), cell.like and cell.like.value, cell.cell.better) if ours else None


def sentence(every: Counter[str]) -> str:
    """What README quotes of them."""
    numbers, full, part = sum(every[scale] for scale in SCALES), every["full"], every["part"]
    beaten, matched, corrected, attack, victim, fail, missed, other = (every[verdict] for verdict in RUN)
    return (
        f"Of their {numbers} numbers and figures {full + part} were run, {full} at full scale: by the paper's own "
        f"attack on a victim like the paper's {beaten} beaten, {matched} matched; beaten or matched only by another "
        f"attack {attack}, only on another victim {victim}; {corrected} estimates corrected; both attacks fail in "
        f"{fail}; {missed} missed; {other} not comparable."
    )


def _counts(answered: Iterable[tuple[PaperItem, Sequence[MeasuredCell]]]) -> str:
    totals = counted(answered)
    every = sum(totals.values(), Counter())
    names = [*SCALES, "no number", "again", "data", *RUN]
    columns = "", "all", "at full scale", "at a part", "not run", "no number in it", "counted elsewhere"
    limits = "at a part or not run only for want of data"
    head = _head(*columns, limits, *RUN)
    lines = [
        _row(name, str(_number_of(counter)), *(str(counter[key] or "") for key in names))
        for name, counter in totals.items()
    ]
    lines.append(_row("**all**", *(f"**{value}**" for value in (_number_of(every), *(every[key] for key in names)))))
    numbers, reached = sum(every[scale] for scale in SCALES), every["full"] + every["data"]
    share = f"{reached} of {numbers}, {reached / max(numbers, 1):.0%}".replace("%", " %")
    limited = f"At full scale, or limited only by data that cannot be had: {share}."
    return f"{sentence(every)}\n\n{head}{''.join(lines)}\n{limited}\n"


def _number_of(counter: Counter[str]) -> int:
    return sum(counter[name] for name in (*SCALES, "no number", "again"))


def _together(group: Sequence[MeasuredCell]) -> tuple[str, str]:
    """Scale and verdict of several cells as one."""
    scales, verdicts = {cell.scale for cell in group}, {cell.verdict for cell in group} - {"not run"}
    scale = scales.pop() if len(scales) == 1 else "part"
    if not verdicts:
        return scale, "not run"
    return scale, next((verdict for verdict in WORST_FIRST if verdict in verdicts), "not comparable")


def _records(answered: Iterable[tuple[PaperItem, Sequence[MeasuredCell]]], root: Path) -> str:
    """How many rows come from this version, and from the code as it is."""
    rows = rows_behind(answered)
    states = Counter(state(row.code, root) for row in rows)
    ours = sum(not not_of_version(row) for row in rows)
    return (
        f"**Of the {len(rows)} rows behind this page {ours} were measured by version {__version__}, from a commit; "
        f"{states['']} come from the very code that built this page, {states[EARLIER]} from {EARLIER}, "
        f"{states[UNKNOWN]} from {UNKNOWN}.** {EARLIER.capitalize()}: the script, or a module that the run used, has "
        f"changed since. {UNKNOWN.capitalize()}: measured before results kept a digest of the code.\n"
    )


def rows_behind(answered: Iterable[tuple[PaperItem, Sequence[MeasuredCell]]]) -> list[Row]:
    """Every row that answers a cell, once."""
    return list({id(row): row for _, measured in answered for answer in measured for row in answer.rows}.values())


def recorded(rows: Sequence[Row]) -> str:
    """What README quotes of them."""
    ours = sum(not not_of_version(row) for row in rows)
    return (
        f"Of the {len(rows)} rows behind them {ours} were measured by this version; the others come from earlier or "
        "unrecorded code, and are marked so."
    )


def _tally(words: Iterable[str]) -> str:
    counts = Counter(words)
    return "; ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _noted(verdict: str, note: str) -> str:
    return f"**{verdict}**. {note}" if note else f"**{verdict}**"


def _head(*columns: str) -> str:
    return _row(*columns) + "|" + "---|" * len(columns) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |\n"


def quoted(answered: Sequence[tuple[PaperItem, Sequence[MeasuredCell]]]) -> str:
    """The sentences that README has: the counts, and from what code they are."""
    return f"{sentence(sum(counted(answered).values(), Counter()))} {recorded(rows_behind(answered))}"


def main() -> None:
    """`python -m lostwax_dev.coverage [ROOT]` rewrites the sentences that README quotes."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    readme = root / "README.md"
    readme.write_text(QUOTED.sub(quoted(read(root)), readme.read_text()))


if __name__ == "__main__":
    main()
