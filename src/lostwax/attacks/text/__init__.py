"""Rebuild a sentence of token numbers."""

from lostwax.attacks.text.attack import Tokens
from lostwax.attacks.text.search import TokenSearch

__all__ = ["TokenSearch", "Tokens"]
