"""Does the guess show the same thing as the truth?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lostwax.metrics.judge import Judge
from lostwax.types.fields import check_fields


@dataclass(frozen=True, eq=False)
class KL:
    """Kullback-Leibler divergence from what a judge sees in the truth to what it sees in the guess (S1 section V-B).

    A small mean squared error makes for a small divergence; the converse fails, for two different images may
    show the same (S1 Fig. 5b).
    """

    judge: Judge
    better: Literal["lower", "higher"] = "lower"
    name: str = "KL under a judge (nats)"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        log_p, log_q = self.judge(truth), self.judge(guess)  # (games, classes)
        divergence = (log_p.exp() * (log_p - log_q)).sum(1)  # sum p log(p / q)
        return divergence.clamp_min(0).to(guess)  # rounding may fall below 0

    @classmethod
    def examples(cls) -> tuple[KL, ...]:
        """Instances to test, with a small judge of three numbers."""
        net = nn.Linear(3, 4, dtype=torch.float64)
        with torch.no_grad():
            net.weight.copy_(torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3).cos())
            net.bias.zero_()
        return (cls(Judge(net)),)
