"""Audit of two releases of one model: what do the two files tell of the rows in which their training sets differ?

The adversary has both files and knows no row. What was removed, added or changed is found by comparing the two tables
of the owner, never assumed. One game per changed row: a removed one in the units of the first table, an added one in
those of the second. Chance is what a guess comes to with the rows that did not change: which row it was is exchangeable
with these, if the files tell nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.adapters.model_files import load_model
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.two_releases import at_last_step, joint_codes, second_moments
from lostwax.attacks.two_releases import (
    Changes,
    PlaceMap,
    PublicSample,
    Subtracted,
    matched_parts,
    recoded,
    solve_changed_row,
    subtract_trees,
    subtracted,
)
from lostwax.audits.audit import Audit, CellsKept, Verdict
from lostwax.audits.changed_rows import ChangedRows
from lostwax.audits.checks import check_rows_differ, check_unused
from lostwax.audits.models import read_release, with_untold
from lostwax.audits.play import Answer, Played, Settings, filled, named, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Columns, Fitted, Guess, Kept, Note, Part, Records, ReleasedTable, Stationary
from lostwax.games.cells import Revealed
from lostwax.games.fitted import gap
from lostwax.progress import progress
from lostwax.trainers.optimum import polish

MAX_CHANGED = 1_000  # rows: of so many, differences tell next to nothing of one
FEWEST_PUBLIC = 10
MAX_EQUATION = 4_000  # numbers
NARROW = 0.9  # standard deviations: a predicted error below it is no all-clear; without the model it is about 1
NO_PUBLIC = "was not compared: this takes a public sample of rows. Pass prior=(X, y)."


class Version(NamedTuple):
    """One of the two releases."""

    model: Any
    X: Any
    y: Any
    released: ReleasedTable


class Direction(NamedTuple):
    """The rows that one release was fitted on and the other was not."""

    first: Version
    second: Version
    changes: Changes
    public: Records | None  # in the columns of the first table
    verb: str  # what happened to them: "removed", "added"


def audit_two_releases(model: Any, data: Any, before: Any, settings: Settings, options: Mapping[str, Any]) -> Audit:
    """Compare a release with an earlier one, `before=(model, data)`; `options` are the further arguments of `audit`."""
    if not isinstance(before, tuple | list) or len(before) != 2:
        raise TypeError(
            "audit: expected before=(model, data), the earlier release and the data it was trained on, as in "
            f"lw.audit(after, (X, y), before=(earlier, (X_earlier, y_earlier))); got {type(before).__name__}."
        )
    if isinstance(model, nn.Module):
        from lostwax.audits.two_nets import audit_two_nets

        return audit_two_nets(model, data, before, settings, options)
    check_unused("tables with before=", options, ("prior",))
    prior, public = options["prior"], None
    with progress("reading both releases"):
        versions = [_version(*pair) for pair in (before, (model, data))]
    if len({type(version.model) for version in versions}) > 1:
        names = " and a ".join(type(version.model).__name__ for version in versions)
        raise TypeError(f"audit: before= and the model are a {names}. Pass two releases of one model.")
    tables = [(version.X, version.y) for version in versions]
    if prior is not None:
        public = inputs.unpack(prior)
        tables.append(public)
    keys, _ = joint_codes(tables)
    changes = Changes.of(keys[0], keys[1])
    _check_changes(changes)
    directions = []
    for verb, order in (("removed", (0, 1)), ("added", (1, 0))):
        these = changes if verb == "removed" else changes.reversed()
        if len(these.removed):
            first, second = (versions[place] for place in order)
            _, codes = joint_codes([tables[place] for place in (*order, *range(2, len(tables)))])
            alike = public is not None and codes is not None and codes[2].shape[1] == first.released.table.x.shape[1]
            pool = Records(codes[2], torch.zeros(len(codes[2]))) if alike and codes is not None else None
            directions.append(Direction(first, second, these, pool, verb))
    return _audit(directions, public, settings)


def _version(model: Any, data: Any) -> Version:
    if isinstance(model, str | PathLike):
        model = load_model(model)
    X, y = inputs.unpack(inputs.check_data(model, data))
    released = with_untold(read_release(model, (X, y), None, games=None, seed=0))
    if released.sample is not None:
        raise ValueError("audit: before= does not apply to tables above 20 million cells. Pass fewer rows of both.")
    check_rows_differ(released.table.x)
    return Version(model, X, y, released)


def _check_changes(changes: Changes) -> None:
    count = len(changes.removed) + len(changes.added)
    if not count:
        raise ValueError(
            "audit: the two tables hold the same rows: nothing was removed, added or changed, so there is no row to "
            "look for. Audit each release by itself: lw.audit(model, data)."
        )
    if count > MAX_CHANGED or not len(changes.shared[0]):
        raise ValueError(
            f"audit: {count:,} rows differ between the two tables, expected at most {MAX_CHANGED:,}, and some that are "
            "in both. Audit each release by itself: lw.audit(model, data)."
        )


def _audit(directions: Sequence[Direction], public: tuple[Any, Any] | None, settings: Settings) -> Audit:
    """All changed rows, removed ones first."""
    start = time.perf_counter()
    solved = [RowsRead.of(direction, public) for direction in directions]
    seconds = time.perf_counter() - start
    main = directions[0].first.released
    left_out = any(direction.first.released.columns.names != main.columns.names for direction in directions)
    solved = solved[:1] if left_out else solved
    parts = [each.in_columns(main.columns) for each in solved]
    rows = torch.cat([each.direction.changes.removed for each in parts])
    truth = Records(torch.cat([each.truth.x for each in parts]), torch.cat([each.truth.y for each in parts]))
    scoring = Scoring.of_cells(main.table.x, main.columns, settings.threshold)
    shared = directions[0].changes.shared[0]
    public_rows = directions[0].public if len(parts) == 1 else None
    others = main.table.x if public_rows is None else public_rows.x
    judging = ChangedRows(
        truth,
        main.table[shared],
        main.columns.blind(others, torch.zeros(1, dtype=torch.long)),
        public_rows,
        scoring,
        main.table,
    )
    played = [
        _line(judging, name, [each.lines[name] for each in parts], seconds)
        for name in ("as released", "as converged")
        if all(name in each.lines for each in parts)
    ]
    at_best = np.logical_or.reduce([line.finding.rebuilt for line in played])
    unread = tuple(dict.fromkeys(sentence for each in solved for sentence in each.unread))
    other = Verdict.UNDECIDED if unread else Verdict.INFORMATION_LIMITED
    played = [line._replace(finding=line.finding.with_verdicts(at_best, other)) for line in played]
    count = max(len(direction.first.released.table) for direction in directions)
    if left_out:
        unread = (*unread, "rows that were added were not attacked: the two releases have different columns.")
    few = () if bool(at_best.all()) else (*judging.too_few(played), *_narrowed(played))
    return filled(
        judging,
        played,
        subject=f"{main.name}, two releases",
        kind="this model",
        adversary=Adversary(0, count, "row", files=2),
        threat="the adversary has both releases and knows no row",
        attack="TwoReleases",
        numbers=rows,
        population=len(rows),
        seed=settings.seed,
        provenance={**of_table(main.table), "changed": len(rows)},
        notes=_notes(parts),
        unanswered=(*unread, *few),
        classes=main.classes,
        **named(main.columns),
    )


def _line(judging: ChangedRows, name: str, told: Sequence[Told], seconds: float) -> Played:
    """One line of the audit, with what is known of each cell."""
    cells = Cells.joined([each.cells for each in told])
    x = cells.filled(judging.blind.expand_as(judging.secrets.x))
    labels, known, proven = (torch.cat(parts) for parts in zip(*(each[1:4] for each in told), strict=True))
    guess = Guess(Records(x[:, None], labels[:, None]), torch.ones(len(x), 1, dtype=torch.float64))
    line = judging.line(name, Answer(TwoReleases(), guess, seconds), known, proven)
    certain = [each.certain for each in told if each.certain is not None]
    sure = Cells.joined(certain) if len(certain) == len(told) else None
    counted = CellsKept.of(cells, sure, judging.secrets.x, judging.table.x).with_target(line.finding.target)
    finding = replace(line.finding, cells=counted)
    if judging.scoring.cells is None and len(told) == 1 and told[0].deviation is not None:
        bars = torch.from_numpy(np.where(cells.kept == Kept.EXACT, 0.0, told[0].deviation.numpy()))
        finding = replace(finding, predicted=judging.scoring.criterion(bars, torch.zeros_like(bars)).numpy())
    return line._replace(finding=finding)


def _narrowed(played: Sequence[Played]) -> Iterator[str]:
    """That the attack predicts a small error: one row cannot show that against chance, and it is no all-clear."""
    bars = [line.finding.predicted for line in played if line.finding.predicted is not None]
    if bars and (least := float(np.min(bars))) < NARROW:
        yield (
            f"The weights narrow the row down to {least:.2g} standard deviations, as the attack predicts from the "
            "public sample; a single row cannot show that against chance."
        )


class TwoReleases:
    """What the attack is called: parts are subtracted, equations solved, trees compared."""


def _notes(parts: Sequence[RowsRead]) -> list[Note]:
    """Which rows left or came, and what of them can be read."""
    notes = []
    for each in parts:
        rows, verb = each.direction.changes.removed.tolist(), each.direction.verb
        table = "the earlier" if verb == "removed" else "the later"
        listed = ", ".join(map(str, rows[:10])) + (f" and {len(rows) - 10:,} more" if len(rows) > 10 else "")
        notes.append(Note(f"{verb}: row{'s' if len(rows) > 1 else ''} {listed} of {table} table."))
        if exact := each.subtracted.sources:
            notes.append(
                Note(
                    f"{' and '.join(exact)}: the difference between the two releases shows rows that were {verb}.",
                    cure="Do not give out both releases of a step that publishes sums, extremes or rows: fit it once, "
                    "on public data, and keep it as it is when rows are erased.",
                )
            )
    notes.append(Note("the adversary knows how many rows each release was fitted on, and how many of them changed."))
    return notes


@dataclass(frozen=True, eq=False)
class RowsRead:
    """What two releases tell of the rows of one direction."""

    direction: Direction
    truth: Records
    lines: Mapping[str, Told]
    subtracted: Subtracted
    unread: tuple[str, ...]

    @classmethod
    def of(cls, direction: Direction, public: tuple[Any, Any] | None) -> RowsRead:
        """By subtraction, and by the equations of linear models, as released and as converged."""
        (first, second), changes = (direction.first.released, direction.second.released), direction.changes
        squares = [
            [second_moments(version.model, part) for part in version.released.parts]
            for version in (direction.first, direction.second)
        ]
        by_sums = subtracted(first, second, changes, (squares[0], squares[1]))
        unread = [*first.unread, *second.unread, *first.attached, *second.attached, *by_sums.unread]
        answers, certain = [*by_sums.answers], [*by_sums.certain]
        for answer, sentence in _by_trees(direction):
            unread += [] if sentence is None else [sentence]
            if answer is not None:
                answers.append(answer)
                certain += answer.candidates
        rows = changes.removed
        read = Told.of(answers, certain, first, rows)
        lines = {"as released": read}
        equations = [pair for pair in matched_parts(first, second) if pair[0].fitted.model is not None]
        for name in ("as released", "as converged") if equations else ():
            tried = [
                _by_equation(direction, here, there, public, read, at_optimum=name == "as converged")
                for here, there in equations
            ]
            unread += [why for why in tried if isinstance(why, str)]
            solved = [equation for equation in tried if not isinstance(equation, str)]
            if solved and (name == "as released" or len(solved) == len(tried)):
                both = Told.of([*answers, *(equation.answer for equation in solved)], certain, first, rows)
                lines[name] = both._replace(deviation=solved[0].deviation[None])  # (1, d)
        truth = Records(first.table.x[rows], first.table.y[rows])
        return cls(direction, truth, lines, by_sums, tuple(dict.fromkeys(unread)))

    def in_columns(self, columns: Columns) -> RowsRead:
        """The same with the codes of another table."""
        current = self.direction.first.released.columns
        if current.categories == columns.categories:
            return self
        truth = recoded(Cells(self.truth.x.numpy(), np.full(self.truth.x.shape, Kept.EXACT)), current, columns)
        lines = {name: line._replace(cells=recoded(line.cells, current, columns)) for name, line in self.lines.items()}
        return replace(self, truth=Records(torch.from_numpy(truth.values), self.truth.y), lines=lines)


class Equation(NamedTuple):
    """What a linear model tells of the one row."""

    answer: Revealed
    deviation: Tensor  # (d,) of cells of the table


class Told(NamedTuple):
    """What is known of each changed row."""

    cells: Cells  # (k, d)
    labels: Tensor  # (k, ...)
    labels_known: Tensor  # (k, ...)
    labels_certain: Tensor  # (k, ...)
    certain: Cells | None  # (k, d)
    deviation: Tensor | None = None  # (k, d) of estimated cells

    @classmethod
    def of(cls, answers: Sequence[Revealed], certain: Sequence[Cells], released: ReleasedTable, rows: Tensor) -> Told:
        """Cell by cell from the answer that knows most of it."""
        best = Cells.lost(len(rows), released.table.x.shape[1])
        sure = best
        labels = torch.zeros_like(released.table.y[rows])
        known, proven = (torch.zeros(labels.shape, dtype=torch.bool) for _ in range(2))
        for answer in answers:
            best = best.or_else(answer.candidates[0])
            if answer.labels is not None and answer.labels_known is not None:
                each = (-1, *[1] * (labels.ndim - 1))
                new = answer.labels_known.reshape(each) & ~known
                labels, known = torch.where(new, answer.labels.to(labels), labels), known | new
                if answer.labels_certain is not None:
                    proven |= new & answer.labels_certain.reshape(each)
        for cells in certain:
            sure = sure.or_else(cells)
        return cls(best, labels, known, proven, sure if certain else None)


def _by_trees(direction: Direction) -> Iterator[tuple[Revealed | None, str | None]]:
    """What trees tell of the one removed row, and a sentence on those that were not compared."""
    first, changes = direction.first.released, direction.changes
    for here, there in matched_parts(first, direction.second.released):
        if here.fitted.forest is None or there is None:
            continue
        name = here.fitted.name
        if len(changes.removed) != 1 or len(changes.added):
            yield None, f"{name}'s trees were not compared: this takes a single row that was removed or added."
            continue
        trees = subtract_trees(here, there, first.columns.blind(first.table.x, changes.removed))
        left = trees.trees - trees.compared
        why = f"{name}: {left:,} of {trees.trees:,} trees were not compared: they count samples or weights of rows."
        deeper = f"{name}'s trees were compared down to the first node in which they differ, and not below."
        yield trees.answer, why if left else deeper


def _by_equation(
    direction: Direction,
    here: Part,
    there: Part | None,
    public: tuple[Any, Any] | None,
    told: Told,
    *,
    at_optimum: bool,
) -> Equation | str:
    """The one removed row from the weights before and after; a sentence where that is not possible."""
    changes, fitted, name = direction.changes, here.fitted, here.fitted.name
    if public is None:
        return f"{name}'s weights: the difference {NO_PUBLIC}"
    if there is None or len(changes.removed) != 1 or len(changes.added):
        return f"{name}'s weights were not compared: this takes a single row that was removed or added."
    first, second = fitted.model, there.fitted.model
    if first is None or second is None or first.bias is None or first.weight.shape != second.weight.shape:
        return f"{name}'s weights were not compared: it has no intercept, or another shape in the other release."
    if first.sparse or first.total().numel() > MAX_EQUATION:
        return f"{name}'s weights were not compared: a model with an L1 penalty, or with more than {MAX_EQUATION:,}."
    if not bool((fitted.weight == 1).all()) or not bool((there.fitted.weight == 1).all()):
        return f"{name}'s weights were not compared: its rows have weights."
    places = [at_last_step(version.model, public[0]) for version in (direction.first, direction.second)]
    inputs_here = at_last_step(direction.first.model, direction.first.X)
    if inputs_here is None or places[0] is None or places[1] is None or not torch.equal(inputs_here, fitted.table.x):
        return f"{name}'s weights were not compared: it is not the last step of a pipeline."
    # of a missing value, what it was filled in with changed too: a small part of a sum of residuals, which is left out
    present = ~direction.first.released.table.x[changes.shared[0]].isnan().any(1)
    shared = [rows[present] for rows in changes.shared]
    between = PlaceMap.of(fitted.table.x[shared[0]], there.fitted.table.x[shared[1]])
    if not bool((between.column >= 0).all()):
        return f"{name}'s weights were not compared: the steps before it changed."
    y = _public_labels(direction.first.released, fitted, public[1])
    if y is None or len(y) < FEWEST_PUBLIC:
        return (
            f"{name}'s weights were not compared: the public sample has labels that it was not fitted on, or is small."
        )
    noise: Tensor | None = _left(first, fitted) + _left(second, there.fitted)
    if at_optimum:
        polished = [polish(model, each.table, each.weight) for model, each in ((first, fitted), (second, there.fitted))]
        if not all(best.converged for best in polished):
            return "There is no line 'as converged': no optimum could be reached."
        first, second, noise = polished[0].model, polished[1].model, None
    known = _known(direction.first.released, here, told, changes)
    sample, encoding = PublicSample(places[0], places[1], y), (between.slope, between.offset)
    with progress("the equations of both releases"):
        solved = solve_changed_row(first, second, sample, len(fitted.table), encoding, known=known, noise=noise)
    cells, moved = (here.back(x[None]) for x in (solved.x, solved.x + solved.deviation))
    deviation = torch.from_numpy(np.abs((moved.values - cells.values).astype(np.float64))[0]).nan_to_num()
    known = torch.ones(1, dtype=torch.bool)
    labels = here.labels(solved.label[None])
    answer = Revealed((cells.at_most(Kept.ESTIMATED),), labels, torch.tensor([solved.size]), known)
    return Equation(answer, deviation)


def _known(released: ReleasedTable, part: Part, told: Told, changes: Changes) -> Tensor:
    """(d,) the row as a part sees it: cells of known numbers that were only scaled; NaN elsewhere."""
    table, inputs = (x[changes.shared[0]] for x in (released.table.x, part.fitted.table.x))
    known, varies = inputs.new_full(inputs.shape[1:], torch.nan), inputs.amin(0) < inputs.amax(0)
    for column in np.flatnonzero(told.cells.kept[0] == Kept.EXACT).tolist():
        way = PlaceMap.of(table[:, [column]].expand_as(inputs), inputs)
        value = way.slope * float(told.cells.values[0, column]) + way.offset
        known = torch.where((way.column >= 0) & varies, value, known)
    return known


def _left(model: Stationary, fitted: Fitted) -> Tensor:
    """(c, D) the variance that a solver leaves: the squared gradient at its weights, the same for all outputs."""
    left = gap(model, fitted.table, fitted.weight)
    left = torch.cat([left[:, :-1] * model.scale + left[:, -1:] * model.shift, left[:, -1:]], 1)
    return left.square().mean(0, keepdim=True).expand_as(left)


def _public_labels(released: ReleasedTable, fitted: Fitted, y: Any) -> Tensor | None:
    """(m,) labels of the public rows as the model's class numbers, or targets; None where it does not know some."""
    values = np.asarray(y)
    if not released.classes:
        return torch.from_numpy(values.astype(np.float64)).to(fitted.table.y)
    number = {name: place for place, name in enumerate(released.classes)}
    codes = [number.get(value.item() if isinstance(value, np.generic) else value, -1) for value in values]
    return None if min(codes) < 0 else torch.tensor(codes).to(fitted.table.y)
