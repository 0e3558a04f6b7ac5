"""Dealing a pool again and again, like a pack of cards that is shuffled whenever it runs out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lostwax.seeds import generator


def passes(cards: int, hand: int, *, start: int, m: int, seed: int, key: int | str) -> NDArray[np.int64]:
    """(m, hand) the cards of players start .. start + m - 1, by number.

    A pass serves cards // hand players, none of whom shares a card; each pass has its own order. So the cards are used
    equally often, and a hand depends on the seed, the key and the player's number alone.
    """
    served = cards // hand  # players in a pass
    first, last = start // served, (start + m - 1) // served
    orders = [generator(seed, "deal", key, turn).permutation(cards)[: served * hand] for turn in range(first, last + 1)]
    return np.concatenate(orders).reshape(-1, hand)[np.arange(start, start + m) - first * served]
