"""The label of the missing row, from sums of labels in nodes."""

from __future__ import annotations

from torch import Tensor

from lostwax.games.trees import Floats, Forest


def missing_labels(forest: Forest, x: Floats, y: Tensor, games: Tensor) -> Tensor | None:
    """(g, ...) labels of the missing rows; None if the trees do not tell them."""
    return None
