"""One fitted model and its training table: n games, where in game i the adversary knows every row except row i.

Such a model publishes *sums over rows*: the gradient of its objective at the optimum, a scaler's mean, the class means
of naive Bayes. Each is one equation

    total = sum_i row_i,   row_i = r_i (f(x_i), 1)^T,   a (c, d + 1) matrix of rank one,

of which an informed adversary knows every term except one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games.cells import Bounds, Cells, Columns, Kept
from lostwax.games.facts import loss_facts
from lostwax.games.notes import Noted
from lostwax.games.records import Records
from lostwax.games.trees import Forest

if TYPE_CHECKING:
    from lostwax.games.protocols import Loss


@dataclass(frozen=True)
class Stationary:
    """A released linear model, and the objective of which it is (nearly) a stationary point.

    The objective is sum_i w_i loss(W f(x_i) + b, y_i) + sum_c (ridge_c |W_c|^2 + bias_ridge_c b_c^2) / 2 with
    f(x) = (x - shift) / scale. Its gradient vanishes: sum_i w_i residual_i (f(x_i), 1)^T = -(ridge W, bias_ridge b).
    With l1_c |W_c|_1 in the objective, -l1 sign(W) is added on the right; a weight of zero has only a bound (`slack`).
    """

    weight: Tensor  # (c, d)
    bias: Tensor | None  # (c,); None: no intercept, and then the last column is missing everywhere
    loss: Loss
    ridge: Tensor  # (c,)
    bias_ridge: Tensor  # (c,)
    shift: Tensor  # (d,)
    scale: Tensor  # (d,)
    stopped_early: bool = False  # the solver ran out of iterations, or its tolerance was loose
    stochastic: bool = False  # ... or takes random steps, and may end above the objective of zero weights
    l1: Tensor | None = None  # (c,)
    bias_l1: Tensor | None = None  # (c,) of |b|, for solvers that penalise the intercept
    dropped: Tensor | None = None  # (d,) features that the solver left out, whose weights are zero without an equation
    # (c, d + 1) what rows add that are known in every game and not in the table (`folding`)
    known: Tensor | None = None
    known_rounding: Tensor | None = None  # (c,) rounding error of their r

    @property
    def sparse(self) -> bool:
        """Whether weights can be zero at the optimum, so that some coordinates have no equation."""
        return self.l1 is not None or self.dropped is not None

    @property
    def without_features(self) -> bool:
        """Whether no feature has an equation, or a weight: it is an intercept alone."""
        return self.dropped is not None and bool(self.dropped.all())

    @property
    def quadratic(self) -> bool:
        """Whether the residual is linear in outputs and label."""
        facts = loss_facts(self.loss, len(self.weight))
        return facts is not None and facts.quadratic

    def features(self, x: Tensor) -> Tensor:
        """What the linear model was fitted on."""
        if not self.shift.any() and (self.scale == 1).all():
            return x
        return (x - self.shift) / self.scale

    def outputs(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, c)."""
        out = self.features(x) @ self.weight.mT
        return out if self.bias is None else out + self.bias

    def factors(self, rows: Records, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The two factors of each row's term: r = w residual (n, c), and the features with a one (n, d + 1)."""
        residual, features = self.loss.residual(self.outputs(rows.x), rows.y), self.features(rows.x)
        return weight[:, None] * residual, self._beside(features, features.new_ones(len(features)))

    def uncertain(self, rows: Records, weight: Tensor, r: Tensor) -> Tensor:
        """How much a relative error of one in its inputs would change each row's r, (n, c)."""
        size = self.features(rows.x).abs() @ self.weight.abs().mT  # of all products W f(x) together, (n, c)
        if self.bias is not None:
            size = size + self.bias.abs()
        return r.abs() + weight[:, None] * curvature_times(self.loss, self.outputs(rows.x), rows.y, size).abs()

    def total(self) -> Tensor:
        """The sum over all rows, (c, d + 1)."""
        strength, theta = self.strengths(), self.parameters()
        penalty = self.ridges() * theta if strength is None else self.ridges() * theta + strength * theta.sign()
        return -penalty if self.known is None else -penalty - self.known

    def slack(self) -> Tensor:
        """How far the sum over all rows may be from `total`, (c, d + 1): zero where the equation holds."""
        theta, strength = self.parameters(), self.strengths()
        slack = torch.zeros_like(theta) if strength is None else torch.where(theta == 0, strength, 0.0)
        if self.dropped is not None:
            slack[:, : len(self.dropped)][:, self.dropped] = torch.inf
        return slack

    def ridges(self) -> Tensor:
        """The ridge of each parameter, (c, d + 1)."""
        return self._beside(self.ridge[:, None].expand_as(self.weight), self.bias_ridge)

    def strengths(self) -> Tensor | None:
        """The L1 penalty of each parameter, (c, d + 1); None if there is none."""
        if self.l1 is None:
            return None
        on_bias = torch.zeros_like(self.l1) if self.bias_l1 is None else self.bias_l1
        return self._beside(self.l1[:, None].expand_as(self.weight), on_bias)

    def penalty(self) -> Tensor:
        """The penalty of the objective."""
        theta, strength = self.parameters(), self.strengths()
        square = (self.ridges() * theta.square()).sum() / 2
        return square if strength is None else square + (strength * theta.abs()).sum()

    def parameters(self) -> Tensor:
        """theta = (W, b), (c, d + 1); W alone without an intercept."""
        return self._beside(self.weight, self.bias)

    def _beside(self, features: Tensor, intercept: Tensor | None) -> Tensor:
        """A column for the intercept behind those of the features, if there is one."""
        return features if self.bias is None or intercept is None else torch.cat([features, intercept[:, None]], 1)

    def at(self, theta: Tensor) -> Stationary:
        """The same objective with other weights, of which it is not known that a solver stopped early."""
        if self.bias is None:
            return replace(self, weight=theta, stopped_early=False)
        return replace(self, weight=theta[:, :-1], bias=theta[:, -1], stopped_early=False)


@dataclass(frozen=True)
class Sums:
    """Sums over the table that a release publishes: n * mean of a StandardScaler, or of each class in naive Bayes."""

    source: str  # the part that publishes them
    totals: Tensor  # (groups, d) sum of the weighted rows of each group
    counts: Tensor  # (groups,) sum of the weights of each group
    by_label: bool  # one group per class; otherwise a single group of all rows
    weighted: bool  # rows have their sample weight; otherwise weight one

    def factors(self, rows: Records, weight: Tensor) -> tuple[Tensor, Tensor]:
        """r = the row's weight in the column of its group, zero elsewhere (n, groups); and the row with a one."""
        return self.membership(rows.y, weight), torch.cat([rows.x, rows.x.new_ones(len(rows), 1)], 1)

    def uncertain(self, rows: Records, weight: Tensor, r: Tensor) -> Tensor:
        """(n, groups) as of a linear model."""
        return r.abs()

    def membership(self, y: Tensor, weight: Tensor) -> Tensor:
        """(n, groups) each row's weight in the column of its group, zero elsewhere."""
        groups = torch.arange(len(self.counts))
        member = y[:, None] == groups if self.by_label else torch.ones(len(y), 1, dtype=torch.bool)
        counted = weight if self.weighted else torch.ones_like(weight)
        return counted[:, None] * member

    def total(self) -> Tensor:
        """The sum over all rows, (groups, d + 1)."""
        return torch.cat([self.totals, self.counts[:, None]], 1)

    def slack(self) -> Tensor:
        """Zero: sums are exact, (groups, d + 1)."""
        return torch.zeros_like(self.total())


@dataclass(frozen=True)
class Extremes:
    """The minimum and maximum of each column: what a MinMaxScaler reveals about the rows that attain them."""

    source: str
    low: Tensor  # (d,)
    high: Tensor  # (d,)


@dataclass(frozen=True)
class Stored:
    """Training rows that the release holds as they are: support vectors, the rows of a nearest-neighbour model."""

    source: str  # the part that holds them
    x: Tensor  # (k, d)
    y: Tensor | None = None  # (k,) or (k, targets), where their labels are held too


@dataclass(frozen=True)
class Present:
    """The mean of each column over the rows that have a value in it: what an imputer fills in."""

    source: str
    means: Tensor  # (d,)
    known_total: Tensor | None = None  # (d,) of rows that are known in every game and not in the table (`folding`)
    known_count: Tensor | None = None  # (d,)


@dataclass(frozen=True)
class ProportionalHazards:
    """A released Cox model: the gradient of the partial likelihood vanishes at its coefficients.

    sum over events i of  x_i - (sum_{j at risk} x_j exp(w x_j)) / (sum_{j at risk} exp(w x_j)) = 0.  No sum over rows,
    but all of it is known except for one row, whose time and event the adversary is given.
    """

    source: str
    weight: Tensor  # (d,)
    times: Tensor  # (n,)
    events: Tensor  # (n,) 1: observed, 0: censored
    efron: bool  # how events at the same time are counted; otherwise as Breslow does
    strata: Tensor | None = None  # (n,) numbers of groups with risk sets of their own, given as times and events are
    weights: Tensor | None = None  # (n,) of rows, known

    def row_weights(self) -> Tensor:
        """(n,) ones where no weights are stated."""
        return torch.ones_like(self.times) if self.weights is None else self.weights


@dataclass(frozen=True)
class Fitted:
    """Everything a released model publishes about the table it was fitted on."""

    name: str
    table: Records  # x (n, d), y (n,) class numbers or targets, or (n, targets)
    weight: Tensor  # (n,) sample weights, ones by default; assumed known to the adversary
    model: Stationary | None  # the linear model; None if there is none (naive Bayes has sums), or it was not read
    sums: tuple[Sums, ...] = ()
    extremes: tuple[Extremes, ...] = ()
    stored: tuple[Stored, ...] = ()
    present: tuple[Present, ...] = ()
    forest: Forest | None = None  # the trees of a forest or of boosting
    hazards: ProportionalHazards | None = None
    classes: tuple[object, ...] = ()  # the user's names of class numbers 0, 1, ...
    columns: tuple[str, ...] = ()  # ... and of the features; empty if the data has none
    notes: tuple[Noted, ...] = ()  # for the report: how the model was read
    unread: tuple[str, ...] = ()  # parts of the release that were not audited and why, as sentences
    doubtful: bool = False  # its weights are not near the optimum of this table: targets there may owe them nothing

    def tells_label(self) -> bool:
        by_label = (*(sums.by_label for sums in self.sums), *(stored.y is not None for stored in self.stored))
        by_trees = self.forest is not None and any(tree.tells_label for tree in self.forest.trees)
        return self.model is not None or by_trees or any(by_label)

    @property
    def numbers_per_game(self) -> int:
        """Numbers that a solver holds for one missing row: those of a row, or of the largest equation."""
        widths = [self.table.x.shape[1], *(sums.total().numel() for sums in self.sums)]
        return max(widths if self.model is None else [*widths, self.model.total().numel()])


@dataclass(frozen=True)
class Part:
    """One part of a release: what it publishes about the rows as it saw them, and their way back to the table."""

    fitted: Fitted
    back: Callable[[Tensor], Cells]  # rows (g, D) as this part saw them -> cells (g, d), see `revealed`
    labelled: bool = True  # fitted.table.y are the labels of the table, or give them by `labels_back`
    optimum: Fitted | None = None  # the same at its optimum, where that took the rows of a larger table
    cut: bool = False  # other rows are known and were folded into the equations (`folding`)
    within: Callable[[Bounds], Cells] | None = None  # the way back of bounds (g, D)
    rows: Tensor | None = None  # which rows of `fitted.table` those of the release are; None: all
    labels_back: Callable[[Tensor], Tensor] | None = None  # labels of this part -> of the table, NaN: not told
    stated: Fitted | None = None  # the same about rows of the table itself, if only scalers lie between; None: not so

    def labels(self, y: Tensor | None) -> Tensor | None:
        """Labels of this part as they are in the table; None if it tells nothing of them."""
        if y is None or not self.labelled:
            return None
        return y if self.labels_back is None else self.labels_back(y)


@dataclass(frozen=True)
class RowSample:
    """Some rows of a larger table, all other rows of which are known."""

    rows: Tensor  # (k,) their numbers there
    played: Tensor  # which of them games are about
    population: int  # how many games there could have been


def as_cells(rows: Tensor) -> Cells:
    """Rows (g, d) of a table of numbers; NaN: not known."""
    return Cells(rows.numpy(), np.where(rows.isnan(), Kept.LOST, Kept.EXACT).astype(np.uint8))


class Transformed(NamedTuple):
    """A transformer of a release, the rows that it was fitted on, and what was read of it."""

    transformer: Any
    rows: Any  # (n, D) its inputs, in any form
    y: Tensor
    weight: Tensor
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ReleasedTable:
    """A release of several parts, each fitted on an encoding of one table."""

    name: str
    table: Records  # x (n, d) cells: numbers, codes, NaN
    weight: Tensor  # (n,) sample weights
    columns: Columns
    parts: tuple[Part, ...]
    classes: tuple[object, ...] = ()
    notes: tuple[Noted, ...] = ()
    unread: tuple[str, ...] = ()  # parts of the release that were not audited and why, as sentences
    public: tuple[str, ...] = ()  # parts that were fitted on other rows
    sample: RowSample | None = None  # which rows of a larger table these are
    held_labels: str | None = None  # where the release holds the labels of all rows, as a sentence
    supervised: bool = False  # it was fitted on labels
    attached: tuple[str, ...] = ()  # what was attached to it after it was fitted, and not understood, as sentences
    transformers: tuple[Transformed, ...] = ()  # that may keep more of the rows than was read

    @classmethod
    def of(cls, fitted: Fitted, *, by_equation: bool = True) -> ReleasedTable:
        """A model fitted on the table itself; `by_equation`: it may be solved as one (`equation`)."""
        columns = Columns(fitted.columns, ((),) * fitted.table.x.shape[1])
        part = Part(fitted, as_cells, stated=fitted if by_equation else None)
        table, weight = fitted.table, fitted.weight
        return cls(fitted.name, table, weight, columns, (part,), fitted.classes, fitted.notes, fitted.unread)

    @property
    def equation(self) -> Fitted | None:
        """All that the release tells, if that is sums and at most one linear model of rows of the table itself.

        These are solved as one: the row from the sums, which are exact to rounding, and its label from the model.
        """
        facts = [part.stated for part in self.parts if part.stated is not None]
        if not facts or len(facts) < len(self.parts) or self.unread or self.attached:
            return None
        *more, last = sorted(facts, key=lambda fitted: fitted.model is not None)  # the model comes last
        sums = tuple(each for fitted in facts for each in fitted.sums)
        dense = last.model is not None and not last.model.sparse  # else cells tell more than rows
        by_cells = any(fitted.stored or fitted.present or fitted.model is not None for fitted in more)
        if by_cells or last.stored or last.present or not (sums or dense):
            return None
        if any(each.weighted for each in sums) and not all(torch.equal(fitted.weight, last.weight) for fitted in more):
            return None
        extremes = tuple(each for fitted in facts for each in fitted.extremes)
        if not (sums or extremes) and any(part.fitted.extremes for part in self.parts):
            return None
        name, classes, notes = self.name, self.classes, self.notes
        return replace(last, name=name, sums=sums, extremes=extremes, classes=classes, notes=notes)


BLOCK_NUMBERS = 500_000  # of a table, looked at together: 4 MB in float64, which stay in the cache


def blocks(table: Records) -> Iterator[slice]:
    """The rows of a table, some at a time."""
    n, size = len(table), max(1, BLOCK_NUMBERS * len(table) // max(1, table.x.numel()))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def unexplained(equation: Stationary | Sums, table: Records, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The total minus the sum of all rows (minus a linear model's gradient), and its rounding error: (c, d + 1)."""
    return gap(equation, table, weight), rounding(equation, table, weight)


def gap(equation: Stationary | Sums, table: Records, weight: Tensor) -> Tensor:
    """The total minus the sum of all rows, (c, d + 1); of equations with some slack what is beyond it."""
    total, slack = equation.total(), equation.slack()
    for rows in blocks(table):
        r, f = equation.factors(table[rows], weight[rows])
        total = total - r.mT @ f
    return total - total.clamp(-slack, slack)


def rounding(equation: Stationary | Sums, table: Records, weight: Tensor, centre: Tensor | None = None) -> Tensor:
    """How much rounding alone can leave unexplained, (c, d + 1), with features relative to `centre`."""
    total = equation.total().abs()
    if centre is not None:
        total = total + total[:, -1:] * centre.abs()
    for rows in blocks(table):
        some, w = table[rows], weight[rows]
        r, f = equation.factors(some, w)
        away = (f if centre is None else f - centre).abs()
        total = total + equation.uncertain(some, w, r).mT @ away
    return torch.finfo(total.dtype).eps * total


def uncertain(equation: Stationary | Sums, table: Records, weight: Tensor) -> Tensor:
    """How much a relative error of one in its inputs would change each row's r, (n, c).

    A residual is a difference of numbers that may be far larger: if a model fits its rows well, it is rounding error.
    """
    changes = weight.new_empty(len(table), len(equation.total()))
    for rows in blocks(table):
        some, w = table[rows], weight[rows]
        changes[rows] = equation.uncertain(some, w, equation.factors(some, w)[0])
    return changes


def curvature_times(loss: Loss, outputs: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """The Hessian of each record's loss in its outputs (n, c), times v (n, c).

    By autograd itself: the first call of `torch.func.vjp` imports the compiler, which takes seconds.
    """
    with torch.enable_grad():
        at = outputs.detach().requires_grad_()
        residual = loss.residual(at, y)
    if not residual.requires_grad:  # a loss that is piecewise linear
        return torch.zeros_like(outputs)
    (found,) = torch.autograd.grad(residual, at, v)  # the Hessian of a loss is symmetric
    return found


def sums_of_others(terms: Tensor) -> Tensor:
    """Sum of all the other terms, for each term along the first axis: those before it plus those after it.

    No term is added and subtracted again: a NaN in it does not change its own sum.
    """
    zero = torch.zeros_like(terms[:1])
    before = torch.cat([zero, terms[:-1].cumsum(0)])
    after = torch.cat([terms[1:].flip(0).cumsum(0).flip(0), zero])
    return before + after
