"""Which records each step sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.seeds import generator
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

    def __call__(self, cohort: Cohort, numbers: Sequence[int], *, seed: int) -> Iterator[Batch]:
        """Every step's batch; the last of an epoch may be smaller."""
        if self.size is None:
            whole = _together(cohort, slice(None), slice(None))
            for _ in range(self.epochs):
                yield whole
            return
        n, device = cohort.records, cohort.index.device
        for epoch in range(self.epochs):
            if self.order_seed is not None:
                order = _order(n, self.order_seed, epoch).to(device)
                for positions in torch.split(order, self.size):
                    common = len(cohort.shared)
                    yield _together(cohort, positions[positions < common], positions[positions >= common] - common)
            else:
                orders = torch.stack([_order(n, seed, number, epoch) for number in numbers]).to(device)
                for positions in torch.split(orders, self.size, dim=1):
                    yield _apart(cohort, positions)


def _order(n: int, seed: int, *key: int) -> Tensor:
    return torch.from_numpy(generator(seed, "order", *key).permutation(n))


def _together(cohort: Cohort, shared: Tensor | slice, own: Tensor | slice) -> Batch:
    """The same positions for every model: what is shared stays shared."""
    common: Part = (cohort.shared.inputs[shared], cohort.shared.y[shared])  # (b, ...)
    secret: Part = (cohort.own.inputs[:, own], cohort.own.y[:, own])  # (m, b, ...)
    return Batch((common,) if len(common[1]) else (), (secret,) if secret[1].shape[1] else ())


def _apart(cohort: Cohort, positions: Tensor) -> Batch:
    """Every model at positions (m, b) of its own."""
    common = len(cohort.shared)
    models = torch.arange(len(positions), device=positions.device).unsqueeze(1)  # (m, 1)

    def pick(shared: Tensor, own: Tensor) -> Tensor:
        if cohort.secrets == 0:
            return shared[positions]
        secret = own[models, (positions - common).clamp_min(0)]  # (m, b, ...)
        if common == 0:
            return secret
        known = shared[positions.clamp_max(common - 1)]
        is_known = (positions < common).reshape(*positions.shape, *[1] * (known.ndim - 2))
        return torch.where(is_known, known, secret)

    return Batch((), ((pick(cohort.shared.inputs, cohort.own.inputs), pick(cohort.shared.y, cohort.own.y)),))
