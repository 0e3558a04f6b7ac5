"""What a fitted transformer holds about rows of which nothing was read: quantiles, variances, selected columns.

It is fitted again with one row replaced by another. Where that changes what it holds, it depends on the row; if what
was read of it tells nothing about such a row, it was not read completely. No list of classes is needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.objects import Contents, contents
from lostwax.adapters.own_training import generators_kept, seed_all
from lostwax.adapters.sklearn.refitting import Estimator
from lostwax.attacks.closed_form import revealed
from lostwax.games import Kept, Part

LOOKED_AT = 100  # rows, of which those that nothing was read of are replaced
TRIED = 10  # rows that are replaced, at most
NAMED = 3  # attributes


def untold(transformer: Any, rows: Any, y: Tensor, weight: Tensor, parts: Sequence[Part]) -> str | None:
    """A sentence on what depends on the rows and was not read; None if `parts` are all that a transformer tells.

    `rows` (n, D) are its inputs, in any form, and `parts` what was read of it.
    """
    used = weight.nonzero().flatten()
    some = used[torch.linspace(0, len(used) - 1, min(LOOKED_AT, len(used))).long()]
    lost = some[~_told(parts, some)][: TRIED + 1].numpy()
    if len(lost) < 2:
        return None
    name = type(transformer).__name__
    try:
        estimator = Estimator(transformer, rows, y.numpy() if _takes_labels(transformer) else None, None, {}, {})
        whole = _held(estimator, used.numpy())
        for row, other in pairwise(lost):
            replaced = np.where(used.numpy() == row, other, used.numpy())
            if changed := list(dict.fromkeys(_changed(whole, _held(estimator, replaced)))):
                which = f"{', '.join(changed[:NAMED])}{', ...' if len(changed) > NAMED else ''}"
                return f"{name} was not read completely: what it keeps of the rows in {which} was not attacked."
    except ValueError:
        return f"{name} was not read completely: it cannot be fitted again on its rows."
    return None


def _told(parts: Sequence[Part], rows: Tensor) -> Tensor:
    """(g,) whether anything that was read tells a cell of each of these rows."""
    told = torch.zeros(len(rows), dtype=torch.bool)
    for part in parts:
        if part.fitted.forest is not None:  # of rows in all leaves
            return torch.ones_like(told)
        for one in revealed(part, rows, label_given=False):
            told |= torch.from_numpy((one.candidates[0].kept > Kept.LOST).any(1))
    return told


def _takes_labels(transformer: Any) -> bool:
    """False for one that is fitted by fit(X) alone, outside of a pipeline."""
    try:
        signature(transformer.fit).bind(None, None)
    except TypeError:
        return False
    return True


def _held(estimator: Estimator, rows: Any) -> Contents:
    """What the transformer holds, fitted on these rows; always with the same random numbers."""
    with generators_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seed_all(0)
        return contents(estimator.fitted(rows, 0))


def _changed(one: Contents, other: Contents) -> Iterator[str]:
    """Attributes whose values differ."""
    for path in {**one.numbers, **one.others, **other.numbers, **other.others}:
        if not np.array_equal(one.of(path), other.of(path)):
            yield path.partition(".")[0]
