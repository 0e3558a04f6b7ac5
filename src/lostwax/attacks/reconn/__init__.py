"""The reconstructor network (S1 section IV)."""

from lostwax.attacks.reconn.attack import RecoNN
from lostwax.attacks.reconn.augment import Repeats, Shifts
from lostwax.attacks.reconn.reconstructor import Trained

__all__ = ["RecoNN", "Repeats", "Shifts", "Trained"]
