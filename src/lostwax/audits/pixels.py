"""Images in an audit: the range of their pixels, and the metrics made for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lostwax.games import Metric
from lostwax.metrics import LPIPS, PSNR, SSIM

ROUNDING = 1e-6  # of a range, by which a pixel may lie outside


class PixelRange(NamedTuple):
    """From black to white."""

    low: float
    high: float

    def holds(self, x: Tensor) -> bool:
        """Do all pixels lie within?"""
        slack = ROUNDING * (self.high - self.low)
        return bool(x.min() >= self.low - slack) and bool(x.max() <= self.high + slack)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


RANGES = (PixelRange(0, 1), PixelRange(-1, 1), PixelRange(0, 255))  # the customary ones, narrowest first


def is_image(x: Tensor) -> bool:
    """(n, 1 or 3, height, width)?"""
    return x.ndim == 4 and x.shape[1] in (1, 3)


def pixel_range(x: Tensor) -> PixelRange | None:
    """The narrowest customary range that holds the images; None where none does, or where these are no images."""
    return next((limits for limits in RANGES if limits.holds(x)), None) if is_image(x) else None


def pixel_metrics(x: Tensor) -> tuple[Metric, ...]:
    """What images like x are judged by besides their mean errors; nothing where x has no customary range."""
    limits = pixel_range(x)
    if limits is None:
        return ()
    metrics: tuple[Metric, ...] = (PSNR(), SSIM(), *_lpips())
    return tuple(_InUnitRange(metric, limits) for metric in metrics)


@dataclass(frozen=True)
class _InUnitRange:
    """A metric of images in [0, 1], for images in another range."""

    metric: Metric
    limits: PixelRange

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def better(self) -> Literal["lower", "higher"]:
        return self.metric.better

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        low, high = self.limits
        return self.metric((guess - low) / (high - low), (truth - low) / (high - low))


def _lpips() -> tuple[LPIPS, ...]:
    """LPIPS where its weights are at hand; nobody who did not ask for it is told that they are not."""
    metric, grey = LPIPS(), torch.zeros(1, 1, 32, 32)
    try:
        metric(grey, grey)
    except FileNotFoundError:
        return ()
    return (metric,)
