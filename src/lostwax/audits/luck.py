"""What luck alone gives: guesses compared with secrets that they owe nothing to."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Hints, Records
from lostwax.games.judges import Judge, distinct_games, groups_of, other_games
from lostwax.seeds import generator

MOST_PAIRS = 100_000  # of a guess and a secret that it owes nothing to
MOST_MATCHED = 5_000  # ... where the secrets of a game have to be matched first
MOST_NUMBERS = 200_000_000  # of the guesses in those pairs
ROUNDS, ROUNDS_MATCHED = 20, 2  # at least
FEWEST_COMPARED = 200  # games in a round, where there are more
MOST_SWAPPED = 60  # games that are attacked once more, with another game's release
FEWEST = 5  # games in which the same is given: fewer say nothing
OTHER_ROWS, DRAWS = 1_000, 999  # of a table, in the place of secrets that are rows of it
POOL_RECORDS = 200  # of the adversary's own, which stand in for other secrets


class Luck(NamedTuple):
    """How guesses fare against their own secrets, beside what to expect if they owed nothing to them.

    A guess that owes nothing to its own secret meets it like any other: that secret is one among those compared. So
    what is expected is the share of all secrets compared, the own one included, that a guess rebuilds or is nearer to;
    it is never below one over their number, and few games prove little.
    """

    games: int  # that were compared, each independent of the others
    rebuilt: float  # of them, those with a secret rebuilt
    rebuilt_by_luck: float  # the share expected
    closest: float  # probability that luck alone brings any guess as close to its secret as the closest one is
    nearer: float  # games with a guess nearer than every baseline (shares of games, where they have several guesses)
    nearer_by_luck: float
    farther: float  # share of other secrets that are farther from the guess than its own: 1/2 by chance
    # where luck is the answer to another game's release: games won with the own release only, with the other only
    rebuilt_pairs: tuple[int, int] | None = None
    nearer_pairs: tuple[int, int] | None = None
    # where a table is rebuilt as a whole: shares of blind tables that rebuild as many rows, that are nearer than every
    # baseline in as many, and that have as small a mean error
    blind_tables: tuple[float, float, float] | None = None
    # where secrets are rows of one table: the same shares of draws of other rows in their place
    other_rows: tuple[float, float, float] | None = None


class Scores(NamedTuple):
    """Guesses compared with secrets, pair by pair."""

    headline: NDArray[np.float64]
    criterion: NDArray[np.float64]  # decides what counts as rebuilt


class Rules(NamedTuple):
    """How guesses are judged in a kind of game."""

    judge: Judge
    score: Callable[[Tensor, Tensor], Scores]  # of guesses and truths, (pairs, ...) each
    baselines: Callable[[Tensor], list[Scores]]  # of guesses made without the release, for all secrets of some games
    threshold: float


class _Won(NamedTuple):
    """One round of comparisons: (games,) each."""

    rebuilt: NDArray[np.float64]
    nearer: NDArray[np.float64]
    error: NDArray[np.float64]  # headline, mean over a game's guesses
    closest: NDArray[np.float64]  # criterion, least of a game's guesses


def luck(
    rules: Rules, guesses: Records, secrets: Records, *, pool: Records, given: Tensor | None = None, seed: int = 0
) -> Luck | None:
    """Hold the guesses (m, g, ...) of each game against the secrets (m, k, ...) of others; None where there are none.

    Where classes are `given`, (m, k), games are compared with those in which the same is given. Every round is a
    permutation: each guess and each secret is used once, so that easy secrets and bold guesses cancel out. Records of
    the `pool`, which the adversary has, are further secrets to match by accident.
    """
    games = torch.from_numpy(generator(seed, "luck").permutation(_first(secrets).numpy()))
    guesses, secrets = (
        Records(records.x.cpu()[games].double(), records.y.cpu()[games]) for records in (guesses, secrets)
    )
    groups = groups_of(None if given is None else given.cpu()[games], len(games))
    groups_compared = [group for group in groups if given is None or len(group) >= FEWEST]
    if not groups_compared:
        return None
    some = torch.cat(groups_compared)
    table = _Table(rules, guesses, secrets, rules.baselines(games))
    results = table.round(some, some)
    effort = _Effort.of(guesses, secrets)
    places = effort.drawn(groups_compared)
    part = [group[: len(drawn)] for group, drawn in zip(groups_compared, places, strict=True)]
    rounds = [table.round(torch.cat(part), others) for others in effort.permutations(part)]
    close = _closest(table, some, results, some_records(pool, seed).x)
    if not rounds and close is None:
        return None
    return _compared(results, rounds, 1.0 if close is None else close, torch.cat(places).numpy())


def luck_of_swapped(rules: Rules, guesses: Records, swapped: Records, secrets: Records, games: Tensor) -> Luck:
    """The guesses (m, g, ...) of these games beside what the attack makes of another game's release.

    For games in which more is given than a class: `swapped` (m, g, ...) were given the same as the guesses, and a
    release that owes nothing to the secret. Of the two either is as likely to be better, if the guess owes nothing too.
    """
    first = _first(secrets)
    ours, others, theirs = (
        Records(records.x.cpu()[first].double(), records.y.cpu()[first]) for records in (guesses, swapped, secrets)
    )
    every, without = torch.arange(len(first)), rules.baselines(games[first])
    results = _Table(rules, ours, theirs, without).round(every, every)
    null = _Table(rules, others, theirs, without).round(every, every)
    return _compared(results, [null], 1.0, every.numpy())._replace(
        rebuilt_by_luck=float(null.rebuilt.mean()),
        nearer_by_luck=float(null.nearer.mean()),
        rebuilt_pairs=_pairs(results.rebuilt, null.rebuilt),
        nearer_pairs=_pairs(results.nearer, null.nearer),
    )


def among_other_rows(
    scored: Callable[[Tensor, Tensor], tuple[Scores, NDArray[np.float64]]],
    guesses: Tensor,
    secrets: Tensor,
    others: Tensor,
    threshold: float,
    blind: Tensor,
) -> Luck:
    """The guesses (k, ...) for secret rows beside what they come to with other rows (s, ...) of the same table.

    If the guesses owe nothing to which rows are secret, these are exchangeable with the others. `scored` gives the
    scores of pairs, and the headline error of the best baseline for each. One game is compared with every other row,
    several with draws of other rows. Being nearer than every baseline counts by how much nearer. A guess that is the
    blind one (...) shows nothing, however near the row is to it.
    """
    k, random = len(guesses), generator(0, "luck", "other rows")
    some = others[torch.from_numpy(np.sort(random.permutation(len(others))[:OTHER_ROWS]))]
    rivals = torch.cat([torch.cat([secret[None], some]) for secret in secrets])  # the own secret first
    scores, baseline = scored(guesses.repeat_interleave(len(some) + 1, 0), rivals)
    criterion = scores.criterion.reshape(k, -1)
    error = np.nan_to_num(scores.headline, posinf=1e300).reshape(k, -1)
    informed = (_comparable(guesses) != _comparable(blind.to(guesses))).reshape(k, -1).any(1).numpy()
    error = np.where(informed[:, None], error, 0.0)
    nearer = np.where(informed[:, None], 1 - error / baseline.reshape(k, -1).clip(1e-300), 0.0).clip(0, 1)
    rebuilt, wins = (criterion <= threshold).astype(float), (nearer > 0).astype(float)
    places = np.arange(1, len(some) + 1)[None]
    if k > 1:
        places = random.integers(1, len(some) + 1, size=(k, DRAWS))

    def as_good(goodness: NDArray[np.float64]) -> float:
        drawn = np.take_along_axis(goodness, places, 1).mean(0)
        return float((1 + (drawn >= goodness[:, 0].mean() - 1e-12).sum()) / (1 + places.shape[1]))

    # as in `_closest`: of the game whose guess is closest to its secret, over its distance to the nearest other row
    best = int(np.where(wins[:, 0] > 0, criterion[:, 0], np.inf).argmin())
    within = int((criterion[best, 1:] <= criterion[best, 0]).sum())
    ratio = 1.0 if within else float(criterion[best, 0]) / max(float(criterion[best, 1:].min()), 1e-300)
    if _made_of_values(guesses[best : best + 1], some):
        ratio = 1.0 if within or not _all_different(some) else 2 / len(some)
    close = min(1.0, k * (1 + within) * ratio / (1 + len(some)))
    chances = [
        min(1.0, 2 * min(as_good(goodness), close)) if (won[:, 0] * wins[:, 0]).any() else 1.0
        for goodness, won in ((rebuilt, rebuilt), (nearer, wins))
    ]
    return Luck(
        games=k,
        rebuilt=float(rebuilt[:, 0].sum()),
        rebuilt_by_luck=float(rebuilt.mean()),
        closest=close if rebuilt[best, 0] * wins[best, 0] else 1.0,
        nearer=float(wins[:, 0].sum()),
        nearer_by_luck=float(wins.mean()),
        farther=float((np.sign(error[:, 1:] - error[:, :1]) / 2 + 0.5).mean()),
        other_rows=(chances[0], chances[1], as_good(-error)),
    )


def _compared(results: _Won, rounds: list[_Won], closest: float, places: NDArray[np.int64]) -> Luck:
    """The guesses against their own secrets, beside rounds that owe nothing to them, of the games at these places."""
    farther = [np.sign(round_.error - results.error[places]) / 2 + 0.5 for round_ in rounds]
    return Luck(
        games=len(results.rebuilt),
        rebuilt=float(results.rebuilt.sum()),
        rebuilt_by_luck=float(np.mean([round_.rebuilt.mean() for round_ in (results, *rounds)])),
        closest=closest,
        nearer=float(results.nearer.sum()),
        nearer_by_luck=float(np.mean([round_.nearer.mean() for round_ in (results, *rounds)])),
        farther=float(np.mean(farther)) if farther else 0.5,
    )


def _pairs(results: NDArray[np.float64], null: NDArray[np.float64]) -> tuple[int, int]:
    """Games in which the own release gives more, and in which the other does: equally likely by chance."""
    return int((results > null).sum()), int((results < null).sum())


class _Table:
    """Guesses and secrets of some games, and what each secret takes to be nearer than every baseline."""

    def __init__(self, rules: Rules, guesses: Records, secrets: Records, without: list[Scores]) -> None:
        self.rules, self.guesses, self.secrets = rules, guesses, secrets
        self.best = np.minimum.reduce([scores.headline for scores in without]).reshape(secrets.x.shape[:2])  # (m, k)

    def round(self, games: Tensor, others: Tensor) -> _Won:
        """The guesses of `games` against the secrets of `others`, (b,) each."""
        ours, theirs = (
            Records(records.x[at], records.y[at]) for records, at in ((self.guesses, games), (self.secrets, others))
        )
        errors, criterion, place = self._scores(ours, theirs)
        best = self.best[others.numpy()[:, None], place]
        return _Won(
            rebuilt=(criterion <= self.rules.threshold).any(1).astype(float),
            nearer=(errors < best).mean(1),
            error=np.nan_to_num(errors, posinf=1e300).mean(1),
            closest=criterion.min(1),
        )

    def distances(self, game: int, records: Tensor) -> NDArray[np.float64]:
        """(n,) criterion of the guesses of one game against other records (n, ...)."""
        guesses = (self.guesses.x, self.guesses.y)
        ours = Records(*(part[game].expand(len(records), *part.shape[1:]) for part in guesses))
        theirs = Records(records.unsqueeze(1), torch.zeros(len(records), 1, dtype=self.secrets.y.dtype))
        distances: NDArray[np.float64] = self._scores(ours, theirs)[1].min(1)
        return distances

    def _scores(
        self, ours: Records, theirs: Records
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Headline and criterion of every pair, and which secret it is about, (b, e) each."""
        pairs = self.rules.judge.pairs(ours, theirs)  # (b, e)
        line = torch.arange(len(ours.x)).unsqueeze(1)
        scores = self.rules.score(ours.x[line, pairs.guess].flatten(0, 1), theirs.x[line, pairs.secret].flatten(0, 1))
        headline, criterion = (part.reshape(pairs.guess.shape) for part in scores)
        return headline, criterion, pairs.secret.numpy()


class _Effort(NamedTuple):
    """How much is compared."""

    rounds: int  # at least
    pairs: int  # about this many in all

    @classmethod
    def of(cls, guesses: Records, secrets: Records) -> _Effort:
        """Fewer pairs where records have many numbers, or secrets have to be matched."""
        rounds, pairs = (ROUNDS, MOST_PAIRS) if secrets.x.shape[1] == 1 else (ROUNDS_MATCHED, MOST_MATCHED)
        return cls(rounds, min(pairs, MOST_NUMBERS // max(1, guesses.x[0].numel())))

    def drawn(self, groups: list[Tensor]) -> list[Tensor]:
        """The places of games that rounds compare, group by group: all, or in many games the first of each group.

        Games come in random order, so that the first are a random sample.
        """
        share = max(FEWEST_COMPARED, self.pairs // self.rounds) / sum(map(len, groups))
        sizes = [min(len(group), max(FEWEST, math.ceil(len(group) * share))) for group in groups]
        starts = itertools.accumulate((len(group) for group in groups[:-1]), initial=0)
        return [torch.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def permutations(self, groups: list[Tensor]) -> Iterator[Tensor]:
        """The games of all groups, each group turned by 1, 2, ... places: as many rounds as there is time for."""
        most = max(self.rounds, self.pairs // sum(map(len, groups)))
        for turn in range(1, min(max(len(group) for group in groups), most + 1)):
            yield torch.cat([group.roll(-(1 + (turn - 1) % max(1, len(group) - 1))) for group in groups])


def _closest(table: _Table, games: Tensor, results: _Won, pool: Tensor) -> float | None:
    """P[luck brings some guess as close to its secret as the closest is], by Bonferroni over games; None: not known.

    If a guess owes nothing to its secret, that one is the nearest of N + 1 with probability 1 / (N + 1); and closer by
    a factor r than the nearest other with r / (N + 1) at most, for the chance of a match shrinks with the radius, or
    faster. That does not hold for guesses made of values that other records have: those match exactly or not at all.
    """
    k = table.secrets.x.shape[1]
    secrets, pool = table.secrets.x.flatten(0, 1), pool.to(table.secrets.x)
    if len(secrets) // k + len(pool) < 2:
        return None
    # of those nearer than a blind guess, which may be a record of categories
    rebuilt = np.flatnonzero((results.rebuilt > 0) & (results.nearer > 0))
    if not len(rebuilt):
        return 1.0
    place = rebuilt[results.closest[rebuilt].argmin()]
    game, error = int(games[place]), float(results.closest[place])
    others = torch.cat([secrets[: game * k], secrets[(game + 1) * k :], pool])
    distances = table.distances(game, others)
    within = int((distances <= error).sum())
    ratio = 1.0 if within else error / max(float(distances.min()), 1e-300)
    if _made_of_values(table.guesses.x[game], others):
        ratio = 1.0
        if not within and _all_different(others):
            ratio = 2 / len(others)
    return min(1.0, len(games) * (1 + within) * ratio / (1 + len(others)))


def _made_of_values(guesses: Tensor, records: Tensor) -> bool:
    """Does a guess (g, ...) hold nothing but values that its numbers have in other records (n, ...), bit for bit?"""
    ours, theirs = _comparable(guesses.flatten(1)), _comparable(records.flatten(1))
    known = (ours.unsqueeze(1) == theirs).any(1)  # (g, d)
    return bool(known.all(1).any())


def _all_different(records: Tensor) -> bool:
    """Are no two records (n, ...) equal? A missing value equals a missing value."""
    rows = Records(records, torch.zeros(len(records)))
    return torch.equal(rows.matches(rows), torch.arange(len(records)))


def _comparable(x: Tensor) -> Tensor:
    """A missing value equals a missing value."""
    return x.nan_to_num(nan=torch.finfo(x.dtype).min)


def _first(secrets: Records) -> Tensor:
    """The first game for each set of secrets."""
    return (distinct_games(secrets) == torch.arange(len(secrets.x))).nonzero().flatten()


def some_records(pool: Records, seed: int) -> Records:
    """As many records of a pool as a guess is compared with."""
    rows = torch.from_numpy(generator(seed, "luck", "pool").permutation(len(pool))[:POOL_RECORDS])
    return Records(pool.x.cpu()[rows].double(), pool.y.cpu()[rows])


def needs_swapped(hints: Hints | None) -> bool:
    """Is so much given that a guess can be close to its secret by that alone, and few games are given the same?

    Then luck is what the attack makes of another game's release with the same hints.
    """
    if hints is None or hints.candidates is not None:  # the chance among candidates is known
        return False
    if hints.parts is not None or hints.labels is None:
        return hints.parts is not None
    if hints.labels.is_floating_point():
        return True
    groups = groups_of(hints.labels, len(hints.labels))
    return sum(len(group) for group in groups if len(group) >= FEWEST) < len(hints.labels) / 2


def swapped_games(secrets: Records) -> tuple[Tensor, Tensor]:
    """Some games, and for each another with other secrets, (b,) both."""
    others = other_games(secrets, None)
    games = (others >= 0).nonzero().flatten()
    if len(games) > MOST_SWAPPED:  # some at random: the first may be of one kind
        drawn = generator(0, "swapped").permutation(len(games))[:MOST_SWAPPED]
        games = games[torch.from_numpy(drawn).sort().values]
    return games, others[games]
