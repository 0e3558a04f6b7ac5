"""What every decoder can do."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import nn


@runtime_checkable
class Decoder(Protocol):
    """An architecture, as a value."""

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """The untrained net (m, features) -> (m, *shape); within [0, 1] where `bounded` (see Span)."""
        ...
