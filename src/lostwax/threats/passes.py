"""Dealing a pool again and again, like a pack of cards that is shuffled whenever it runs out."""

from __future__ import annotations

import torch
from torch import Tensor

from lostwax import philox


def passes(cards: int, hand: int, *, start: int, m: int, key: int, device: torch.device) -> Tensor:
    """(m, hand) the cards of players start .. start + m - 1, by number.

    A pass serves cards // hand players, none of whom shares a card; each pass has its own order. So the cards are used
    equally often, and a hand depends on the key and the player's number alone.
    """
    served = cards // hand  # players in a pass
    first, last = start // served, (start + m - 1) // served
    orders = philox.orders(key, torch.arange(first, last + 1, device=device), cards)  # (passes, cards)
    hands = orders[:, : served * hand].reshape(-1, hand)
    return hands[start - first * served :][:m]
