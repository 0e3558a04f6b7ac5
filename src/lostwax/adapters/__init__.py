"""Third-party models, weights and training functions, as lostwax's types."""

from lostwax.adapters import opacus
from lostwax.adapters.checkpoint import load_weights
from lostwax.adapters.own_training import OwnTraining

__all__ = ["OwnTraining", "load_weights", "opacus"]
