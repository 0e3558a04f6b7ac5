"""Training linearised, in factors: the weakest directions of many records are lost in J^T J, and not in R."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.seeds import generator

ROUNDED = 100  # times the rounding of a number: that of a Jacobian, after many steps
ROUNDS = 4  # of inverse iteration


class Factored(NamedTuple):
    """J = Q R  in deviations of the prior, float64."""

    jacobian: Tensor  # (p, r)
    factor: Tensor  # (r, r) R, upper triangular
    inverse: Tensor  # (r, r) of R

    @classmethod
    def of(cls, jacobian: Tensor) -> Factored:
        """Of at least as many weights as unknowns; a weight whose derivatives are not all numbers says nothing."""
        jacobian = torch.where(jacobian.isfinite().all(1, keepdim=True), jacobian, 0.0)
        factor = torch.linalg.qr(jacobian, mode="r").R
        unit = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return cls(jacobian, factor, torch.linalg.solve_triangular(factor, unit, upper=True))

    @property
    def weakest(self) -> float:
        """A lower bound of the singular values,  1 / |R^-1|  in the Frobenius norm."""
        return 1 / float(self.inverse.norm())

    @property
    def seen(self) -> bool:
        """True if no singular value is as small as the rounding of the Jacobian and of its factors makes them."""
        rounding = max(ROUNDED, len(self.factor)) * torch.finfo(self.factor.dtype).eps
        return self.weakest > rounding * float(self.factor.norm())

    @property
    def directions(self) -> Tensor:
        """(r,) the singular values, largest first; those lost in R^T R are given as their lower bound."""
        squares: Tensor = torch.linalg.eigvalsh(self.factor.mT @ self.factor)
        return squares.clamp_min(0).sqrt().clamp_min(self.weakest).flip(0)

    def weakest_directions(self, count: int) -> Tensor:
        """(w, r) about the right singular vectors of the smallest values, by a few rounds of inverse iteration."""
        drawn = generator(0, "weakest").standard_normal((len(self.inverse), min(count, len(self.inverse))))
        found = torch.from_numpy(drawn).to(self.inverse)
        for _ in range(ROUNDS):
            found = torch.linalg.qr(self.inverse @ (self.inverse.mT @ found)).Q  # by  (R^T R)^-1
        return found.mT

    def step(self, residual: Tensor) -> Tensor:
        """(r,) the minimum of  |J s + residual|,  by the corrected seminormal equations (Bjorck 1987)."""
        first = self._solved(residual)
        return first + self._solved(residual + self.jacobian @ first)

    def _solved(self, residual: Tensor) -> Tensor:
        """s  from  R^T R s = -J^T residual."""
        return -(self.inverse @ (self.inverse.mT @ (self.jacobian.mT @ residual)))

    def variance(self, noise: float) -> Tensor:
        """(r,) of the unknowns, from noise of this variance on each weight: at most that of the prior, 1."""
        return (noise * self.inverse.square().sum(1)).clamp_max(1)
