"""Shadow models: the victim's trainer on many training sets, here, on a cluster, from a store, or to first order."""

from lostwax.games import Engine, Game
from lostwax.shadows.checkpoints import Checkpoints
from lostwax.shadows.game import Local, gaussian_weights, models_of
from lostwax.shadows.linear_response import LinearResponse
from lostwax.shadows.ray import Ray
from lostwax.shadows.store import Store

__all__ = ["Checkpoints", "Engine", "Game", "LinearResponse", "Local", "Ray", "Store"]
__all__ += ["gaussian_weights", "models_of"]
