"""The command line, with the same names as the Python API. Light to import: torch is loaded only when needed."""

from lostwax.cli.main import main

__all__ = ["main"]
