"""Initial weights.

A `seed` here is public: with an int all models share the same initial weights, which the adversary knows; with None
each model draws its own. Public weights are drawn on the CPU in float64, private ones on the training device
(`philox/`); they agree to rounding on every device.
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
from lostwax.seeds import generator, key, seed_torch

Params = dict[str, Tensor]
Numbers = Tensor | Sequence[int]  # (m,) models' numbers; a tensor is on the device where the weights are wanted


class Init(Protocol):
    """An initialisation."""

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        """The initial trainable parameters of the models with these numbers, (m, ...)."""


@runtime_checkable
class StartsFrom(Protocol):
    """A trainer that states where training starts, instead of the weights that the net came with."""

    init: Init


def trainable(net: nn.Module) -> Params:
    """The parameters with requires_grad; frozen ones belong to the architecture."""
    return {name: value.detach() for name, value in net.named_parameters() if value.requires_grad}


def public(init: Init, net: nn.Module) -> bool:
    """True if every model has the same initialisation (checked on two draws)."""
    ours, theirs = (init(net, [number], seed=number) for number in (0, 1))
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def start_of(init: Init, net: nn.Module, number: int, *, seed: int) -> Params:
    """The whole state_dict of one model before training: its trainable parameters from `init`, in the net's dtype.

    Of a `Given` state, buffers, frozen parameters and dtypes are taken too. Where weights are drawn anew, running
    statistics are reset, and other buffers are the net's.
    """
    drawn = {name: value[0] for name, value in init(net, [number], seed=seed).items()}
    fresh = deepcopy(net)
    state: Mapping[str, Tensor] = getattr(init, "state", {})
    if not state and not isinstance(init, FromNet):
        for module in fresh.modules():
            reset = getattr(module, "reset_running_stats", None)
            if callable(reset):
                reset()
    tensors = fresh.state_dict()
    ours = {name: value.to(tensors[name].dtype) for name, value in drawn.items()}
    return {**tensors, **ours, **{name: value for name, value in state.items() if name in tensors}}


def _for_all(value: Tensor, numbers: Tensor) -> Tensor:
    return value.to(numbers.device).expand(len(numbers), *value.shape)


@dataclass(frozen=True)
class _Seeded:
    seed: int | None = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        check_fields(self)


class _Draws(NamedTuple):
    """Numbers for parameters: in float64, the same for all models (...), or in float32, of each model (m, ...)."""

    public: np.random.Generator | None  # draws parameter by parameter; None: by parameter name and model number
    seed: int
    models: Tensor  # (m,)

    def normal(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if self.public is not None:
            return torch.from_numpy(self.public.standard_normal(shape))
        return philox.normal(key(self.seed, "init", name), self.models, math.prod(shape)).reshape(-1, *shape)

    def uniform(self, name: str, shape: tuple[int, ...], bound: float) -> Tensor:
        if self.public is not None:
            return torch.from_numpy(self.public.uniform(-bound, bound, shape))
        drawn = philox.uniform(key(self.seed, "init", name), self.models, math.prod(shape))
        return bound * drawn.reshape(-1, *shape)


@dataclass(frozen=True)
class _Weights(_Seeded, ABC):
    """Weight matrices and kernels are drawn, biases are 0, other vectors (a GroupNorm's scale) are the net's."""

    @final
    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        models = torch.as_tensor(numbers)
        draws = _Draws(None if self.seed is None else generator(self.seed, "init"), seed, models)
        start: Params = {}
        for name, value in trainable(net).items():
            if value.ndim >= 2:
                drawn = self._weight(name, tuple(value.shape), draws)
                start[name] = drawn if self.seed is None else _for_all(drawn, models)
            else:
                bias = "bias" in name.rpartition(".")[2]
                same = torch.zeros(value.shape, dtype=torch.float64) if bias else value.double().cpu()
                start[name] = _for_all(same.float() if self.seed is None else same, models)
        return start

    @abstractmethod
    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        """The weight of this name, (out, in, ...)."""


def _fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """fan_in and fan_out."""
    positions = math.prod(shape[2:])
    return shape[1] * positions, shape[0] * positions


@final
@dataclass(frozen=True)
class LeCunNormal(_Weights):
    """N(0, 1 / fan_in), biases 0 (Balle et al. 2022, Table V)."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        return draws.normal(name, shape) / math.sqrt(_fans(shape)[0])


@final
@dataclass(frozen=True)
class He(_Weights):
    """N(0, 2 / fan_in), biases 0: torch's kaiming_normal_."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        return draws.normal(name, shape) * math.sqrt(2 / _fans(shape)[0])


@final
@dataclass(frozen=True)
class Glorot(_Weights):
    """Uniform within sqrt(6 / (fan_in + fan_out)), biases 0: torch's xavier_uniform_."""

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        return draws.uniform(name, shape, math.sqrt(6 / sum(_fans(shape))))


@final
@dataclass(frozen=True)
class Normal(_Weights):
    """N(0, sigma^2), biases 0 (Maciazek and Allison 2025)."""

    sigma: float

    def __post_init__(self) -> None:
        check_fields(self, sigma=at_least(0))

    def _weight(self, name: str, shape: tuple[int, ...], draws: _Draws) -> Tensor:
        return draws.normal(name, shape) * self.sigma


@final
@dataclass(frozen=True)
class TorchDefault(_Seeded):
    """The default initialisation of torch layers: `reset_parameters` of every module that has one.

    torch's generator keeps only 32 bits of a seed: among 100,000 private initialisations expect one equal pair.
    """

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        models = torch.as_tensor(numbers)
        if self.seed is not None:
            return {name: _for_all(value, models) for name, value in self._drawn(net, self.seed).items()}
        starts = [self._drawn(net, seed, number) for number in models.tolist()]
        return {name: torch.stack([start[name] for start in starts]).to(models.device) for name in starts[0]}

    def _drawn(self, net: nn.Module, seed: int, *number: int) -> Params:
        """(...) in float64."""
        fresh = deepcopy(net).cpu().double()
        with torch.random.fork_rng(devices=[]):
            seed_torch(int(generator(seed, "init", *number).integers(2**63)))
            for module in fresh.modules():
                reset = getattr(module, "reset_parameters", getattr(module, "_reset_parameters", None))
                if reset is not None:
                    reset()
        return trainable(fresh)


@final
@dataclass(frozen=True)
class FromNet:
    """The net's current weights (the default), shared by all models and known to the adversary.

    New torch layers have random weights: for reproducible runs, call `torch.manual_seed` before creating them.
    """

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        start, models = trainable(net), torch.as_tensor(numbers)
        cure = "or set an initialisation: init=lw.inits.LeCunNormal()."
        if any(value.is_meta for value in start.values()):
            raise ValueError(f"net: it is on the meta device and has no weights to start from. Load them, {cure}")
        if wrong := [name for name, value in start.items() if not value.isfinite().all()]:
            fault = f"{wrong[0]} holds NaN or infinite numbers"
            raise ValueError(f"net: training starts from the net's weights, but {fault}. Load finite weights, {cure}")
        return {name: _for_all(value.to(torch.float64, copy=True), models) for name, value in start.items()}


@final
@dataclass(frozen=True, repr=False)
class Given:
    """Publicly known weights, such as a published checkpoint: `Given(net.state_dict())`."""

    state: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, net: nn.Module, numbers: Numbers, *, seed: int) -> Params:
        start: Params = {}
        for name, value in trainable(net).items():
            stored = self.state.get(name)
            if stored is None or stored.shape != value.shape:
                got = "nothing" if stored is None else f"shape {tuple(stored.shape)}"
                raise ValueError(f"Given: expected {name} of shape {tuple(value.shape)} in state, got {got}.")
            start[name] = _for_all(stored.detach().double(), torch.as_tensor(numbers))
        return start

    def __repr__(self) -> str:
        return f"Given({len(self.state)} tensors, {fingerprint(*self.state.values())})"
