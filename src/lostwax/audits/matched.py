"""A table that was rebuilt as a whole, beside the true one: rows are matched, and so are the tables of blind chance.

Where the order of rows is not known, each true row is compared with the rebuilt row that a best matching gives it. This
favours every guess, so chance is favoured alike: what the attack tells of each column is dealt anew among its rows, and
the table matched again. Such a table has the frequencies of the rebuilt one, in each class, and knows no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from lostwax.audits.audit import Finding
from lostwax.audits.luck import Luck
from lostwax.audits.play import Answer, Errors, check_shape
from lostwax.audits.scoring import Scoring
from lostwax.games import Records
from lostwax.games.judges import OneToOne
from lostwax.seeds import generator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

DRAWS = 399  # blind tables: one that is better than all of them is so by chance with probability 1/400
MOST_COMPARED = 500  # rows that blind tables are matched with
CLAIM_DRAWS = 99  # blind tables in which rows are looked for
FEWEST = 5  # rows of a class whose frequencies chance is given; smaller classes are taken together
LABEL = 1e-6  # what a wrong label costs: it decides between rows that are equal
BLIND, BLIND_TABLE = "blind guess (means and most common values)", "blind table (columns shuffled)"


class MatchedRows(NamedTuple):
    """What a rebuilt table tells, its rows in the order of the true ones that they were matched with."""

    x: Floats  # (n, d)
    labels: Ints  # (n,)
    known: Bools  # (n, d) cells that the model tells anything about; others are blind guesses


class Claims(NamedTuple):
    """What is proven of some rows, whichever they are."""

    low: Floats  # (n, d)
    high: Floats  # (n, d)
    certain: Bools  # (n, d) the cell is within its bounds
    labels: Ints  # (n,)
    label_certain: Bools  # (n,)

    def held_by(self, x: Floats, labels: Ints) -> Bools:
        """(n, m) whether each row of a table (m, d) has what is claimed of each."""
        held: Bools = ~self.label_certain[:, None] | (self.labels[:, None] == labels)
        for low, high, certain, cells in zip(self.low.T, self.high.T, self.certain.T, x.T, strict=True):
            held &= ~certain[:, None] | ((low[:, None] <= cells) & (cells <= high[:, None]))
        return held


@dataclass(frozen=True, eq=False)
class WholeTableGames:
    """One game per row of a table that is rebuilt as a whole."""

    table: Records  # (n, d), (n,)
    scoring: Scoring
    blind: Tensor  # (d,) a guess for every row
    blocks: Sequence[Sequence[int]]  # columns; those of a one-hot group together
    numbers: Bools  # (d,) columns whose values are not public
    ordered: bool  # row i of the rebuilt table is row i
    seed: int

    def order(self, x: Floats, labels: Ints | None = None, rows: Ints | None = None) -> Ints:
        """(r,) the row of a table (n, d) that is compared with each of the true rows, or of all."""
        rows = np.arange(len(self.table)) if rows is None else rows
        if self.ordered:
            return rows
        # RMSE is a metric, in which equal rows are paired before all others
        costs = cdist(self._units(self.table.x.numpy()[rows]), self._units(x))
        if labels is not None:
            costs += LABEL * (self.table.y.numpy()[rows, None] != labels)
        return np.asarray(linear_sum_assignment(costs)[1], dtype=np.int64)

    def check(self, answer: Answer) -> None:
        """Refuse an answer of the wrong shape."""
        check_shape(OneToOne(), answer, Records(self.table.x[:, None], self.table.y[:, None]))

    def truth(self, answer: Answer) -> Records:
        """All rows."""
        return self.table

    def groups(self, each: int) -> None:
        """None: every row is one game."""

    def oracle_percentiles(self, truth: Records) -> Mapping[float, float]:
        """Not measured."""
        return {}

    def baselines(self, truth: Records) -> dict[str, Errors]:
        """The same guess for every row, and the true columns shuffled, each by itself."""
        return self._baselines

    def finding(self, answer: Answer) -> Finding:
        """The rebuilt rows, scored; `luck` tells what blind tables reach."""
        return self.scoring.finding(
            "as released", answer.guess, self.table, labels=self.table.y, seconds=answer.seconds
        )

    def luck(self, found: MatchedRows) -> Luck:
        """How blind tables with the frequencies of the rebuilt one fare."""
        n, random = len(self.table), generator(self.seed, "blind tables")
        rows = np.sort(random.permutation(n)[:MOST_COMPARED])
        own, shuffled, redrawn = self._won(found.x, rows), [], []
        deal = _Deal.of(found, self.blocks, self._classes(found.labels))
        for _ in range(DRAWS if deal.parts else 1):  # nothing to deal: all are the table itself
            shuffled.append(self._won(deal(random), rows))
            # numbers are drawn again: that a value occurs in the table is for the model to tell
            redrawn.append(self._won(deal(random, self.numbers), rows) if self.numbers.any() else shuffled[-1])
        rebuilt = np.stack([one.rebuilt for one in redrawn])  # (draws, r)
        nearer = np.array([one.nearer.sum() for one in shuffled])
        error = np.array([one.error.mean() for one in shuffled])
        return Luck(
            games=len(rows),
            rebuilt=float(own.rebuilt.sum()),
            rebuilt_by_luck=float(np.mean([own.rebuilt.mean(), *rebuilt.mean(1)])),
            closest=1.0,
            nearer=float(own.nearer.sum()),
            nearer_by_luck=float(np.mean([own.nearer.sum(), *nearer]) / len(rows)),
            farther=float((error > own.error.mean()).mean()),
            blind_tables=(
                _share(rebuilt.sum(1) >= own.rebuilt.sum()),
                _share(nearer >= own.nearer.sum()),
                _share(error <= own.error.mean() * (1 + 1e-9)),
            ),
        )

    def usual(self, claims: Claims) -> Floats:
        """(n,) the share of blind tables in which each claim holds for some row.

        These are the true columns, shuffled within classes: that a value occurs, or how often, is no row.
        """
        random = generator(self.seed, "claims")
        deal, labels = self._true_columns(self._classes(self.table.y.numpy())), self.table.y.numpy()
        held = [claims.held_by(deal(random), labels).any(1) for _ in range(CLAIM_DRAWS)]
        return np.asarray(np.mean(held, axis=0))

    def _true_columns(self, classes: Sequence[Ints]) -> _Deal:
        true = self.table.x.numpy()
        return _Deal.of(MatchedRows(true, self.table.y.numpy(), np.ones(true.shape, dtype=bool)), self.blocks, classes)

    def _classes(self, labels: Ints) -> list[Ints]:
        """The rows within which columns are dealt: where rows have no order, chance knows their classes."""
        if self.ordered:
            return [np.arange(len(labels))]
        counts = np.bincount(labels)
        groups = np.where(counts[labels] >= FEWEST, labels, -1)
        return [np.flatnonzero(groups == group) for group in np.unique(groups)]

    def _won(self, x: Floats, rows: Ints) -> _Won:
        """A table compared with some true rows."""
        guess = torch.from_numpy(x[self.order(x, rows=rows)])
        scores, best = self.scoring.scores(guess, self.table.x[torch.from_numpy(rows)]), self._best[rows]
        return _Won(scores.criterion <= self.scoring.threshold, scores.headline < best, scores.headline)

    def _units(self, x: Floats) -> Floats:
        """Numbers whose distance is the headline error, up to a factor."""
        deviation: Floats = self.scoring.criterion.deviation.numpy()
        varies = deviation > 0
        return x[:, varies] / deviation[varies]

    @cached_property
    def _baselines(self) -> dict[str, Errors]:
        shuffled = self._true_columns([np.arange(len(self.table))])(generator(self.seed, "blind table"))
        guesses = {
            BLIND: self.blind.expand_as(self.table.x),
            BLIND_TABLE: torch.from_numpy(shuffled[self.order(shuffled)]),
        }
        return {name: self.scoring.errors(guess, self.table.x) for name, guess in guesses.items()}

    @cached_property
    def _best(self) -> Floats:
        """(n,) the smallest headline error of the baselines."""
        name = self.scoring.headline.name
        return np.asarray(np.minimum.reduce([errors[name] for errors in self._baselines.values()]))


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


def _share(as_good: Any) -> float:
    """The share of blind tables that are as good, the rebuilt one among them."""
    return float((1 + as_good.sum()) / (1 + len(as_good)))
