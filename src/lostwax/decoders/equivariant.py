"""A reader of sets: what it makes of each neuron depends on the others, but not on their order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

EMBEDDING = 0.02  # deviation of a class's first embedding, beside tokens of about unit size


class Equivariant(nn.Module):
    """Neurons as tokens, self-attention among them, and a row of features for every class that is sought.

    Pre-norm transformer layers (Xiong et al. 2020) without positions. Where neuron c is the output for class c
    (`of_class`), the features of a class are read at its neuron, which is told its class by a learned embedding:
    neurons that change places together with their embeddings change the places of their answers. Its own numbers stand
    beside them, so that a linear read-out of a row is there from the start. Where neurons are hidden, every class has
    a learned token of its own, which asks them all: their order does not matter.
    """

    classes: Tensor

    def __init__(
        self, neurons: int, numbers: int, classes: Sequence[int], *, of_class: bool, width: int, layers: int, heads: int
    ) -> None:
        super().__init__()
        self.of_class = of_class
        self.register_buffer("classes", torch.tensor(classes), persistent=False)  # (g,)
        self.embed = nn.Linear(numbers, width)
        kinds = neurons if of_class else max(classes) + 1
        self.kinds = nn.Parameter(EMBEDDING * torch.randn(kinds, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.attend = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(m, neurons, numbers) -> (m, g, width), and `numbers` more where neurons are of classes."""
        neurons: Tensor = self.embed(tokens)
        if self.of_class:
            told: Tensor = self.attend(neurons + self.kinds)
            return torch.cat([told, tokens.to(told.dtype)], -1)[:, self.classes]
        asking = self.kinds[self.classes].expand(len(tokens), -1, -1).to(neurons.dtype)  # (m, g, width)
        answered: Tensor = self.attend(torch.cat([asking, neurons], 1))
        return answered[:, : asking.shape[1]]
