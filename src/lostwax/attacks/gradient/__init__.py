"""The gradient-based attack of S3."""

from lostwax.attacks.gradient.attack import GradientInversion

__all__ = ["GradientInversion"]
