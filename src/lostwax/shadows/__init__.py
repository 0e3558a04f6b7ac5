"""Shadows: a trainer, a million times."""

from lostwax.shadows.local import Local

__all__ = ["Local"]
