"""The missing row of a table, from the trees that were grown on it."""

from lostwax.attacks.trees.attack import TreeConstraints, exact_cells_note, revealed_by_trees, several_missing

__all__ = ["TreeConstraints", "exact_cells_note", "revealed_by_trees", "several_missing"]
