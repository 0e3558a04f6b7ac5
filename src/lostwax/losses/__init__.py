"""Losses as values: trainers descend them, the closed form solves their residual for the record."""

from lostwax.losses.binary_cross_entropy import BinaryCrossEntropy
from lostwax.losses.cross_entropy import CrossEntropy
from lostwax.losses.squared_error import SquaredError
from lostwax.losses.squared_hinge import SquaredHinge
from lostwax.losses.tweedie import Tweedie

__all__ = ["BinaryCrossEntropy", "CrossEntropy", "SquaredError", "SquaredHinge", "Tweedie"]
