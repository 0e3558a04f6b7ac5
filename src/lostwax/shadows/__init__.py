"""Shadow models: the victim's trainer on many training sets, here, on a cluster, from a store, or to first order."""

from lostwax.shadows.game import Engine, Game, Local, gaussian_weights, stream
from lostwax.shadows.linear_response import LinearResponse
from lostwax.shadows.ray import Ray
from lostwax.shadows.store import Store

__all__ = ["Engine", "Game", "LinearResponse", "Local", "Ray", "Store", "gaussian_weights", "stream"]
