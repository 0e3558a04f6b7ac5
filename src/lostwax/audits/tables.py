"""Audit of a release of several parts, fitted on encodings of one table, in the units of the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form import ClosedForm, known_label, revealed
from lostwax.attacks.closed_form.attack import GAMES_NUMBERS
from lostwax.attacks.trees import TreeConstraints, exact_cells, revealed_by_trees
from lostwax.audits.audit import Audit, Verdict
from lostwax.audits.cells import CellsKept
from lostwax.audits.checks import check_rows_differ, few_rows
from lostwax.audits.fitted import audit_fitted, converged, drawn, likeliest, no_optimum, stationarity, weightless
from lostwax.audits.judging import Answer, LeaveOneOut
from lostwax.audits.play import Played, Settings, filled, judged, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import (
    Adversary,
    Cells,
    Fitted,
    Guess,
    Kept,
    Note,
    Part,
    Records,
    ReleasedTable,
    RowSample,
    Table,
)
from lostwax.games.cells import Revealed
from lostwax.progress import progress

MOST_REPEATED = 500  # games in which the attack is repeated to see what matters


def audit_table(released: ReleasedTable, settings: Settings, shape: tuple[int, ...] | None = None) -> Audit:
    """Play rows that are drawn by the seed against the release as it is and as converged.

    `shape` is that of a record where it is more than a row of features: an image.
    """
    if released.plain is not None:
        return audit_fitted(released.plain, settings, shape)
    table, sample = released.table, released.sample
    rows = _fitted_on(released)
    if sample is None:
        chosen, sampled = drawn(Table(table, rows), settings)
    else:
        chosen, sampled = sample.played, (_sampled(sample),)
    scoring = Scoring.of_cells(table.x, released.columns, settings.threshold)
    if any(part.fitted.forest is not None for part in released.parts):
        scoring = scoring.by_cell()
    blind = released.columns.blind(table.x, chosen)
    at_optimum, missing = _at_optimum(released.parts)
    attacked = partial(_Line, released, chosen, scoring, blind)
    line = attacked(released.parts, "as released")
    has_models = any(part.fitted.model is not None for part in released.parts)
    best = attacked(at_optimum, "as converged", line.judging) if has_models and at_optimum else None
    lines = [one.played(_verdicts(one, best or one, bool(released.unread))) for one in (line, best) if one is not None]
    open_ones = lines[-1].finding.verdicts.count(Verdict.UNDECIDED)
    if (unordered := _without_order(released.parts)) is not None:
        other = attacked(unordered, "order of rows unknown", line.judging)
        lines.append(other.played(_verdicts(other, other, bool(released.unread))))
    if open_ones and not released.unread:
        missing = (*missing, f"{open_ones:,} records were not rebuilt although what was read should give every cell.")
    return filled(
        line.judging,
        lines,
        subject=released.name,
        kind="this model",
        adversary=Adversary.insider(len(rows) if sample is None else sample.population, "row"),
        threat="the adversary knows every row but one",
        attack=_attacks(released.parts),
        numbers=chosen if sample is None else sample.rows[chosen],
        population=len(rows) if sample is None else sample.population,
        truth=Records(table.x[chosen], table.y[chosen]),
        labels_given=line.label_given,
        seed=settings.seed,
        provenance=of_table(table),
        notes=(
            *released.notes,
            *sampled,
            *weightless(len(table) - len(rows)),
            *(best or line).notes(line),
            *_settings(released, chosen),
        ),
        unanswered=(
            *released.unread,
            *missing,
            *([f"{NO_LABELS}."] if _labels_open(released) else []),
            *few_rows(table.x),
        ),
        classes=released.classes,
        columns=released.columns.names,
        columns_are_words=released.columns.are_words,
        categories=released.columns.categories if any(released.columns.categories) else (),
    )


def _sampled(sample: RowSample) -> str:
    """That only some rows were attacked."""
    return (
        f"the table is large: {len(sample.played):,} of {sample.population:,} rows were attacked, drawn by the seed, "
        f"and the nearest known row is one of {len(sample.rows):,}. games={sample.population} attacks all."
    )


def _fitted_on(released: ReleasedTable) -> Tensor:
    """The rows that something in the release depends on."""
    check_rows_differ(released.table.x)
    facts = [part.fitted for part in released.parts]
    by_all = any(one.extremes or one.stored or one.present or not all(s.weighted for s in one.sums) for one in facts)
    return torch.arange(len(released.table)) if by_all else (released.weight > 0).nonzero().flatten()


def _at_optimum(parts: Sequence[Part]) -> tuple[list[Part], tuple[str, ...]]:
    """The parts with their models at the optimum, and why some have none."""
    found, missing = list[Part](), list[str]()
    for part in parts:
        best = part.optimum if part.cut and part.fitted.model is not None else converged(part.fitted)
        if best is None:
            missing.append(no_optimum(part.fitted))
        else:
            found.append(replace(part, fitted=best, labelled=part.labelled and not part.fitted.doubtful))
    return found, tuple(dict.fromkeys(missing))


def _without_order(parts: Sequence[Part]) -> list[Part] | None:
    """The same for an adversary who does not know the order of the rows; None if that makes no difference."""
    if not any(part.fitted.forest is not None and part.fitted.forest.ordered for part in parts):
        return None
    return [
        part
        if part.fitted.forest is None
        else replace(part, fitted=replace(part.fitted, forest=part.fitted.forest.without_order()))
        for part in parts
    ]


def _settings(released: ReleasedTable, rows: Tensor) -> list[Note]:
    """The setting of each forest that leaks most."""
    found = []
    for part in released.parts:
        if part.fitted.forest is not None:
            games = rows if part.rows is None else part.rows[rows]
            found.append(exact_cells(part.fitted, games[:MOST_REPEATED]).note(part.fitted.name))
    return list(dict.fromkeys(note for note in found if note is not None))


def _attacks(parts: Sequence[Part]) -> str:
    """Which attacks parts meet."""
    by_trees = {TreeConstraints.__name__ if part.fitted.forest is not None else ClosedForm.__name__ for part in parts}
    return " and ".join(sorted(by_trees)) or ClosedForm.__name__


class _Merged(NamedTuple):
    """What all parts together tell of the missing row of each game."""

    candidates: tuple[Cells, ...]
    labels: Tensor  # (g, ...)
    labels_known: Tensor  # (g, ...) those that are more than a blind guess
    labels_certain: Tensor  # (g, ...) ... and that follow from what was read
    size: Tensor  # (g,)
    certain: Cells  # what trees, rows that are held, sums and extremes tell, without any equation to solve


NO_LABELS = "labels were not attacked: nothing that was read gives them as they are in the table"


def _labels_open(released: ReleasedTable) -> bool:
    """Whether a model of labels was read to the end, and yet nothing that was read depends on them."""
    y = released.table.y
    several = released.supervised and bool((y != y[0]).any())
    return several and not released.unread and not _tell_label(released.parts)


def _tell_label(parts: Sequence[Part]) -> bool:
    """Whether anything that was read depends on the label."""
    return any(part.fitted.tells_label() for part in parts if part.labelled)


class _Line:
    """One release attacked in every game."""

    def __init__(
        self,
        released: ReleasedTable,
        rows: Tensor,
        scoring: Scoring,
        blind: Tensor,
        parts: Sequence[Part],
        name: str,
        beside: LeaveOneOut | None = None,
    ) -> None:
        self.released, self.parts, self.scoring = released, parts, scoring
        self.label_given = any(_needs_label(part.fitted) for part in parts)
        truth = released.table[rows]
        start = time.perf_counter()
        merged = _merged(released, sorted(parts, key=_unsolved), rows, self.label_given)
        x = torch.stack([cells.filled(blind) for cells in merged.candidates], 1)  # (g, candidates, d)
        y = merged.labels[:, None].expand(-1, x.shape[1], *merged.labels.shape[1:])
        several = Records(x, y) if x.shape[1] > 1 else None
        offered = Guess(Records(x[:, :1], y[:, :1]), merged.size[:, None], several)
        self.seconds = time.perf_counter() - start
        self.guess, self.less_likely = likeliest(offered, truth, scoring)
        self.kept = merged.candidates[0].kept  # (g, d)
        rebuilt = merged.candidates[0]._replace(values=self.guess.records.x[:, 0].numpy())
        self.cells = CellsKept.of(rebuilt, merged.certain, truth.x, released.table.x)
        self.rebuilt = scoring.rebuilt(scoring.errors(self.guess.records.x[:, 0], truth.x))
        self.holds = _share_close(rebuilt, truth.x, scoring.threshold) > 0.5
        self.judging = LeaveOneOut(
            released.table,
            rows,
            scoring,
            blind=blind,
            line=name,
            label_given=self.label_given,
            labels_attacked=_tell_label(parts),
            labels_known=merged.labels_known,
            labels_certain=merged.labels_certain,
            more={"stationarity": max((_unsolved(part) for part in parts if part.fitted.model), default=None)},
            beside=beside,
        )

    def played(self, verdicts: tuple[Verdict, ...]) -> Played:
        """This line of the audit."""
        line = judged(self.judging, Answer(ClosedForm(), self.guess, self.seconds))
        cells = self.cells.with_target(line.finding.target)
        return line._replace(finding=replace(line.finding, verdicts=verdicts, cells=cells))

    def notes(self, released: _Line) -> list[str]:
        """What a reader of the table should know; `released` is the line of the model as it is."""
        notes, what = [], "the release"
        if not released.holds:
            what = "the model at its optimum"
            notes.append(
                "as released, most cells that the model should give are wrong: it is far from its optimum, or was not "
                "fitted on this table (were test rows passed too?)."
            )
        kept = self.kept if self.cells.each is None else self.cells.each.kept  # exact only if it is the truth
        usual = np.median(kept, 0)  # (d,)
        usual = np.where((usual == Kept.LOST) & (kept.max(0) > Kept.LOST), IN_SOME_ROWS, usual)
        usual = np.where((usual == Kept.EXACT) & (kept.min(0) < Kept.EXACT), EXACT_IN_MOST_ROWS, usual)
        for how, words in HOW_KEPT.items():
            some = np.flatnonzero(usual == how).tolist()
            if some and (usual < Kept.EXACT).any():
                notes.append(f"{words.format(what)}: {self.released.columns.listed(some)}.")
        if not _tell_label(released.parts) and not _labels_open(self.released):
            notes.append(f"{NO_LABELS}, and none counts as right.")
        if self.label_given:
            notes.append("fitted without an intercept: the adversary knows the label (Balle et al. 2022, Theorem 8).")
        return notes


EXACT_IN_MOST_ROWS, IN_SOME_ROWS = Kept.EXACT - 0.25, Kept.EXACT - 0.5
HOW_KEPT = {
    Kept.EXACT: "{} gives exactly",
    EXACT_IN_MOST_ROWS: "{} gives exactly in most rows",
    IN_SOME_ROWS: "{} tells something in some rows of",
    Kept.SET: "{} tells a few possible values of",
    Kept.INTERVAL: "{} tells an interval of",
    Kept.ESTIMATED: "{} tells only an estimate of",
    Kept.LOST: "what was read tells nothing of",
}


def _share_close(cells: Cells, truth: Tensor, threshold: float) -> float:
    """Of the cells that should be exact, the share within the threshold of the truth; 1 where there are none."""
    deviation = (truth - truth.nanmean(0)).square().nanmean(0).sqrt().nan_to_num()
    values = torch.from_numpy(cells.values)
    close = ((values - truth).abs() <= threshold * deviation) | (values.isnan() & truth.isnan())
    claimed = close[torch.from_numpy(cells.kept == Kept.EXACT)]
    return float(claimed.double().mean()) if len(claimed) else 1.0


def _merged(released: ReleasedTable, parts: Sequence[Part], rows: Tensor, label_given: bool) -> _Merged:
    """Cell by cell from the part that tells most of it: facts that hold to rounding come before models."""
    width, found = max((part.fitted.numbers_per_game for part in parts), default=1), []
    by_trees = [revealed_by_trees(part, rows) for part in parts if part.fitted.forest is not None]
    with progress("rows", len(rows)) as advance:
        for some in torch.split(torch.arange(len(rows)), max(1, GAMES_NUMBERS // width)):
            given = [one.at(some) for one in by_trees]
            found.append(_merged_games(released, parts, rows[some], label_given, given))
            advance(len(some))
    count = max(len(one.candidates) for one in found)
    padded = [(*one.candidates, *[one.candidates[0]] * (count - len(one.candidates))) for one in found]
    joined = (Cells.joined(cells) for cells in zip(*padded, strict=True))
    labels, known, certain, size = (torch.cat(parts) for parts in zip(*(one[1:5] for one in found), strict=True))
    return _Merged(tuple(joined), labels, known, certain, size, Cells.joined([one.certain for one in found]))


def _merged_games(
    released: ReleasedTable, parts: Sequence[Part], games: Tensor, label_given: bool, by_trees: Sequence[Revealed]
) -> _Merged:
    table = released.table
    given = table.y[games] if label_given else None
    facts = [replace(part, fitted=replace(part.fitted, model=None)) for part in parts if part.fitted.forest is None]
    models = [
        replace(part, fitted=replace(part.fitted, stored=(), sums=(), present=(), extremes=()))
        for part in parts
        if part.fitted.model is not None
    ]
    by_facts = [one for part in facts for one in revealed(part, games, label_given=label_given)]
    answers = [*by_facts, *by_trees]
    answers += [one for part in models for one in revealed(part, games, label_given=label_given)]
    lost = Cells.lost(len(games), table.x.shape[1])
    certain = [one.candidates[0] for one in (*(fact for fact in by_facts if len(fact.candidates) == 1), *by_trees)]
    best, others = lost, list[Cells]()
    labels, size = known_label(table, games), torch.zeros(len(games), dtype=table.x.dtype)
    labelled, labels_certain = (torch.zeros(labels.shape, dtype=torch.bool) for _ in range(2))
    for answer in answers:
        first, *alternatives = answer.candidates
        some = torch.from_numpy(first.kept.max(1) > Kept.LOST)  # (g,)
        others = [*(one.or_else(first) for one in others), *(best.or_else(cells) for cells in alternatives)]
        best = best.or_else(first)
        if answer.labels is not None:
            each = (-1, *[1] * (labels.ndim - 1))
            known = (some if answer.labels_known is None else answer.labels_known).reshape(each)
            new = known & ~answer.labels.isnan() & ~labelled
            labels = torch.where(new, answer.labels.to(labels), labels)
            labelled |= new
            if answer.labels_certain is not None:
                labels_certain |= new & answer.labels_certain.reshape(each)
        size = torch.where(size == 0, answer.size * some, size)
    several = tuple(released.columns.likeliest(cells, table.x, games) for cells in (best, *others))
    labels = labels if given is None else given
    decided = reduce(Cells.or_else, certain, lost).decided()
    return _Merged(several, labels, labelled, labels_certain, size, decided)


def _unsolved(part: Part) -> float:
    """How far a model is from its optimum: of two that give a cell, the one nearer to it is right."""
    return 0.0 if part.fitted.model is None else stationarity(part.fitted) or 0.0


def _needs_label(fitted: Fitted) -> bool:
    return fitted.model is not None and fitted.model.bias is None


def _verdicts(now: _Line, best: _Line, unread: bool) -> tuple[Verdict, ...]:
    """Rebuilt from this release; or only at the optimum; or not even there.

    "Information-limited" is said where every part was read and what it tells of the row is not exact; of trees, which
    tell more than the attack uses, "attack-limited".
    """
    partly = (best.kept < Kept.EXACT).any(1)
    known = partly & (not unread)
    by_trees = any(part.fitted.forest is not None for part in best.parts)
    limited = Verdict.ATTACK_LIMITED if by_trees else Verdict.INFORMATION_LIMITED
    verdicts: NDArray[np.object_] = np.select(
        [now.rebuilt, best.rebuilt, known],
        [Verdict.RECOVERABLE, Verdict.SOLVER_LIMITED, limited],
        Verdict.UNDECIDED,
    )
    return tuple(Verdict(verdict) for verdict in verdicts)
