"""What boosted trees publish about sums over the rows that they were grown on, with no row known.

Before each tree, the gradient of a row depends on its label and on the leaves that it reached so far. So a leaf is a
sum of numbers that the model tells, over rows that it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

from lostwax.games.trees import LEAF, Floats, Ints, Tree

SMALLEST = 1e-16  # second derivatives of XGBoost are at least this
SUMMING = 1e-13  # of a sum in double, relative
TINY = 1e-16
# of the distance of two float32: a double this near to their middle may be rounded to either
HALF_WAY, EXPF = 1e-6, 0.02


class SumInterval(NamedTuple):
    """A number and its largest error."""

    middle: float
    error: float


class Derivatives(NamedTuple):
    """Of the loss of some rows in the margin that a tree adds to."""

    first: Floats  # (p,)
    second: Floats  # (p,)
    first_error: Floats  # (p,) how far the library's may be from these
    second_error: Floats  # (p,)


@dataclass(frozen=True)
class BoostedLoss:
    """The loss that a library lowers, in its arithmetic."""

    classes: int  # 2: one margin, logistic; more: one each, softmax; 0: squared error, labels are numbers
    curvature: float = 1.0  # of a softmax p (1 - p) times this
    margins_in_float32: bool = False  # ... and all else with them (XGBoost)
    rounded: bool = True  # derivatives are rounded to float32
    positive_weight: float = 1.0  # of rows of the second class of two

    @property
    def outputs(self) -> int:
        """How many margins a row has."""
        return self.classes if self.classes > 2 else 1

    def derivatives(self, margins: Floats, labels: Ints, output: int) -> Derivatives:
        """Of rows with margins (p, k) and class numbers."""
        if not self.classes:
            zero = np.zeros(len(margins))
            return Derivatives(zero, zero + 1, zero + np.inf, zero)  # labels are not known
        target = (labels == (1 if self.classes == 2 else output)).astype(np.float64)
        if self.margins_in_float32:
            return self._in_float32(margins, target, output)
        if self.classes == 2:
            p = 1 / (1 + np.exp(-margins[:, 0]))
        else:
            odds = np.exp(margins - margins.max(1, keepdims=True))
            p = odds[:, output] / odds.sum(1)
        first, second = p - target, self.curvature * p * (1 - p)
        if not self.rounded:
            return Derivatives(first, second, 4e-16 + 0 * p, 4e-16 + 0 * p)
        return Derivatives(_single(first), _single(second), _doubt(first, HALF_WAY), _doubt(second, HALF_WAY))

    def slopes(self, margins: Floats, labels: Ints) -> tuple[Floats, Floats]:
        """(c, i, k) first and second derivatives of rows (c,) with margins (c, i, k), not in the library's rounding."""
        if not self.classes:
            return np.zeros_like(margins), np.ones_like(margins)
        p = special.expit(margins) if self.classes == 2 else special.softmax(margins, axis=2)
        target = labels[:, None, None] == (1 if self.classes == 2 else np.arange(self.classes))
        weight = np.where((self.classes == 2) & target, self.positive_weight, 1.0)
        return (p - target) * weight, self.curvature * p * (1 - p) * weight

    def _in_float32(self, margins: Floats, target: Floats, output: int) -> Derivatives:
        """As XGBoost computes them on a CPU; `expf` rounds as the exact number does, except half-way between two."""
        one = np.float32(1)
        if self.classes == 2:
            power = np.exp(np.minimum(-margins[:, 0], 88.7))
            p, doubt = one / (power.astype(np.float32) + one + np.float32(SMALLEST)), _doubt(power, EXPF) > TINY
        else:
            odds = np.exp(margins - margins.max(1, keepdims=True)).astype(np.float32)
            p = odds[:, output] / odds.astype(np.float64).sum(1).astype(np.float32)
            doubt = np.ones(len(p), dtype=np.bool_)
        weight = np.where((target == 1) & (self.classes == 2), self.positive_weight, 1.0).astype(np.float32)
        second = np.maximum(np.float32(self.curvature) * p * (one - p), np.float32(SMALLEST)) * weight
        first = (p - target.astype(np.float32)) * weight
        steps = 1 if self.classes == 2 else 4
        step = np.where(doubt, steps * np.spacing(p).astype(np.float64) * weight, 0.0)
        errors = (step + np.where(doubt, np.spacing(np.abs(part)), 0.0) + TINY for part in (first, second))
        first_error, second_error = errors
        return Derivatives(_single(first), _single(second), first_error, self.curvature * second_error)


def _single(numbers: Floats) -> Floats:
    return numbers.astype(np.float32).astype(np.float64)


def _doubt(exact: Floats, band: float) -> Floats:
    """How far another library's float32 may be: one step where a number is within a band of half-way between two."""
    rounded = _single(exact)
    step = np.spacing(np.abs(rounded).astype(np.float32)).astype(np.float64)
    return np.where(np.abs(np.abs(exact - rounded) / step - 0.5) < band, step, 0.0) + TINY


@dataclass(frozen=True)
class BoostedTree:
    """One tree. Its nodes' weights are -G / (H + ridge), with the sums G and H of derivatives of their rows."""

    tree: Tree  # sizes: how many rows; of unknown ones the rounding is infinite
    step: Floats  # (m,) what a leaf adds to the margin
    output: int  # to which of the margins
    weight: Floats  # (m,) NaN: not known
    weight_error: Floats  # (m,)
    curvature: Floats  # (m,) H; NaN: not known
    curvature_error: Floats  # (m,)

    def with_curvatures(self, gradient: SumInterval, curvature: SumInterval, ridge: float) -> BoostedTree:
        """H of every node from the weights alone, and from the sums of the root: those of children are their parent's.

        G = -w (H + ridge), so  w (H + ridge) = w_l (H_l + ridge) + w_r (H - H_l + ridge)  gives H_l.
        """
        tree, w, error = self.tree, self.weight.copy(), self.weight_error.copy()
        h, h_error = np.full(len(w), np.nan), np.full(len(w), np.inf)
        h[0], h_error[0] = curvature
        w[0] = -gradient.middle / (curvature.middle + ridge)
        error[0] = (gradient.error + abs(w[0]) * curvature.error) / (curvature.middle + ridge) + SUMMING
        nodes = [0]
        while nodes:
            node = nodes.pop()
            if tree.feature[node] == LEAF:
                continue
            left, right = int(tree.left[node]), int(tree.right[node])
            apart = w[left] - w[right]
            known = h[node] + ridge
            h[left] = (w[node] * known - w[left] * ridge - w[right] * known) / apart if apart else np.nan
            h[right] = h[node] - h[left]
            slack = (error[node] + error[right]) * known + error[left] * ridge + abs(w[node] - w[right]) * h_error[node]
            slack += (error[left] + error[right]) * abs(h[left])
            h_error[left] = slack / abs(apart) if apart else np.inf
            h_error[right] = h_error[left] + h_error[node]
            nodes += [left, right]
        return replace(self, curvature=h, curvature_error=h_error)


@dataclass(frozen=True)
class BoostedSums:
    """A model of boosted trees that were each grown on all rows."""

    name: str
    loss: BoostedLoss
    trees: tuple[BoostedTree, ...]
    start: Floats  # (k,) margins before the first tree
    ridge: float = 0.0
    ridge_error: float = 0.0  # how far it may be from that
    starts_at_mean: bool = False  # the first predictions are the shares of classes, or the mean label
    strict: bool = False  # rows go left below a threshold; otherwise also at it
    values: bool = False  # thresholds are values of the table
    by_sign: bool = False  # labels are classes although no sums tell them: the sign of the prediction
    low: Floats | None = None  # (d,) the smallest value of each column, where the file tells it; NaN elsewhere
    high: Floats | None = None  # (d,)
    notes: tuple[str, ...] = ()  # what was found in the file, and what was assumed
