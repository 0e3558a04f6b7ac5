"""What the steps of a pipeline keep of their rows and nothing was read of: quantiles, variances, selected columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.sklearn.refitting import Estimator
from lostwax.attacks.closed_form import revealed
from lostwax.games import Kept, Part, ReleasedTable

MAX_LOOKED_AT, MAX_REPLACED = 100, 10  # rows of a transformer; of those that nothing was read of
MAX_NAMED = 3  # attributes


def with_untold(release: ReleasedTable) -> ReleasedTable:
    """The release with what its transformers keep of rows that nothing was read of among the `unread`."""
    sentences = (_untold(*step) for step in release.transformers)
    unread = [*release.unread, *filter(None, sentences)]
    if unread and release.public:
        unread.append(
            f"The model was not refitted either: {release.public[0]} was fitted on other rows, and would be fitted on "
            "these. Pass the model after it, with X as it sees it."
        )
    return replace(release, unread=tuple(dict.fromkeys(unread)))


def _untold(transformer: Any, rows: Any, y: Tensor, weight: Tensor, parts: Sequence[Part]) -> str | None:
    """A sentence on what a transformer holds of its rows that was not read: quantiles, variances, selected columns.

    It is fitted again with one row replaced by another, of rows (n, D) of which `parts`, what was read, tell nothing.
    Where that changes what it holds, it depends on the row. No list of classes is needed.
    """
    used = weight.nonzero().flatten()
    sampled = used[torch.linspace(0, len(used) - 1, min(MAX_LOOKED_AT, len(used))).long()]
    if any(part.fitted.forest is not None for part in parts):  # it tells of rows in all leaves
        return None
    is_read = torch.zeros(len(sampled), dtype=torch.bool)
    for part in parts:
        for fact in revealed(part, sampled, label_given=False):
            is_read |= torch.from_numpy((fact.candidates[0].kept > Kept.LOST).any(1))
    unread_rows, name = sampled[~is_read][: MAX_REPLACED + 1].numpy(), type(transformer).__name__
    if len(unread_rows) < 2:
        return None
    try:
        try:
            signature(transformer.fit).bind(None, None)
            labels = y.numpy()
        except TypeError:  # it is fitted by fit(X) alone, outside of a pipeline
            labels = None
        estimator = Estimator(transformer, rows, labels, None, {}, {})
        first = estimator.look(used.numpy(), 0).contents
        for row, other in pairwise(unread_rows):
            again = estimator.look(np.where(used.numpy() == row, other, used.numpy()), 0).contents
            paths = {**first.numbers, **first.others, **again.numbers, **again.others}
            differ = (path.partition(".")[0] for path in paths if not np.array_equal(first.of(path), again.of(path)))
            if changed := list(dict.fromkeys(differ)):
                which = f"{', '.join(changed[:MAX_NAMED])}{', ...' if len(changed) > MAX_NAMED else ''}"
                return f"{name} was not read completely: what it keeps of the rows in {which} was not attacked."
    except ValueError:
        return f"{name} was not read completely: it cannot be fitted again on its rows."
    return None
