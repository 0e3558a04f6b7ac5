"""Trees that are read with no row known: what is public of their table, and the search for it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from lostwax.adapters.sklearn.boosting import is_boosted, released_sums, sums_over_rows
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.trees import forest_alone
from lostwax.attacks.whole_table import (
    BoostedTable,
    NotTheseRowsError,
    RebuiltTable,
    Search,
    TooManyCellsError,
    WholeTable,
)
from lostwax.games import Columns
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import Forest

BINARY = np.array([0.0, 1.0])

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    def values(self) -> dict[int, Floats]:
        """The values of columns where they are public."""
        return dict.fromkeys(np.flatnonzero(self.binary).tolist(), BINARY)

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


class OpenedForest(NamedTuple):
    """A forest that counts its rows."""

    forest: Forest
    attack: WholeTable = WholeTable()

    def rebuilt(
        self, public: Public, shape: tuple[int, int], ends: tuple[Floats, Floats], seconds: float, seed: int
    ) -> tuple[RebuiltTable, tuple[str, ...]]:
        """The table, and what the search leaves open; a table of which nothing is known if it cannot be begun."""
        attack = WholeTable(Search(seconds))
        try:
            table = attack(self.forest, shape[1], values=public.values, one_hot=public.one_hot, seed=seed % 2**31)
        except TooManyCellsError as error:
            return _nothing(shape), (str(error),)
        if not table.solves:
            return table, (
                f"The search was stopped after {seconds:g} s, before it found a table with all counts of the trees. "
                "Allow more minutes (max_minutes).",
            )
        if table.proven:
            return table, ()
        cure = "Allow more minutes (max_minutes)." if find_spec("ortools") else "Install lostwax[solver]."
        return table, (f"Which cells are the same in every table with these counts was not proven. {cure}",)

    def notes(self, rebuilt: RebuiltTable) -> tuple[str, ...]:
        """Nothing more."""
        return ()


class OpenedBooster(NamedTuple):
    """Boosted trees, and the sums that their nodes tell."""

    sums: BoostedSums
    attack: BoostedTable = BoostedTable()

    def rebuilt(
        self, public: Public, shape: tuple[int, int], ends: tuple[Floats, Floats], seconds: float, seed: int
    ) -> tuple[RebuiltTable, tuple[str, ...]]:
        """The table, and what the search leaves open."""
        attack = BoostedTable(2 * seconds)
        try:
            table = attack(self.sums, shape, values=public.values, one_hot=public.one_hot, ends=ends, seed=seed % 2**31)
        except NotTheseRowsError as error:
            raise ValueError(
                f"audit: {self.sums.name}: the first tree was not grown on these {shape[0]:,} rows, each once. It is "
                "not read with no known row if rows were weighted, drawn (subsample) or held out, or if leaves are "
                "bounded (monotone constraints, max_delta_step). Leave threat out."
            ) from error
        if not (missing := len(self.sums.trees) - table.trees.proven):
            return table, ()
        return table, (
            f"The sums of {missing} of {len(self.sums.trees)} trees were not solved with proof: what rests on them is "
            "a guess, or unknown. More minutes (max_minutes) may solve more.",
        )

    def notes(self, rebuilt: RebuiltTable) -> tuple[str, ...]:
        """How far the trees were followed."""
        if not rebuilt.trees.consistent:
            broken = (
                f"no table has the sums of tree {rebuilt.trees.fits} as they were read: nothing is taken as proven."
            )
            return (*self.sums.notes, broken)
        said = f"{rebuilt.trees.proven} of {len(self.sums.trees)} trees were solved with proof"
        return (*self.sums.notes, f"{said}; the rebuilt rows have the sums of {rebuilt.trees.fits}.")


def _nothing(shape: tuple[int, int]) -> RebuiltTable:
    anything, nothing = np.full(shape, np.inf), np.zeros(shape, dtype=bool)
    labels = np.zeros(shape[0], dtype=np.int64)
    return RebuiltTable(
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


def objection_without_rows(model: Any) -> str | None:
    """Why a table cannot be rebuilt from this model with no row known; None: it can be tried. Takes milliseconds.

    What it needs beside the model: the number of rows, and which columns hold 0 and 1 only.
    """
    try:
        opened_trees(model)
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def opened_trees(model: Any) -> OpenedForest | OpenedBooster:
    """The trees and their counts or sums; an error that names what is not read."""
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
            return OpenedBooster(released_sums(model))
        return OpenedForest(forest_alone(model))
    except (TypeError, SettingNotReadError) as error:
        raise TypeError(
            f"audit: {error} Leave threat out to audit what an adversary who knows all other rows can tell."
        ) from error
