"""What attacks that learn share: shadow tables, standardising, decoders, kernel regression, saving."""

from lostwax.learning import decoders
from lostwax.learning.augment import Affine, Repeats, Shifts
from lostwax.learning.training import Adversarial, Perceptual

__all__ = ["Adversarial", "Affine", "Perceptual", "Repeats", "Shifts", "decoders"]
