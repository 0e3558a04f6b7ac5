"""Which records are in each step: epochs over the training sets, or the random batches of DP-SGD."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from lostwax import philox
from lostwax.games import Cohort
from lostwax.seeds import generator, key
from lostwax.trainers.stacked import Batch, Part

POSITIVE = 2**63 - 1  # all bits of an int64 except its sign


@dataclass(frozen=True)
class Batches:
    """Epochs over the training sets, in batches of `size` (None: full batch).

    `order_seed` is public: with an int all models use the same order; with None each draws its own, by its number. A
    model's own records stand at `place` among the shared ones; None: behind them.
    """

    epochs: int
    size: int | None = None
    order_seed: int | None = 0
    place: int | None = None

    def steps(self, records: int) -> int:
        """The number of steps of a training."""
        return self.epochs * (1 if self.size is None else -(-records // self.size))

    def records(self, cohort: Cohort) -> tuple[int, int]:
        """The number of records per model in a step, and how many of them, at most, are its own."""
        seen = min(self.size or cohort.records, cohort.records)
        in_step = self.size is None or self.order_seed is not None
        return seen, min(cohort.secrets, seen) if in_step else seen

    def __call__(self, cohort: Cohort, *, seed: int) -> Iterator[Batch]:
        """The batch of every step; the last of an epoch may be smaller."""
        if self.size is None:
            full_batch = together(cohort, slice(None), slice(None))
            for _ in range(self.epochs):
                yield full_batch
        elif self.order_seed is not None:
            yield from self._public(cohort, self.size, self.order_seed)
        else:
            yield from self._private(cohort, self.size, seed)

    def _public(self, cohort: Cohort, size: int, order_seed: int) -> Iterator[Batch]:
        common = len(cohort.shared)
        place, k = common if self.place is None else self.place, cohort.secrets
        rows = torch.cat([torch.arange(place), torch.arange(common, common + k), torch.arange(place, common)])
        for epoch in range(self.epochs):
            order = torch.from_numpy(generator(order_seed, "order", epoch).permutation(cohort.records))
            for positions in torch.split(rows[order].to(cohort.own.inputs.device), size):
                yield together(cohort, positions[positions < common], positions[positions >= common] - common)

    def _private(self, cohort: Cohort, size: int, seed: int) -> Iterator[Batch]:
        records, models = pool(cohort), cohort.index.to(cohort.own.inputs.device)
        for epoch in range(self.epochs):
            orders = philox.orders(key(seed, "order", epoch), models, cohort.records)  # (m, n)
            for positions in torch.split(orders, size, dim=1):
                yield Batch((), (records(positions),))


def together(cohort: Cohort, shared: Tensor | slice, own: Tensor | slice) -> Batch:
    """A batch at the same positions for every model; shared records are not copied."""
    common: Part = (cohort.shared.inputs[shared], cohort.shared.y[shared])  # (b, ...)
    secret: Part = (cohort.own.inputs[:, own], cohort.own.y[:, own])  # (m, b, ...)
    return Batch((common,) if len(common[1]) else (), (secret,) if secret[1].shape[1] else ())


def pool(cohort: Cohort) -> Callable[[Tensor], Part]:
    """A function of positions (m, b) in each model's training set, shared records first: their records (m, b, ...).

    All records are copied once into one array, or not at all if none is shared.
    """
    common, secrets = cohort.shared, cohort.own
    sides = ((common.inputs, secrets.inputs.flatten(0, 1)), (common.y, secrets.y.flatten(0, 1)))
    inputs, y = (torch.cat(side) if len(common) else side[1] for side in sides)  # (n - k + m k, ...)

    def records(positions: Tensor) -> Part:
        skipped = cohort.secrets * torch.arange(len(positions), device=positions.device).unsqueeze(1)  # (m, 1)
        rows = torch.where(positions < len(common), positions, positions + skipped)
        return inputs[rows], y[rows]

    return records


# How DP-SGD draws its batches, and what follows for a record that may be in them.
#
# A law draws, for m models at once, which of n records are in each step. It also weighs evidence: given how much better
# each step is explained with a record than without it (in nats), it says how much better all steps are.


class Law(ABC):
    """How batches are drawn."""

    hidden = False  # True if the draws of other records would reveal the secret's, and ceilings assume that they do not

    @abstractmethod
    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        """Bool (m, n) for every step, shared records first, private to each model; None for all records."""

    def present(self, step: int, shared: Tensor | None, records: int) -> Tensor | None:
        """(m,) whether the secret is in a step, if the draws of all others (m, n - 1) reveal it."""
        return None

    @abstractmethod
    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """The log-likelihood ratio of all steps, from that of each step if the record is in it (...)."""


@runtime_checkable
class DrawsBatches(Protocol):
    """A value that has such a law, like those of `lw.bounds`."""

    def law(self, steps: int) -> Law:
        """The law of this many steps."""

    def share(self, steps: int) -> float:
        """The share of the steps that a record is in, on average."""


def total(terms: Iterator[Tensor]) -> Tensor:
    """The sum in float64, one term at a time."""
    return functools.reduce(torch.add, terms, next(terms).double())


def _words(purpose: str, cohort: Cohort, seed: int, turn: int) -> Tensor:
    """int64 (m, n) random numbers >= 0."""
    blocks = -(-2 * cohort.records // philox.BLOCK)
    models = cohort.index.to(cohort.own.inputs.device)
    words = philox.bits(key(seed, purpose), models, blocks, before=turn * blocks).view(torch.int64)
    return words[:, : cohort.records].bitwise_and(POSITIVE)


def _places(keys: Tensor) -> Tensor:
    """(m, n) the place of each record in the order of random keys."""
    return keys.argsort(dim=1, stable=True).argsort(dim=1)


def _check_size(cohort: Cohort, n: int) -> None:
    if cohort.records != n:
        raise ValueError(f"DPSGD: expected training sets of {n} records, as batches say, got {cohort.records}.")


@dataclass(frozen=True)
class Independent(Law):
    """Poisson sampling: each record in each step with probability `rate`."""

    rate: float
    steps: int

    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        if self.rate == 1:
            yield from repeat(None, self.steps)
            return
        ours, models = key(seed, "sample"), cohort.index.to(cohort.own.inputs.device)
        for step in range(self.steps):
            yield philox.happens(ours, models, cohort.records, self.rate, turn=step)

    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """sum_t ln(1 - q + q exp(gain_t))."""
        if self.rate == 1:
            return total(gains)
        absent, drawn = math.log1p(-self.rate), math.log(self.rate)
        return total(torch.logaddexp(gain + drawn, torch.full_like(gain, absent)) for gain in gains)


@dataclass(frozen=True)
class IndependentUpTo(Law):
    """Poisson sampling of `n` records; a batch of more than `largest` is cut to that size, at random."""

    rate: float
    n: int
    largest: int
    steps: int

    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        _check_size(cohort, self.n)
        everyone = torch.ones(len(cohort), self.n, dtype=torch.bool, device=cohort.own.inputs.device)
        for step, batch in enumerate(Independent(self.rate, self.steps).draws(cohort, seed=seed)):
            drawn = everyone if batch is None else batch
            first = _words("cut", cohort, seed, step).masked_fill(~drawn, POSITIVE)  # those who are drawn come first
            yield drawn & (_places(first) < self.largest)

    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """As for Poisson sampling: a cut is rare, or the attack is weaker than it could be."""
        return Independent(self.rate, self.steps).evidence(gains)


@dataclass(frozen=True)
class InBins(Law):
    """Balls in bins: each record in one step per epoch, chosen uniformly and independently, anew or once for all."""

    per_epoch: int
    epochs: int
    redrawn: bool = True

    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        for epoch in range(self.epochs):
            bins = _words("bins", cohort, seed, epoch if self.redrawn else 0) % self.per_epoch
            yield from (bins == step for step in range(self.per_epoch))

    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """Per epoch the mean over steps of exp(gain_t): the record is in one of them."""

        def by_epoch() -> Iterator[Tensor]:
            for _ in range(self.epochs):
                yield torch.stack([next(gains).double() for _ in range(self.per_epoch)])

        def mean(each: Tensor) -> Tensor:
            return torch.logsumexp(each, 0) - math.log(self.per_epoch)

        return total(map(mean, by_epoch())) if self.redrawn else mean(total(by_epoch()))


@dataclass(frozen=True)
class InTurns(Law):
    """A new random order in every epoch, or always the same, cut into batches of equal size (up to one record).

    Whoever knows the batches of all other records knows the secret's too: the only batch that lacks one.
    """

    per_epoch: int
    epochs: int
    shuffled: bool = True

    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        n = cohort.records
        for epoch in range(self.epochs):
            place = torch.arange(n, device=cohort.own.inputs.device).expand(len(cohort), n)
            if self.shuffled:
                place = _places(_words("shuffle", cohort, seed, epoch))
            batch = place * self.per_epoch // n
            yield from (batch == step for step in range(self.per_epoch))

    def present(self, step: int, shared: Tensor | None, records: int) -> Tensor | None:
        """From the sizes of batches."""
        if shared is None:
            return None
        size = ((torch.arange(records) * self.per_epoch // records) == step % self.per_epoch).sum()
        return shared.sum(1) < size.to(shared.device)

    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """The sum over the steps that hold the record; those of others are 0."""
        return total(gains)


@dataclass(frozen=True)
class WithoutReplacement(Law):
    """Each step draws `b` of `n` records, independently of other steps.

    The draws of other records are not published: they would reveal the secret's. If all others have the same gradient,
    the evidence is exact; otherwise their random sum is further noise, which it ignores.
    """

    n: int
    b: int
    steps: int

    @property
    def rate(self) -> float:
        return self.b / self.n

    @property
    def hidden(self) -> bool:  # type: ignore[override]
        """Unless batches are full."""
        return self.b < self.n

    def draws(self, cohort: Cohort, *, seed: int) -> Iterator[Tensor | None]:
        _check_size(cohort, self.n)
        for step in range(self.steps):
            yield _places(_words("fixed size", cohort, seed, step)) < self.b if self.hidden else None

    def evidence(self, gains: Iterator[Tensor]) -> Tensor:
        """As for Poisson sampling; a gain is that of the record in the place of another one."""
        return Independent(self.rate, self.steps).evidence(gains)
