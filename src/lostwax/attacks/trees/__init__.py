"""The missing row of a table, from the trees that were grown on it."""

from lostwax.attacks.trees.attack import TreeConstraints, revealed_by_trees
from lostwax.attacks.trees.sources import exact_cells

__all__ = ["TreeConstraints", "exact_cells", "revealed_by_trees"]
