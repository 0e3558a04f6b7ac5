"""Inverting training that is not smooth, or not quite deterministic: local regression on simulated models."""

from lostwax.attacks.ensemble.attack import Ensemble
from lostwax.attacks.ensemble.reconstructor import Narrowed, Round

__all__ = ["Ensemble", "Narrowed", "Round"]
