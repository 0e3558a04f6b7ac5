"""Third-party models, weights and training functions, as lostwax's types."""

from importlib import import_module
from typing import Any

from lostwax.adapters import dp_accounting, jax_privacy, opacus, tensorflow_privacy
from lostwax.adapters.net_state import load_weights
from lostwax.adapters.own_training import OwnTraining
from lostwax.adapters.r_files import load_r
from lostwax.adapters.trained_by import TrainedBy

__all__ = [
    "OwnTraining",
    "TrainedBy",
    "dp_accounting",
    "jax_privacy",
    "load_r",
    "load_weights",
    "opacus",
    "tensorflow_privacy",
]


def __getattr__(name: str) -> Any:
    """`lw.adapters.torch`, which loads scikit-learn, on first use."""
    if name != "torch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("lostwax.adapters.torch")
