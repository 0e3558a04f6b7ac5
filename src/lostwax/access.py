"""What of a release the adversary sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.fields import check_fields
from lostwax.games import AccessFacts, Release
from lostwax.inits import trainable
from lostwax.provenance import fingerprint
from lostwax.trainers.stacked import Architecture

__all__ = ["Layers", "Logits", "Neuron", "Superparameters", "Weights", "neurons"]


# White-box access: every parameter of the released model.


@dataclass(frozen=True)
class Weights:
    """All parameters side by side."""

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, p)."""
        return release.flat()

    def facts(self) -> AccessFacts:
        """Every weight."""
        return AccessFacts(all_weights=True, rows=True)


# White-box access to a part of the released model.


@dataclass(frozen=True, init=False)
class Layers:
    """The parameters of some modules, side by side: `Layers("3")` is the last layer of `mlp(64, 10, 10)`.

    A name is a module's, as in `net.named_modules()`, or a single parameter's, as in `net.named_parameters()`.
    """

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError("Layers: expected at least one module's name. Use Weights() to see all of the model.")
        object.__setattr__(self, "names", names)
        check_fields(self)

    def facts(self) -> AccessFacts:
        """Some of the weights."""
        return AccessFacts(rows=True)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the release whatever the order of the names."""
        for name in self.names:
            if not any(_within(param, name) for param in release.params):
                raise ValueError(
                    f"Layers: no parameter of the release lies in '{name}'. It publishes {', '.join(release.params)}."
                )
        seen = [value for param, value in release.params.items() if any(_within(param, name) for name in self.names)]
        return torch.cat([value.flatten(1) for value in seen], 1)


def _within(param: str, name: str) -> bool:
    """Whether a parameter is the named one, or of the named module: "1" holds "1.weight", but not "10.weight"."""
    return param == name or param.startswith(f"{name}.")


# Black-box access: what the released model answers.


MODELS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False, repr=False)
class Logits:
    """The model's outputs on fixed public inputs, side by side: `Logits(public.inputs[:200])`.

    The queries are chosen before the model is seen, and are the same for every model (S1 section VI-B).
    """

    queries: Tensor  # (q, ...) what the net takes

    def __post_init__(self) -> None:
        check_fields(self)
        if self.queries.ndim < 2 or len(self.queries) == 0 or not self.queries.is_floating_point():
            raise ValueError(
                "Logits: expected queries of shape (q, ...), one floating-point input of the net a row, "
                f"got {self.queries.dtype} of shape {tuple(self.queries.shape)}."
            )

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, q c)."""
        like = next(iter(release.params.values()))
        ours = Architecture.of(net, like.device, like.dtype)
        answer = torch.func.vmap(ours, in_dims=(0, None), chunk_size=MODELS_AT_A_TIME)
        with torch.no_grad():
            outputs: Tensor = answer(dict(release.params), self.queries.to(like))  # (m, q, c)
        return outputs.flatten(1)

    def __repr__(self) -> str:
        """By the queries' fingerprint: a reconstructor belongs to its very queries."""
        return f"Logits({len(self.queries)} queries, {fingerprint(self.queries)})"


# White-box access to some neurons of the released model.


LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Neuron(NamedTuple):
    """An output of a layer, or a channel of a convolution. Its incoming weights and bias are a row, or superparameter.

    S4 section 5.1: training stores a record by rows, a scaled copy of the layer's input in each.
    """

    module: str  # as in net.named_modules()
    number: int

    def __str__(self) -> str:
        return f"{self.module}[{self.number}]"


class RowLayer(NamedTuple):
    """A layer whose parameters have one slice a neuron."""

    neurons: int
    params: tuple[str, ...]  # those that are trained, (neurons, ...) each


def row_layers(net: nn.Module) -> dict[str, RowLayer]:
    """The linear and convolutional layers that are trained, by name. What other layers train lies in no row."""
    trained, found = trainable(net), {}
    for module, layer in net.named_modules():
        if isinstance(layer, LAYERS):
            names = (f"{module}.{part}".removeprefix(".") for part in ("weight", "bias"))
            if params := tuple(name for name in names if name in trained):
                found[module] = RowLayer(len(trained[params[0]]), params)
    return found


def neurons(net: nn.Module) -> tuple[Neuron, ...]:
    """All that have a row, layer by layer."""
    return tuple(Neuron(module, n) for module, layer in row_layers(net).items() for n in range(layer.neurons))


@dataclass(frozen=True)
class Superparameters:
    """The rows of some neurons, side by side: `Superparameters((Neuron("1", 0), Neuron("1", 7)))`."""

    rows: tuple[Neuron, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rows:
            raise ValueError("Superparameters: expected rows of at least one neuron, got none.")

    def facts(self) -> AccessFacts:
        """Some of the weights."""
        return AccessFacts(rows=True)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the net whatever the order of the rows."""
        layers, wanted = row_layers(net), set(self.rows)
        for row in self.rows:
            _check(row, layers)
        seen = [
            release.params[name][:, row.number].reshape(len(release), -1)
            for row in neurons(net)
            if row in wanted
            for name in layers[row.module].params
        ]
        return torch.cat(seen, 1)


def _check(row: Neuron, layers: Mapping[str, RowLayer]) -> None:
    layer = layers.get(row.module)
    if layer is None or not 0 <= row.number < layer.neurons:
        there = ", ".join(f"{module}[0] to {module}[{each.neurons - 1}]" for module, each in layers.items())
        raise ValueError(f"Superparameters: the net has no row {row}. Of rows it trains {there or 'none'}.")
