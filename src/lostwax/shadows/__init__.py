"""Shadow models: the victim's trainer on many training sets, here, on a cluster, or from a store."""

from lostwax.shadows.game import Engine, Game, gaussian_weights, stream
from lostwax.shadows.local import Local
from lostwax.shadows.ray import Ray
from lostwax.shadows.store import Store

__all__ = ["Engine", "Game", "Local", "Ray", "Store", "gaussian_weights", "stream"]
