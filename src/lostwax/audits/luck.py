"""What luck alone gives: each guess held against secrets that it owes nothing to."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.audits.judged import Judge, distinct_games, groups_of
from lostwax.seeds import generator
from lostwax.types import Records

MOST_GAMES = 300  # whose guesses are held against each other's secrets
MOST_MATCHED = 60  # ... where the secrets of two games have to be matched first
POOL_RECORDS = 100  # of the adversary's own records, which stand in for other secrets
SMALLER = 100.0  # matches are also counted within a hundredth of the threshold


class Luck(NamedTuple):
    """The shares that guesses reach against the secrets of other games, their own counted among them.

    If a guess owed nothing to its own secret, that secret would be one like the others, and these shares would be what
    to expect of it. They are at least 1 / (number of secrets compared): few games prove little.
    """

    rebuilt: float  # within the threshold, where no baseline is
    rebuilt_closely: float  # within a hundredth of the threshold
    nearer: float  # nearer than every baseline
    farther: float  # share of other secrets that are farther from the guess than its own: 1/2 by chance


class Scores(NamedTuple):
    """Guesses held against secrets, pair by pair."""

    headline: NDArray[np.float64]
    criterion: NDArray[np.float64]  # decides what counts as rebuilt


class Rules(NamedTuple):
    """How guesses are judged in a kind of game."""

    judge: Judge
    score: Callable[[Tensor, Tensor], Scores]  # of guesses and truths, (pairs, ...) each
    baselines: Callable[[Tensor], list[Scores]]  # of guesses made without the release, for all secrets of some games
    threshold: float


def luck(
    rules: Rules, guesses: Records, secrets: Records, *, pool: Records, given: Tensor | None = None, seed: int = 0
) -> Luck | None:
    """Hold the guesses (m, g, ...) of each game against the secrets (m, k, ...) of others; None where there are none.

    Where something is `given` about the secrets, (m, ...), games are compared with those in which the same is given.
    Records of the `pool`, which the adversary has, are further secrets to match by accident.
    """
    first = (distinct_games(secrets) == torch.arange(len(secrets.x))).nonzero().flatten()
    k = secrets.x.shape[1]
    some = generator(seed, "luck").permutation(len(first))[: MOST_GAMES if k == 1 else MOST_MATCHED]
    games = first[torch.from_numpy(np.sort(some))]
    guesses, secrets = (Records(one.x.cpu()[games].double(), one.y.cpu()[games]) for one in (guesses, secrets))
    without = rules.baselines(games)
    best = np.minimum.reduce([one.headline for one in without]).reshape(-1, k)
    had = np.logical_or.reduce([one.criterion <= rules.threshold for one in without]).reshape(-1, k)
    alike = _some(pool, seed)
    rows = [
        _of_one(int(number), group, rules, guesses, secrets, best, had, alike)
        for group in groups_of(None if given is None else given.cpu()[games], len(games))
        for number in group
    ]
    found = np.array([row for row in rows if row is not None])
    return Luck(*(float(mean) for mean in found.mean(0))) if len(found) else None


def _of_one(
    number: int,
    group: Tensor,
    rules: Rules,
    guesses: Records,
    secrets: Records,
    best: NDArray[np.float64],
    had: NDArray[np.bool_],
    pool: Records,
) -> tuple[float, ...] | None:
    """One game's guesses against the secrets of its group, its own first, and against some records of the pool."""
    held = torch.cat([torch.tensor([number]), group[group != number]])  # (b,)
    ours = Records(*(part[number].expand(len(held), *part.shape[1:]) for part in (guesses.x, guesses.y)))
    theirs = Records(secrets.x[held], secrets.y[held])
    pairs = rules.judge(ours, theirs)  # (b, e)
    line = torch.arange(len(held)).unsqueeze(1)
    scores = rules.score(ours.x[line, pairs.guess].flatten(0, 1), theirs.x[line, pairs.secret].flatten(0, 1))
    errors, criterion = (part.reshape(pairs.guess.shape) for part in scores)  # (b, e)
    place = held.numpy()[:, None], pairs.secret.numpy()
    rebuilt = ((criterion <= rules.threshold) & ~had[place]).mean(1)  # (b,)
    closely = ((criterion <= rules.threshold / SMALLER) & ~had[place]).mean(1)
    nearer = (errors < best[place]).mean(1)
    if len(group) > 1:
        total = np.nan_to_num(errors, posinf=1e300).mean(1)
        farther = float(((total[1:] > total[0]) + (total[1:] == total[0]) / 2).mean())
    else:
        farther = 0.5
    hits, close_hits = _accidents(Records(guesses.x[number], guesses.y[number]), pool, rules)
    compared = len(held) + len(pool)
    if compared == 1:
        return None
    return (
        float(rebuilt.sum() + hits) / compared,
        # the own secret counts for less: the chance of a match shrinks with the radius, or faster
        float(closely[1:].sum() + closely[0] / SMALLER + close_hits) / compared,
        float(nearer.mean()),
        farther,
    )


def _accidents(guesses: Records, pool: Records, rules: Rules) -> tuple[float, float]:
    """How many records of the pool the guesses (g, ...) of one game match, and how many closely, mean over guesses."""
    if len(pool) == 0:
        return 0.0, 0.0
    ours = Records(*(part.expand(len(pool), *part.shape) for part in (guesses.x, guesses.y)))
    pairs = rules.judge(ours, Records(pool.x.unsqueeze(1), pool.y.unsqueeze(1)))  # (n, e)
    line = torch.arange(len(pool)).unsqueeze(1)
    theirs = pool.x.unsqueeze(1).expand(-1, pairs.guess.shape[1], *pool.x.shape[1:])
    scores = rules.score(ours.x[line, pairs.guess].flatten(0, 1), theirs.flatten(0, 1))
    criterion = scores.criterion.reshape(pairs.guess.shape)
    hits, close_hits = (criterion <= limit for limit in (rules.threshold, rules.threshold / SMALLER))
    return float(hits.mean(1).sum()), float(close_hits.mean(1).sum())


def _some(pool: Records, seed: int) -> Records:
    rows = torch.from_numpy(generator(seed, "luck", "pool").permutation(len(pool))[:POOL_RECORDS])
    return Records(pool.x.cpu()[rows].double(), pool.y.cpu()[rows])
