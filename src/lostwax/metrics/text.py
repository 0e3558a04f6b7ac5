"""How much of a sentence is right: its tokens, their order, and the edits that are left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lostwax.fields import check_fields


@dataclass(frozen=True)
class TokensRight:
    """The share of positions with the right token; 1 for an exact sentence."""

    better: Literal["lower", "higher"] = "higher"
    name: str = "share of tokens right"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        return (guess == truth).flatten(1).double().mean(1)


@dataclass(frozen=True)
class BagRight:
    """The share of a sentence's tokens that are right in any order, repeated ones counted as often as they occur."""

    better: Literal["lower", "higher"] = "higher"
    name: str = "share of tokens right in any order"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        pairs = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        common = [sum((Counter(one) & Counter(other)).values()) / len(other) for one, other in pairs]
        return torch.tensor(common, dtype=torch.float64, device=truth.device)


@dataclass(frozen=True)
class EditDistance:
    """How many tokens must be inserted, removed or replaced to get the sentence (Levenshtein)."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "edit distance in tokens"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        pairs = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        return torch.tensor([_edits(*pair) for pair in pairs], dtype=torch.float64, device=truth.device)


def _edits(guess: list[float], truth: list[float]) -> int:
    row = list(range(len(truth) + 1))
    for i, ours in enumerate(guess, 1):
        above, row = row, [i]
        for j, theirs in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (ours != theirs)))
    return row[-1]
