"""Audit of a forest against an adversary who knows no row: the whole table is rebuilt from the counts of its trees."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from torch import Tensor

from lostwax.adapters import sklearn
from lostwax.adapters.sklearn.inputs import features
from lostwax.adapters.sklearn.trees import forest_alone
from lostwax.attacks.whole_table import RebuiltTable, Search, TooManyCellsError, WholeTable
from lostwax.audits.audit import Audit, Verdict
from lostwax.audits.cells import CellsKept
from lostwax.audits.checks import check_minutes, check_rows_differ
from lostwax.audits.judging import Answer
from lostwax.audits.matched import Claims, MatchedRows, WholeTableGames
from lostwax.audits.play import Settings, filled, judged, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Columns, Guess, Kept, Records
from lostwax.games.cells import Bounds
from lostwax.games.facts import threat_facts
from lostwax.games.trees import Forest
from lostwax.progress import clock_time, progress

SECONDS = 20.0  # of the search for a table, and as long again to prove which cells are certain
USUAL = 0.2  # share of blind tables with a row that has what is claimed of one: more are no news
REACH = 2  # deviations: how far from its mean an open interval goes
BINARY = np.array([0.0, 1.0])

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def audit_whole_table(model: Any, data: Any, threat: Any, settings: Settings, *, sample_weight: Any) -> Audit:
    """Rebuild all rows at once, and compare each with the true row that it is matched with."""
    games, seed, threshold, max_minutes = settings
    check_minutes(max_minutes, None)
    _check_threat(threat)
    forest = _forest(model)
    released = sklearn.released(model, data, sample_weight, seed=seed)
    if released.sample is not None:
        raise ValueError("audit: the table is too large to be rebuilt as a whole. Leave threat out.")
    x = torch.from_numpy(features(sklearn.unpack(data)[0]))  # as the forest sees it: booleans are numbers
    table = Records(x, released.table.y)
    check_rows_differ(x)
    _check_size(threat, games, len(table))
    columns = Columns(released.columns.names, ((),) * x.shape[1])
    public, seconds = Public.of(x.numpy()), SECONDS if max_minutes is None else 30 * max_minutes
    start = time.perf_counter()
    with progress(f"search for the table (at most {clock_time(2 * seconds)})"):
        found, unanswered = _rebuilt(forest, public, x.shape, seconds, seed)
    seconds_taken = time.perf_counter() - start
    judging = WholeTableGames(
        table,
        Scoring.of_cells(x, columns, threshold).by_cell(),
        blind=_blind(x, public),
        blocks=public.blocks,
        numbers=~public.binary,
        ordered=found.ordered,
        seed=seed,
    )
    matched, cells, claims = _matched(found, judging, public)
    exact = cells.kept == Kept.EXACT
    if found.ordered:
        certified = cells
    else:  # that there is a row with these values is no news where a blind table has one too
        unusual = judging.usual(claims) < USUAL
        kept = np.where(exact & unusual[:, None], Kept.EXACT, Kept.LOST)
        certified = cells._replace(kept=kept.astype(np.uint8))
    guess = Guess(
        Records(torch.from_numpy(matched.x)[:, None], torch.from_numpy(matched.labels)[:, None]),
        confidence=torch.from_numpy(exact).double().mean(1, keepdim=True),
        certified=torch.from_numpy(exact[:, (x.amax(0) > x.amin(0)).numpy()].all(1, keepdims=True)),
    )
    line = judged(judging, Answer(WholeTable(), guess, seconds_taken))
    finding = replace(
        line.finding,
        luck=judging.luck(matched),
        cells=CellsKept.of(cells, certified, x, x),
        verdicts=_verdicts(line.finding.rebuilt, settled=found.solves and found.proven),
    )
    return filled(
        judging,
        [line._replace(finding=finding)],
        subject=released.name,
        kind="this model",
        adversary=Adversary(0, len(table), "row"),
        threat="the adversary knows no row",
        attack=WholeTable.__name__,
        numbers=torch.arange(len(table)),
        population=len(table),
        seed=seed,
        provenance=of_table(table),
        notes=(*public.notes(columns), _order(found), _limit(seconds)),
        unanswered=unanswered,
        classes=released.classes,
        columns=columns.names,
    )


def _forest(model: Any) -> Forest:
    """The trees and their counts; an error that names what is not read."""
    if isinstance(model, Pipeline):
        raise TypeError(
            "audit: Pipeline: a table with no known row is rebuilt as the forest sees it. Pass the forest, with X as "
            "the steps before it give it: lw.audit(model[-1], (model[:-1].transform(X), y), threat=...)."
        )
    if hasattr(model, "best_estimator_"):
        raise TypeError(
            f"audit: {type(model).__name__}: pass its best_estimator_ to rebuild a table with no known row."
        )
    try:
        return forest_alone(model)
    except TypeError as error:
        raise TypeError(
            f"audit: {error} Leave threat out to audit what an adversary who knows all other rows can tell."
        ) from error


def _check_threat(threat: Any) -> None:
    """Refuse one that knows records: with the table, it is known which."""
    if isinstance(threat, type):
        raise TypeError(f"audit: expected a threat such as lw.Weak(size=100), got the class {threat.__name__}.")
    if threat_facts(threat).known is not None:
        raise TypeError(
            f"audit: {type(threat).__name__} knows records, and does not apply to a scikit-learn model with "
            "data=(X, y). Leave threat out: the adversary then knows every row but one. Or pass lw.Weak(size=len(y)), "
            "which knows none."
        )


def _check_size(threat: Any, games: int | None, rows: int) -> None:
    """All rows are secret, and all are rebuilt at once."""
    if (secrets := threat_facts(threat).secrets) != rows:
        raise ValueError(
            f"audit: the threat has {secrets:,} secret records, but the table has {rows:,} rows, and none is known. "
            f"Pass threat=lw.Weak(size={rows})."
        )
    if games not in (None, rows):
        raise ValueError(
            f"audit: expected games=None or all {rows:,} rows, got {games}: the table is rebuilt as a whole. Leave "
            "games out."
        )


class Public(NamedTuple):
    """What the adversary is assumed to know of the columns."""

    binary: Bools  # (d,) hold 0 and 1, and nothing else
    one_hot: tuple[tuple[int, ...], ...]  # neighbouring ones, of which each row has exactly one 1

    @classmethod
    def of(cls, x: Floats) -> Public:
        """Of a table."""
        binary: Bools = np.asarray(np.isin(x, BINARY).all(0))
        groups, start = list[tuple[int, ...]](), 0
        while start < x.shape[1]:
            sums = np.cumsum(x[:, start:], axis=1)  # (n, columns from here on)
            ends = np.flatnonzero((sums == 1).all(0) & np.cumprod(binary[start:], dtype=bool))
            width = int(ends[0]) + 1 if len(ends) else 1
            if width > 1:
                groups.append(tuple(range(start, start + width)))
            start += width
        return cls(binary, tuple(groups))

    @property
    def blocks(self) -> list[tuple[int, ...]]:
        """All columns, those of a group together."""
        grouped = {column for group in self.one_hot for column in group}
        return [*self.one_hot, *((column,) for column in range(len(self.binary)) if column not in grouped)]

    def notes(self, columns: Columns) -> list[str]:
        """What is assumed, in words."""
        notes = []
        if self.binary.any():
            notes.append(f"assumed public: these hold 0 or 1: {columns.listed(np.flatnonzero(self.binary).tolist())}.")
        notes += [f"assumed public: exactly one of these is 1: {columns.listed(group)}." for group in self.one_hot]
        if not self.binary.all():
            notes.append("of other columns, trees tell only between which two thresholds a value lies.")
        return notes


def _rebuilt(
    forest: Forest, public: Public, shape: torch.Size, seconds: float, seed: int
) -> tuple[RebuiltTable, tuple[str, ...]]:
    """The table, and what the search leaves open; a table of which nothing is known if it cannot be begun."""
    values = dict.fromkeys(np.flatnonzero(public.binary).tolist(), BINARY)
    try:
        found = WholeTable(Search(seconds))(forest, shape[1], values=values, one_hot=public.one_hot, seed=seed % 2**31)
    except TooManyCellsError as error:
        anything, nothing = np.full(shape, np.inf), np.zeros(shape, dtype=bool)
        labels = np.zeros(shape[0], dtype=np.int64)
        found = RebuiltTable(
            np.zeros(shape),
            -anything,
            anything,
            labels,
            nothing,
            nothing[:, 0],
            ordered=False,
            solves=False,
            proven=False,
        )
        return found, (str(error),)
    if not found.solves:
        return found, (
            f"The search was stopped after {seconds:g} s, before it found a table with all counts of the trees. Allow "
            "more minutes (max_minutes).",
        )
    if found.proven:
        return found, ()
    cure = "Allow more minutes (max_minutes)." if find_spec("ortools") else "Install lostwax[solver]."
    return found, (f"Which cells are the same in every table with these counts was not proven. {cure}",)


def _blind(x: Tensor, public: Public) -> Tensor:
    """(d,) the mean of each column, or its most common value; of a one-hot group the most common column."""
    mean = x.mean(0)
    blind = torch.where(torch.from_numpy(public.binary), (mean > 0.5).double(), mean)
    for group in map(list, public.one_hot):
        blind[group] = (torch.arange(len(group)) == mean[group].argmax()).double()
    return blind


def _matched(found: RebuiltTable, judging: WholeTableGames, public: Public) -> tuple[MatchedRows, Cells, Claims]:
    """The rebuilt rows beside the true ones, and what is known of each cell.

    Cells that nothing is known of are blind guesses; so is how far an interval goes that has no end.
    """
    truth, blind = judging.table.x.numpy(), judging.blind.numpy()
    spread = REACH * truth.std(0)
    low = np.where(np.isfinite(found.low), found.low, np.minimum(blind - spread, found.high))
    high = np.where(np.isfinite(found.high), found.high, np.maximum(blind + spread, found.low))
    unbounded = ~np.isfinite(found.low) & ~np.isfinite(found.high)
    known = np.where(public.binary, found.low == found.high, ~unbounded)
    x = np.where(public.binary, found.x, (low + high) / 2)
    grouped = np.isin(np.arange(len(blind)), [column for group in public.one_hot for column in group])
    x = np.where(known | grouped, x, blind)
    labels = found.labels.astype(np.int64)
    order = judging.order(x, labels)
    low, high, certain = found.low[order], found.high[order], found.certain[order]
    x, known = x[order], known[order]
    # a value is at most the threshold above it, as float32; a row that was matched with another need not be within
    within = (low <= truth.astype(np.float32)) & (truth.astype(np.float32) <= high)
    kinds = [~known, ~certain, low == high, within]
    kept = np.select(kinds, [Kept.LOST, Kept.ESTIMATED, Kept.EXACT, Kept.INTERVAL], Kept.ESTIMATED)
    cells = Cells(x, kept.astype(np.uint8), Bounds(low, high, np.zeros(x.shape, dtype=bool)))
    claims = Claims(
        low.astype(np.float64), high.astype(np.float64), certain & known, labels[order], found.label_certain[order]
    )
    return MatchedRows(x, labels[order], known), cells, claims


def _verdicts(rebuilt: Bools, *, settled: bool) -> tuple[Verdict, ...]:
    """Rows that are not rebuilt although the search came to its end are not in the counts of nodes."""
    other = Verdict.ATTACK_LIMITED if settled else Verdict.UNDECIDED
    return tuple(Verdict.RECOVERABLE if won else other for won in rebuilt.tolist())


def _order(found: RebuiltTable) -> str:
    if found.ordered:
        return "bootstraps are drawn again from the seeds in the model and tell rows apart: row i is rebuilt as row i."
    return "rows are rebuilt without their order: each is compared with the true row of a best matching, as chance is."


def _limit(seconds: float) -> str:
    return f"the search took at most {seconds:g} s for a table, and as long again for others (max_minutes sets both)."
