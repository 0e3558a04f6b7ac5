"""Several decoders that answer as one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Committee(nn.Module):
    """The mean of its members' answers.

    Its squared error is the mean of theirs less the variance among them: never more, and less wherever they disagree.
    """

    members: nn.ModuleList

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, features: Tensor) -> Tensor:
        """(m, features) -> (m, ...); one member alone is heard word for word."""
        return torch.stack([member(features) for member in self.members]).mean(0)
