"""Where training starts, as values.

A `seed` here is public: an int means that everybody knows the start, and all models share it; None that each
model draws its own, from the training's seed and its number. Drawn on the CPU in float64, so that the start
is the same on every device and in every dtype.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.seeds import generator

Params = dict[str, Tensor]


class Init(Protocol):
    """A starting point."""

    def __call__(self, net: nn.Module, numbers: Sequence[int], *, seed: int) -> Params:
        """The trainable parameters of the models with these numbers, (m, ...), float64 on the CPU."""
        ...


def trainable(net: nn.Module) -> Params:
    """The parameters that training moves; frozen ones belong to the architecture."""
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


@dataclass(frozen=True)
class _Seeded(ABC):
    seed: int | None = field(default=0, kw_only=True)

    @final
    def __call__(self, net: nn.Module, numbers: Sequence[int], *, seed: int) -> Params:
        """One start for all where it is public, else one a model."""
        if self.seed is not None:
            start = self._draw(net, generator(self.seed, "init"))
            return {name: value.expand(len(numbers), *value.shape) for name, value in start.items()}
        starts = [self._draw(net, generator(seed, "init", number)) for number in numbers]
        return {name: torch.stack([start[name] for start in starts]) for name in starts[0]}

    @abstractmethod
    def _draw(self, net: nn.Module, random: np.random.Generator) -> Params:
        """One model's start."""


@dataclass(frozen=True)
class _Weights(_Seeded):
    """Matrices and kernels are drawn, biases 0, other vectors (a GroupNorm's scale) as the net has them."""

    def _draw(self, net: nn.Module, random: np.random.Generator) -> Params:
        start: Params = {}
        for name, value in trainable(net).items():
            if value.ndim >= 2:
                start[name] = torch.from_numpy(self._weight(tuple(value.shape), random))
            elif "bias" in name.rpartition(".")[2]:
                start[name] = torch.zeros(value.shape, dtype=torch.float64)
            else:
                start[name] = value.double().cpu()
        return start

    @abstractmethod
    def _weight(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        """One weight, (out, in, ...)."""


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs feed an output, and how many outputs an input feeds."""
    positions = math.prod(shape[2:])
    return shape[1] * positions, shape[0] * positions


@final
@dataclass(frozen=True)
class LeCunNormal(_Weights):
    """N(0, 1 / fan_in), biases 0: the start of S1, Table V."""

    def _weight(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        fan_in, _ = _fans(shape)
        return random.standard_normal(shape) / math.sqrt(fan_in)


@final
@dataclass(frozen=True)
class He(_Weights):
    """N(0, 2 / fan_in), biases 0: torch's kaiming_normal_."""

    def _weight(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        fan_in, _ = _fans(shape)
        return random.standard_normal(shape) * math.sqrt(2 / fan_in)


@final
@dataclass(frozen=True)
class Glorot(_Weights):
    """Uniform within sqrt(6 / (fan_in + fan_out)), biases 0: torch's xavier_uniform_."""

    def _weight(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        bound = math.sqrt(6 / sum(_fans(shape)))
        return random.uniform(-bound, bound, shape)


@final
@dataclass(frozen=True)
class Normal(_Weights):
    """N(0, sigma^2), biases 0: the heads of S2."""

    sigma: float

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise ValueError(f"Normal: expected sigma >= 0, got {self.sigma}.")

    def _weight(self, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
        return random.standard_normal(shape) * self.sigma


@final
@dataclass(frozen=True)
class TorchDefault(_Seeded):
    """What torch's own layers start from: `reset_parameters` of every module that has one.

    Drawn by torch's own generator, which keeps 32 bits of a seed: among 100,000 private starts a pair is alike.
    """

    def _draw(self, net: nn.Module, random: np.random.Generator) -> Params:
        fresh = deepcopy(net).cpu().double()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.integers(2**63)))
            for module in fresh.modules():
                reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
                if reset is not None:
                    reset()
        return trainable(fresh)


@final
@dataclass(frozen=True)
class Given:
    """A state that everybody knows, such as a published checkpoint: `Given(net.state_dict())`."""

    state: Mapping[str, Tensor]

    def __call__(self, net: nn.Module, numbers: Sequence[int], *, seed: int) -> Params:
        """The given values, the same for every model."""
        start: Params = {}
        for name, value in trainable(net).items():
            given = self.state.get(name)
            if given is None or given.shape != value.shape:
                got = "nothing" if given is None else f"shape {tuple(given.shape)}"
                raise ValueError(f"Given: expected {name} of shape {tuple(value.shape)} in state, got {got}.")
            start[name] = given.detach().double().cpu().expand(len(numbers), *value.shape)
        return start
