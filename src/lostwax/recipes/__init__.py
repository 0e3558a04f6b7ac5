"""Recipes: an audit as a Python file of lostwax objects. Light to import: torch is loaded with a recipe."""

from lostwax.recipes.recipe import STARTERS, Recipe, own_frames, start

__all__ = ["STARTERS", "Recipe", "own_frames", "start"]
