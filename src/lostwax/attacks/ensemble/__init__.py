"""Inverting training that is not smooth, or not quite deterministic: local regression on simulated models."""

from lostwax.attacks.ensemble.attack import Ensemble, Narrowed, Round

__all__ = ["Ensemble", "Narrowed", "Round"]
