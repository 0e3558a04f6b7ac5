"""Boosted trees of other libraries: rows are sent down each tree and compared with the sizes that it publishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.attacks.trees.paths import goes_left
from lostwax.games import Extremes, Noted
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

Numbers = NDArray[np.float64]

UNIT = 2.0**-24  # rounding to float32 changes a number by at most this share of it
MOST_CODES = 1 << 20  # of a column of categories


@dataclass(frozen=True)
class Boosted:
    """What boosted trees publish about the rows that they were grown on."""

    forest: Forest
    extremes: tuple[Extremes, ...] = ()
    notes: tuple[Noted, ...] = ()
    unread: tuple[str, ...] = ()  # what says nothing about single rows and why, as sentences


class Visits(NamedTuple):
    """Every node that each row passes, as pairs; and where the rows end."""

    rows: Ints
    nodes: Ints
    leaves: Ints  # (n,)

    def sums(self, values: Floats, count: int) -> Numbers:
        """(count,) the sum of the values of the rows in each node."""
        return np.bincount(self.nodes, values[self.rows], count).astype(np.float64)


def visits(tree: Tree, x: Floats, *, strict: bool, inside: Bools | None = None) -> Visits:
    """The way of rows (n, d), as the trees compare them, down a tree; some stay outside."""
    forest = Forest((tree,), strict=strict)
    at = np.zeros(len(x), dtype=np.intp)
    rows = np.arange(len(x)) if inside is None else np.flatnonzero(inside)
    passed = [(rows, at[rows])]
    while len(rows := rows[tree.feature[at[rows]] != LEAF]):
        nodes = at[rows]
        left = goes_left(forest, tree, nodes, x[rows, tree.feature[nodes]])
        at = at.copy()
        at[rows] = np.where(left, tree.left[nodes], tree.right[nodes])
        passed.append((rows, at[rows]))
    return Visits(np.concatenate([one for one, _ in passed]), np.concatenate([one for _, one in passed]), at)


@contextmanager
def parsing(name: str) -> Iterator[None]:
    """Raise a ValueError that names the file where a part of it is missing, too large, or of another kind."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError):
        raise ValueError(
            f"audit: {name} is damaged: a part of the model is missing, or is not what it should be. Save it again."
        ) from None  # a cause can quote values of the table


def whole_numbers(values: Any, count: int | None = None) -> Ints:
    """A list of a file as (count,) integers; raises if it is none."""
    whole = np.asarray(values, dtype=np.int64)
    if np.asarray(values).dtype.kind not in "iub" and whole.size:
        raise TypeError("expected whole numbers")
    _check_count(whole, count)
    return whole


def real_numbers(values: Any, count: int | None = None) -> Numbers:
    """A list of a file as (count,) numbers; raises if it is none."""
    found = np.asarray(values)
    if found.dtype.kind not in "fiub" and found.size:
        raise TypeError("expected numbers")
    _check_count(found, count)
    return found.astype(np.float64)


def _check_count(values: NDArray[Any], count: int | None) -> None:
    if values.ndim != 1 or (count is not None and len(values) != count):
        raise ValueError(f"expected {count} numbers, got shape {values.shape}")


def checked_shape(name: str, tree: Tree) -> Tree:
    """The tree; raises if its nodes form no tree, because in a damaged file a row could go around in circles."""
    inner = tree.feature != LEAF
    children, count = np.concatenate([tree.left[inner], tree.right[inner]]), len(tree.size)
    if bool(((children < 1) | (children >= count)).any()) or len(np.unique(children)) < len(children):
        raise ValueError(f"audit: {name} is damaged: a node of a tree has two parents, or none. Save it again.")
    if bool((tree.feature < LEAF).any()):
        raise ValueError(f"audit: {name} is damaged: a node splits a column that does not exist. Save it again.")
    return tree


def grown_elsewhere(name: str, number: int) -> ValueError:
    """The error for a tree with a node that no row of the table is in."""
    return ValueError(
        f"audit: {name} was not fitted on this table: tree {number} has a node that no row is in. Pass the data the "
        "model was fitted on, with its columns in the same order."
    )


def has_empty_node(tree: Tree, seen: Visits) -> bool:
    """Whether a node holds no row."""
    return bool((np.bincount(seen.nodes, minlength=len(tree.size))[_below(tree, seen)] == 0).any())


def fitting(tree: Tree, seen: Visits) -> Tree:
    """The tree, whose sizes say nothing if the rows do not add up to them."""
    share = np.zeros(len(seen.leaves)) if tree.share is None else tree.share
    apart = np.abs(seen.sums(share, len(tree.size)) - tree.size)
    if bool((apart <= tree.rounding)[_below(tree, seen)].all()):
        return tree
    return replace(tree, rounding=np.full(len(tree.size), np.inf))


def _below(tree: Tree, seen: Visits) -> Ints:
    """The root, and the children of every node that a row passes."""
    inner = np.unique(seen.nodes[tree.feature[seen.nodes] != LEAF])
    return np.concatenate([np.zeros(1, dtype=np.intp), tree.left[inner], tree.right[inner]])


def tells_path(tree: Tree) -> bool:
    """Whether its sizes say anything."""
    return bool(np.isfinite(tree.rounding).any())


def fitting_labels(sums: LabelSums, targets: Floats, seen: Visits) -> LabelSums | None:
    """The sums, if they are those of the labels (n, k); otherwise the model was penalised in some other way."""
    count = len(sums.totals)
    own = np.stack([seen.sums(sums.weight * column, count) for column in targets.T], 1)
    reached = np.bincount(seen.nodes, minlength=count) > 0
    agrees = (np.abs(own - sums.totals) <= sums.rounding[:, None])[reached]
    return sums if bool(agrees.all()) else None


def codes_going(chosen: Ints, count: int, *, left: bool) -> Bools:
    """(count,) which codes go left, where a node names those that go left or those that go right."""
    named = np.zeros(count, dtype=np.bool_)
    named[chosen[chosen < count]] = True
    return named if left else ~named


def code_counts(x: Floats, columns: Mapping[int, int]) -> dict[int, int]:
    """How many codes a column has: by number, more than any in the table or in the trees."""
    return {column: 1 + max(largest, int(np.nanmax(x[:, column], initial=0.0))) for column, largest in columns.items()}
