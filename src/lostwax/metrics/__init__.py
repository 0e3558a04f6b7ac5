"""Distances between guess and truth, baselines, and success rates with their uncertainty."""

from lostwax.metrics.errors import (
    LPIPS,
    MAE,
    MSE,
    PSNR,
    SSIM,
    BagRight,
    EditDistance,
    LargestError,
    NearestKnown,
    NearPixels,
    Oracle,
    SpreadRMSE,
    TokensWrong,
    nearest_known,
    nearest_neighbour,
)
from lostwax.metrics.estimate import (
    ByClass,
    Correlation,
    Curve,
    Estimate,
    Null,
    TruePositives,
    correlation,
    roc,
    success_rate,
    true_positives,
    true_positives_by_class,
)

__all__ = ["LPIPS", "MAE", "MSE", "PSNR", "SSIM", "BagRight", "EditDistance", "LargestError", "NearPixels"]
__all__ += ["SpreadRMSE", "TokensWrong"]
__all__ += ["ByClass", "Correlation", "Curve", "Estimate", "NearestKnown", "Null", "Oracle", "TruePositives"]
__all__ += ["correlation", "nearest_known", "nearest_neighbour", "roc", "success_rate", "true_positives"]
__all__ += ["true_positives_by_class"]
