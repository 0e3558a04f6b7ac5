"""What two releases of one pipeline need beside their parts: rows by key, sums of squares, the model's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from lostwax.adapters.objects import Walk, as_array
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.pipelines import as_numbers
from lostwax.adapters.sklearn.texts import are_texts
from lostwax.attacks.closed_form import row_keys
from lostwax.games import Part, Sums
from lostwax.records.tables import coded

AGREES = 1e-7  # of the sum of squares: a variance is that of these rows


def joint_codes(tables: Sequence[tuple[Any, Any]]) -> tuple[list[list[object]], list[Tensor] | None]:
    """A key for each row of several tables (X, y); and their cells in common codes, None for texts.

    Categories have the codes that the first table alone gives them.
    """
    sizes = [X.shape[0] if hasattr(X, "shape") else len(X) for X, _ in tables]
    labels = [
        np.zeros(size) if y is None else inputs.targets(y, size) for size, (_, y) in zip(sizes, tables, strict=True)
    ]
    every_label = np.concatenate(labels)
    if every_label.dtype.kind != "f":
        every_label = np.unique(every_label, return_inverse=True, axis=0)[1].astype(np.float64)
    y = torch.from_numpy(every_label.astype(np.float64).reshape(sum(sizes), -1))
    first = tables[0][0]
    if inputs.is_sparse(first):
        x = torch.from_numpy(np.concatenate([np.asarray(X.toarray(), dtype=np.float64) for X, _ in tables]))
    elif are_texts(first):
        texts = [text for X, _ in tables for text in X]
        keys: list[object] = [*zip(texts, map(tuple, y.tolist()), strict=True)]
        return _split(keys, sizes), None
    else:
        x = _together([X for X, _ in tables])
    return _split(row_keys(torch.cat([x, y], 1)).tolist(), sizes), list(torch.split(x, sizes))


def _split(keys: Sequence[object], sizes: Sequence[int]) -> list[list[object]]:
    ends = np.cumsum(sizes).tolist()
    return [list(keys[end - size : end]) for end, size in zip(ends, sizes, strict=True)]


def _together(tables: Sequence[Any]) -> Tensor:
    """(n, d) all rows of tables, coded alike."""
    if inputs.is_frame(tables[0]):
        import pandas

        columns = list(tables[0].columns)
        if any(list(table.columns) != columns for table in tables[1:]):
            raise ValueError(
                "audit: the tables have different columns. Pass both releases' data with the same columns."
            )
        return coded(pandas.concat(tables, ignore_index=True))[0]
    arrays = [np.asarray(table.detach().cpu() if isinstance(table, Tensor) else table) for table in tables]
    arrays = [array.reshape(len(array), -1) for array in arrays]
    if len({array.shape[1] for array in arrays}) > 1:
        raise ValueError("audit: the tables have different columns. Pass both releases' data with the same columns.")
    together = np.concatenate(arrays)
    return torch.from_numpy(together.astype(np.float64)) if together.dtype.kind in "iufb" else coded(together)[0]


def second_moments(model: Any, part: Part) -> dict[int, Tensor]:
    """Sums of squares of the rows of a part, (groups, d), by the place of the sums that they belong to.

    Found by value: an array of variances beside the means, in any object of the model.
    """
    x, moments = part.fitted.table.x, dict[int, Tensor]()
    if bool(x.isnan().any()):
        return moments
    arrays = [
        torch.from_numpy(value.astype(np.float64).reshape(-1, x.shape[1]))
        for _, value in Walk(model, leaf=as_array, pickled=False)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim in (1, 2)
        if value.shape[-1] == x.shape[1]
    ]
    for place, sums in enumerate(part.fitted.sums):
        squares = sums.membership(part.fitted.table.y, part.fitted.weight).mT @ x.square()
        for variances in arrays:
            if variances.shape == sums.totals.shape and (total := _squares(variances, sums, squares)) is not None:
                moments[place] = total
                break
    return moments


def _squares(variances: Tensor, sums: Sums, squares: Tensor) -> Tensor | None:
    """The sums of squares with these variances, if that is what they are."""
    counts = sums.counts[:, None]
    total = counts * variances + sums.totals.square() / counts
    agrees = ((total - squares).abs() <= AGREES * squares.clamp_min(1e-300)).all()
    return total if bool(agrees) else None


def at_last_step(model: Any, X: Any) -> Tensor | None:
    """(n, D) rows as the last step of a model sees them; None where that is not known."""
    model = inputs.chosen(model)
    if isinstance(model, Pipeline):
        if isinstance(model[-1], Pipeline) or hasattr(model[-1], "estimators_"):
            return None
        X = model[:-1].transform(X) if len(model.steps) > 1 else X
    try:
        return as_numbers(X)
    except (TypeError, ValueError):
        return None
