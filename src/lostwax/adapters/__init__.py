"""Foreign models, weights and ways of training, read into our nouns."""

from lostwax.adapters import opacus
from lostwax.adapters.checkpoint import load_weights
from lostwax.adapters.own_training import OwnTraining

__all__ = ["OwnTraining", "load_weights", "opacus"]
