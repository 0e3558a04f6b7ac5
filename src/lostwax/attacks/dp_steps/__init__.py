"""Attacks on the published steps of DP-SGD."""

from lostwax.attacks.dp_steps.gradient_inversion import GradientInversion
from lostwax.attacks.dp_steps.prior_aware import LogLikelihood, PriorAware

__all__ = ["GradientInversion", "LogLikelihood", "PriorAware"]
