"""Which secret each guess is compared with, in a game with one secret or several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, final, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.games.nouns import Guess
from lostwax.games.records import Records

GAMES_AT_A_TIME = 256


class Pairs(NamedTuple):
    """Which guess of a game stands beside which of its secrets, e pairs per game."""

    guess: Tensor  # (m, e) numbers of guesses
    secret: Tensor  # (m, e) numbers of secrets


@runtime_checkable
class Judge(Protocol):
    """A rule of the game: which guess (m, g, ...) is compared with which secret (m, k, ...)."""

    @property
    def matched(self) -> bool:
        """Has each secret one guess to itself?"""

    @property
    def gaussian_null(self) -> bool:
        """Is the null what the attack makes of Gaussian weights (Maciazek and Allison 2025)?"""

    def check(self, guess: Guess, secrets: Records) -> str | None:
        """What is wrong with the shape of an attack's answer, as a clause; None where nothing is."""

    def pairs(self, guesses: Records, secrets: Records) -> Pairs:
        """The pairs that are scored."""


@final
@dataclass(frozen=True)
class OneToOne:
    """As many guesses as secrets: matched so that the sum of their squared errors is least."""

    matched: ClassVar[bool] = True
    gaussian_null: ClassVar[bool] = False

    def check(self, guess: Guess, secrets: Records) -> str | None:
        return _wrong_shape(guess, secrets, secrets.x.shape[1])

    def pairs(self, guesses: Records, secrets: Records) -> Pairs:
        """By linear assignment."""
        m, k = secrets.x.shape[:2]
        numbers = torch.arange(k).expand(m, k)
        if k == 1:
            return Pairs(numbers, numbers)
        guess, truth = (part.x.double().flatten(2).cpu() for part in (guesses, secrets))  # (m, k, d)
        squared = torch.cdist(truth, guess).square().nan_to_num(torch.finfo(torch.float64).max)  # (m, k, k)
        order = torch.tensor([linear_sum_assignment(game.numpy())[1].tolist() for game in squared])
        return Pairs(order, numbers)


@final
@dataclass(frozen=True)
class NearestOfClass:
    """Each guess beside the nearest secret with its label (Maciazek and Allison 2025, Eq. 4 and Algorithm 3).

    A guess with a label that no secret has is compared with all. Two guesses may be for one secret.
    """

    matched: ClassVar[bool] = False
    gaussian_null: ClassVar[bool] = True

    def check(self, guess: Guess, secrets: Records) -> str | None:
        return _wrong_shape(guess, secrets, None)

    def pairs(self, guesses: Records, secrets: Records) -> Pairs:
        """By distance, computed where the secrets are."""
        cut = zip(*(torch.split(part.x, GAMES_AT_A_TIME) for part in (guesses, secrets)), strict=True)
        worst = torch.finfo(torch.float64).max  # where there is no distance
        far = torch.cat(
            [
                torch.cdist(guess.to(truth.device).double().flatten(2), truth.double().flatten(2)).cpu()
                for guess, truth in cut
            ]
        ).nan_to_num(worst, worst)  # (m, g, k)
        if not secrets.y.is_floating_point():
            same = guesses.y.cpu().unsqueeze(2) == secrets.y.cpu().unsqueeze(1)  # (m, g, k)
            far = far.masked_fill(~same & same.any(2, keepdim=True), torch.inf)
        m, g = far.shape[:2]
        return Pairs(torch.arange(g).expand(m, g), far.argmin(2))


@dataclass(frozen=True, eq=False)
class NearestAlternative:
    """Of several records that explain a release equally well, the one nearest to the secret (m, 1, ...)."""

    distance: Callable[[Tensor, Tensor], NDArray[np.float64]]  # (m, ...) twice -> (m,)
    matched: ClassVar[bool] = True
    gaussian_null: ClassVar[bool] = False

    def check(self, guess: Guess, secrets: Records) -> str | None:
        return _wrong_shape(guess, secrets, 1)

    def pairs(self, guesses: Records, secrets: Records) -> Pairs:
        distances = [self.distance(alternative, secrets.x[:, 0]) for alternative in guesses.x.unbind(1)]
        best = torch.from_numpy(np.stack(distances, 1)).argmin(1, keepdim=True)  # (m, 1)
        return Pairs(best, torch.zeros_like(best))


def judge_of(threat: object) -> Judge:
    """The judge that a threat brings; one to one for a threat that brings none."""
    judge: Judge = threat.judge() if hasattr(threat, "judge") else OneToOne()
    return judge


def _wrong_shape(guess: Guess, secrets: Records, each: int | None) -> str | None:
    x, y, shape = guess.records.x, guess.records.y, tuple(secrets.x.shape)
    games, g = len(secrets.x), x.shape[1] if x.ndim > 1 else 0
    wanted = (games, g if each is None else each, *shape[2:])
    if tuple(x.shape) != wanted or g == 0:
        return f"expected guesses of shape {(games, each or 'g', *shape[2:])}, got {tuple(x.shape)}"
    if tuple(y.shape) != (games, g, *secrets.y.shape[2:]):
        return f"expected labels of shape {(games, g, *secrets.y.shape[2:])}, got {tuple(y.shape)}"
    if tuple(guess.confidence.shape) != (games, g):
        return f"expected a confidence of shape {(games, g)}, got {tuple(guess.confidence.shape)}"
    return None


def chosen(records: Records, numbers: Tensor) -> Records:
    """(m, k, ...) -> (m e, ...): the records (m, e) of each game one after the other, as they are scored."""
    games = torch.arange(len(numbers)).unsqueeze(1)
    x, y = records.x.cpu()[games, numbers], records.y.cpu()[games, numbers]
    return Records(x.flatten(0, 1).double(), y.flatten(0, 1))


def distinct_games(secrets: Records) -> Tensor:
    """(m,) for each game the first one with the same secrets, in whatever order."""
    return _first_alike(_first_equal(secrets))


def other_games(secrets: Records, given: Tensor | None) -> Tensor:
    """(m,) for each game the next one with which it shares no secret, and -1 where there is none.

    Only games in which the same is `given` (m, ...), the labels, are compared: a guess that used the label would
    otherwise look close to its own secret by that alone. Games for the same secrets count once.
    """
    rows = _first_equal(secrets)
    others = torch.full((len(rows),), -1)
    first = _first_alike(rows) == torch.arange(len(rows))
    for group in groups_of(given, len(rows)):
        games = group[first[group]]
        next_one = torch.full((len(games),), -1)
        for turn in range(1, len(games)):
            ahead = games.roll(-turn)
            shared = (rows[games].unsqueeze(2) == rows[ahead].unsqueeze(1)).flatten(1).any(1)
            next_one = torch.where((next_one < 0) & ~shared, ahead, next_one)
            if (next_one >= 0).all():
                break
        others[games] = next_one
    return others


def groups_of(given: Tensor | None, games: int) -> list[Tensor]:
    """The games in which the adversary is given the same classes (m, k), in whatever order, group by group."""
    if given is None:
        return [torch.arange(games)]
    keys = given.flatten(1).cpu().sort(1).values
    _, which = torch.unique(keys, dim=0, return_inverse=True)
    return [(which == number).nonzero().flatten() for number in range(int(which.max()) + 1)]


def _first_equal(secrets: Records) -> Tensor:
    """(m, k) for each secret the number of the first one that is equal, of all games'."""
    flat = Records(secrets.x.flatten(0, 1).double().cpu(), secrets.y.flatten(0, 1).cpu())
    return flat.matches(flat).view(secrets.x.shape[:2])


def _first_alike(rows: Tensor) -> Tensor:
    """(m,) for each game the first one with the same numbers (m, k), in whatever order."""
    _, first, which = np.unique(rows.sort(1).values.numpy(), axis=0, return_index=True, return_inverse=True)
    return torch.from_numpy(first[which.reshape(-1)])
