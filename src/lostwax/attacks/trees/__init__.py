"""The missing row of a table, from the trees that were grown on it."""

from lostwax.attacks.trees.attack import TreeConstraints

__all__ = ["TreeConstraints"]
