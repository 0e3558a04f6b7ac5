"""The label of the missing row: what the known rows leave of the sums of labels in the nodes that it is in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lostwax.attacks.trees.paths import descend, game_of
from lostwax.games.trees import Bools, Floats, Forest, Ints, LabelSums, Tree
from lostwax.progress import counted


class MissingLabels(NamedTuple):
    """Labels of the missing rows of some games."""

    values: Floats  # (g, ...) class numbers or targets
    error: Floats  # (g,) largest error of a target; inf: nothing is known

    @property
    def known(self) -> Bools:
        """(g,) which are known at all."""
        return np.isfinite(self.error)


def missing_labels(forest: Forest, x: Floats, y: Floats, games: Ints, *, classes: bool) -> MissingLabels:
    """The label of the missing row of each game: a class is certain, a target has the error of the best node."""
    shape, y = (len(games), *y.shape[1:]), y.reshape(len(y), -1)
    found = MissingLabels(np.full((len(games), y.shape[1]), np.nan), np.full(len(games), np.inf))
    game = game_of(len(x), games)
    for tree in counted(forest.trees, "labels: trees", len(forest.trees)):
        if tree.labels is None or tree.share is None:
            continue
        if classes and found.known.all():
            break
        for rows, node, shown in _places(forest, tree, x):
            value, error = (_class if classes else _target)(tree.labels, rows, node, y)
            which = game[rows]
            better = shown & (which >= 0) & (error < found.error[which])
            found.values[which[better]], found.error[which[better]] = value[better], error[better]
    return found._replace(values=found.values.reshape(shape))


def _places(forest: Forest, tree: Tree, x: Floats) -> Iterator[tuple[Ints, Ints, Bools]]:
    """Rows and the node of each at every depth, and whether sizes show that it is there."""
    rows = np.arange(len(x)) if tree.share is None else np.flatnonzero(tree.share > 0)
    yield rows, np.zeros(len(rows), dtype=np.intp), np.ones(len(rows), dtype=np.bool_)  # all are in the root
    for level in descend(forest, tree, x):
        yield level.rows, level.child, level.shown


def _class(sums: LabelSums, rows: Ints, node: Ints, y: Floats) -> tuple[Floats, Floats]:
    """The class whose total the known rows do not reach; error 0, or inf if rounding may hide it."""
    own = np.zeros((len(rows), sums.totals.shape[1]))
    own[np.arange(len(rows)), y[rows, 0].astype(np.intp)] = sums.weight[rows]
    left, error = _left(sums, node, own)
    best = left.argmax(1)
    certain = left[np.arange(len(rows)), best] > 2 * error
    return best.astype(np.float64)[:, None], np.where(certain, 0.0, np.inf)


def _target(sums: LabelSums, rows: Ints, node: Ints, y: Floats) -> tuple[Floats, Floats]:
    """What the known rows leave of a node's sum, over the weight of the missing one."""
    weight = sums.weight[rows]
    left, error = _left(sums, node, weight[:, None] * y[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        return left / weight[:, None], np.where(weight > 0, error / weight, np.inf)


def _left(sums: LabelSums, node: Ints, own: Floats) -> tuple[Floats, Floats]:
    """(k, c) the total of each row's node minus what all other rows in it add, and its error (k,)."""
    order = np.argsort(node, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(node[order]) != 0])
    group = np.empty(len(node), dtype=np.intp)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(node)]))
    known = np.add.reduceat(own[order], starts, axis=0)[group] - own  # exactly 0 where a row is alone
    size = np.add.reduceat(np.abs(own[order]).max(1), starts)[group]
    rounding = np.finfo(np.float64).eps * np.bincount(group)[group] * size * (np.bincount(group)[group] > 1)
    return sums.totals[node] - known, sums.rounding[node] + rounding
