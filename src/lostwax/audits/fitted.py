"""Audit of this very model: one release, its training table, and the game "which row is missing?" for every row."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.closed_form.attack import known_moments
from lostwax.attacks.closed_form.evidence import ErrorScale, certain_labels, leading_equation
from lostwax.audits.audit import Audit, Verdict
from lostwax.audits.cells import CellsKept
from lostwax.audits.checks import check_rows_differ, few_rows
from lostwax.audits.judging import Answer, LeaveOneOut
from lostwax.audits.play import Played, Settings, filled, judged, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Fitted, Guess, Hints, Kept, Records, Table
from lostwax.games.facts import loss_facts
from lostwax.games.fitted import blocks, gap
from lostwax.progress import progress
from lostwax.trainers.optimum import polish

RECOVERABLE, SOLVER, INFORMATION = Verdict.RECOVERABLE, Verdict.SOLVER_LIMITED, Verdict.INFORMATION_LIMITED
UNDECIDED = Verdict.UNDECIDED
LARGE = 5_000_000  # cells of a table, above which a sample of its rows is attacked unless games are given
SAMPLED_GAMES = 1_000


def audit_fitted(fitted: Fitted, settings: Settings, shape: tuple[int, ...] | None = None) -> Audit:
    """Play rows that are drawn by the seed against the model as released and as converged.

    `shape` is that of a record where it is more than a row of features: an image.
    """
    rows = _trained_on(fitted)
    chosen, sampled = drawn(Table(fitted.table, rows), settings)
    x = fitted.table.x if shape is None else fitted.table.x.reshape(-1, *shape)
    scoring = Scoring.of(x, settings.threshold, with_secrets=True)
    best = None if fitted.model is None else converged(fitted)
    missing = (no_optimum(fitted),) if fitted.model is not None and best is None else ()
    released = _Line(fitted, chosen, scoring, "as released")
    optimum = None if best is None else _Line(best, chosen, scoring, "as converged", beside=released)
    lines = [released.played(_verdicts(released, optimum))]
    unanswered = missing
    if optimum is not None:
        lines.append(optimum.played(_verdicts(optimum, optimum)))
        open_ones = lines[1].finding.verdicts.count(UNDECIDED)
        why = f"{open_ones} records were not rebuilt at the optimum although rounding alone does not hide them there."
        unanswered = (why,) if open_ones else ()
    return filled(
        released.judging,
        lines,
        subject=fitted.name,
        kind="this model",
        adversary=Adversary.insider(len(rows), "row"),
        threat="the adversary knows every row but one",
        attack=ClosedForm.__name__,
        numbers=chosen,
        population=len(rows),
        truth=Records(x[chosen], fitted.table.y[chosen]),
        labels_given=_needs_label(fitted),
        seed=settings.seed,
        provenance=of_table(fitted.table),
        # sums are what is attacked where there are any, at the optimum as here
        notes=(
            *fitted.notes,
            *sampled,
            *weightless(len(fitted.table) - len(rows)),
            *(missing if fitted.sums else ()),
            *released.notes(),
        ),
        unanswered=(*fitted.unread, *(() if fitted.sums else unanswered), *few_rows(fitted.table.x)),
        classes=fitted.classes,
        columns=fitted.columns,
    )


def weightless(rows: int) -> tuple[str, ...]:
    """A note about rows that do not count, if there are any."""
    return (
        (f"{rows:,} rows have no weight: the model was not trained on them, and they are not tried.",) if rows else ()
    )


def drawn(table: Table, settings: Settings) -> tuple[Tensor, tuple[str, ...]]:
    """The rows that are attacked, and a note if not all are: large tables are sampled unless `games` is given."""
    rows, cells = len(table.playable), table.records.x.numel()
    games, seed = settings.games, settings.seed
    if games is not None or cells <= LARGE or rows <= SAMPLED_GAMES:
        return table.draw(games, seed), ()
    note = (
        f"a table of {cells:,} cells: {SAMPLED_GAMES:,} of {rows:,} rows were attacked, drawn by seed={seed}. "
        f"Pass games={rows} to attack all."
    )
    return table.draw(SAMPLED_GAMES, seed), (note,)


def _trained_on(fitted: Fitted) -> Tensor:
    """The rows that something in the release depends on; an error where all are the same, or none has any weight."""
    check_rows_differ(fitted.table.x)
    weighted = fitted.weight > 0
    if not weighted.any():
        raise ValueError("audit: no row of X has any weight (sample_weight times class_weight): nothing was trained.")
    by_all = bool(fitted.extremes) or any(not sums.weighted for sums in fitted.sums)
    return torch.arange(len(weighted)) if by_all else weighted.nonzero().flatten()


class _Line:
    """One release attacked in every game; of records that explain it equally well the one nearest the truth counts."""

    def __init__(self, fitted: Fitted, rows: Tensor, scoring: Scoring, name: str, beside: _Line | None = None) -> None:
        self.fitted, self.rows, self.scoring = fitted, rows, scoring
        truth = fitted.table[rows] if beside is None else beside.judging.secrets
        hints = Hints(labels=truth.y[:, None]) if _needs_label(fitted) else None
        start = time.perf_counter()
        offered = ClosedForm().leave_one_out(fitted, rows, hints, at_optimum=beside is not None)
        self.seconds = time.perf_counter() - start
        self.guess, self.less_likely = likeliest(offered, truth, scoring)
        self.rebuilt = scoring.rebuilt(scoring.errors(self.guess.records.x[:, 0], truth.x))
        self.errors = ErrorScale.of(fitted) if fitted.sums or fitted.model else None
        predicted = None if self.errors is None else self.in_criterion(self.errors.bars(self.guess).predicted)
        self.judging: LeaveOneOut = LeaveOneOut(
            fitted.table,
            rows,
            scoring,
            blind=known_moments(fitted.table, rows)[0] if beside is None else beside.judging.blind,
            line=name,
            label_given=_needs_label(fitted),
            labels_attacked=fitted.tells_label() and (beside is None or not fitted.doubtful),
            labels_certain=self._labels_certain(),
            more={"predicted": predicted, "stationarity": stationarity(fitted)},
            beside=None if beside is None else beside.judging,
        )

    def played(self, verdicts: tuple[Verdict, ...]) -> Played:
        """This line of the audit."""
        line = judged(self.judging, Answer(ClosedForm(), self.guess, self.seconds))
        cells = self._cells().with_target(line.finding.target)
        return line._replace(finding=replace(line.finding, verdicts=verdicts, cells=cells))

    def _cells(self) -> CellsKept:
        """What is known of each cell: sums hold to rounding, so that what they give is certain."""
        x = self.guess.records.x[:, 0]
        kept = torch.full(x.shape, int(Kept.EXACT), dtype=torch.uint8)
        cells = Cells(x.numpy(), (kept if self.guess.kept is None else self.guess.kept[:, 0]).numpy())
        certified = cells if self.fitted.sums else None
        return CellsKept.of(cells, certified, self.fitted.table.x[self.rows], self.fitted.table.x)

    def _labels_certain(self) -> Tensor | None:
        """(games,) labels that follow from counts of classes, or from an equation that holds to rounding."""
        fitted, size = self.fitted, self.guess.confidence[:, 0]
        if fitted.sums:
            return size > 0 if fitted.model is None and fitted.sums[-1].by_label else None
        return None if fitted.model is None else certain_labels(fitted.model, fitted.table, fitted.weight, size)

    def in_criterion(self, bar: Tensor) -> NDArray[np.float64]:
        """An error bar in the metric that decides."""
        return self.scoring.criterion(bar, torch.zeros_like(bar)).numpy()

    def within_reach(self) -> NDArray[np.bool_]:
        """(games,) would the record be rebuilt if rounding were all that hides it? By its own residual."""
        if self.errors is None:
            return np.zeros_like(self.rebuilt)
        r, _ = leading_equation(self.fitted).factors(self.fitted.table[self.rows], self.fitted.weight[self.rows])
        own = replace(self.guess, confidence=r.norm(dim=1, keepdim=True))
        return np.asarray(self.in_criterion(self.errors.bars(own).floor) <= self.scoring.threshold)

    def notes(self) -> list[str]:
        """What a reader of the table should know."""
        model = self.fitted.model
        notes = []
        if model is not None and model.stopped_early:
            notes.append("the solver ran out of iterations (max_iter), or has a loose tolerance (tol).")
        if not self.fitted.tells_label():
            notes.append("labels were not attacked: nothing that was read depends on them, and none counts as right.")
        if _needs_label(self.fitted):
            notes.append("fitted without an intercept: the adversary knows the label (Balle et al. 2022, Theorem 8).")
        if self.guess.alternatives is not None and (_needs_label(self.fitted) or self.less_likely.any()):
            notes.append(
                "two or more records explain the weights equally well (guess.alternatives). The one nearest to the "
                f"truth counts and is shown; in {int(self.less_likely.sum())} games it is not the likeliest one."
            )
        return notes


def likeliest(guess: Guess, truth: Records, scoring: Scoring) -> tuple[Guess, NDArray[np.bool_]]:
    """The guess with the candidate nearest to the truth in place of the likeliest; (games,) where they differ."""
    if guess.alternatives is None:
        return guess, np.zeros(len(truth), dtype=np.bool_)
    x, y = (torch.cat([getattr(rows, part) for rows in (guess.records, guess.alternatives)], 1) for part in "xy")
    errors = torch.from_numpy(np.stack([scoring.scores(one, truth.x).criterion for one in x.unbind(1)], 1))
    best, games = errors.argmin(1), torch.arange(len(truth))  # of equal ones the first
    nearer = errors[games, best] < errors[:, 0]
    best = torch.where(nearer, best, 0)
    records = Records(x[games, best][:, None], y[games, best][:, None])
    return replace(guess, records=records), nearer.numpy()


def _verdicts(now: _Line, best: _Line | None) -> tuple[Verdict, ...]:
    """Rebuilt from this release; or only from the same model at its optimum; or not even there.

    "Information-limited" is said only where it is known: every part of the release was read, the optimum was reached,
    and rounding alone would hide the record there. All else that was not rebuilt is undecided.
    """
    if now.fitted.sums:  # they need no solver
        best = now
    at_best = np.zeros_like(now.rebuilt) if best is None else best.rebuilt
    not_seen = bool(now.fitted.unread) or (best is None and now.fitted.model is not None)
    open_question = (now if best is None else best).within_reach() | not_seen
    verdicts = np.select([now.rebuilt, at_best, open_question], [RECOVERABLE, SOLVER, UNDECIDED], INFORMATION)
    return tuple(Verdict(verdict) for verdict in verdicts)


def converged(fitted: Fitted) -> Fitted | None:
    """The same model at the optimum of its objective, facts without a model as they are; None if there is none."""
    if fitted.model is None:
        return fitted
    with progress("the optimum of the model"):
        polished = polish(fitted.model, fitted.table, fitted.weight)
    return replace(fitted, model=polished.model) if polished.converged else None


def no_optimum(fitted: Fitted) -> str:
    """Why there is no line 'as converged'."""
    reason = "no optimum could be reached"
    model = fitted.model
    facts = None if model is None else loss_facts(model.loss, len(model.weight))
    if model is not None and facts is not None and not facts.attained and not model.ridge.any():
        reason += ": without a penalty, separable classes have no optimum, and the weights grow without limit"
    return f"There is no line 'as converged': {reason}."


def _needs_label(fitted: Fitted) -> bool:
    return fitted.model is not None and fitted.model.bias is None and not fitted.sums


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
