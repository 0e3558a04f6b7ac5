"""Attacks on the published steps of DP-SGD."""

from lostwax.attacks.dp_steps.gradient_inversion import GradientInversion
from lostwax.attacks.dp_steps.prior_aware import InnerProducts, LargestProducts, LogLikelihood, PriorAware

__all__ = ["GradientInversion", "InnerProducts", "LargestProducts", "LogLikelihood", "PriorAware"]
