"""Training sets dealt in the order in which the pool lies."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lostwax.types import Cohort, Hints, Records


class InOrder(NamedTuple):
    """Model i is trained on `known` and record i of the pool: for an attack that simulates candidates of its own."""

    known: Records

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1; nothing is drawn."""
        rows = torch.arange(start, start + m, device=pool.x.device)
        return Cohort(self.known, pool[rows.unsqueeze(1)], rows)  # own (m, 1, ...)

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """Nothing has to be told."""
        return None
