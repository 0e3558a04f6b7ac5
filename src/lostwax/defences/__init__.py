"""What an owner can do to a model before it is released, short of differential privacy."""

from lostwax.defences.defence import Defence
from lostwax.defences.defended import Defended, undefended
from lostwax.defences.quantised import Quantised
from lostwax.defences.rounded import Rounded
from lostwax.defences.weight_noise import WeightNoise

__all__ = ["Defence", "Defended", "Quantised", "Rounded", "WeightNoise", "undefended"]
