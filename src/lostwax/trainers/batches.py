"""Which records each step sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax import philox
from lostwax.seeds import generator, key
from lostwax.trainers.stacked import Batch, Part
from lostwax.types import Cohort


@dataclass(frozen=True)
class Batches:
    """Passes over the training sets, in batches of `size` (None: all records at once).

    `order_seed` is public: with an int all models go through their records in the same order, which everybody
    knows; with None each model has its own, drawn from the training's seed and the model's number.
    """

    epochs: int
    size: int | None = None
    order_seed: int | None = 0

    def steps(self, records: int) -> int:
        """How many steps a training takes."""
        return self.epochs * (1 if self.size is None else -(-records // self.size))

    def records(self, cohort: Cohort) -> tuple[int, int]:
        """How many records a model sees in a step, and how many of them, at most, are its own."""
        seen = min(self.size or cohort.records, cohort.records)
        in_step = self.size is None or self.order_seed is not None
        return seen, min(cohort.secrets, seen) if in_step else seen

    def __call__(self, cohort: Cohort, *, seed: int) -> Iterator[Batch]:
        """Every step's batch; the last of an epoch may be smaller."""
        if self.size is None:
            whole = together(cohort, slice(None), slice(None))
            for _ in range(self.epochs):
                yield whole
        elif self.order_seed is not None:
            yield from self._public(cohort, self.size, self.order_seed)
        else:
            yield from self._private(cohort, self.size, seed)

    def _public(self, cohort: Cohort, size: int, order_seed: int) -> Iterator[Batch]:
        common = len(cohort.shared)
        for epoch in range(self.epochs):
            order = torch.from_numpy(generator(order_seed, "order", epoch).permutation(cohort.records))
            order = order.to(cohort.own.inputs.device)
            for positions in torch.split(order, size):
                yield together(cohort, positions[positions < common], positions[positions >= common] - common)

    def _private(self, cohort: Cohort, size: int, seed: int) -> Iterator[Batch]:
        pool, models = Pool.of(cohort), cohort.index.to(cohort.own.inputs.device)
        for epoch in range(self.epochs):
            orders = philox.orders(key(seed, "order", epoch), models, cohort.records)  # (m, n)
            for positions in torch.split(orders, size, dim=1):
                yield Batch((), (pool(positions),))


def together(cohort: Cohort, shared: Tensor | slice, own: Tensor | slice) -> Batch:
    """The same positions for every model: what is shared stays shared."""
    common: Part = (cohort.shared.inputs[shared], cohort.shared.y[shared])  # (b, ...)
    secret: Part = (cohort.own.inputs[:, own], cohort.own.y[:, own])  # (m, b, ...)
    return Batch((common,) if len(common[1]) else (), (secret,) if secret[1].shape[1] else ())


class Pool(NamedTuple):
    """All records of m models in a row, the shared ones once: batches of each model's own are picked out of it."""

    shared: int
    secrets: int  # of each model
    inputs: Tensor  # (n - k + m k, ...)
    y: Tensor

    @classmethod
    def of(cls, cohort: Cohort) -> Pool:
        """Records are copied once, or not at all where none is shared."""
        common, own = cohort.shared, cohort.own
        sides = ((common.inputs, own.inputs.flatten(0, 1)), (common.y, own.y.flatten(0, 1)))
        both = [torch.cat(side) if len(common) else side[1] for side in sides]
        return cls(len(common), cohort.secrets, both[0], both[1])

    def __call__(self, positions: Tensor) -> Part:
        """Every model at positions (m, b) of its own, the shared records first."""
        skipped = self.secrets * torch.arange(len(positions), device=positions.device).unsqueeze(1)  # (m, 1)
        rows = torch.where(positions < self.shared, positions, positions + skipped)
        return self.inputs[rows], self.y[rows]  # (m, b, ...)
