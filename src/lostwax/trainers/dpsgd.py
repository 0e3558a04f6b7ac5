"""Differentially private gradient descent: clipped gradients, Poisson sampling, Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self, TypedDict, final

import torch
from torch import Tensor, nn

from lostwax.inits import LeCunNormal
from lostwax.trainers.clipping import Clipping
from lostwax.trainers.ghost import Ghost
from lostwax.trainers.momentum import descend, velocity
from lostwax.trainers.noise import gaussian_noise
from lostwax.trainers.per_record import PerRecord
from lostwax.trainers.poisson import computed, draws, sample
from lostwax.trainers.stacked import Architecture, Params
from lostwax.trainers.stepwise import Stepwise, Trajectory, float32_products
from lostwax.types import Cohort, Release, Step
from lostwax.types.fields import Range, above, at_least, between, expect


class Mechanism(TypedDict):
    """What a ceiling depends on: `lw.bound(**trainer.mechanism(), baseline=0.1)`."""

    noise_multiplier: float
    sample_rate: float
    steps: int


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD(Stepwise):
    """Stochastic gradient descent with clipped gradients and Gaussian noise: differentially private training.

    Each step draws every record with probability `sample_rate` and moves along

        g_t = (sum over the records drawn of  g min(1, C / |g|)  +  C sigma N(0, I)) / (sample_rate n)

    with C = `clip`, sigma = `noise_multiplier`: divided by the *expected* size of a batch, for the size itself tells
    something of who is in it (Abadi et al., arXiv 1607.00133). A rate of 1 is full-batch DP-GD. A gradient g that is
    not finite counts as 0, so that no record, whatever its numbers, moves the sum by more than C.

    With `publish_steps` a release holds what the accountant takes the adversary to see: its `steps` tell the weights
    before every step, g_t, and which of the shared records were drawn. They are computed again whenever they are asked
    for, never stored.
    """

    lr: float = 0.1
    clip: float = 1.0
    noise_multiplier: float = 1.0
    steps: int = 100
    sample_rate: float = 1.0
    momentum: float = 0.0
    publish_steps: bool = True

    def _ranges(self) -> dict[str, Range]:
        return {
            "clip": above(0, infinite=True),
            "noise_multiplier": at_least(0),
            "steps": at_least(1),
            "sample_rate": between(0, 1, "(]"),
            "momentum": between(0, 1, "[)"),
        }

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self, "clip", "finite, where there is noise", self.noise_multiplier == 0 or self.clip < math.inf)

    @classmethod
    def for_epsilon(
        cls, epsilon: float, delta: float = 1e-5, *, steps: int = 100, sample_rate: float = 1.0, **fields: Any
    ) -> Self:
        """With the least noise for (epsilon, delta)-DP, adding or removing one record; other fields as usual."""
        from lostwax.trainers.accounting import noise_for

        noise = noise_for(epsilon, delta, steps=steps, sample_rate=sample_rate)
        return cls(noise_multiplier=noise, steps=steps, sample_rate=sample_rate, **fields)

    def mechanism(self) -> Mechanism:
        """What bounds the success of every attack."""
        return Mechanism(noise_multiplier=self.noise_multiplier, sample_rate=self.sample_rate, steps=self.steps)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort."""
        params = super().__call__(net, cohort, seed=seed).params
        return Release(params, (lambda: self.transcript(net, cohort, seed=seed)) if self.publish_steps else None)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """A velocity, where there is momentum."""
        return velocity(params, self.momentum)

    def clipping(self, net: Architecture, record: Tensor) -> Clipping:
        """By ghost norms where the net allows it, else by the gradient of every record."""
        return Ghost.of(net, record) or PerRecord()

    def _trajectory(self, net: Architecture, cohort: Cohort, seed: int) -> Trajectory:
        state = self._start(net, cohort, seed)
        expected = self.sample_rate * cohort.records
        clipping = self.clipping(net, cohort.own.inputs.new_zeros(cohort.own.inputs.shape[2:]))
        noise = gaussian_noise(state.params, cohort.index, seed=seed)
        for number, drawn in enumerate(draws(cohort, self.sample_rate, self.steps, seed=seed)):
            with float32_products(self.tf32):
                records = sample(cohort, drawn, self.sample_rate)
                slope = clipping.total(net, self.loss, state.params, records, self.clip)
            if self.noise_multiplier > 0:
                added, scale = next(noise), self.clip * self.noise_multiplier
                slope = {name: torch.add(value, added[name], alpha=scale) for name, value in slope.items()}
            slope = {name: value.div_(expected) for name, value in slope.items()}
            # a copy: a slice would lead back to whether the secrets were drawn
            known = None if drawn is None else drawn[:, : len(cohort.shared)].clone()
            published = Step(number, state.params, slope, known)
            lr = self.lr * self.schedule(number, self.steps)
            state = descend(state, slope, lr, self.momentum, self.weight_decay)
            yield published, state

    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        return computed(cohort, self.sample_rate)

    @classmethod
    def examples(cls) -> tuple[DPSGD, ...]:
        """Instances to test."""
        return (
            cls(lr=0.5, clip=0.1, noise_multiplier=0.5, steps=4, momentum=0.5),
            cls(lr=0.5, noise_multiplier=1.0, steps=5, sample_rate=0.15, dtype=torch.float64),
            cls(lr=0.5, noise_multiplier=0.3, steps=3, sample_rate=0.5, init=LeCunNormal(seed=None), tile=4),
        )
