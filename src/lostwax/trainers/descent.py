"""What all trainers by gradient steps have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import final

from torch import nn

from lostwax.trainers.batches import Batches
from lostwax.trainers.fused import fused
from lostwax.trainers.stacked import Architecture, Batch, Gradient, Params, gradient
from lostwax.trainers.stepwise import State, Stepwise, Trajectory, float32_products
from lostwax.types import Cohort, Release, Step


@dataclass(frozen=True, kw_only=True)
class Descent(Stepwise, ABC):
    """Training by gradient steps on the mean loss: the same numbers as torch.optim on one model after the other."""

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """Which records each step sees."""

    @abstractmethod
    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """The state after step `number` (from 0): a pure function, differentiable in state and gradient."""

    @final
    def differentiable(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """The same training, equal to rounding, that torch.func can differentiate, forward and in reverse."""
        ours, cohort = self._prepare(net, cohort)
        walk = partial(self._walk, ours, seed=seed, slope_of=gradient)
        return self._trained((tile, walk(cohort[rows])) for tile, rows in self._cut(ours, cohort))

    @final
    def step(
        self, net: Architecture, state: State, batch: Batch, number: int, steps: int, slope_of: Gradient = gradient
    ) -> tuple[State, Params]:
        """One step of m models, a pure function: the state after it, and the gradient it was taken with.

        `slope_of` computes that gradient; the default is differentiable.
        """
        with float32_products(self.tf32):
            slope = slope_of(net, self.loss, state.params, batch)
            lr = self.lr * self.schedule(number, steps)
            return self.update(state, slope, lr, number), slope

    @final
    def _trajectory(self, net: Architecture, cohort: Cohort, seed: int) -> Trajectory:
        quickest = fused(net, self.loss, cohort.own.inputs.dtype, cohort.own.inputs.device) or gradient
        return self._walk(net, cohort, seed, quickest)

    def _walk(self, net: Architecture, cohort: Cohort, seed: int, slope_of: Gradient) -> Trajectory:
        state = self._start(net, cohort, seed)
        steps = self.batches.steps(cohort.records)
        for number, batch in enumerate(self.batches(cohort, seed=seed)):
            before = state.params
            state, slope = self.step(net, state, batch, number, steps, slope_of)
            yield Step(number, before, slope), state

    @final
    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        return self.batches.records(cohort)
