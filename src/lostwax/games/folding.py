"""A large or sparse table cut down to some of its rows: what all other rows add to each equation becomes a constant.

Rows that are known in every game need not be looked at in any of them again. So after one pass over the whole table,
games about a few rows cost what a table of these rows costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lostwax.games.fitted import Extremes, Fitted, Present, Stationary, Stored, Sums, curvature_times, uncertain
from lostwax.games.records import Records

ROWS_AT_A_TIME = 4_096


@dataclass(frozen=True, eq=False)
class SparseRecords:
    """Records with a sparse x, (n, d) in scipy's CSR format: some of them are dense `Records`."""

    rows: Any
    y: Tensor

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def __getitem__(self, at: Tensor) -> Records:
        dense = self.rows[at.numpy()].toarray()
        return Records(torch.from_numpy(np.asarray(dense, dtype=np.float64)), self.y[at])

    def times(self, weights: Tensor) -> Tensor:
        """x W^T, (n, c)."""
        return torch.from_numpy(np.ascontiguousarray(self.rows @ weights.mT.numpy()))

    def summed(self, r: Tensor) -> Tensor:
        """r^T x, (c, d)."""
        return torch.from_numpy(np.ascontiguousarray((self.rows.T @ r.numpy()).T))

    def each(self, change: Any) -> SparseRecords:
        """With another value in every cell that is not zero: `change` must keep zeros."""
        changed = self.rows.copy()
        changed.data = change(changed.data)
        return SparseRecords(changed, self.y)


def sparse_factors(model: Stationary, table: SparseRecords, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row its outputs and r = w residual, (n, c) twice."""
    outputs = table.times(model.weight)
    if model.bias is not None:
        outputs = outputs + model.bias
    return outputs, weight[:, None] * model.loss.residual(outputs, table.y)


def sparse_sum(table: SparseRecords, r: Tensor, *, bias: bool) -> Tensor:
    """The sum over rows of r f^T, with the column of ones where there is a bias: (c, d) or (c, d + 1)."""
    total = table.summed(r)
    return torch.cat([total, r.sum(0)[:, None]], 1) if bias else total


def sparse_rounding(model: Stationary, table: SparseRecords, weight: Tensor) -> tuple[Tensor, Tensor]:
    """How much rounding alone can leave of the sum over rows, (c, d + 1), and in each row's r, (n, c)."""
    outputs, r = sparse_factors(model, table, weight)
    size = table.each(np.abs).times(model.weight.abs())
    if model.bias is not None:
        size = size + model.bias.abs()
    of_rows = r.abs() + weight[:, None] * curvature_times(model.loss, outputs, table.y, size).abs()
    of_sum = sparse_sum(table.each(np.abs), of_rows, bias=model.bias is not None) + model.total().abs()
    eps = torch.finfo(of_rows.dtype).eps
    return eps * of_sum, eps * of_rows


def folded(fitted: Fitted, kept: Tensor) -> Fitted:
    """The same facts about the rows `kept` alone: all other rows are known, and what they add is taken off."""
    outside = torch.ones(len(fitted.table), dtype=torch.bool)
    outside[kept] = False
    others = outside.nonzero().flatten()
    table = fitted.table[kept]
    return replace(
        fitted,
        table=table,
        weight=fitted.weight[kept],
        model=None if fitted.model is None else _model(fitted.model, fitted, others),
        sums=tuple(_sums(sums, fitted, others) for sums in fitted.sums),
        extremes=tuple(_extremes(extremes, fitted, others) for extremes in fitted.extremes),
        stored=tuple(left for stored in fitted.stored if len((left := _stored(stored, fitted, others)).x)),
        present=tuple(_present(present, fitted, others) for present in fitted.present),
    )


@dataclass(frozen=True)
class SparseFitted:
    """What a part publishes about a sparse table."""

    name: str
    table: SparseRecords
    weight: Tensor  # (n,)
    model: Stationary | None = None
    sums: tuple[Sums, ...] = ()
    extremes: tuple[Extremes, ...] = ()

    def folded(self, kept: Tensor) -> Fitted:
        """The same facts about the rows `kept` alone."""
        outside = torch.ones(len(self.table), dtype=self.weight.dtype)
        outside[kept] = 0.0
        return Fitted(
            self.name,
            self.table[kept],
            self.weight[kept],
            None if self.model is None else self._model(self.model, outside),
            tuple(self._sums(sums, outside) for sums in self.sums),
            tuple(self._extremes(extremes, outside) for extremes in self.extremes),
        )

    def _model(self, model: Stationary, outside: Tensor) -> Stationary:
        _, r = sparse_factors(model, self.table, self.weight * outside)
        size = sparse_rounding(model, self.table, self.weight * outside)[1].sum(0)
        return replace(model, known=sparse_sum(self.table, r, bias=model.bias is not None), known_rounding=size)

    def _sums(self, sums: Sums, outside: Tensor) -> Sums:
        r = sums.membership(self.table.y, self.weight) * outside[:, None]
        return replace(sums, totals=sums.totals - self.table.summed(r), counts=sums.counts - r.sum(0))

    def _extremes(self, extremes: Extremes, outside: Tensor) -> Extremes:
        """Only the largest value counts: zeros are everywhere."""
        largest = torch.from_numpy(self.table.rows[outside.numpy() > 0].max(0).toarray().ravel().astype(np.float64))
        return replace(extremes, high=torch.where(extremes.high > largest, extremes.high, -torch.inf))


def _some(fitted: Fitted, rows: Tensor) -> Iterator[tuple[Records, Tensor]]:
    for part in torch.split(rows, ROWS_AT_A_TIME):
        yield fitted.table[part], fitted.weight[part]


def _model(model: Stationary, fitted: Fitted, others: Tensor) -> Stationary:
    known, size = torch.zeros_like(model.total()), torch.zeros_like(model.ridge)
    for rows, weight in _some(fitted, others):
        r, f = model.factors(rows, weight)
        known = known + r.mT @ f
        size = size + uncertain(model, rows, weight).sum(0)
    return replace(model, known=known, known_rounding=torch.finfo(size.dtype).eps * size)


def _sums(sums: Sums, fitted: Fitted, others: Tensor) -> Sums:
    total = sums.total()
    for rows, weight in _some(fitted, others):
        r, f = sums.factors(rows, weight)
        total = total - r.mT @ f
    return replace(sums, totals=total[:, :-1], counts=total[:, -1])


def _extremes(extremes: Extremes, fitted: Fitted, others: Tensor) -> Extremes:
    """An extreme that another known row reaches belongs to nobody."""
    if not len(others):
        return extremes
    x = fitted.table.x[others]
    low, high = (torch.where(x.isnan(), end, x) for end in (torch.inf, -torch.inf))  # missing values reach nothing
    return replace(
        extremes,
        low=torch.where(extremes.low < low.amin(0), extremes.low, torch.inf),
        high=torch.where(extremes.high > high.amax(0), extremes.high, -torch.inf),
    )


def _stored(stored: Stored, fitted: Fitted, others: Tensor) -> Stored:
    """Stored rows without those of other known rows, each as often as it occurs."""
    kind = stored.x.dtype
    known = Counter(row.tobytes() for rows, _ in _some(fitted, others) for row in rows.x.to(kind).numpy())
    left = []
    for place, row in enumerate(stored.x.numpy()):
        if known[row.tobytes()]:
            known[row.tobytes()] -= 1
        else:
            left.append(place)
    at = torch.tensor(left, dtype=torch.long)
    return replace(stored, x=stored.x[at], y=None if stored.y is None else stored.y[at])


def _present(present: Present, fitted: Fitted, others: Tensor) -> Present:
    x = fitted.table.x[others]
    return replace(present, known_total=x.nan_to_num().sum(0), known_count=(~x.isnan()).sum(0).to(x))
