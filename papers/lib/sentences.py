"""A small transformer whose inputs are sentences of token numbers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TextClassifier(nn.Module):
    """A small transformer for sentences of `length` token numbers: pre-norm blocks, mean pooling, a linear head.

    If `tied`, the head is the embeddings of the first `classes` tokens: a class is named by a word.
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        classes: int = 2,
        *,
        width: int = 16,
        heads: int = 2,
        layers: int = 2,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(length, width))
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = None if tied else nn.Linear(width, classes)
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        """(n, length) -> (n, classes)."""
        pooled = self.norm(self.blocks(self.tokens(x) + self.positions)).mean(-2)  # (n, width)
        if self.head is None:
            logits: Tensor = pooled @ self.tokens.weight[: self.classes].mT
        else:
            logits = self.head(pooled)
        return logits


class _Block(nn.Module):
    """Self-attention and two linear layers, each added to what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, h: Tensor) -> Tensor:
        """(n, length, width), the same."""
        n, length, width = h.shape
        q, k, v = self.attention(self.before(h)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / (width / self.heads) ** 0.5).softmax(-1)  # (n, heads, length, length)
        h = h + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        changed: Tensor = h + self.hidden(self.between(h))
        return changed
