"""Where training starts, as values.

A `seed` here is public: an int means that everybody knows the start, and all models share it; None that each
model draws its own, from the training's seed and its number. A public start is drawn on the CPU in float64, and is the
same on every device and in every dtype; private ones are drawn where the training takes place (`philox/`), and are so
to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lostwax import philox
from lostwax.fields import at_least, check_fields
from lostwax.provenance import fingerprint
from lostwax.seeds import generator, key

Params = dict[str, Tensor]
Numbers = Tensor | Sequence[int]  # (m,) of models; a tensor lies where their starts are wanted


class Init(Protocol):
    """A starting point."""

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        """The trainable parameters of the models with these numbers, (m, ...)."""
        ...


@runtime_checkable
class StartsFrom(Protocol):
    """A trainer that states where training starts, instead of the weights that the net came with."""

    init: Init


def trainable(net: nn.Module) -> Params:
    """The parameters that training moves; frozen ones belong to the architecture."""
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


class _Draws(Protocol):
    """Where the numbers of a start come from: one for all models (...), or one for each (m, ...)."""

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """N(0, 1) for the parameter of this name."""
        ...

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
        """Uniform in [-bound, bound]."""
        ...

    def same(self, value: Tensor) -> Tensor:
        """Nothing drawn."""
        ...


class _One(NamedTuple):
    """A start for all, drawn parameter after parameter."""

    random: np.random.Generator

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return torch.from_numpy(self.random.standard_normal(shape))

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
        return torch.from_numpy(self.random.uniform(-bound, bound, shape))

    def same(self, value: Tensor) -> Tensor:
        return value


class _Each(NamedTuple):
    """A start for each model, drawn by the parameter's name and the model's number; all of it in float32."""

    numbers: Tensor  # (m,)
    seed: int

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return philox.normal(key(self.seed, "init", name), self.numbers, math.prod(shape)).reshape(-1, *shape)

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
        return bound * philox.uniform(key(self.seed, "init", name), self.numbers, math.prod(shape)).reshape(-1, *shape)

    def same(self, value: Tensor) -> Tensor:
        return _for_all(value.float(), self.numbers)


def _for_all(value: Tensor, numbers: Tensor) -> Tensor:
    return value.to(numbers.device).expand(len(numbers), *value.shape)


@dataclass(frozen=True)
class _Seeded(ABC):
    seed: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)

    @final
    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        """One start for all where it is public, else one a model."""
        models = torch.as_tensor(numbers)
        if self.seed is None:
            return self._private(net, models, seed)
        start = self._public(net, generator(self.seed, "init"))
        return {name: _for_all(value, models) for name, value in start.items()}

    @abstractmethod
    def _public(self, net: nn.Module, random: np.random.Generator) -> Params:
        """A start for all models, (...), float64."""

    @abstractmethod
    def _private(self, net: nn.Module, numbers: Tensor, seed: int) -> Params:
        """A start for each, (m, ...), where the numbers lie."""


@dataclass(frozen=True)
class _Weights(_Seeded):
    """Matrices and kernels are drawn, biases 0, other vectors (a GroupNorm's scale) as the net has them."""

    @final
    def _public(self, net: nn.Module, random: np.random.Generator) -> Params:
        return self._start(net, _One(random))

    @final
    def _private(self, net: nn.Module, numbers: Tensor, seed: int) -> Params:
        return self._start(net, _Each(numbers, seed))

    def _start(self, net: nn.Module, draws: _Draws) -> Params:
        start: Params = {}
        for name, value in trainable(net).items():
            if value.ndim >= 2:
                start[name] = self._weight(name, tuple(value.shape), draws)
            elif "bias" in name.rpartition(".")[2]:
                start[name] = draws.same(torch.zeros(value.shape, dtype=torch.float64))
            else:
                start[name] = draws.same(value.double().cpu())
        return start

    @abstractmethod
    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        """The weight of this name, (out, in, ...)."""


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs feed an output, and how many outputs an input feeds."""
    positions = math.prod(shape[2:])
    return shape[1] * positions, shape[0] * positions


@final
@dataclass(frozen=True)
class LeCunNormal(_Weights):
    """N(0, 1 / fan_in), biases 0: the start of S1, Table V."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        fan_in, _ = _fans(shape)
        return draws.normal(name, shape) / math.sqrt(fan_in)


@final
@dataclass(frozen=True)
class He(_Weights):
    """N(0, 2 / fan_in), biases 0: torch's kaiming_normal_."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        fan_in, _ = _fans(shape)
        return draws.normal(name, shape) * math.sqrt(2 / fan_in)


@final
@dataclass(frozen=True)
class Glorot(_Weights):
    """Uniform within sqrt(6 / (fan_in + fan_out)), biases 0: torch's xavier_uniform_."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        bound = math.sqrt(6 / sum(_fans(shape)))
        return draws.uniform(name, shape, bound)


@final
@dataclass(frozen=True)
class Normal(_Weights):
    """N(0, sigma^2), biases 0: the heads of S2."""

    sigma: float

    def __post_init__(self) -> None:
        check_fields(self, sigma=at_least(0))

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        return draws.normal(name, shape) * self.sigma


@final
@dataclass(frozen=True)
class TorchDefault(_Seeded):
    """What torch's own layers start from: `reset_parameters` of every module that has one.

    Drawn by torch's own generator, which keeps 32 bits of a seed: among 100,000 private starts a pair is alike.
    """

    def _public(self, net: nn.Module, random: np.random.Generator) -> Params:
        fresh = deepcopy(net).cpu().double()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.integers(2**63)))
            for module in fresh.modules():
                reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
                if reset is not None:
                    reset()
        return trainable(fresh)

    def _private(self, net: nn.Module, numbers: Tensor, seed: int) -> Params:
        starts = [self._public(net, generator(seed, "init", number)) for number in numbers.tolist()]
        return {name: torch.stack([start[name] for start in starts]).to(numbers.device) for name in starts[0]}


@final
@dataclass(frozen=True)
class FromNet:
    """The weights that the net comes with: the default. Everybody knows them, and every model starts there.

    So a pretrained net is trained on from where it is. A fresh torch layer has random weights: call `torch.manual_seed`
    before it is made, or name another start, if two runs are to be the same.
    """

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        """The net's trainable parameters, the same for every model."""
        start = trainable(net)
        if any(value.is_meta for value in start.values()):
            raise ValueError(
                "net: it lies on the meta device and holds no weights to start from. Load them, or name a start, "
                "init=lw.inits.LeCunNormal()."
            )
        if wrong := [name for name, value in start.items() if not value.isfinite().all()]:
            raise ValueError(
                f"net: training starts from the net's own weights, and {wrong[0]} holds NaN or infinite numbers. Load "
                "finite weights, or name a start, init=lw.inits.LeCunNormal()."
            )
        return {
            name: _for_all(value.to(torch.float64, copy=True), torch.as_tensor(numbers))
            for name, value in start.items()
        }


@final
@dataclass(frozen=True, repr=False)
class Given:
    """A state that everybody knows, such as a published checkpoint: `Given(net.state_dict())`."""

    state: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        """The given values, the same for every model."""
        start: Params = {}
        for name, value in trainable(net).items():
            given = self.state.get(name)
            if given is None or given.shape != value.shape:
                got = "nothing" if given is None else f"shape {tuple(given.shape)}"
                raise ValueError(f"Given: expected {name} of shape {tuple(value.shape)} in state, got {got}.")
            start[name] = _for_all(given.detach().double(), torch.as_tensor(numbers))
        return start

    def __repr__(self) -> str:
        """By its fingerprint: reports and audits hold it, and not the weights."""
        return f"Given({len(self.state)} tensors, {fingerprint(*self.state.values())})"
