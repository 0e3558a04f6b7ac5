"""The missing row of a table, from the trees that were grown on it."""

from lostwax.attacks.trees.attack import TreeConstraints, revealed_by_trees

__all__ = ["TreeConstraints", "revealed_by_trees"]
