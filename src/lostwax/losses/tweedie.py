"""Half the deviance of the Tweedie family: Poisson, Gamma, inverse Gaussian and what lies between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lostwax.types.fields import check_fields


@dataclass(frozen=True)
class Tweedie:
    """Half the Tweedie deviance with variance mu^power, up to terms of y alone.

    The log link is canonical only for power 1 (Poisson): in general the derivative with respect to the linear
    predictor is (mu - y) mu'(out) / mu^power (S1 Theorem 1 covers the canonical case).
    """

    power: float
    link: Literal["log", "identity"] = "log"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record: the integral of (mu - y) / mu^power over mu."""
        mu, p = self._mean(outputs), self.power
        y = y.unsqueeze(-1)
        if p == 1:
            return (mu - y * mu.log()).sum(-1)
        if p == 2:
            return (mu.log() + y / mu).sum(-1)
        return (mu ** (2 - p) / (2 - p) - y * mu ** (1 - p) / (1 - p)).sum(-1)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(mu - y) h(mu), with h = mu^(1 - power) under the log link and mu^(-power) under the identity."""
        mu = self._mean(outputs)
        return (mu - y.unsqueeze(-1)) * self._slope(mu)  # (..., n, 1)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = mu - residual / h(mu)."""
        mu = self._mean(outputs)
        return (mu - residual / self._slope(mu))[..., 0]

    def _mean(self, outputs: Tensor) -> Tensor:
        return outputs.exp() if self.link == "log" else outputs

    def _slope(self, mu: Tensor) -> Tensor:
        return mu ** ((1 if self.link == "log" else 0) - self.power)

    @classmethod
    def examples(cls) -> tuple[tuple[Tweedie, Tensor], ...]:
        """Instances to test, each with labels for one output."""
        y = torch.tensor([0.5, 2.0, 1.0, 3.0]).double()
        return (cls(1.0), y), (cls(2.0), y), (cls(1.5), y), (cls(3.0), y), (cls(0.0, "identity"), y)
