"""What a game told the adversary besides the release, and what it makes of the numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from lostwax.types import Hints


def in_words(hints: Hints | None) -> str:
    """The end of the sentence "Informed adversary, knows 300 of 301 records"."""
    told = []
    if hints is not None and hints.labels is not None:
        told.append("the labels of the secrets")
    if hints is not None and hints.parts is not None:
        told.append(_share(hints.parts))
    if hints is not None and hints.candidates is not None:
        told.append(f"{hints.candidates.x.shape[1]} candidates for each")
    return "".join(f", and {what}" for what in told)


def notes(hints: Hints | None) -> tuple[str, ...]:
    """How the numbers are to be read."""
    told = []
    if hints is not None and hints.parts is not None:
        told.append(f"{_share(hints.parts)} are told: errors are over all, and the baselines have those right too.")
    right = chance(hints)
    if hints is not None and hints.candidates is not None and right is not None:
        count = hints.candidates.x.shape[1]
        told.append(f"guessing among the {count} candidates is right in {100 * right:.3g} % of games.")
    return tuple(told)


def chance(hints: Hints | None) -> float | None:
    """How often the best guess among the candidates is right; None where there are none."""
    if hints is None or hints.candidates is None:
        return None
    if hints.chances is None and hints.labels is None:
        return 1 / hints.candidates.x.shape[1]
    y = hints.candidates.y
    chances = torch.ones(y.shape[:2]) if hints.chances is None else hints.chances  # (m, c)
    chances = chances.double().cpu()
    if hints.labels is not None:  # a candidate of another label is out
        chances = chances * (y == hints.labels).cpu()
    return float((chances.amax(1) / chances.sum(1)).mean())  # of those who name the likeliest


def any_candidate(hints: Hints | None) -> Tensor | None:
    """(games, ...) a candidate each, at random: the first, for they are dealt in no order."""
    return None if hints is None or hints.candidates is None else hints.candidates.x[:, 0].double().cpu()


def filled(guesses: Tensor, hints: Hints | None) -> Tensor:
    """(games, ...) guesses by somebody who knows what the adversary was told: those numbers in their place."""
    if hints is None or hints.parts is None:
        return guesses
    told = hints.parts[:, 0].to(guesses)  # k = 1
    return torch.where(told.isnan(), guesses, told)


def sought(records: Tensor, hints: Hints | None) -> Tensor:
    """(n, ...) records with zeros for all that was told, so that only the rest tells them apart."""
    if hints is None or hints.parts is None:
        return records
    return torch.where(hints.parts[0, 0].to(records).isnan(), records, 0.0)


def _share(parts: Tensor) -> str:
    one = parts[0, 0]
    return f"{int((~one.isnan()).sum())} of the {one.numel()} numbers of each secret"
