"""Audit of this very model: one release, its training table, and the game "which row is missing?" for every row.

A release has parts, each fitted on an encoding of the table. Every part is solved by itself, and each cell is taken
from the part that tells most of it, in the units of the table. Sums and a linear model of the table itself are solved
as one equation (`ReleasedTable.equation`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.closed_form.attack import known_moments
from lostwax.attacks.closed_form.cells import SolvedRows, solved_by_parts
from lostwax.attacks.closed_form.evidence import ErrorScale, certain_labels, leading_equation
from lostwax.attacks.trees import TreeConstraints, exact_cells_note, revealed_by_trees
from lostwax.audits.audit import Audit, CellsKept, Finding, Verdict
from lostwax.audits.checks import check_rows_differ, few_rows
from lostwax.audits.climb import SolvableTable, rung_of_anyone, rungs_of_insiders
from lostwax.audits.play import Answer, LeaveOneOut, Played, Settings, filled, named, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import (
    Adversary,
    Attacker,
    Cells,
    Columns,
    Fitted,
    Guess,
    Hints,
    Kept,
    Note,
    Part,
    Records,
    ReleasedTable,
    Table,
)
from lostwax.games.facts import loss_facts
from lostwax.games.fitted import as_cells, blocks, gap
from lostwax.progress import progress
from lostwax.trainers.optimum import polish

LARGE = 5_000_000  # cells of a table, above which a sample of its rows is attacked unless games are given
SAMPLED_GAMES = 1_000
MOST_REPEATED = 500  # games in which the attack is repeated to see what matters
NO_LABELS = "labels were not attacked: nothing that was read gives them as they are in the table"


def audit_table(released: ReleasedTable, settings: Settings, shape: tuple[int, ...] | None = None) -> Audit:
    """Play rows that are drawn by the seed against the release as it is and as converged.

    `shape` is that of a record where it is more than a row of features: an image.
    """
    rungs = [rung_of_anyone(released, settings.threshold)] if settings.tries(Attacker.ANYONE) else []
    equation = released.equation
    if equation is not None:
        columns = Columns(released.columns.names, ((),) * equation.table.x.shape[1])
        one = Part(equation, as_cells)
        released = replace(released, table=equation.table, weight=equation.weight, columns=columns, parts=(one,))
    table, parts, sample = released.table, released.parts, released.sample
    rows = _fitted_on(released)
    chosen, sampled = _drawn(released, Table(table, rows), settings)
    population = len(rows) if sample is None else sample.population
    shown = table.x if shape is None else table.x.reshape(-1, *shape)
    scoring = by_row = Scoring.of_cells(table.x, released.columns, settings.threshold)
    if shape is not None:
        scoring = Scoring.of(shown, settings.threshold, with_secrets=True)
    if any(part.fitted.forest is not None for part in parts):
        scoring = scoring.by_cell()
    blind = released.columns.blind(table.x, chosen) if equation is None else known_moments(table, chosen)[0]
    games = LeaveOneOut(table, chosen, scoring, blind, label_given=_label_given(parts))
    converged, missing = _at_optimum(parts)
    lines = [_Line.of(games, released, parts, "as released", by_one_equation=equation is not None)]
    if converged and any(part.fitted.model is not None for part in parts):
        lines.append(_Line.of(games, released, converged, "as converged", by_one_equation=equation is not None))
    by_sums = equation is not None and bool(equation.sums)  # they need no solver
    best = lines[0] if by_sums else lines[-1]
    limits = best.limits(seen=not released.unread and (equation is None or not missing or by_sums))
    findings = [line.finding.with_verdicts(best.finding.rebuilt, limits) for line in lines]
    unsolved = 0 if by_sums else findings[-1].verdicts.count(Verdict.UNDECIDED)
    if (unordered := _without_order(parts)) is not None:
        other = _Line.of(games, released, unordered, "order of rows unknown")
        findings.append(other.finding.with_verdicts(other.finding.rebuilt, other.limits(seen=not released.unread)))
    if unsolved and not released.unread and not (equation is not None and missing):
        why = "although what was read should give every cell"
        if equation is not None:
            why = "at the optimum although rounding alone does not hide them there"
        missing = (*missing, f"{unsolved:,} records were not rebuilt {why}.")
    if settings.tries(Attacker.INSIDER) and not any(rung.rebuilt == rung.tried for rung in rungs):
        of_trees = (SolvableTable.of_trees(released, part, settings) for part in parts)
        solvable = next(filter(None, of_trees), None)
        if equation is not None:  # a solver that stopped early is no defence
            solvable = SolvableTable.of_equation((converged or parts)[0].fitted, settings)
        if solvable is not None:
            rungs += rungs_of_insiders(solvable, scoring if equation is None else by_row, settings, population)
    weightless = len(table) - len(rows)
    without = f"{weightless:,} rows have no weight: the model was not trained on them, and they are not tried."
    return filled(
        games,
        [Played(lines[0].answer, finding) for finding in findings],
        subject=released.name,
        kind="this model",
        adversary=Adversary.insider(population, "row"),
        rungs=tuple(rungs),
        threat="the adversary knows every row but one",
        attack=_attacks(parts),
        numbers=chosen if sample is None else sample.rows[chosen],
        population=population,
        truth=Records(shown[chosen], table.y[chosen]),
        labels_given=games.label_given,
        seed=settings.seed,
        provenance=of_table(table),
        notes=(
            *released.notes,
            *sampled,
            *([without] if weightless else []),
            *(missing if by_sums else ()),
            *(lines[0].equation_notes() if equation is not None else lines[-1].cell_notes(lines[0])),
            *_label_notes(released, label_given=games.label_given),
            *_settings(parts, chosen),
        ),
        unanswered=(
            *released.unread,
            *(() if by_sums else missing),
            *([f"{NO_LABELS}."] if _labels_open(released) else []),
            *few_rows(table.x),
        ),
        classes=released.classes,
        **named(released.columns),
    )


def _fitted_on(released: ReleasedTable) -> Tensor:
    """The rows that something in the release depends on; an error where all are the same, or none has any weight."""
    check_rows_differ(released.table.x)
    weighted = released.weight > 0
    if not weighted.any():
        raise ValueError("audit: no row of X has any weight (sample_weight times class_weight): nothing was trained.")
    facts = [part.fitted for part in released.parts]
    by_all = any(one.extremes or one.stored or one.present or not all(s.weighted for s in one.sums) for one in facts)
    return torch.arange(len(weighted)) if by_all else weighted.nonzero().flatten()


def _drawn(released: ReleasedTable, table: Table, settings: Settings) -> tuple[Tensor, tuple[str, ...]]:
    """The rows that are attacked, and a note if not all are: large tables are sampled unless `games` is given."""
    if (sample := released.sample) is not None:
        return sample.played, (
            f"the table is large: {len(sample.played):,} of {sample.population:,} rows were attacked, drawn by the "
            f"seed, and the nearest known row is one of {len(sample.rows):,}. games={sample.population} attacks all.",
        )
    rows, cells = len(table.playable), table.records.x.numel()
    games, seed = settings.games, settings.seed
    if games is not None or cells <= LARGE or rows <= SAMPLED_GAMES:
        return table.draw(games, seed), ()
    note = (
        f"a table of {cells:,} cells: {SAMPLED_GAMES:,} of {rows:,} rows were attacked, drawn by seed={seed}. "
        f"Pass games={rows} to attack all."
    )
    return table.draw(SAMPLED_GAMES, seed), (note,)


def _at_optimum(parts: Sequence[Part]) -> tuple[list[Part], tuple[str, ...]]:
    """The parts with their models at the optimum, and why some have none."""
    at_best, missing = list[Part](), list[str]()
    for part in parts:
        best = part.optimum if part.cut and part.fitted.model is not None else _converged(part.fitted)
        if best is None:
            missing.append(_no_optimum(part.fitted))
        else:
            at_best.append(replace(part, fitted=best, labelled=part.labelled and not part.fitted.doubtful))
    return at_best, tuple(dict.fromkeys(missing))


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


def _converged(fitted: Fitted) -> Fitted | None:
    """The same model at the optimum of its objective, facts without a model as they are; None if there is none."""
    if fitted.model is None:
        return fitted
    with progress("the optimum of the model"):
        polished = polish(fitted.model, fitted.table, fitted.weight)
    return replace(fitted, model=polished.model) if polished.converged else None


def _no_optimum(fitted: Fitted) -> str:
    """Why there is no line 'as converged'."""
    reason = "no optimum could be reached"
    model = fitted.model
    facts = None if model is None else loss_facts(model.loss, len(model.weight))
    if model is not None and facts is not None and not facts.attained and not model.ridge.any():
        reason += ": without a penalty, separable classes have no optimum, and the weights grow without limit"
    return f"There is no line 'as converged': {reason}."


def _settings(parts: Sequence[Part], rows: Tensor) -> list[Note]:
    """The setting of each forest that leaks most."""
    notes = []
    for part in parts:
        if part.fitted.forest is not None:
            games = rows if part.rows is None else part.rows[rows]
            notes.append(exact_cells_note(part.fitted, games[:MOST_REPEATED]))
    return list(dict.fromkeys(note for note in notes if note is not None))


def _attacks(parts: Sequence[Part]) -> str:
    """Which attacks parts meet."""
    by_trees = {TreeConstraints.__name__ if part.fitted.forest is not None else ClosedForm.__name__ for part in parts}
    return " and ".join(sorted(by_trees)) or ClosedForm.__name__


def _labels_open(released: ReleasedTable) -> bool:
    """Whether a model of labels was read to the end, and yet nothing that was read depends on them."""
    y = released.table.y
    several = released.supervised and bool((y != y[0]).any())
    return several and not released.unread and not _tell_label(released.parts)


def _tell_label(parts: Sequence[Part]) -> bool:
    """Whether anything that was read depends on the label."""
    return any(part.fitted.tells_label() for part in parts if part.labelled)


def _label_given(parts: Sequence[Part]) -> bool:
    """Without an intercept and without sums the label must be known; of a Cox model time and event."""
    models = (part.fitted.model for part in parts if not part.fitted.sums)
    unlabelled = any(model is not None and model.bias is None for model in models)
    return unlabelled or any(part.fitted.hazards is not None for part in parts)


def _label_notes(released: ReleasedTable, *, label_given: bool) -> list[str]:
    """Whether labels were attacked or given."""
    notes = []
    if not _tell_label(released.parts) and not _labels_open(released):
        notes.append(f"{NO_LABELS}, and none counts as right.")
    if any(part.fitted.hazards is not None for part in released.parts):
        notes.append(
            "the adversary knows time and event (and stratum) of the missing row. Of several rows that solve the score "
            "equation the one nearest to the truth counts."
        )
    elif label_given:
        notes.append("fitted without an intercept: the adversary knows the label (Balle et al. 2022, Theorem 8).")
    return notes


@dataclass(frozen=True, eq=False)
class _Line:
    """One release attacked in every game; of records that explain it equally well the one nearest the truth counts."""

    games: LeaveOneOut
    released: ReleasedTable
    parts: Sequence[Part]
    by_one_equation: bool  # its only part
    solved: SolvedRows  # what the release tells of the missing rows
    less_likely: NDArray[np.bool_]  # (games,) where the guess that counts is not the likeliest
    bars: ErrorScale | None  # of one equation
    answer: Answer
    finding: Finding

    @classmethod
    def of(
        cls,
        games: LeaveOneOut,
        released: ReleasedTable,
        parts: Sequence[Part],
        name: str,
        *,
        by_one_equation: bool = False,
    ) -> _Line:
        """Solved for the missing row of every game, and scored."""
        table, rows, start = released.table.x, games.rows, time.perf_counter()
        with progress(ClosedForm.__name__):
            if by_one_equation:
                solved = _by_equation(parts[0].fitted, rows, games.label_given, at_optimum=name == "as converged")
            else:
                by_trees = [revealed_by_trees(part, rows) for part in parts if part.fitted.forest is not None]
                nearest_optimum_first = sorted(parts, key=_unsolved)
                solved = solved_by_parts(
                    released, nearest_optimum_first, rows, games.blind, by_trees, label_given=games.label_given
                )
            guess, less_likely = _nearest_candidate(solved.guess, table[rows], games.scoring)
        answer = Answer(ClosedForm(), guess, time.perf_counter() - start)
        with progress("scores"):
            finding = replace(games.scored(answer), name=name)
        if _tell_label(parts):
            finding = games.with_target(finding, solved.labels_known, solved.labels_certain)
        else:
            finding = replace(finding, labels_right=np.zeros_like(finding.labels_right), label_errors=None)
        unsolved, bars = max((_unsolved(part) for part in parts if part.fitted.model), default=None), None
        if by_one_equation:
            fitted = parts[0].fitted
            unsolved, bars = stationarity(fitted), ErrorScale.of(fitted) if fitted.sums or fitted.model else None
        predicted = None if bars is None else _in_criterion(games.scoring, bars.bars(guess).predicted)
        rebuilt = solved.cells._replace(values=guess.records.x[:, 0].numpy())
        cells = CellsKept.of(rebuilt, solved.certain, table[rows], table).with_target(finding.target)
        finding = replace(finding, cells=cells, stationarity=unsolved, predicted=predicted)
        return cls(games, released, parts, by_one_equation, solved, less_likely, bars, answer, finding)

    def limits(self, *, seen: bool) -> NDArray[np.object_]:
        """(games,) the verdict on a row that is not rebuilt, even at the optimum.

        "Information-limited" is said only where it is known: all was `seen`, and what it tells of the row is not exact,
        or rounding would hide it; of trees, which tell more than the attack uses, "attack-limited".
        """
        scoring = self.games.scoring
        if not self.by_one_equation:
            limited = (self.solved.cells.kept < Kept.EXACT).any(1)
        elif self.bars is None:
            limited = np.ones(len(self.games.rows), np.bool_)
        else:  # would the record be rebuilt if rounding were all that hides it? By its own residual
            fitted = self.parts[0].fitted
            r, _ = leading_equation(fitted).factors(fitted.table[self.games.rows], fitted.weight[self.games.rows])
            own = replace(self.answer.guess, confidence=r.norm(dim=1, keepdim=True))
            limited = ~(_in_criterion(scoring, self.bars.bars(own).floor) <= scoring.threshold)
        by_trees = any(part.fitted.forest is not None for part in self.parts)
        verdict = Verdict.ATTACK_LIMITED if by_trees else Verdict.INFORMATION_LIMITED
        limits: NDArray[np.object_] = np.select([limited & seen], [verdict], Verdict.UNDECIDED)
        return limits

    def equation_notes(self) -> list[str]:
        """What a reader of the table should know of one equation."""
        model, notes = self.parts[0].fitted.model, []
        if model is not None and model.stopped_early:
            notes.append("the solver ran out of iterations (max_iter), or has a loose tolerance (tol).")
        if self.answer.guess.alternatives is not None and (self.games.label_given or self.less_likely.any()):
            notes.append(
                "two or more records explain the weights equally well (guess.alternatives). The one nearest to the "
                f"truth counts and is shown; in {int(self.less_likely.sum())} games it is not the likeliest one."
            )
        return notes

    def cell_notes(self, released: _Line) -> list[str]:
        """How well the columns are known; `released` is the line of the model as it is."""
        notes, what, cells = [], "the release", self.finding.cells
        if not released._holds():
            what = "the model at its optimum"
            notes.append(
                "as released, most cells that the model should give are wrong: it is far from its optimum, or was not "
                "fitted on this table (were test rows passed too?)."
            )
        kept = (
            self.solved.cells if cells is None or cells.each is None else cells.each
        ).kept  # exact if it is the truth
        usual = np.median(kept, 0)  # (d,)
        usual = np.where((usual == Kept.LOST) & (kept.max(0) > Kept.LOST), IN_SOME_ROWS, usual)
        usual = np.where((usual == Kept.EXACT) & (kept.min(0) < Kept.EXACT), EXACT_IN_MOST_ROWS, usual)
        for how, words in HOW_KEPT.items():
            some = np.flatnonzero(usual == how).tolist()
            if some and (usual < Kept.EXACT).any():
                notes.append(f"{words.format(what)}: {self.released.columns.listed(some)}.")
        return notes

    def _holds(self) -> bool:
        """Are most of the cells that should be exact within the threshold of the truth?"""
        truth, values = self.games.secrets.x, self.answer.guess.records.x[:, 0]
        deviation = (truth - truth.nanmean(0)).square().nanmean(0).sqrt().nan_to_num()
        close = (values - truth).abs() <= self.games.scoring.threshold * deviation
        close |= values.isnan() & truth.isnan()
        claimed = close[torch.from_numpy(self.solved.cells.kept == Kept.EXACT)]
        return not len(claimed) or float(claimed.double().mean()) > 0.5


def _in_criterion(scoring: Scoring, bar: Tensor) -> NDArray[np.float64]:
    """An error bar in the metric that decides."""
    return scoring.criterion(bar, torch.zeros_like(bar)).numpy()


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


def _nearest_candidate(guess: Guess, truth: Tensor, scoring: Scoring) -> tuple[Guess, NDArray[np.bool_]]:
    """The guess with the candidate nearest to the truth in place of the likeliest; (games,) where they differ."""
    if guess.alternatives is None:
        return guess, np.zeros(len(truth), dtype=np.bool_)
    x, y = (torch.cat([getattr(rows, part) for rows in (guess.records, guess.alternatives)], 1) for part in "xy")
    errors = torch.from_numpy(np.stack([scoring.scores(one, truth).criterion for one in x.unbind(1)], 1))
    best, games = errors.argmin(1), torch.arange(len(truth))  # of equal ones the first
    nearer = errors[games, best] < errors[:, 0]
    best = torch.where(nearer, best, 0)
    records = Records(x[games, best][:, None], y[games, best][:, None])
    return replace(guess, records=records), nearer.numpy()


def _by_equation(fitted: Fitted, rows: Tensor, label_given: bool, *, at_optimum: bool) -> SolvedRows:
    """One equation about the table itself. Sums hold to rounding, so that what they give is certain."""
    table = fitted.table
    hints = Hints(labels=table.y[rows][:, None]) if label_given else None
    guess = ClosedForm().leave_one_out(fitted, rows, hints, at_optimum=at_optimum)
    x, size = guess.records.x[:, 0], guess.confidence[:, 0]
    kept = np.full(x.shape, Kept.EXACT, dtype=np.uint8) if guess.kept is None else guess.kept[:, 0].numpy()
    cells, labels_certain = Cells(x.numpy(), kept), None
    if any(sums.by_label for sums in fitted.sums):  # counts of classes
        labels_certain = size > 0
    elif fitted.model is not None and not fitted.sums:
        labels_certain = certain_labels(fitted.model, table, fitted.weight, size)
    return SolvedRows(guess, cells, cells if fitted.sums else None, None, labels_certain)


def _unsolved(part: Part) -> float:
    """How far a model is from its optimum: of two that give a cell, the one nearer to it is right."""
    return 0.0 if part.fitted.model is None else stationarity(part.fitted) or 0.0


def stationarity(fitted: Fitted) -> float | None:
    """The largest coordinate of what all rows leave unexplained, each over the sum of the rows' own terms in it."""
    equation = fitted.model or next(iter(fitted.sums), None)
    if equation is None:
        return None
    size = equation.total().abs()
    for rows in blocks(fitted.table):
        r, f = equation.factors(fitted.table[rows], fitted.weight[rows])
        size = size + r.abs().mT @ f.abs()
    return float(
        (gap(equation, fitted.table, fitted.weight).abs() / size.clamp_min(torch.finfo(size.dtype).tiny)).max()
    )
