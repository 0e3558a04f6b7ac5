"""What of a release the adversary sees."""

from lostwax.access.weights import Weights

__all__ = ["Weights"]
