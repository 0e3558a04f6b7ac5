"""Batch samplers for torch's DataLoader with a certified ceiling: balls-in-bins and Poisson."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

from lostwax.bounds import BallsInBins, Poisson, Sampling, checks


class BallsInBinsSampler(Sampler[list[int]]):
    """Each record is in one of `steps` batches, chosen uniformly and independently; drawn anew in every epoch.

    `DataLoader(data, batch_sampler=BallsInBinsSampler(len(data), steps=100))` is as convenient as `shuffle=True`, every
    record is seen once per epoch, and `lw.bound(..., sampling=lw.bounds.BallsInBins(epochs))` holds, with
    steps = 100 epochs. Batch sizes vary around n / steps: divide the noisy sum by that, not by the actual size. A batch
    may be empty; it is a step of noise alone, and `collate_fn` must accept it. Whoever knows the draws of `generator`
    knows the batches: seed it secretly.
    """

    def __init__(self, records: int, steps: int, *, generator: torch.Generator | None = None) -> None:
        self.records = checks.whole(
            "records", records, "It is the number of records: len(data).", highest=checks.MAX_COUNT
        )
        self.steps = checks.whole("steps", steps, "It is the number of batches per epoch.")
        self.generator = generator

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.steps

    def sampling(self, epochs: int) -> Sampling:
        """For `lw.bound`, after this many epochs."""
        return BallsInBins(epochs)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of one epoch."""
        bins = torch.randint(self.steps, (self.records,), generator=self.generator)
        order = torch.argsort(bins, stable=True)
        for batch in torch.split(order, torch.bincount(bins, minlength=self.steps).tolist()):
            yield batch.tolist()


class PoissonSampler(Sampler[list[int]]):
    """Each record is in each of `steps` batches with probability `rate`, independently.

    `lw.bound(..., sampling=lw.bounds.Poisson(rate))` holds. Batch sizes vary around rate n, and a batch may be empty,
    as for `BallsInBinsSampler`.
    """

    def __init__(
        self, records: int, steps: int, *, rate: float | None = None, generator: torch.Generator | None = None
    ) -> None:
        self.records = checks.whole(
            "records", records, "It is the number of records: len(data).", highest=checks.MAX_COUNT
        )
        self.steps = checks.whole("steps", steps, "It is the number of batches per epoch.")
        self.rate = 1 / self.steps if rate is None else checks.sample_rate(rate, "rate")
        self.generator = generator

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.steps

    def sampling(self, epochs: int) -> Sampling:
        """For `lw.bound`: the number of epochs does not enter."""
        return Poisson(self.rate)

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of one epoch."""
        for _ in range(self.steps):
            drawn = torch.rand(self.records, generator=self.generator, dtype=torch.float64) < self.rate
            yield drawn.nonzero()[:, 0].tolist()
