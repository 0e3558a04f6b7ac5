"""Noise on what a decoder sees, while it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class InputNoise(nn.Module):
    """Adds N(0, sigma^2) in training: shadow models are few, and a wide decoder would learn them by heart."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, features: Tensor) -> Tensor:
        """The features, blurred in training and as they are otherwise."""
        if not self.training or self.sigma == 0:
            return features
        return features + self.sigma * torch.randn_like(features)

    def extra_repr(self) -> str:
        """For print(net)."""
        return f"sigma={self.sigma}"
