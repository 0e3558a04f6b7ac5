"""Distances between guess and truth, and what they are held against."""

from lostwax.metrics.classifier import KL, Judge
from lostwax.metrics.errors import MAE, MSE, PSNR, NearPixels, SpreadRMSE
from lostwax.metrics.estimate import Correlation, Estimate, correlation
from lostwax.metrics.oracle import Oracle, nearest_neighbour
from lostwax.metrics.pictures import LPIPS, SSIM
from lostwax.metrics.roc import (
    ByClass,
    Curve,
    GaussianROC,
    Null,
    TruePositives,
    gaussian_roc,
    other_secrets,
    roc,
    success_rate,
    true_positives,
    true_positives_by_class,
)

__all__ = [
    "KL",
    "LPIPS",
    "MAE",
    "MSE",
    "PSNR",
    "SSIM",
    "ByClass",
    "Correlation",
    "Curve",
    "Estimate",
    "GaussianROC",
    "Judge",
    "NearPixels",
    "Null",
    "Oracle",
    "SpreadRMSE",
    "TruePositives",
    "correlation",
    "gaussian_roc",
    "nearest_neighbour",
    "other_secrets",
    "roc",
    "success_rate",
    "true_positives",
    "true_positives_by_class",
]
