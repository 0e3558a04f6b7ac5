"""Training as a function of the one record that is not known, with its derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lostwax.trainers.descent import Descent
from lostwax.types import Cohort, Records


@dataclass(frozen=True, eq=False)
class TrainingMap:
    """(z, label) -> A(z): the parameters that training on the known records and one more ends with, side by side.

    z are the record's numbers, u of them, and behind them its label where that is a number too; a class is given.
    """

    net: nn.Module
    trainer: Descent
    known: Records

    @property
    def numbers(self) -> int:
        """d, how many numbers a record has, not counting its label."""
        return self.known.x.shape[1:].numel()

    @property
    def unknowns(self) -> int:
        """u, how many numbers z has."""
        y = self.known.y
        return self.numbers + (y.shape[1:].numel() if y.is_floating_point() else 0)

    def computed_in(self, dtype: torch.dtype, *, tf32: bool = False) -> TrainingMap:
        """The same map in other arithmetic."""
        return TrainingMap(self.net, replace(self.trainer, dtype=dtype, tf32=tf32), self.known.to(dtype))

    def __call__(self, z: Tensor, label: Tensor) -> Tensor:
        """(m, u) and classes (m,) -> (m, p), m models trained at once."""
        return self.trainer(self.net, self._cohort(z, label), seed=0).flat()

    def tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor:
        """dA / dz at one z (u,) along directions (r, u), pushed through training: (p, r).

        All tangents share the base trajectory and the known records, so they stack into the same large products as
        shadow models do, each at the cost of about one more training.
        """
        at = z.to(self.trainer.dtype)

        def along(direction: Tensor) -> Tensor:
            moved: Tensor = torch.func.jvp(partial(self._weights, label=label), (at,), (direction,))[1]
            return moved

        together = self.trainer.tile_size(self.net, self._cohort(z[None], label[None]))
        with _quiet():
            tangents: Tensor = torch.func.vmap(along, chunk_size=together)(directions.to(at))  # (r, p)
        return tangents.mT

    def forward(self, z: Tensor, label: Tensor, direction: Tensor) -> Tensor:
        """J v, (p,), without J."""
        dtype = self.trainer.dtype
        weights = partial(self._weights, label=label)
        with _quiet():
            moved: Tensor = torch.func.jvp(weights, (z.to(dtype),), (direction.to(dtype),))[1]
        return moved

    def backward(self, z: Tensor, label: Tensor, cotangent: Tensor) -> Tensor:
        """J^T w, (u,), without J: in reverse through training."""
        dtype = self.trainer.dtype
        _, pull, *_ = torch.func.vjp(partial(self._weights, label=label), z.to(dtype))
        slope: Tensor = pull(cotangent.to(dtype))[0]
        return slope

    def _weights(self, z: Tensor, label: Tensor) -> Tensor:
        return self.trainer.differentiable(self.net, self._cohort(z[None], label[None]), seed=0).flat()[0]

    def _cohort(self, z: Tensor, label: Tensor) -> Cohort:
        """Each row of z as the secret of a model. All models are number 0: nothing of their training is private."""
        m, d = len(z), self.numbers
        numbers = z.to(self.trainer.dtype)
        y = numbers[:, d:].reshape(m, 1, *self.known.y.shape[1:]) if self.unknowns > d else label.unsqueeze(1)
        own = Records(numbers[:, :d].reshape(m, 1, *self.known.x.shape[1:]), y)
        return Cohort(self.known, own, torch.zeros(m, dtype=torch.long, device=z.device))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warning that torch itself, in its rules for tangents, uses what it has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=FutureWarning)
        yield
