"""White-box access: every parameter of the released model."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from lostwax.types import Release


@dataclass(frozen=True)
class Weights:
    """All parameters side by side."""

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, p)."""
        return release.flat()
