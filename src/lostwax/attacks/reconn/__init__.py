"""The reconstructor network (S1 section IV)."""

from lostwax.attacks.reconn.attack import RecoNN
from lostwax.attacks.reconn.augment import Affine, Repeats, Shifts
from lostwax.attacks.reconn.reconstructor import Trained
from lostwax.attacks.reconn.shadow_table import ShadowTable
from lostwax.attacks.reconn.terms import Adversarial, Perceptual

__all__ = ["Adversarial", "Affine", "Perceptual", "RecoNN", "Repeats", "ShadowTable", "Shifts", "Trained"]
