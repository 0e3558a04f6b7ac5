"""The label, read off the same features by one linear layer.

S1 (section IV-B) rebuilds x alone and takes y to follow from it. The layer shares no weight with the decoder, and is
solved rather than trained: its problem is convex.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy

import torch
from torch import Tensor, nn

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # times |W|^2 / 2, beside a mean loss on features of unit deviation
ITERATIONS = 100


class LabelHead(nn.Module, ABC):
    """(m, features) -> a label each."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, outputs)

    @abstractmethod
    def loss(self, features: Tensor, y: Tensor) -> Tensor:
        """How far the read-out is from the labels, a number."""

    @abstractmethod
    def guess(self, features: Tensor) -> Tensor:
        """(m,), or (m, targets): the likeliest label."""


class ClassHead(LabelHead):
    """Class numbers, by softmax."""

    def loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy."""
        return nn.functional.cross_entropy(self.linear(features), y.long())

    def guess(self, features: Tensor) -> Tensor:
        """The class of the highest score."""
        scores: Tensor = self.linear(features)
        return scores.argmax(1)


class NumberHead(LabelHead):
    """Real-valued labels, by least squares in their own deviations."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int, y: Tensor) -> None:
        super().__init__(features, y[0].numel())
        self.register_buffer("mean", y.mean(0))  # () or (targets,)
        deviation = y.std(0, correction=0)
        self.register_buffer("deviation", torch.where(deviation > 0, deviation, 1.0))

    def loss(self, features: Tensor, y: Tensor) -> Tensor:
        """Mean squared error."""
        return nn.functional.mse_loss(self.linear(features).view_as(y), ((y - self.mean) / self.deviation).to(features))

    def guess(self, features: Tensor) -> Tensor:
        """The expected label."""
        answers: Tensor = self.linear(features)
        return self.mean + self.deviation * answers.reshape(len(features), *self.mean.shape)


def label_head(features: int, y: Tensor) -> LabelHead:
    """The head for labels such as y (n,) or (n, targets)."""
    return NumberHead(features, y) if y.is_floating_point() else ClassHead(features, int(y.max()) + 1)


def solve(head: LabelHead, features: Tensor, y: Tensor, unseen: Tensor, unseen_y: Tensor) -> None:
    """Fit the head in place, with the ridge that suits unseen models best; as it comes, it may suit them best too."""
    with torch.no_grad():
        best, kept = float(head.loss(unseen, unseen_y)), deepcopy(head.state_dict())
    for ridge in RIDGES:
        _minimise(head, features, y, ridge)
        with torch.no_grad():
            loss = float(head.loss(unseen, unseen_y))
        if loss < best:
            best, kept = loss, deepcopy(head.state_dict())
    head.load_state_dict(kept)


def _minimise(head: LabelHead, features: Tensor, y: Tensor, ridge: float) -> None:
    nn.init.zeros_(head.linear.weight)
    nn.init.zeros_(head.linear.bias)
    optimiser: torch.optim.Optimizer = torch.optim.LBFGS(
        head.parameters(), max_iter=ITERATIONS, line_search_fn="strong_wolfe"
    )

    def objective() -> float:
        optimiser.zero_grad()
        loss = head.loss(features, y) + ridge / 2 * head.linear.weight.square().sum()
        torch.autograd.backward(loss)
        return float(loss.detach())

    optimiser.step(objective)
