"""Which pair of training sets to play next, by which rule, and how much to bet: learned from all games before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.claims.games import Run
from lostwax.claims.pairs import CanaryPair
from lostwax.claims.rules import Array, Claimed, Cut, Rule, held_out, rules

FEWEST_TRIALS = 8  # per pair
BLOCK = 25  # games by one rule, at least
LATEST = 600  # runs to learn from
FUTILE = 2.5  # standard errors below what the claim permits
BOLDEST = 0.9  # of the fortune, lost with a game
MOST_GAMES = 20_000  # that anybody plays
LEAST_HOPE = 0.01  # a small bet keeps the fortune while a rule is learned


class Choice(NamedTuple):
    """The best rule for a pair, and how often it is right on held-out runs."""

    rule: Rule
    right: float
    runs: int

    @property
    def doubt(self) -> float:
        """The standard error."""
        return math.sqrt(max(self.right * (1 - self.right), 1 / self.runs) / self.runs)

    @property
    def worth(self) -> float:
        """Rules that are chosen among many must be better."""
        return self.right - self.rule.doubt * self.doubt


class Strategy:
    """All runs so far, and what follows from them. A choice is made before the games that it is for."""

    def __init__(self, pairs: Sequence[CanaryPair], layers: Sequence[str], claimed: Claimed) -> None:
        self.pairs, self._layers, self._claimed = pairs, layers, claimed
        self.runs: list[list[Run]] = [[] for _ in pairs]
        self._worlds: list[list[int]] = [[] for _ in pairs]
        self._choices: dict[int, Choice] = {}
        self._next_choice = 0

    def add(self, number: int, world: int, run: Run) -> None:
        """A run of this pair, on its first or second training set."""
        self.runs[number].append(run)
        self._worlds[number].append(world)
        self._choices.pop(number, None)

    @property
    def not_finite(self) -> list[str]:
        """The pairs of which no run returned finite weights."""
        return [pair.name for pair, mine in zip(self.pairs, self.runs, strict=True) if not any(r.finite for r in mine)]

    @property
    def nothing_moved(self) -> bool:
        """True if every run returned the weights that it was given."""
        return not any(value.any() for mine in self.runs for run in mine for value in run.moved.values())

    def is_due(self, game: int) -> bool:
        """True if it is time to choose again."""
        return game >= self._next_choice

    def choose(self) -> None:
        """The pair and the rule that are right most often."""
        for number in self._choices.keys() ^ set(range(len(self.pairs))):
            self._choices[number] = self._best(number)
        self.number = max(self._choices, key=lambda number: self._choices[number].worth)
        self.choice = self._choices[self.number]
        self.pair, self.cut = self.pairs[self.number], Cut.fit(self.choice.rule, *self._latest(self.number))
        self._next_choice += max(BLOCK, self.choice.runs // 8)

    @property
    def hope(self) -> float:
        """How often the next games will be won, cautiously: the choice is the luckiest of many."""
        return self.choice.right - self.choice.doubt

    def is_hopeless(self, permitted: float) -> bool:
        """True if the best choice is clearly below what the claim permits."""
        return self.choice.right + FUTILE * self.choice.doubt < permitted

    def _latest(self, number: int) -> tuple[list[Run], Array]:
        return self.runs[number][-LATEST:], np.array(self._worlds[number][-LATEST:], float)

    def _best(self, number: int) -> Choice:
        runs, worlds = self._latest(number)
        every = rules(runs[0], self._layers, self._claimed)
        return max((Choice(rule, held_out(rule, runs, worlds), len(runs)) for rule in every), key=lambda one: one.worth)


@dataclass
class Fortune:
    """The product of 1 + b (won - p) over games, p being what the claim permits and b a bet made before each game.

    If the claim is true, a game is won with probability p at most whatever happened before, so that no bet has a gain
    to hope for. Then the fortune ever exceeds 1 / a with probability a at most (Ville 1939), however bets and rules
    were learned from earlier games, and whenever one stops.
    """

    permitted: float
    log_now: float = 0.0
    log_largest: float = 0.0
    won: int = 0
    games: int = 0

    def bet(self, hope: float) -> float:
        """The bet whose fortune grows fastest if games are won with this probability (Kelly 1956)."""
        p = self.permitted
        hope = min(max(hope, p + min(LEAST_HOPE, (1 - p) / 2)), 1.0)
        return min((hope - p) / (p * (1 - p)), BOLDEST / p)

    def settle(self, bet: float, won: bool) -> None:
        """After a game."""
        self.won, self.games = self.won + won, self.games + 1
        self.log_now += math.log1p(bet * (won - self.permitted))
        self.log_largest = max(self.log_largest, self.log_now)

    @property
    def p_value(self) -> float:
        """At most this often a true claim lets a fortune grow so large."""
        return math.exp(-self.log_largest)


def fewest_games(permitted: float, alarm: float, trials: int) -> float:
    """The number of games after which the fortune exceeds 1 / alarm if all are won, trials included; infinite if many.

    A rule that was always right on r runs is hoped to be right in 1 - 1 / r of the games (`Choice.doubt`).
    """
    fortune, runs, due = Fortune(permitted), trials, 0
    for game in range(MOST_GAMES if permitted < 1 else 0):
        if game >= due:
            hope, due = 1 - 1 / runs, due + max(BLOCK, runs // 8)
        fortune.settle(fortune.bet(hope), True)
        runs = min(LATEST, runs + 1)
        if fortune.p_value < alarm:
            return game + 1
    return math.inf
