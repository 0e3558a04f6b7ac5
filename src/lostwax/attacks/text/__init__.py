"""Rebuild a sentence of token numbers, or list the words that a model was fine-tuned on."""

from lostwax.attacks.text.attack import Tokens
from lostwax.attacks.text.search import TokenSearch
from lostwax.attacks.text.words import TunedWords

__all__ = ["TokenSearch", "Tokens", "TunedWords"]
