"""Threats: what the adversary knows of a training set, and how training sets are dealt."""

from lostwax.threats.informed import Informed
from lostwax.threats.weak import Weak

__all__ = ["Informed", "Weak"]
