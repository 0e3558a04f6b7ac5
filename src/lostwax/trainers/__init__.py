"""Trainers: the victim's algorithm as a value, for one model or for many at once."""

from lostwax.trainers.adam import Adam
from lostwax.trainers.adamw import AdamW
from lostwax.trainers.dpsgd import DPSGD
from lostwax.trainers.gd import GD
from lostwax.trainers.optimum import Optimum
from lostwax.trainers.sgd import SGD
from lostwax.trainers.traces import own_gradients

__all__ = ["DPSGD", "GD", "SGD", "Adam", "AdamW", "Optimum", "own_gradients"]
