"""Recipes: an audit written down as a Python file of lostwax objects. Light to import: torch comes in with a recipe."""

from lostwax.recipes.own_frames import own_frames
from lostwax.recipes.recipe import Recipe
from lostwax.recipes.start import STARTERS, start

__all__ = ["STARTERS", "Recipe", "own_frames", "start"]
