"""Distances between guess and truth."""

from lostwax.metrics.mse import MSE
from lostwax.metrics.spread_rmse import SpreadRMSE

__all__ = ["MSE", "SpreadRMSE"]
