"""Which secret each guess is held against, in a game with one secret or several."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.games import Records


class Pairs(NamedTuple):
    """Which guess of a game stands beside which of its secrets, e pairs per game."""

    guess: Tensor  # (m, e) numbers of guesses
    secret: Tensor  # (m, e) numbers of secrets


class Judge(Protocol):
    """A rule that pairs the guesses of a game (m, g, ...) with its secrets (m, k, ...)."""

    def __call__(self, guesses: Records, secrets: Records) -> Pairs:
        """The pairs that are scored."""
        ...


def one_to_one(guesses: Records, secrets: Records) -> Pairs:
    """As many guesses as secrets: matched so that the squared errors add up to least."""
    m, k = secrets.x.shape[:2]
    numbers = torch.arange(k).expand(m, k)
    if k == 1:
        return Pairs(numbers, numbers)
    found, truth = (part.x.double().flatten(2).cpu() for part in (guesses, secrets))  # (m, k, d)
    squared = torch.cdist(truth, found).square().nan_to_num(torch.finfo(torch.float64).max)  # (m, k, k)
    order = torch.tensor([linear_sum_assignment(one.numpy())[1].tolist() for one in squared])
    return Pairs(order, numbers)


def nearest_of_class(guesses: Records, secrets: Records) -> Pairs:
    """Each guess beside the nearest secret of its game that has its label (S2 Eq. 4, Algorithm 3).

    A guess with a label that no secret has is compared with all. Two guesses may be for one secret, and a secret may
    have none: what is counted is guesses.
    """
    found, truth = (part.x.double().flatten(2).cpu() for part in (guesses, secrets))
    worst = torch.finfo(found.dtype).max
    far = torch.cdist(found, truth).nan_to_num(worst, worst)  # (m, g, k)
    if not secrets.y.is_floating_point():
        same = guesses.y.cpu().unsqueeze(2) == secrets.y.cpu().unsqueeze(1)  # (m, g, k)
        far = far.masked_fill(~same & same.any(2, keepdim=True), torch.inf)
    m, g = far.shape[:2]
    return Pairs(torch.arange(g).expand(m, g), far.argmin(2))


def chosen(records: Records, numbers: Tensor) -> Records:
    """(m, k, ...) -> (m e, ...): the records (m, e) of each game one after the other, as they are scored."""
    games = torch.arange(len(numbers)).unsqueeze(1)
    x, y = records.x.cpu()[games, numbers], records.y.cpu()[games, numbers]
    return Records(x.flatten(0, 1).double(), y.flatten(0, 1))


def distinct_games(secrets: Records) -> Tensor:
    """(m,) for each game the first one with the same secrets, in whatever order."""
    flat = Records(secrets.x.flatten(0, 1).double().cpu(), secrets.y.flatten(0, 1).cpu())
    rows = flat.matches(flat).view(secrets.x.shape[:2]).sort(1).values  # (m, k) the first equal record
    _, which = torch.unique(rows, dim=0, return_inverse=True)
    first = torch.full((int(which.max()) + 1,), len(which)).scatter_reduce(
        0, which, torch.arange(len(which)), "amin", include_self=True
    )
    return first[which]


def strangers(secrets: Records, given: Tensor | None) -> Tensor:
    """(m,) for each game the next one with which it shares no secret, and -1 where there is none.

    Where the adversary is given something about its secrets (`given` (m, ...), the labels), only games in which the
    same is given are compared: a guess that used the label would otherwise look close to its own secret by that alone.
    Games for the same secrets count once.
    """
    flat = Records(secrets.x.flatten(0, 1).double().cpu(), secrets.y.flatten(0, 1).cpu())
    rows = flat.matches(flat).view(secrets.x.shape[:2])  # (m, k) the first equal record
    others = torch.full((len(rows),), -1)
    first = distinct_games(secrets) == torch.arange(len(rows))
    for group in groups_of(given, len(rows)):
        games = group[first[group]]
        found = torch.full((len(games),), -1)
        for turn in range(1, len(games)):
            ahead = games.roll(-turn)
            shared = (rows[games].unsqueeze(2) == rows[ahead].unsqueeze(1)).flatten(1).any(1)
            found = torch.where((found < 0) & ~shared, ahead, found)
            if (found >= 0).all():
                break
        others[games] = found
    return others


def groups_of(given: Tensor | None, games: int) -> list[Tensor]:
    """The games in which the adversary is given the same classes (m, k), in whatever order, group by group."""
    if given is None:
        return [torch.arange(games)]
    keys = given.flatten(1).cpu().sort(1).values
    _, which = torch.unique(keys, dim=0, return_inverse=True)
    return [(which == number).nonzero().flatten() for number in range(int(which.max()) + 1)]
