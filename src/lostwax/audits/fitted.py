"""Audit of this very model: one release, its training table, and the game "which row is missing?" for every row."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.closed_form.error_bars import ErrorBars, error_bars
from lostwax.attacks.closed_form.known_rows import known_moments
from lostwax.audits.audit import Audit, Finding, Verdict
from lostwax.audits.scoring import Scoring
from lostwax.equations import unexplained
from lostwax.losses import BinaryCrossEntropy, CrossEntropy
from lostwax.provenance import fingerprint, machine, versions
from lostwax.trainers.newton_polish import polish
from lostwax.types import Fitted, Guess, Hints, Records

RECOVERABLE, SOLVER, INFORMATION = Verdict.RECOVERABLE, Verdict.SOLVER_LIMITED, Verdict.INFORMATION_LIMITED
UNDECIDED = Verdict.UNDECIDED


def audit_fitted(
    fitted: Fitted, *, games: int | None, seed: int, threshold: float, shape: tuple[int, ...] | None = None
) -> Audit:
    """Play `games` rows (all when None), drawn by `seed`, against the model as released and as converged.

    `shape` is that of a record where it is more than a row of features: an image.
    """
    chosen = draw(len(fitted.table), games, seed)
    x = fitted.table.x if shape is None else fitted.table.x.reshape(-1, *shape)
    scoring = Scoring.of(x, threshold, with_secrets=True)
    best, missing = _converged(fitted)
    released = _Played(fitted, chosen, scoring)
    converged = None if best is None else _Played(best, chosen, scoring)
    findings = [released.finding("as released", _verdicts(released, converged))]
    if converged is not None:
        findings.append(converged.finding("as converged", _verdicts(converged, converged)))
    blind, _ = known_moments(fitted.table, chosen)
    truth = fitted.table[chosen].x
    nearest = fitted.table.x[torch.from_numpy(scoring.oracle(truth, fitted.table.x, not_row=chosen).nearest)]
    return Audit(
        subject=fitted.name,
        kind="this model",
        threat="the adversary knows every row but one",
        attack=ClosedForm.__name__,
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=threshold,
        games=chosen.numpy(),
        population=len(fitted.table),
        truth=Records(x[chosen], fitted.table.y[chosen]),
        findings=tuple(findings),
        oracle="nearest known row",
        baselines={
            "blind guess (mean of the known)": scoring.errors(blind, truth),
            "nearest known row": scoring.errors(nearest, truth),
        },
        provenance={
            "versions": versions(),
            "machine": machine(),
            "seed": seed,
            "data": fingerprint(fitted.table.x, fitted.table.y.double()),
            "rows": len(fitted.table),
            "features": fitted.table.x.shape[1],
        },
        # sums are what is attacked where there are any, at the optimum as here
        notes=(*fitted.notes, *(missing if fitted.sums else ()), *released.notes()),
        unanswered=() if fitted.sums else missing,
        classes=fitted.classes,
        columns=fitted.columns,
    )


class _Played:
    """One release attacked in every game, with what the auditor sees of it."""

    def __init__(self, fitted: Fitted, games: Tensor, scoring: Scoring) -> None:
        self.fitted, self.scoring, self.truth = fitted, scoring, fitted.table[games]
        hints = Hints(labels=self.truth.y[:, None]) if _needs_label(fitted) else None
        start = time.perf_counter()
        self.guess: Guess = ClosedForm().leave_one_out(fitted, games, hints)
        self.seconds = time.perf_counter() - start
        self.rebuilt = scoring.rebuilt(scoring.errors(self.guess.records.x[:, 0], self.truth.x))
        self.bars: ErrorBars = error_bars(fitted, self.guess)

    def listed(self) -> NDArray[np.bool_]:
        """(games,) is the truth the guess, or one of the other records that explain the release as well?"""
        if self.guess.alternatives is None:
            return self.rebuilt
        others = self.guess.alternatives.x.unbind(1)
        found = [self.scoring.rebuilt(self.scoring.errors(other, self.truth.x)) for other in others]
        return np.asarray(np.logical_or.reduce([self.rebuilt, *found]))

    def foretold(self, bar: Tensor) -> NDArray[np.float64]:
        """An error bar in the metric that decides."""
        return self.scoring.criterion(bar, torch.zeros_like(bar)).numpy()

    def finding(self, name: str, verdicts: tuple[Verdict, ...]) -> Finding:
        """This line of the audit."""
        return self.scoring.finding(
            name,
            self.guess,
            self.truth,
            labels=self.fitted.table.y,
            seconds=self.seconds,
            predicted=self.foretold(self.bars.predicted),
            verdicts=verdicts,
            stationarity=_stationarity(self.fitted),
        )

    def notes(self) -> list[str]:
        """What a reader of the table should know."""
        model = self.fitted.model
        notes = []
        if model is not None and model.stopped_early:
            notes.append("the solver ran out of iterations (max_iter), or was told to be content with little (tol).")
        if _needs_label(self.fitted):
            undecided = int((self.listed() & ~self.rebuilt).sum())
            notes.append(
                "fitted without an intercept: the adversary is told the label (S1 Theorem 8), and two records explain "
                f"the weights alike; in {undecided} games the truth is the one that looks less likely. Both are in "
                "guess.alternatives, and both count as recoverable."
            )
        return notes


def _verdicts(now: _Played, best: _Played | None) -> tuple[Verdict, ...]:
    """Rebuilt from this release; or only from the same model at its optimum; or not even there.

    Where no optimum was reached, that rounding alone would hide a record can still be foretold; of others nobody has
    seen what the solver hides.
    """
    if now.fitted.sums:  # they need no solver
        best = now
    at_best = now.foretold(now.bars.floor) <= now.scoring.threshold if best is None else best.listed()
    hidden = UNDECIDED if best is None else SOLVER
    pairs = zip(now.listed().tolist(), at_best.tolist(), strict=True)
    return tuple(RECOVERABLE if found else hidden if findable else INFORMATION for found, findable in pairs)


def _converged(fitted: Fitted) -> tuple[Fitted | None, tuple[str, ...]]:
    """The same model at the optimum of its objective; or why that is missing."""
    if fitted.model is None:
        return None, ()
    polished = polish(fitted.model, fitted.table, fitted.weight)
    if polished.converged:
        return replace(fitted, model=polished.model), ()
    reason = "no optimum could be reached"
    if isinstance(fitted.model.loss, CrossEntropy | BinaryCrossEntropy) and not fitted.model.ridge.any():
        reason += ": without a penalty, separable classes have none, and the weights grow for ever"
    return None, (f"There is no line 'as converged': {reason}.",)


def _needs_label(fitted: Fitted) -> bool:
    return fitted.model is not None and fitted.model.bias is None and not fitted.sums


def draw(rows: int, games: int | None, seed: int) -> Tensor:
    """Which rows are played for, in order."""
    if games is None:
        return torch.arange(rows)
    return torch.randperm(rows, generator=torch.Generator().manual_seed(seed))[:games].sort().values


def _stationarity(fitted: Fitted) -> float:
    """|what all rows leave unexplained| over the sum of the rows' own terms."""
    equation = fitted.sums[0] if fitted.model is None else fitted.model
    gap, _ = unexplained(equation, fitted.table, fitted.weight)
    r, f = equation.factors(fitted.table, fitted.weight)
    size = (r.abs().mT @ f.abs()).norm()
    return float(gap.norm() / size) if size > 0 else 0.0
