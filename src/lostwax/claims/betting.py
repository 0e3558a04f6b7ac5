"""A bet on every game: a fortune that a true claim lets grow a thousandfold in one of a thousand checks at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

BOLDEST = 0.9  # of the fortune, lost with a game
LEAST_HOPE = 0.01  # a small bet keeps the fortune while a rule is learned


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

    def bet(self, hope: float) -> float:
        """The bet whose fortune grows fastest if games are won with this probability (Kelly 1956)."""
        p = self.permitted
        hope = min(max(hope, p + min(LEAST_HOPE, (1 - p) / 2)), 1.0)
        return min((hope - p) / (p * (1 - p)), BOLDEST / p)

    def settle(self, bet: float, won: bool) -> None:
        """After a game."""
        self.log_now += math.log1p(bet * (won - self.permitted))
        self.log_largest = max(self.log_largest, self.log_now)

    @property
    def p_value(self) -> float:
        """At most this often a true claim lets a fortune grow so large."""
        return math.exp(-self.log_largest)


def fewest_games(permitted: float, alarm: float) -> float:
    """The number of games after which a fortune of 1 / alarm is possible: all won, with the boldest bets."""
    gain = math.log1p(BOLDEST * (1 - permitted) / permitted) if permitted < 1 else 0.0
    return math.ceil(-math.log(alarm) / gain) + 1 if gain > 0 else math.inf
