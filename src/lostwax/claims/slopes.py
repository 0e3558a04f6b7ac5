"""Gradients of single records, at many weights at once."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.games import Records
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError

Loss = Callable[[Tensor, Tensor], Tensor]
CHUNK_NUMBERS = 10_000_000  # of gradients at a time
COMPANIONS = 7  # records beside one that cannot be alone


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name."""
    return {name: value for name, value in net.named_parameters() if value.requires_grad}


@dataclass(frozen=True)
class Slopes:
    """The gradients of a net's loss by all trainable weights, one for every record."""

    net: nn.Module
    loss: Loss
    takes_one: bool = True  # the net can be evaluated on a single record

    @classmethod
    def of(cls, net: nn.Module, data: Records, loss: Loss | None) -> Slopes:
        """With the usual loss for these labels, unless another one is given."""
        plain, takes_one = deepcopy(net).eval(), True
        with torch.no_grad():
            outputs = plain(data.x)
            try:
                plain(data.x[:1])
            except ValueError:
                takes_one = False
        if loss is None and data.y.is_floating_point():
            loss = SquaredError()
        loss = loss or (BinaryCrossEntropy() if outputs.shape[-1] == 1 else CrossEntropy())
        return cls(plain, loss, takes_one)

    @property
    def sizes(self) -> list[int]:
        """The number of weights of every layer."""
        return [value.numel() for value in trainable(self.net).values()]

    @property
    def start(self) -> Tensor:
        """(p,) the weights of the net as it is."""
        return torch.cat([value.detach().flatten() for value in trainable(self.net).values()])

    def __call__(self, weights: Tensor, records: Records, others: Records) -> tuple[Tensor, Tensor]:
        """Losses (t, c) and gradients (t, c, p) at weights (t, p); batch norm needs other records beside each."""
        names = list(trainable(self.net))
        shapes, sizes = [value.shape for value in trainable(self.net).values()], self.sizes
        frozen = {name: value for name, value in self.net.state_dict().items() if name not in names}

        def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
            parts = (part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True))
            state = {**frozen, **dict(zip(names, parts, strict=True))}
            return self.loss(torch.func.functional_call(self.net, state, (x,)), y).sum()

        each = torch.func.vmap(torch.func.grad_and_value(loss), (None, 0, 0))
        every = torch.func.vmap(
            each, (0, None, None), chunk_size=max(1, CHUNK_NUMBERS // (weights.shape[1] * len(records)))
        )
        few = others[: 0 if self.takes_one else COMPANIONS]
        x = torch.stack([torch.cat([few.x, record.unsqueeze(0)]) for record in records.x])
        y = torch.stack([torch.cat([few.y, label.unsqueeze(0)]) for label in records.y])
        slopes, losses = every(weights, x, y)
        return losses, slopes
