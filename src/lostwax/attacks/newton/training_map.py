"""Training as a function of the records that are not known, with its derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from lostwax.trainers.descent import Descent
from lostwax.trainers.tangents import quick_tangents
from lostwax.types import Cohort, Records

SMOOTH = 0.1  # how far a difference may be off from a tangent, as a share of it


@dataclass(frozen=True, eq=False)
class TrainingMap:
    """(z, label) -> A(z): the parameters that training on the known records and k more ends with, side by side.

    z are the numbers of the k records, one record after the other, and behind each record's its label where that is a
    number too; a class is given. They are u in all.

    With `units` the parameters are divided by them. Where these are the sizes of the noise that a defence adds to each
    parameter, residuals and Jacobians are in deviations of the noise, alike for all parameters: least squares then
    weights each parameter by what it says.
    """

    net: nn.Module
    trainer: Descent
    known: Records
    secrets: int = 1  # k
    units: Tensor | None = None  # (p,) of the parameters; None for their own

    @property
    def numbers(self) -> int:
        """d, how many numbers one record has, not counting its label."""
        return self.known.x.shape[1:].numel()

    @property
    def unknowns(self) -> int:
        """u, how many numbers z has."""
        y = self.known.y
        return self.secrets * (self.numbers + (y.shape[1:].numel() if y.is_floating_point() else 0))

    @property
    def together(self) -> int:
        """How many models are computed at a time."""
        device = self.known.x.device
        z, label = torch.zeros(1, self.unknowns, device=device), torch.zeros(1, self.secrets, dtype=torch.long)
        return self.trainer.tile_size(self.net, self.cohort(z, label.to(device)))

    def computed_in(self, dtype: torch.dtype, *, tf32: bool = False) -> TrainingMap:
        """The same map in other arithmetic."""
        trainer = replace(self.trainer, dtype=dtype, tf32=tf32)
        return replace(self, trainer=trainer, known=self.known.to(dtype))

    def __call__(self, z: Tensor, label: Tensor) -> Tensor:
        """(m, u) and classes (m, k) -> (m, p), m models trained at once."""
        return self.in_units(self.trainer(self.net, self.cohort(z, label), seed=0).flat())

    def in_units(self, parameters: Tensor) -> Tensor:
        """Parameters of models (..., p), or differences of them, divided by the units."""
        return parameters if self.units is None else parameters / self.units.to(parameters)

    def tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor:
        """dA / dz at one z (u,) of classes (k,), along directions (r, u), pushed through training: (p, r).

        All tangents share the base trajectory and the known records, so they stack into the same large products as
        shadow models do, each at the cost of about one more training.
        """
        at = z.to(self.known.x.dtype)
        with quiet():
            quick = self._quick_tangents(z, label, directions.to(at))
        if quick is not None:
            return self.in_units(quick).mT

        def along(direction: Tensor) -> Tensor:
            moved: Tensor = torch.func.jvp(partial(self._weights, label=label), (at,), (direction,))[1]
            return moved

        with quiet():
            tangents: Tensor = torch.func.vmap(along, chunk_size=self.together)(directions.to(at))  # (r, p)
        return self.in_units(tangents).mT

    def _quick_tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor | None:
        if self.known.y.is_floating_point():
            return None
        moved = directions.view(len(directions), self.secrets, *self.known.x.shape[1:])
        return quick_tangents(self.trainer, self.net, self.cohort(z[None], label[None]), moved)

    def _weights(self, z: Tensor, label: Tensor) -> Tensor:
        return self.trainer.differentiable(self.net, self.cohort(z[None], label[None]), seed=0).flat()[0]

    def smooth(self, z: Tensor, label: Tensor, direction: Tensor) -> bool:
        """Does A go on from z (u,) as its tangent says, as far as the direction (u,) reaches?

        Beside kinks it jumps instead, and derivatives are of no use.
        """
        tangent = self.tangents(z, label, direction.unsqueeze(0))[:, 0]  # (p,)
        ahead, behind = self(torch.stack([z + direction, z - direction]), label.expand(2, -1))
        return bool(((ahead - behind) / 2 - tangent).norm() <= SMOOTH * tangent.norm())

    def cohort(self, z: Tensor, label: Tensor) -> Cohort:
        """Each row of z as the secrets of a model. All models are number 0: nothing of their training is private."""
        m, k, d = len(z), self.secrets, self.numbers
        numbers = z.to(self.known.x.dtype).reshape(m, k, -1)
        y = numbers[..., d:].reshape(m, k, *self.known.y.shape[1:]) if self.known.y.is_floating_point() else label
        own = Records(numbers[..., :d].reshape(m, k, *self.known.x.shape[1:]), y)
        return Cohort(self.known, own, torch.zeros(m, dtype=torch.long, device=z.device))


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's warning that torch itself, in its rules for tangents, uses what it has deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=FutureWarning)
        yield
