"""Audit of trees against an adversary who knows no row: the whole table is rebuilt from the sums of their nodes.

Where the order of rows is not known, each true row is compared with the rebuilt row that a best matching gives it. This
favours every guess, so chance is favoured alike: what the attack tells of each column is dealt anew among its rows, and
the table matched again. Such a table has the frequencies of the rebuilt one, in each class, and knows no row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.pipeline import Pipeline
from torch import Tensor

from lostwax.adapters import sklearn
from lostwax.adapters.sklearn.boosting import (
    is_boosted,
    is_booster,
    released_booster,
    released_sums,
    sums_over_rows,
)
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.inputs import features
from lostwax.adapters.sklearn.trees import forest_alone
from lostwax.attacks.whole_table import (
    BoostedTable,
    NotTheseRowsError,
    RebuiltTable,
    Search,
    TooManyCellsError,
    WholeTable,
)
from lostwax.audits.audit import Audit, CellsKept, Verdict
from lostwax.audits.checks import check_minutes, check_rows_differ
from lostwax.audits.climb import Public
from lostwax.audits.luck import Luck
from lostwax.audits.play import Answer, OneGamePerRow, Settings, filled, judged, of_table
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Columns, Guess, Kept, MetricFacts, Records
from lostwax.games.boosting import BoostedSums
from lostwax.games.cells import Bools, Bounds
from lostwax.games.facts import stated, threat_facts
from lostwax.games.trees import Forest, Ints
from lostwax.progress import clock_time, progress
from lostwax.seeds import generator

SECONDS = 20.0  # of the search for a table, and as long again to prove which cells are certain
USUAL = 0.2  # share of blind tables with a row that has what is claimed of one: more are no news
REACH = 2  # deviations: how far from its mean an open interval goes
DRAWS = 399  # blind tables: one that is better than all of them is so by chance with probability 1/400
MAX_COMPARED_ROWS = 500  # rows that blind tables are matched with
CLAIM_DRAWS = 99  # blind tables in which rows are looked for
MIN_CLASS_ROWS = 5  # rows of a class whose frequencies chance is given; smaller classes are taken together
LABEL = 1e-6  # what a wrong label costs: it decides between rows that are equal
BLIND, BLIND_TABLE = "blind guess (means and most common values)", "blind table (columns shuffled)"

Floats = NDArray[np.float64]


class TreesToSearch(NamedTuple):
    """Trees that are read with no row known: a forest that counts its rows, or boosted trees and their nodes' sums."""

    forest: Forest | None = None
    sums: BoostedSums | None = None

    @classmethod
    def of(cls, model: Any) -> TreesToSearch:
        """The trees; an error that names what is not read."""
        if isinstance(model, Pipeline):
            raise TypeError(
                "audit: Pipeline: a table with no known row is rebuilt as the trees see it. Pass the trees, with X as "
                "the steps before them give it: lw.audit(model[-1], (model[:-1].transform(X), y), threat=...)."
            )
        if hasattr(model, "best_estimator_"):
            raise TypeError(
                f"audit: {type(model).__name__}: pass its best_estimator_ to rebuild a table with no known row."
            )
        try:
            if is_boosted(model) or sums_over_rows(model):
                return cls(sums=released_sums(model))
            return cls(forest_alone(model))
        except (TypeError, SettingNotReadError) as error:
            raise TypeError(
                f"audit: {error} Leave threat out to audit what an adversary who knows all other rows can tell."
            ) from error

    @property
    def attack(self) -> WholeTable | BoostedTable:
        """Which attack searches."""
        return WholeTable() if self.sums is None else BoostedTable()

    def searched(
        self, public: Public, shape: tuple[int, int], ends: tuple[Floats, Floats], seconds: float, seed: int
    ) -> SearchedTable:
        """What the search finds in these seconds, and again as many for other tables."""
        known: dict[str, Any] = {"values": public.values, "one_hot": public.one_hot, "seed": seed % 2**31}
        if self.sums is not None:
            return _by_sums(self.sums, shape, seconds, {**known, "ends": ends})
        assert self.forest is not None
        try:
            table = WholeTable(Search(seconds))(self.forest, shape[1], **known)
        except TooManyCellsError as error:
            return SearchedTable(_nothing(shape), (str(error),))
        if not table.solves:
            return SearchedTable(
                table,
                (
                    f"The search was stopped after {seconds:g} s, before it found a table with all counts of the "
                    "trees. Allow more minutes (max_minutes).",
                ),
            )
        if table.proven:
            return SearchedTable(table)
        cure = "Allow more minutes (max_minutes)." if find_spec("ortools") else "Install lostwax[solver]."
        return SearchedTable(
            table, (f"Which cells are the same in every table with these counts was not proven. {cure}",)
        )


class SearchedTable(NamedTuple):
    """A table that a search rebuilt, of which nothing is known if it could not be begun."""

    table: RebuiltTable
    unanswered: tuple[str, ...] = ()  # what the search leaves open
    notes: tuple[str, ...] = ()


def _by_sums(sums: BoostedSums, shape: tuple[int, int], seconds: float, known: dict[str, Any]) -> SearchedTable:
    """Tree by tree of a booster."""
    try:
        table = BoostedTable(2 * seconds)(sums, shape, **known)
    except NotTheseRowsError as error:
        raise ValueError(
            f"audit: {sums.name}: the first tree was not grown on these {shape[0]:,} rows, each once. It is not read "
            "with no known row if rows were weighted, drawn (subsample) or held out, or if leaves are bounded "
            "(monotone constraints, max_delta_step). Leave threat out."
        ) from error
    solved, trees = table.trees, len(sums.trees)
    said = f"no table has the sums of tree {solved.fits} as they were read: nothing is taken as proven."
    if solved.consistent:
        said = (
            f"{solved.proven} of {trees} trees were solved with proof; the rebuilt rows have the sums of {solved.fits}."
        )
    left = (
        f"The sums of {trees - solved.proven} of {trees} trees were not solved with proof: what rests on them is a "
        "guess, or unknown. More minutes (max_minutes) may solve more."
    )
    return SearchedTable(table, (left,) if solved.proven < trees else (), (*sums.notes, said))


def _nothing(shape: tuple[int, int]) -> RebuiltTable:
    anything, nothing = np.full(shape, np.inf), np.zeros(shape, dtype=bool)
    known = np.zeros(shape), -anything, anything, np.zeros(shape[0], dtype=np.int64), nothing, nothing[:, 0]
    return RebuiltTable(*known, ordered=False, solves=False, proven=False)


def objection_without_rows(model: Any) -> str | None:
    """Why a table cannot be rebuilt from this model with no row known; None: it can be tried. Takes milliseconds.

    What it needs beside the model: the number of rows, and which columns hold 0 and 1 only.
    """
    try:
        TreesToSearch.of(model)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def audit_whole_table(model: Any, data: Any, threat: Any, settings: Settings, *, sample_weight: Any) -> Audit:
    """Rebuild all rows at once, and compare each with the true row that it is matched with."""
    games, seed, threshold, max_minutes, *_ = settings
    check_minutes(max_minutes)
    _check_threat(threat, games)
    trees = TreesToSearch.of(model)
    if is_booster(model):
        released = released_booster(model, data, sample_weight)
    else:
        released = sklearn.released(model, data, sample_weight, seed=seed)
    if released.sample is not None:
        raise ValueError("audit: the table is too large to be rebuilt as a whole. Leave threat out.")
    x = torch.from_numpy(features(sklearn.unpack(data)[0]))  # as the forest sees it: booleans are numbers
    table = Records(x, released.table.y)
    check_rows_differ(x)
    if torch.isnan(x).any():
        raise ValueError("audit: a table with missing values and no known row is not read. Leave threat out.")
    _check_threat(threat, games, len(table))
    columns = Columns(released.columns.names, ((),) * x.shape[1])
    public, seconds = Public.of(x.numpy()), SECONDS if max_minutes is None else 30 * max_minutes
    start = time.perf_counter()
    with progress(f"search for the table (at most {clock_time(2 * seconds)})"):
        search = trees.searched(public, (len(x), x.shape[1]), _ends(x), seconds, seed)
    rebuilt = search.table
    seconds_taken = time.perf_counter() - start
    judging = WholeTableGames(
        table,
        Scoring.of_cells(x, columns, threshold).by_cell(),
        blind=_blind(x, public),
        blocks=public.blocks,
        numbers=~public.binary,
        ordered=rebuilt.ordered,
        seed=seed,
    )
    matched, cells, claims = _matched(rebuilt, judging, public)
    exact = cells.kept == Kept.EXACT
    if rebuilt.ordered:
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
    line = judged(judging, Answer(trees.attack, guess, seconds_taken))
    # a row that is not rebuilt although the search came to its end is not in the counts of nodes
    other = Verdict.ATTACK_LIMITED if rebuilt.solves and rebuilt.proven else Verdict.UNDECIDED
    finding = replace(line.finding, luck=judging.luck_of(matched), cells=CellsKept.of(cells, certified, x, x))
    finding = finding.with_verdicts(finding.rebuilt, other)
    order = "rows are rebuilt without their order: each is compared with the true row of a best matching, as chance is."
    if rebuilt.ordered:
        order = "bootstraps are drawn again from the seeds in the model and tell rows apart: row i is rebuilt as row i."
    limit = f"the search took at most {seconds:g} s for a table, and as long again for others (max_minutes sets both)."
    return filled(
        judging,
        [line._replace(finding=finding)],
        subject=released.name,
        kind="this model",
        adversary=Adversary(0, len(table), "row"),
        threat="the adversary knows no row",
        attack=type(trees.attack).__name__,
        numbers=torch.arange(len(table)),
        population=len(table),
        seed=seed,
        provenance=of_table(table),
        notes=(*public.notes(columns), order, limit, *search.notes),
        unanswered=search.unanswered,
        classes=released.classes,
        columns=columns.names,
    )


def _check_threat(threat: Any, games: int | None, rows: int | None = None) -> None:
    """Refuse one that knows records: with the table, it is known which. All rows are secret, and rebuilt at once."""
    if isinstance(threat, type):
        raise TypeError(f"audit: expected a threat such as lw.Weak(size=100), got the class {threat.__name__}.")
    facts = threat_facts(threat)
    if facts.known is not None:
        raise TypeError(
            f"audit: {type(threat).__name__} knows records, and does not apply to a scikit-learn model with "
            "data=(X, y). Leave threat out: the adversary then knows every row but one. Or pass lw.Weak(size=len(y)), "
            "which knows none."
        )
    if rows is not None and facts.secrets != rows:
        raise ValueError(
            f"audit: the threat has {facts.secrets:,} secret records, but the table has {rows:,} rows, and none is "
            f"known. Pass threat=lw.Weak(size={rows})."
        )
    if rows is not None and games not in (None, rows):
        raise ValueError(
            f"audit: expected games=None or all {rows:,} rows, got {games}: the table is rebuilt as a whole. Leave "
            "games out."
        )


def _ends(x: Tensor) -> tuple[Floats, Floats]:
    """(d,) each: about how far columns go, which blind guesses know too."""
    mean, spread = x.mean(0).numpy(), REACH * x.std(0, correction=0).numpy()
    return mean - spread, mean + spread


def _blind(x: Tensor, public: Public) -> Tensor:
    """(d,) the mean of each column, or its most common value; of a one-hot group the most common column."""
    mean = x.mean(0)
    blind = torch.where(torch.from_numpy(public.binary), (mean > 0.5).double(), mean)
    for group in map(list, public.one_hot):
        blind[group] = (torch.arange(len(group)) == mean[group].argmax()).double()
    return blind


def _matched(rebuilt: RebuiltTable, judging: WholeTableGames, public: Public) -> tuple[MatchedRows, Cells, Claims]:
    """The rebuilt rows beside the true ones, and what is known of each cell.

    Cells that nothing is known of are blind guesses; so is how far an interval goes that has no end.
    """
    truth, blind = judging.secrets.x.numpy(), judging.blind.numpy()
    spread = REACH * truth.std(0)
    low = np.where(np.isfinite(rebuilt.low), rebuilt.low, np.minimum(blind - spread, rebuilt.high))
    high = np.where(np.isfinite(rebuilt.high), rebuilt.high, np.maximum(blind + spread, rebuilt.low))
    unbounded = ~np.isfinite(rebuilt.low) & ~np.isfinite(rebuilt.high)
    known = np.where(public.binary, rebuilt.low == rebuilt.high, ~unbounded)
    if rebuilt.valued:
        known |= np.isfinite(rebuilt.x)
        middle = rebuilt.x
    else:
        middle = np.where(public.binary, rebuilt.x, (low + high) / 2)
    grouped = np.isin(np.arange(len(blind)), [column for group in public.one_hot for column in group])
    x = np.where((known | grouped) & np.isfinite(middle), middle, blind)
    labels: Ints | Floats = rebuilt.labels.astype(np.float64) if judging.targets else rebuilt.labels.astype(np.int64)
    order = judging.order(x, labels)
    low, high, certain = rebuilt.low[order], rebuilt.high[order], rebuilt.certain[order]
    x, known = x[order], known[order]
    # a value is at most the threshold above it, perhaps as float32; the row of another need not be within
    single = truth.astype(np.float32)
    within = (low <= np.maximum(truth, single)) & (np.minimum(truth, single) <= high)
    kinds = [~known, ~certain, low == high, within]
    kept = np.select(kinds, [Kept.LOST, Kept.ESTIMATED, Kept.EXACT, Kept.INTERVAL], Kept.ESTIMATED)
    cells = Cells(x, kept.astype(np.uint8), Bounds(low, high, np.zeros(x.shape, dtype=bool)))
    claims = Claims(
        low.astype(np.float64), high.astype(np.float64), certain & known, labels[order], rebuilt.label_certain[order]
    )
    return MatchedRows(x, labels[order], known), cells, claims


class MatchedRows(NamedTuple):
    """What a rebuilt table tells, its rows in the order of the true ones that they were matched with."""

    x: Floats  # (n, d)
    labels: Ints | Floats  # (n,)
    known: Bools  # (n, d) cells that the model tells anything about; others are blind guesses


class Claims(NamedTuple):
    """What is proven of some rows, whichever they are."""

    low: Floats  # (n, d)
    high: Floats  # (n, d)
    certain: Bools  # (n, d) the cell is within its bounds
    labels: Ints | Floats  # (n,)
    label_certain: Bools  # (n,)

    def held_by(self, x: Floats, labels: Ints | Floats) -> Bools:
        """(n, m) whether each row of a table (m, d) has what is claimed of each."""
        holds: Bools = ~self.label_certain[:, None] | (self.labels[:, None] == labels)
        for low, high, certain, cells in zip(self.low.T, self.high.T, self.certain.T, x.T, strict=True):
            holds &= ~certain[:, None] | ((low[:, None] <= cells) & (cells <= high[:, None]))
        return holds


@dataclass(frozen=True, eq=False)
class WholeTableGames(OneGamePerRow):
    """One game per row of a table that is rebuilt as a whole."""

    secrets: Records  # (n, d), (n,) the table
    scoring: Scoring
    blind: Tensor  # (d,) a guess for every row
    blocks: Sequence[Sequence[int]]  # columns; those of a one-hot group together
    numbers: Bools  # (d,) columns whose values are not public
    ordered: bool  # row i of the rebuilt table is row i
    seed: int

    def order(self, x: Floats, labels: Ints | Floats | None = None, rows: Ints | None = None) -> Ints:
        """(r,) the row of a table (n, d) that is compared with each of the true rows, or of all."""
        rows = np.arange(len(self.secrets)) if rows is None else rows
        if self.ordered:
            return rows
        # RMSE is a metric, in which equal rows are paired before all others
        costs = cdist(self._units(self.secrets.x.numpy()[rows]), self._units(x))
        if labels is not None:
            off = np.abs(self.secrets.y.numpy()[rows, None] - labels)
            costs += LABEL * (off / max(float(off.max()), 1e-300) if self.targets else off > 0)
        return np.asarray(linear_sum_assignment(costs)[1], dtype=np.int64)

    @property
    def targets(self) -> bool:
        """Whether labels are numbers, not classes."""
        return self.secrets.y.is_floating_point()

    def luck_of(self, matched: MatchedRows) -> Luck:
        """How blind tables with the frequencies of the rebuilt one fare."""
        n, random = len(self.secrets), generator(self.seed, "blind tables")
        rows = np.sort(random.permutation(n)[:MAX_COMPARED_ROWS])
        won, shuffled, redrawn = self._won(matched.x, rows), [], []
        deal = _Deal.of(matched, self.blocks, self._classes(matched.labels))
        for _ in range(DRAWS if deal.parts else 1):  # nothing to deal: all are the table itself
            shuffled.append(self._won(deal(random), rows))
            # numbers are drawn again: that a value occurs in the table is for the model to tell
            redrawn.append(self._won(deal(random, self.numbers), rows) if self.numbers.any() else shuffled[-1])
        rebuilt = np.stack([blind.rebuilt for blind in redrawn])  # (draws, r)
        nearer = np.array([blind.nearer.sum() for blind in shuffled])
        error = np.array([blind.error.mean() for blind in shuffled])
        return Luck(
            games=len(rows),
            rebuilt=float(won.rebuilt.sum()),
            rebuilt_by_luck=float(np.mean([won.rebuilt.mean(), *rebuilt.mean(1)])),
            closest=1.0,
            nearer=float(won.nearer.sum()),
            nearer_by_luck=float(np.mean([won.nearer.sum(), *nearer]) / len(rows)),
            farther=float((error > won.error.mean()).mean()),
            blind_tables=(
                _share(rebuilt.sum(1) >= won.rebuilt.sum()),
                _share(nearer >= won.nearer.sum()),
                _share(error <= won.error.mean() * (1 + 1e-9)),
            ),
        )

    def usual(self, claims: Claims) -> Floats:
        """(n,) the share of blind tables in which each claim holds for some row.

        These are the true columns, shuffled within classes: that a value occurs, or how often, is no row.
        """
        random = generator(self.seed, "claims")
        deal, labels = self._true_columns(self._classes(self.secrets.y.numpy())), self.secrets.y.numpy()
        holds = [claims.held_by(deal(random), labels).any(1) for _ in range(CLAIM_DRAWS)]
        return np.asarray(np.mean(holds, axis=0))

    def _true_columns(self, classes: Sequence[Ints]) -> _Deal:
        true = self.secrets.x.numpy()
        return _Deal.of(
            MatchedRows(true, self.secrets.y.numpy(), np.ones(true.shape, dtype=bool)), self.blocks, classes
        )

    def _classes(self, labels: Ints | Floats) -> list[Ints]:
        """The rows within which columns are dealt: where rows have no order, chance knows their classes."""
        if self.ordered or self.targets:
            return [np.arange(len(labels))]
        counts = np.bincount(labels.astype(np.int64))
        groups = np.where(counts[labels.astype(np.int64)] >= MIN_CLASS_ROWS, labels, -1)
        return [np.flatnonzero(groups == group) for group in np.unique(groups)]

    def _won(self, x: Floats, rows: Ints) -> _Won:
        """A table compared with some true rows."""
        guess = torch.from_numpy(x[self.order(x, rows=rows)])
        scores, best = self.scoring.scores(guess, self.secrets.x[torch.from_numpy(rows)]), self._best[rows]
        return _Won(scores.criterion <= self.scoring.threshold, scores.headline < best, scores.headline)

    def _units(self, x: Floats) -> Floats:
        """Numbers whose distance is the headline error, up to a factor."""
        deviation = stated(self.scoring.criterion, MetricFacts()).deviation
        if deviation is None:
            return x
        varies = deviation.numpy() > 0
        return np.asarray(x[:, varies] / deviation.numpy()[varies])

    def without_model(self) -> dict[str, Tensor]:
        """The same guess for every row, and the true columns shuffled, each by itself."""
        shuffled = self._true_columns([np.arange(len(self.secrets))])(generator(self.seed, "blind table"))
        return {
            BLIND: self.blind.expand_as(self.secrets.x),
            BLIND_TABLE: torch.from_numpy(shuffled[self.order(shuffled)]),
        }

    @cached_property
    def _best(self) -> Floats:
        """(n,) the smallest headline error of the baselines."""
        name = self.scoring.headline.name
        return np.asarray(np.minimum.reduce([errors[name] for errors in self.errors_without_model.values()]))


class _Won(NamedTuple):
    """How a table fares against some rows, (r,) each."""

    rebuilt: Bools
    nearer: Bools
    error: Floats


class _Deal(NamedTuple):
    """Cells of a table that can be dealt anew."""

    source: MatchedRows
    parts: tuple[tuple[tuple[int, ...], Ints], ...]  # columns, and the rows of a class that tell anything of them

    @classmethod
    def of(cls, source: MatchedRows, blocks: Sequence[Sequence[int]], classes: Sequence[Ints]) -> _Deal:
        """All columns, in all classes."""
        parts = []
        for block in map(list, blocks):
            known: Bools = np.asarray(source.known[:, block].all(1))
            parts += [(tuple(block), rows[known[rows]]) for rows in classes]
        return cls(source, tuple((block, rows) for block, rows in parts if len(rows)))

    def __call__(self, random: np.random.Generator, redrawn: Bools | None = None) -> Floats:
        """A table with each column in a random order; or drawn with replacement, for columns in (d,) `redrawn`."""
        x = self.source.x.copy()
        for block, rows in self.parts:
            columns = np.array(block)
            again = redrawn is not None and redrawn[columns].all()
            others = random.choice(rows, len(rows)) if again else random.permutation(rows)
            x[np.ix_(rows, columns)] = self.source.x[np.ix_(others, columns)]
        return x


def _share(as_good: Bools) -> float:
    """The share of blind tables that are as good, the rebuilt one among them."""
    return float((1 + as_good.sum()) / (1 + len(as_good)))
