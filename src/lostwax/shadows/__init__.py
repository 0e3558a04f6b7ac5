"""Shadows: a trainer, a million times."""

from lostwax.shadows.game import Engine, Game
from lostwax.shadows.gaussian_weights import gaussian_weights
from lostwax.shadows.local import Local
from lostwax.shadows.ray import Ray
from lostwax.shadows.store import Store
from lostwax.shadows.stream import stream

__all__ = ["Engine", "Game", "Local", "Ray", "Store", "gaussian_weights", "stream"]
