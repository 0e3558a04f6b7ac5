"""Which secret a guess is held against, in games with several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.audits.matching import apart, one_by_one
from lostwax.metrics import Null
from lostwax.types import Guess, Records


class Judged(NamedTuple):
    """Guesses beside the secrets that they are held against."""

    guess: Guess  # (pairs, 1, ...)
    truth: Records  # (pairs, ...)
    each: int  # pairs that a game has, one after the other
    chance: Mapping[Null, tuple[Tensor, Tensor]] | None = None  # by null: guesses and secrets that owe nothing ...
    # ... to each other, (pairs, ...) twice; None: guesses of one game and secrets of the next, matched as these are


def in_the_best_order(guess: Guess, secrets: Records) -> Judged:
    """As many guesses as secrets (m, k, ...), each for one of them."""
    return Judged(one_by_one(guess, secrets), _flat(secrets), secrets.x.shape[1])


def nearest_of_class(guess: Guess, secrets: Records, untrained: Guess) -> Judged:
    """Each of g guesses beside the nearest of a game's secrets (m, k, ...) that have its label (S2 Eq. 4, Algorithm 3).

    A guess with a label that none of them has is for all. Two guesses may be for one secret, and a secret may have
    none: what is counted is guesses. Chance is the nearest in the next game that shares no secret with this one, and
    what the attack makes of Gaussian weights (`untrained`) held against the same games: one of each for every guess.
    """
    own = _beside(guess.records, secrets)
    chance = {Null.GAUSSIAN_WEIGHTS: (untrained.records, secrets)}
    if (strangers := _next_strangers(secrets)) is not None:
        chance[Null.OTHER_SECRETS] = guess.records, secrets[strangers]
    each = guess.records.x.shape[1]
    return Judged(
        apart(guess, torch.arange(each).expand(len(own), -1)),
        _flat(own),
        each,
        {null: (_flat(found).x, _flat(_beside(found, theirs)).x) for null, (found, theirs) in chance.items()},
    )


def _beside(guesses: Records, secrets: Records) -> Records:
    """(m, g, ...) of (m, k, ...) the nearest secret to each guess that has its label, or of all where none has it."""
    found, truth = (part.x.to(secrets.x.device).double().flatten(2) for part in (guesses, secrets))
    worst = torch.finfo(found.dtype).max
    far = torch.cdist(found, truth).nan_to_num(worst, worst)  # (m, g, k)
    if not secrets.y.is_floating_point():
        same = guesses.y.to(secrets.y.device).unsqueeze(2) == secrets.y.unsqueeze(1)  # (m, g, k)
        far = far.masked_fill(~same & same.any(2, keepdim=True), torch.inf)
    games, place = torch.arange(len(far), device=far.device).unsqueeze(1), far.argmin(2)  # (m, 1), (m, g)
    return Records(secrets.x[games, place], secrets.y[games, place])


def _next_strangers(secrets: Records) -> Tensor | None:
    """(m,) for each game the next one with which it has no secret in common; None where a game has none."""
    flat = _flat(secrets)
    row = flat.matches(flat).view(secrets.x.shape[:2])  # (m, k) the first that is the same
    games = torch.arange(len(row))
    found = torch.full_like(games, -1)
    for turn in range(1, len(row)):
        shared = (row.unsqueeze(2) == row.roll(-turn, 0).unsqueeze(1)).flatten(1).any(1)
        found = torch.where((found < 0) & ~shared, games.roll(-turn), found)
        if (found >= 0).all():
            return found.to(secrets.x.device)
    return None


def _flat(records: Records) -> Records:
    """(m, k, ...) -> (m k, ...), as they are scored."""
    return Records(records.x.flatten(0, 1).double().cpu(), records.y.flatten(0, 1).cpu())
