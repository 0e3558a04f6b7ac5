"""Inverting training that is not smooth, or not quite deterministic: local regression on simulated models."""

from lostwax.attacks.ensemble.attack import Ensemble
from lostwax.attacks.ensemble.reconstructor import Inversion, Round

__all__ = ["Ensemble", "Inversion", "Round"]
