"""Distances between guess and truth, baselines, and success rates with their uncertainty."""

from lostwax.metrics.errors import (
    MAE,
    MSE,
    PSNR,
    BagRight,
    EditDistance,
    LargestError,
    NearPixels,
    SpreadRMSE,
    TokensRight,
)
from lostwax.metrics.estimate import Correlation, Estimate, correlation
from lostwax.metrics.oracle import NearestKnown, Oracle, nearest_known, nearest_neighbour
from lostwax.metrics.pictures import LPIPS, SSIM
from lostwax.metrics.roc import (
    ByClass,
    Curve,
    Null,
    TruePositives,
    roc,
    success_rate,
    true_positives,
    true_positives_by_class,
)

__all__ = [
    "LPIPS",
    "MAE",
    "MSE",
    "PSNR",
    "SSIM",
    "BagRight",
    "ByClass",
    "Correlation",
    "Curve",
    "EditDistance",
    "Estimate",
    "LargestError",
    "NearPixels",
    "NearestKnown",
    "Null",
    "Oracle",
    "SpreadRMSE",
    "TokensRight",
    "TruePositives",
    "correlation",
    "nearest_known",
    "nearest_neighbour",
    "roc",
    "success_rate",
    "true_positives",
    "true_positives_by_class",
]
