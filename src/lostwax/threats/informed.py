"""The informed adversary: knows every training record but one (S1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from lostwax.seeds import generator
from lostwax.types import Cohort, Hints, Records


@final
@dataclass(frozen=True)
class Informed:
    """All models are trained on `known` and one secret record each, whose label may be known too."""

    known: Records
    label_known: bool = False

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1, each with a record of the pool; each pass over it has its own order."""
        if len(pool) == 0:
            raise ValueError("Informed.deal: expected a pool of at least one record, got none.")
        if m < 1 or start < 0:
            raise ValueError(f"Informed.deal: expected m >= 1 and start >= 0, got m={m} and start={start}.")
        models = np.arange(start, start + m)
        first, last = start // len(pool), (start + m - 1) // len(pool)
        orders = [generator(seed, "deal", turn).permutation(len(pool)) for turn in range(first, last + 1)]
        rows = np.concatenate(orders)[models - first * len(pool)]  # (m,)
        return Cohort(self.known, pool[_on(pool, rows).unsqueeze(1)], _on(pool, models))  # own (m, 1, ...)

    def hints(self, cohort: Cohort) -> Hints | None:
        """The labels of the secrets, where they are known."""
        return Hints(labels=cohort.own.y) if self.label_known else None

    @classmethod
    def examples(cls) -> tuple[Informed, ...]:
        """Instances to test."""
        random = generator(0, "example")
        x = torch.from_numpy(random.random((6, 4), dtype=np.float32))
        known = Records(x, torch.tensor([0, 1, 2, 0, 1, 2]))
        return cls(known), cls(known, label_known=True)


def _on(records: Records, numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers).to(records.x.device)
