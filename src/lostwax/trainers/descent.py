"""What all trainers by gradient steps have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import nn

from lostwax.inits import Init, LeCunNormal
from lostwax.losses import CrossEntropy
from lostwax.schedules import Constant, Schedule
from lostwax.trainers.batches import Batches
from lostwax.trainers.fused import fused
from lostwax.trainers.refusals import check_data, check_net, check_outputs
from lostwax.trainers.stacked import Architecture, Batch, Gradient, Params, gradient
from lostwax.trainers.tiles import default_size, gather, tiles
from lostwax.types import Cohort, Loss, Release, Step


class State(NamedTuple):
    """m models between two steps."""

    params: Params  # (m, ...)
    buffers: tuple[Params, ...]  # what the optimiser remembers: a velocity, moments


@dataclass(frozen=True, kw_only=True)
class Descent(ABC):
    """Training by gradient steps on the mean loss, many models at once.

    The same numbers as torch.optim on one model after the other. What is promised of model i, whatever the
    rest of the cohort, its order, and how it is cut into calls:

    - it depends on its training set, `seed` and its number alone;
    - where more than half of its tile is asked for (`tiles.py`), so in every grouping of whole tiles, it is
      the same to the last byte on one kind of device;
    - otherwise, and on another kind of device, it is equal to rounding.

    `tile` models are computed at a time; None takes a power of two from the sizes of net and data.
    """

    lr: float
    weight_decay: float = 0.0
    schedule: Schedule = Constant()
    loss: Loss = CrossEntropy()
    init: Init = LeCunNormal(seed=0)
    dtype: torch.dtype = torch.float32
    tf32: bool = False
    tile: int | None = None

    def __post_init__(self) -> None:
        self._expect("lr", "> 0", self.lr > 0)
        self._expect("weight_decay", ">= 0", self.weight_decay >= 0)
        self._expect("dtype", "torch.float32 or torch.float64", self.dtype in (torch.float32, torch.float64))
        self._expect("tile", ">= 1, or None", self.tile is None or self.tile >= 1)

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """Which records each step sees."""

    @abstractmethod
    def buffers(self, params: Params) -> tuple[Params, ...]:
        """What the optimiser remembers before the first step."""

    @abstractmethod
    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """The state after step `number` (from 0): a pure function, differentiable in state and gradient."""

    @final
    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort."""
        ours, cohort = self._prepare(net, cohort)
        return self._train(ours, cohort, seed, self._quickest(ours, cohort))

    @final
    def differentiable(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """The same training, equal to rounding, that torch.func can differentiate, forward and in reverse."""
        return self._train(*self._prepare(net, cohort), seed, gradient)

    @final
    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """Every step of that training: the parameters before it and the gradient of the mean loss there."""
        ours, cohort = self._prepare(net, cohort)
        cut = list(tiles(cohort.index.tolist(), self._tile_size(ours, cohort)))
        slope_of = self._quickest(ours, cohort)
        histories = [self._trajectory(ours, cohort[torch.tensor(tile.rows)], seed, slope_of) for tile in cut]
        for step in zip(*histories, strict=True):  # all tiles in step
            yield Step(
                step[0][0].number,
                gather([(tile, dict(before.params)) for tile, (before, _) in zip(cut, step, strict=True)]),
                gather([(tile, dict(before.gradient)) for tile, (before, _) in zip(cut, step, strict=True)]),
            )

    @final
    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """How many models are computed at a time."""
        return self._tile_size(*self._prepare(net, cohort))

    @final
    def public_start(self, net: nn.Module) -> bool:
        """Does training begin at the same weights whoever trains, whatever the model's number? Told by two draws."""
        ours, theirs = (self.init(net, [number], seed=number) for number in (0, 1))
        return all(torch.equal(ours[name], theirs[name]) for name in ours)

    @final
    def step(
        self, net: Architecture, state: State, batch: Batch, number: int, steps: int, slope_of: Gradient = gradient
    ) -> tuple[State, Params]:
        """One step of m models, a pure function: the state after it, and the gradient it was taken with.

        `slope_of` computes that gradient; the default is differentiable.
        """
        with _float32_products(self.tf32):
            slope = slope_of(net, self.loss, state.params, batch)
            lr = self.lr * self.schedule(number, steps)
            return self.update(state, slope, lr, number), slope

    def _train(self, net: Architecture, cohort: Cohort, seed: int, slope_of: Gradient) -> Release:
        parts = []
        for tile in tiles(cohort.index.tolist(), self._tile_size(net, cohort)):
            for _, after in self._trajectory(net, cohort[torch.tensor(tile.rows)], seed, slope_of):
                state = after
            parts.append((tile, state.params))
        return Release(gather(parts))

    def _quickest(self, net: Architecture, cohort: Cohort) -> Gradient:
        return fused(net, self.loss, self.dtype, cohort.own.inputs.device) or gradient

    def _trajectory(
        self, net: Architecture, cohort: Cohort, seed: int, slope_of: Gradient
    ) -> Iterator[tuple[Step, State]]:
        numbers, device = cohort.index.tolist(), cohort.own.inputs.device
        start = self.init(net.net, numbers, seed=seed)
        params = {name: value.to(device, self.dtype).contiguous() for name, value in start.items()}
        state = State(params, self.buffers(params))
        steps = self.batches.steps(cohort.records)
        for number, batch in enumerate(self.batches(cohort, numbers, seed=seed)):
            before = state.params
            state, slope = self.step(net, state, batch, number, steps, slope_of)
            yield Step(number, before, slope), state

    def _prepare(self, net: nn.Module, cohort: Cohort) -> tuple[Architecture, Cohort]:
        """The net and the records, checked, on one device and in one dtype."""
        check_net(net)
        check_data(cohort)
        device = cohort.own.inputs.device
        ours = Architecture.of(net, device, self.dtype)
        cast = Cohort(cohort.shared.to(self.dtype), cohort.own.to(self.dtype), cohort.index)
        check_outputs(ours, cast, self.loss)
        if device.type == "cpu":
            _keep_freed_memory()
        return ours, cast

    def _tile_size(self, net: Architecture, cohort: Cohort) -> int:
        record = cohort.own.inputs.new_zeros(cohort.own.inputs.shape[2:])
        seen, own = self.batches.records(cohort)
        return self.tile or default_size(net, record, records=seen, own=own)

    def _expect(self, name: str, wanted: str, holds: bool) -> None:
        if not holds:
            raise ValueError(f"{type(self).__name__}: expected {name} {wanted}, got {getattr(self, name)}.")


@contextmanager
def _float32_products(tf32: bool) -> Iterator[None]:
    """On a GPU: products of float32 in full precision or in TF32, by the same algorithm every time."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _keep_freed_memory() -> None:
    """Let the C library reuse large blocks instead of returning them to the system after every operation.

    glibc maps a block above a threshold afresh, and faulting its pages in costs several times the arithmetic
    on it. The threshold rises to the largest such block freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD).
    """
    torch.empty(31 << 20, dtype=torch.uint8)
