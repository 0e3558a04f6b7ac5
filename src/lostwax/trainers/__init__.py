"""Trainers: training algorithms, for one model or for many at once."""

from lostwax.trainers.descent import GD, SGD, Adam, AdamW
from lostwax.trainers.dpsgd import DPSGD, last_weights
from lostwax.trainers.optimum import Optimum
from lostwax.trainers.pairs import Negated, Paired, Unlearned

__all__ = ["DPSGD", "GD", "SGD", "Adam", "AdamW", "Negated", "Optimum", "Paired", "Unlearned", "last_weights"]
