"""The path of the missing row down each tree, and what the nodes on it say."""

from __future__ import annotations

from lostwax.games.trees import Bounds, Floats, Forest, Ints


def narrowed_by_nodes(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by every node on its path."""
    return bounds
