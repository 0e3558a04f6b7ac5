"""Games with several secrets, as games with one each."""

from __future__ import annotations

from dataclasses import replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.types import Guess, Records


def one_by_one(guess: Guess, secrets: Records) -> Guess:
    """(m, k, ...) -> (m k, 1, ...), the guesses of a game in the order of its secrets (m, k, ...) that suits them best.

    Which of a game's guesses is meant for which secret is nobody's to say: they are matched so that the squared errors
    add up to least.
    """
    if secrets.x.shape[1] == 1:
        return guess
    return apart(guess, best_order(guess.records.x, secrets.x))


def apart(guess: Guess, order: Tensor) -> Guess:
    """(m, g, ...) -> (m k, 1, ...), the guesses (m, k) of each game one after the other."""

    def each(part: Tensor) -> Tensor:
        games = torch.arange(len(order), device=part.device).unsqueeze(1)
        return part[games, order.to(part.device)].flatten(0, 1).unsqueeze(1)

    return replace(
        guess,
        records=Records(each(guess.records.x), each(guess.records.y)),
        confidence=each(guess.confidence),
        certified=None if guess.certified is None else each(guess.certified),
        undetermined=None if guess.undetermined is None else each(guess.undetermined),
    )


def best_order(guesses: Tensor, secrets: Tensor) -> Tensor:
    """(m, k) the guess (m, k, ...) that stands for each secret (m, k, ...)."""
    found, truth = (part.double().flatten(2).cpu() for part in (guesses, secrets))  # (m, k, d)
    squared = torch.cdist(truth, found).square().nan_to_num(torch.finfo(torch.float64).max)  # (m, k, k)
    return torch.tensor([linear_sum_assignment(one.numpy())[1].tolist() for one in squared])
