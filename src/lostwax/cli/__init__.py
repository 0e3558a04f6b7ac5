"""The verbs as commands, with the same words as the Python API. Light to import: torch comes in only when needed."""

from lostwax.cli.main import main

__all__ = ["main"]
