"""Audit of this very model: one release, its training table, and the game "which row is missing?" for every row.

A release has parts, each fitted on an encoding of the table. Every part is solved by itself, and each cell is taken
from the part that tells most of it, in the units of the table. Sums and a linear model of the table itself are solved
as one equation (`ReleasedTable.equation`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.closed_form.attack import known_moments
from lostwax.attacks.closed_form.cells import SolvedRows, solved_by_parts
from lostwax.attacks.closed_form.evidence import ErrorScale, certain_labels, leading_equation
from lostwax.attacks.trees import TreeConstraints, exact_cells_note, revealed_by_trees
from lostwax.audits.anyone import rung_of_anyone
from lostwax.audits.audit import Audit, Verdict
from lostwax.audits.cells import CellsKept
from lostwax.audits.checks import check_rows_differ, few_rows
from lostwax.audits.climb import SolvableTable, rungs_of_insiders
from lostwax.audits.play import Answer, LeaveOneOut, Played, Settings, filled, of_table, play
from lostwax.audits.scoring import Scoring
from lostwax.games import (
    Adversary,
    Attack,
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
    table, parts, unread = released.table, released.parts, bool(released.unread)
    rows = _fitted_on(released)
    chosen, sampled = _drawn(released, Table(table, rows), settings)
    shown = table.x if shape is None else table.x.reshape(-1, *shape)
    if shape is None:
        scoring = Scoring.of_cells(table.x, released.columns, settings.threshold)
    else:
        scoring = Scoring.of(shown, settings.threshold, with_secrets=True)
    if any(part.fitted.forest is not None for part in parts):
        scoring = scoring.by_cell()
    by_moments = equation is not None
    blind = known_moments(table, chosen)[0] if by_moments else released.columns.blind(table.x, chosen)
    by_sums = equation is not None and bool(equation.sums)  # they need no solver
    converged, missing = _at_optimum(parts)
    line = _Line(released, equation is not None, chosen, scoring, blind, parts, "as released")
    lines = [line]
    if converged and any(part.fitted.model is not None for part in parts):
        lines.append(replace(line, parts=converged, name="as converged", beside=line))
    best = line if by_sums else lines[-1]
    not_seen = unread or (equation is not None and bool(missing) and not by_sums)
    played = [each.played() for each in lines]
    at_best = played[lines.index(best)].finding.rebuilt
    limits = best.limits(not_seen)
    played = [_with_verdicts(each, at_best, limits) for each in played]
    unsolved = played[-1].finding.verdicts.count(Verdict.UNDECIDED)
    if (unordered := _without_order(parts)) is not None:
        other = replace(line, parts=unordered, name="order of rows unknown", beside=line)
        alone = other.played()
        played.append(_with_verdicts(alone, alone.finding.rebuilt, other.limits(unread)))
    noted, missing = (missing, ()) if by_sums else ((), missing)
    if unsolved and not not_seen and not by_sums:
        why = "although what was read should give every cell"
        if equation is not None:
            why = "at the optimum although rounding alone does not hide them there"
        missing = (*missing, f"{unsolved:,} records were not rebuilt {why}.")
    population = len(rows) if released.sample is None else released.sample.population
    if settings.tries(Attacker.INSIDER) and not any(rung.rebuilt == rung.tried for rung in rungs):
        solvable, by_cell = (
            next(filter(None, (SolvableTable.of_trees(released, part, settings) for part in parts)), None),
            scoring,
        )
        if equation is not None:  # a solver that stopped early is no defence
            solvable = SolvableTable.of_equation((converged or parts)[0].fitted, settings)
            by_cell = Scoring.of_cells(table.x, released.columns, settings.threshold)
        if solvable is not None:
            rungs += rungs_of_insiders(solvable, by_cell, settings, population)
    weightless = len(table) - len(rows)
    without = f"{weightless:,} rows have no weight: the model was not trained on them, and they are not tried."
    sample = released.sample
    return filled(
        line.judging,
        played,
        subject=released.name,
        kind="this model",
        adversary=Adversary.insider(population, "row"),
        rungs=tuple(rungs),
        threat="the adversary knows every row but one",
        attack=_attacks(parts),
        numbers=chosen if sample is None else sample.rows[chosen],
        population=population,
        truth=Records(shown[chosen], table.y[chosen]),
        labels_given=line.label_given,
        seed=settings.seed,
        provenance=of_table(table),
        notes=(
            *released.notes,
            *sampled,
            *([without] if weightless else []),
            *noted,
            *(line.equation_notes() if equation is not None else lines[-1].cell_notes(line)),
            *line.label_notes(),
            *_settings(parts, chosen),
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


@dataclass(frozen=True, eq=False)
class _Line:
    """One release attacked in every game; of records that explain it equally well the one nearest the truth counts."""

    released: ReleasedTable
    as_one: bool  # its only part is one equation
    rows: Tensor  # (games,) the missing row of each
    scoring: Scoring
    blind: Tensor  # (games, d)
    parts: Sequence[Part]
    name: str
    beside: _Line | None = None  # another line of the same games

    def played(self) -> Played:
        """This line of the audit, with what is known of each cell."""
        line = play(self, ClosedForm())
        return line._replace(finding=replace(line.finding, cells=self.cells.with_target(line.finding.target)))

    def answer(self, attack: Attack) -> Answer:
        """The missing row of every game."""
        start = time.perf_counter()
        guess, _ = self._nearest
        return Answer(attack, guess, time.perf_counter() - start)

    @property
    def label_given(self) -> bool:
        """Without an intercept and without sums the label must be known; of a Cox model time and event."""
        models = (part.fitted.model for part in self.parts if not part.fitted.sums)
        unlabelled = any(model is not None and model.bias is None for model in models)
        return unlabelled or any(part.fitted.hazards is not None for part in self.parts)

    @cached_property
    def solved(self) -> SolvedRows:
        """What the release tells of the missing rows."""
        if self.as_one:
            return _by_equation(self.parts[0].fitted, self.rows, self.label_given, at_optimum=self.beside is not None)
        by_trees = [revealed_by_trees(part, self.rows) for part in self.parts if part.fitted.forest is not None]
        parts = sorted(self.parts, key=_unsolved)
        return solved_by_parts(self.released, parts, self.rows, self.blind, by_trees, label_given=self.label_given)

    @cached_property
    def _nearest(self) -> tuple[Guess, NDArray[np.bool_]]:
        """The guess that counts; (games,) where it is not the likeliest."""
        return _nearest_candidate(self.solved.guess, self.released.table.x[self.rows], self.scoring)

    @cached_property
    def cells(self) -> CellsKept:
        """What is known of each cell."""
        table = self.released.table.x
        rebuilt = self.solved.cells._replace(values=self._nearest[0].records.x[:, 0].numpy())
        return CellsKept.of(rebuilt, self.solved.certain, table[self.rows], table)

    @cached_property
    def judging(self) -> LeaveOneOut:
        """How the answer is judged."""
        unsolved = max((_unsolved(part) for part in self.parts if part.fitted.model), default=None)
        more: dict[str, object] = {"stationarity": unsolved}
        if self.as_one:
            bars = None if self._errors is None else self._in_criterion(self._errors.bars(self._nearest[0]).predicted)
            more = {"predicted": bars, "stationarity": stationarity(self.parts[0].fitted)}
        return LeaveOneOut(
            self.released.table,
            self.rows,
            self.scoring,
            blind=self.blind,
            line=self.name,
            label_given=self.label_given,
            labels_attacked=_tell_label(self.parts),
            labels_known=self.solved.labels_known,
            labels_certain=self.solved.labels_certain,
            more=more,
            beside=None if self.beside is None else self.beside.judging,
        )

    @cached_property
    def _errors(self) -> ErrorScale | None:
        fitted = self.parts[0].fitted
        return ErrorScale.of(fitted) if fitted.sums or fitted.model else None

    def _in_criterion(self, bar: Tensor) -> NDArray[np.float64]:
        """An error bar in the metric that decides."""
        return self.scoring.criterion(bar, torch.zeros_like(bar)).numpy()

    def limits(self, not_seen: bool) -> NDArray[np.object_]:
        """(games,) the verdict on a row that is not rebuilt, even at the optimum.

        "Information-limited" is said only where it is known: all was read, and what it tells of the row is not exact,
        or rounding would hide it; of trees, which tell more than the attack uses, "attack-limited".
        """
        if not self.as_one:
            limited = (self.solved.cells.kept < Kept.EXACT).any(1)
        elif self._errors is None:
            limited = np.ones(len(self.rows), np.bool_)
        else:  # would the record be rebuilt if rounding were all that hides it? By its own residual
            fitted = self.parts[0].fitted
            r, _ = leading_equation(fitted).factors(fitted.table[self.rows], fitted.weight[self.rows])
            own = replace(self._nearest[0], confidence=r.norm(dim=1, keepdim=True))
            limited = ~(self._in_criterion(self._errors.bars(own).floor) <= self.scoring.threshold)
        by_trees = any(part.fitted.forest is not None for part in self.parts)
        verdict = Verdict.ATTACK_LIMITED if by_trees else Verdict.INFORMATION_LIMITED
        limits: NDArray[np.object_] = np.select([limited & (not not_seen)], [verdict], Verdict.UNDECIDED)
        return limits

    def equation_notes(self) -> list[str]:
        """What a reader of the table should know of one equation."""
        (guess, less_likely), model, notes = self._nearest, self.parts[0].fitted.model, []
        if model is not None and model.stopped_early:
            notes.append("the solver ran out of iterations (max_iter), or has a loose tolerance (tol).")
        if guess.alternatives is not None and (self.label_given or less_likely.any()):
            notes.append(
                "two or more records explain the weights equally well (guess.alternatives). The one nearest to the "
                f"truth counts and is shown; in {int(less_likely.sum())} games it is not the likeliest one."
            )
        return notes

    def cell_notes(self, released: _Line) -> list[str]:
        """How well the columns are known; `released` is the line of the model as it is."""
        notes, what = [], "the release"
        if not released._holds():
            what = "the model at its optimum"
            notes.append(
                "as released, most cells that the model should give are wrong: it is far from its optimum, or was not "
                "fitted on this table (were test rows passed too?)."
            )
        kept = (self.cells.each or self.solved.cells).kept  # exact only if it is the truth
        usual = np.median(kept, 0)  # (d,)
        usual = np.where((usual == Kept.LOST) & (kept.max(0) > Kept.LOST), IN_SOME_ROWS, usual)
        usual = np.where((usual == Kept.EXACT) & (kept.min(0) < Kept.EXACT), EXACT_IN_MOST_ROWS, usual)
        for how, words in HOW_KEPT.items():
            some = np.flatnonzero(usual == how).tolist()
            if some and (usual < Kept.EXACT).any():
                notes.append(f"{words.format(what)}: {self.released.columns.listed(some)}.")
        return notes

    def label_notes(self) -> list[str]:
        """Whether labels were attacked or given."""
        notes = []
        if not _tell_label(self.parts) and not _labels_open(self.released):
            notes.append(f"{NO_LABELS}, and none counts as right.")
        if any(part.fitted.hazards is not None for part in self.parts):
            notes.append(
                "the adversary knows time and event (and stratum) of the missing row. Of several rows that solve the "
                "score equation the one nearest to the truth counts."
            )
        elif self.label_given:
            notes.append("fitted without an intercept: the adversary knows the label (Balle et al. 2022, Theorem 8).")
        return notes

    def _holds(self) -> bool:
        """Are most of the cells that should be exact within the threshold of the truth?"""
        truth, values = self.released.table.x[self.rows], self._nearest[0].records.x[:, 0]
        deviation = (truth - truth.nanmean(0)).square().nanmean(0).sqrt().nan_to_num()
        close = (values - truth).abs() <= self.scoring.threshold * deviation
        close |= values.isnan() & truth.isnan()
        claimed = close[torch.from_numpy(self.solved.cells.kept == Kept.EXACT)]
        return not len(claimed) or float(claimed.double().mean()) > 0.5


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


def _with_verdicts(line: Played, at_best: NDArray[np.bool_], limits: NDArray[np.object_]) -> Played:
    """Rebuilt from this release; or only at the optimum; or not even there, by its limits."""
    rebuilt = line.finding.rebuilt
    verdicts = np.select([rebuilt, at_best], [Verdict.RECOVERABLE, Verdict.SOLVER_LIMITED], limits)
    return line._replace(finding=replace(line.finding, verdicts=tuple(Verdict(verdict) for verdict in verdicts)))


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
