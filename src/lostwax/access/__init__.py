"""What of a release the adversary sees."""

from lostwax.access.layers import Layers
from lostwax.access.logits import Logits
from lostwax.access.standardise import Standardise
from lostwax.access.weights import Weights

__all__ = ["Layers", "Logits", "Standardise", "Weights"]
