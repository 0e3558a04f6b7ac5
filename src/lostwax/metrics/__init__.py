"""Distances between guess and truth, baselines, and success rates with their uncertainty."""

from lostwax.metrics.classifier import KL, Classifier
from lostwax.metrics.errors import MAE, MSE, PSNR, LargestError, NearPixels, SpreadRMSE
from lostwax.metrics.estimate import Correlation, Estimate, correlation
from lostwax.metrics.oracle import NearestKnown, Oracle, nearest_known, nearest_neighbour
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
from lostwax.metrics.text import BagRight, EditDistance, TokensRight

__all__ = [
    "KL",
    "LPIPS",
    "MAE",
    "MSE",
    "PSNR",
    "SSIM",
    "BagRight",
    "ByClass",
    "Classifier",
    "Correlation",
    "Curve",
    "EditDistance",
    "Estimate",
    "GaussianROC",
    "LargestError",
    "NearPixels",
    "NearestKnown",
    "Null",
    "Oracle",
    "SpreadRMSE",
    "TokensRight",
    "TruePositives",
    "correlation",
    "gaussian_roc",
    "nearest_known",
    "nearest_neighbour",
    "other_secrets",
    "roc",
    "success_rate",
    "true_positives",
    "true_positives_by_class",
]
