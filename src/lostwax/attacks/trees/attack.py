"""Rebuild the one missing row of a table from the trees that were grown on it, or several.

Beside its values, its label: what the known rows leave of the sums of labels in the nodes that it is in. And which
setting gives cells exactly: the attack is repeated without the bins of histograms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.trees.cuts import narrowed_by_cuts
from lostwax.attacks.trees.paths import (
    descend,
    game_of,
    narrowed_by_nodes,
    narrowed_without_sample,
    near_zero,
    zeros,
)
from lostwax.attacks.whole_table import WholeTable
from lostwax.games import Fitted, Note, Part, Topic
from lostwax.games.cells import Revealed
from lostwax.games.trees import LEAF, Bools, Bounds, Floats, Forest, Ints, LabelSums, Tree
from lostwax.numerals import percent
from lostwax.progress import counted

CERTAIN = 1e-3  # of its deviation: a target with a smaller error is certain
FEW_ROWS = 20  # in a leaf
WORTH_A_NOTE = 0.5  # of the exact cells


class MissingLabels(NamedTuple):
    """Labels of the missing rows of some games."""

    values: Floats  # (g, ...) class numbers or targets
    error: Floats  # (g,) largest error of a target; inf: nothing is known

    @property
    def known(self) -> Bools:
        """(g,) which are known at all."""
        return np.isfinite(self.error)


@dataclass(frozen=True)
class TreeConstraints:
    """Every node constrains the missing row: the side it took, and a threshold that no two known rows explain.

    Known rows are sent down each tree. Nodes whose rows do not add up to their size hold the missing row: this is its
    path. A threshold half-way between two neighbours tells the value of the one that is not known. What all nodes of
    all trees say is intersected; a cell is exact if a single value is left.
    """

    def leave_one_out(self, fitted: Fitted, games: Tensor) -> tuple[Bounds, MissingLabels | None]:
        """What one model and all other rows tell of each row of `games`; no labels if nothing depends on them."""
        if fitted.forest is None:
            raise ValueError(f"TreeConstraints: {fitted.name} has no trees.")
        forest, x, rows = fitted.forest, fitted.forest.cast(fitted.table.x.numpy()), games.numpy()
        anything = np.full((len(rows), x.shape[1]), np.inf)
        bounds = Bounds(-anything, anything, np.full(anything.shape, forest.accepts_missing))
        for narrowed in (narrowed_by_nodes, narrowed_by_cuts, narrowed_without_sample):
            bounds = narrowed(forest, x, rows, bounds)
        # what differs from zero only by the rounding of a threshold is zero
        zero = zeros(bounds.low, bounds.high, near_zero(x, rows))
        bounds = bounds._replace(low=np.where(zero, 0.0, bounds.low), high=np.where(zero, 0.0, bounds.high))
        if bool(((bounds.low > bounds.high) & ~bounds.maybe_missing).any()):
            raise ValueError(
                f"audit: no row explains {fitted.name}: its nodes contradict each other. Pass the data that it was "
                "fitted on, in the same order."
            )
        y = fitted.table.y
        if all(tree.labels is None for tree in forest.trees):
            return bounds, None
        return bounds, missing_labels(forest, x, y.double().numpy(), rows, classes=not y.is_floating_point())


def revealed_by_trees(part: Part, games: Tensor) -> Revealed:
    """What the trees of a part tell of the missing row of each game, as cells of the table."""
    if part.within is None:
        raise ValueError(f"TreeConstraints: the bounds of {part.fitted.name} have no way back to the table.")
    rows = games if part.rows is None else part.rows[games]
    bounds, labels = TreeConstraints().leave_one_out(part.fitted, rows)
    cells, ones = part.within(bounds), torch.ones(len(games), dtype=torch.float64)
    if labels is None or not part.labelled:
        return Revealed((cells,), None, ones)
    y = part.fitted.table.y
    values = torch.from_numpy(np.nan_to_num(labels.values)).to(y.dtype)
    close = CERTAIN * float(y.double().std(0, correction=0).min()) if y.is_floating_point() else 0.0
    certain = torch.from_numpy(labels.known & (labels.error <= close))
    return Revealed((cells,), part.labels(values), ones, torch.from_numpy(labels.known), certain)


# the label of the missing row


def missing_labels(forest: Forest, x: Floats, y: Floats, games: Ints, *, classes: bool) -> MissingLabels:
    """The label of the missing row of each game: a class is certain, a target has the error of the best node."""
    shape, y, game = (len(games), *y.shape[1:]), y.reshape(len(y), -1), game_of(len(x), games)
    labels = MissingLabels(np.full((len(games), y.shape[1]), np.nan), np.full(len(games), np.inf))
    for tree in counted(forest.trees, "labels: trees", len(forest.trees)):
        if tree.labels is None or tree.share is None:
            continue
        if classes and labels.known.all():
            break
        inside = np.flatnonzero(tree.share > 0)
        at_root = (inside, np.zeros(len(inside), dtype=np.intp), np.ones(len(inside), dtype=np.bool_))
        levels = ((level.rows, level.child, level.shown) for level in descend(forest, tree, x))
        for rows, node, shown in (at_root, *levels):
            value, error = (_class if classes else _target)(tree.labels, rows, node, y)
            which = game[rows]
            better = shown & (which >= 0) & (error < labels.error[which])
            labels.values[which[better]], labels.error[which[better]] = value[better], error[better]
    return labels._replace(values=labels.values.reshape(shape))


def _class(sums: LabelSums, rows: Ints, node: Ints, y: Floats) -> tuple[Floats, Floats]:
    """The class whose total the known rows do not reach; error 0, or inf if rounding may hide it."""
    added = np.zeros((len(rows), sums.totals.shape[1]))
    added[np.arange(len(rows)), y[rows, 0].astype(np.intp)] = sums.weight[rows]
    left, error = _left(sums, node, added)
    best = left.argmax(1)
    certain = left[np.arange(len(rows)), best] > 2 * error
    return best.astype(np.float64)[:, None], np.where(certain, 0.0, np.inf)


def _target(sums: LabelSums, rows: Ints, node: Ints, y: Floats) -> tuple[Floats, Floats]:
    """What the known rows leave of a node's sum, over the weight of the missing one."""
    weight = sums.weight[rows]
    left, error = _left(sums, node, weight[:, None] * y[rows])
    with np.errstate(divide="ignore", invalid="ignore"):
        return left / weight[:, None], np.where(weight > 0, error / weight, np.inf)


def _left(sums: LabelSums, node: Ints, added: Floats) -> tuple[Floats, Floats]:
    """(k, c) the total of each row's node minus what all other rows in it add, and its error (k,)."""
    order = np.argsort(node, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(node[order]) != 0])
    group = np.empty(len(node), dtype=np.intp)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(node)]))
    known = np.add.reduceat(added[order], starts, axis=0)[group] - added  # exactly 0 where a row is alone
    size, count = np.add.reduceat(np.abs(added[order]).max(1), starts)[group], np.bincount(group)[group]
    rounding = np.finfo(np.float64).eps * count * size * (count > 1)
    return sums.totals[node] - known, sums.rounding[node] + rounding


# several missing rows


def several_missing(
    fitted: Fitted, rows: Ints, values: Mapping[int, Floats], one_hot: Sequence[Sequence[int]], *, solver: WholeTable
) -> tuple[Bounds, Bools]:
    """Bounds (k, d) of some rows, of which an adversary knows all others, and (k,) which are proven.

    What known rows leave of all counts is a forest of k rows, which is solved as a whole table: `values` and `one_hot`
    are public. A row that is proven has a path of its own; where no other missing row is in a node with it, thresholds
    tell its values as if it were the only one. Rows that all trees count alike are in any order.
    """
    if fitted.forest is None:
        raise ValueError(f"several_missing: {fitted.name} has no trees.")
    y = None if fitted.table.y.is_floating_point() else fitted.table.y.numpy()
    forest, x = fitted.forest, fitted.forest.cast(fitted.table.x.numpy()).copy()
    if np.isnan(x).any():
        raise ValueError(f"{fitted.name}: several missing rows are not solved for where values are missing.")
    forest = replace(forest, trees=tuple(tree for tree in forest.trees if tree.share is not None and tree.tells_path))
    if not forest.trees:
        raise ValueError(f"{fitted.name}: no tree tells on which rows it was grown.")
    left = left_to(rows, forest, x, y)
    table = solver(left, x.shape[1], values=values, one_hot=one_hot)
    proven: Bools = np.asarray(table.certain.all(1))
    x[rows] = table.x
    drawn = ~np.isin(np.arange(len(x)), rows[~proven])  # rows whose path is known
    forest = replace(forest, trees=tuple(replace(tree, share=_shares(tree) * drawn) for tree in forest.trees))
    bounds = Bounds(table.low, table.high, np.zeros(table.low.shape, dtype=np.bool_))
    narrow = narrowed_by_nodes(forest, x, rows[proven], bounds.at(proven), left)
    agree = (narrow.low <= narrow.high).all(1)
    proven[proven] = agree
    bounds.low[proven], bounds.high[proven] = narrow.low[agree], narrow.high[agree]
    return bounds, proven


def left_to(missing: Ints, forest: Forest, x: Floats, y: Ints | None) -> Forest:
    """The forest of k missing rows: what all other rows of x (n, d) leave of its counts.

    Without classes `y`, or where trees hold weights of them, rows are counted.
    """
    known, trees = np.setdiff1d(np.arange(len(x)), missing), []
    by_class = all(tree.labels is not None and (tree.labels.weight % 1 == 0).all() for tree in forest.trees)
    classes = y if y is not None and by_class else np.zeros(len(x), dtype=np.intp)
    for tree in forest.trees:
        share, sums = _shares(tree), tree.labels
        if sums is None or y is None or not by_class:
            sums = LabelSums(tree.size[:, None], share, tree.rounding)
        size, totals, inside = tree.size.copy(), sums.totals.copy(), known[share[known] > 0]
        levels = ((level.rows, level.child) for level in tree.levels(x, inside, strict=forest.strict))
        for rows, node in ((inside, np.zeros_like(inside)), *levels):
            np.subtract.at(size, node, share[rows])
            np.subtract.at(totals, (node, classes[rows]), sums.weight[rows])
        labels = replace(sums, totals=totals, weight=sums.weight[missing])
        trees.append(replace(tree, size=size, share=share[missing], labels=labels))
    return replace(forest, trees=tuple(trees), cuts=(), quantiles=())


def _shares(tree: Tree) -> Floats:
    """Of each row in the sizes of a tree of which it is known on which rows it was grown."""
    assert tree.share is not None
    return tree.share


# where exact cells come from


def exact_cells_note(fitted: Fitted, games: Tensor) -> Note | None:
    """For the report: the setting that exact cells depend on, bins if half of them are lost without; None: no cells."""
    if (forest := fitted.forest) is None:
        raise ValueError(f"exact_cells_note: {fitted.name} has no trees.")

    def share(part: Forest) -> float:
        bounds, _ = TreeConstraints().leave_one_out(replace(fitted, forest=part), games)
        return float((bounds.exact | bounds.missing).mean())

    leaves = [tree.size[tree.feature == LEAF] for tree in forest.trees]
    smallest = min((float(sizes.min()) for sizes in leaves), default=math.inf)
    if (everything := share(forest)) == 0:
        return None
    without_bins = share(replace(forest, cuts=(), quantiles=())) if forest.cuts or forest.quantiles else everything
    if (by_bins := 1 - without_bins / everything) >= WORTH_A_NOTE:
        cure = "fewer bins (max_bins; max_bin or border_count)"
        come = f"{percent(by_bins)} of the cells that {fitted.name} gives exactly come from the bins of its histograms"
    elif smallest < FEW_ROWS:
        cure = f"larger leaves (such as min_samples_leaf={FEW_ROWS}; min_child_weight in XGBoost)"
        come = f"{fitted.name} gives cells exactly, and its smallest leaf is of size {smallest:.3g}"
    else:
        return None
    return Note(f"{come}: {cure} reveal fewer.", Topic.EXACT_CELLS, fitted.name, cure=cure)
