"""Distances between guess and truth, and what they are held against."""

from lostwax.metrics.by_class import ByClass, true_positives_by_class
from lostwax.metrics.correlation import Correlation, correlation
from lostwax.metrics.estimate import Estimate
from lostwax.metrics.gaussian_roc import GaussianROC, gaussian_roc
from lostwax.metrics.judge import Judge
from lostwax.metrics.kl import KL
from lostwax.metrics.lpips import LPIPS
from lostwax.metrics.mae import MAE
from lostwax.metrics.mse import MSE
from lostwax.metrics.near_pixels import NearPixels
from lostwax.metrics.oracle import Oracle, nearest_neighbour
from lostwax.metrics.psnr import PSNR
from lostwax.metrics.roc import Curve, Null, TruePositives, other_secrets, roc, success_rate, true_positives
from lostwax.metrics.spread_rmse import SpreadRMSE
from lostwax.metrics.ssim import SSIM

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
