"""Which of the candidates was trained on, told from the published steps of DP-SGD (S3)."""

from lostwax.attacks.prior_aware.attack import PriorAware
from lostwax.attacks.prior_aware.scores import InnerProducts, LargestProducts, LogLikelihood

__all__ = ["InnerProducts", "LargestProducts", "LogLikelihood", "PriorAware"]
