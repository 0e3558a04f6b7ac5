"""What the adversary sees of a release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.fields import check_fields
from lostwax.games import Access, AccessFacts, Release
from lostwax.inits import trainable
from lostwax.provenance import fingerprint
from lostwax.trainers.stacked import Architecture

__all__ = ["Layers", "Logits", "Neuron", "Outputs", "Sketch", "Superparameters", "Weights", "neurons"]


@dataclass(frozen=True)
class Weights:
    """White-box access: all parameters, concatenated."""

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, p)."""
        return release.flat()

    def facts(self) -> AccessFacts:
        return AccessFacts(all_weights=True, rows=True)


@dataclass(frozen=True, init=False)
class Layers:
    """The parameters of some modules, or single ones, by name: `Layers("3")`, the last layer of `mlp(64, 10, 10)`."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError("Layers: expected at least one module name. Use Weights() for the whole model.")
        object.__setattr__(self, "names", names)
        check_fields(self)

    def facts(self) -> AccessFacts:
        return AccessFacts(rows=True)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the release, not of the names."""
        for name in self.names:
            if not any(_within(param, name) for param in release.params):
                raise ValueError(
                    f"Layers: the release has no parameter in '{name}'. It publishes {', '.join(release.params)}."
                )
        seen = [value for param, value in release.params.items() if any(_within(param, name) for name in self.names)]
        return torch.cat([value.flatten(1) for value in seen], 1)


def _within(param: str, name: str) -> bool:
    """Whether a parameter has this name or is in the module of this name: "1" holds "1.weight", not "10.weight"."""
    return param == name or param.startswith(f"{name}.")


MODELS_AT_A_TIME = 256


def answers(net: nn.Module, release: Release, inputs: Tensor) -> Tensor:
    """(m, n, c) the outputs of every model for every input."""
    like = next(iter(release.params.values()))
    ours = Architecture.of(net, like.device, like.dtype)
    dtypes = {name: value.dtype for name, value in ours.constants.items()}  # whole numbers are released as floats
    names = dtypes.keys() | dict(ours.net.named_parameters()).keys()  # not what else a net holds
    params = {name: value.to(dtypes.get(name, value.dtype)) for name, value in release.params.items() if name in names}
    asked = inputs.to(like) if inputs.is_floating_point() else inputs.to(like.device)
    outputs: Tensor = torch.func.vmap(ours, in_dims=(0, None), chunk_size=MODELS_AT_A_TIME)(params, asked)
    return outputs.flatten(2) if outputs.ndim > 2 else outputs.unsqueeze(2)


@dataclass(frozen=True, eq=False, repr=False)
class Logits:
    """Black-box access: the outputs on fixed public inputs, `Logits(public.inputs[:200])` (Balle et al. 2022, VI-B)."""

    queries: Tensor  # (q, ...) what the net takes

    def __post_init__(self) -> None:
        check_fields(self)
        if self.queries.ndim < 2 or len(self.queries) == 0 or not self.queries.is_floating_point():
            raise ValueError(
                "Logits: expected floating-point queries of shape (q, ...), one input of the net per row, "
                f"got {self.queries.dtype} of shape {tuple(self.queries.shape)}."
            )

    def facts(self) -> AccessFacts:
        """Whoever asks these queries can ask others."""
        return AccessFacts(answers=True)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, q c)."""
        return answers(net, release, self.queries).flatten(1)

    def __repr__(self) -> str:
        """With a fingerprint of the queries, on which a reconstructor depends."""
        return f"Logits({len(self.queries)} queries, {fingerprint(self.queries)})"


@dataclass(frozen=True)
class Outputs:
    """Black-box access to an estimator that is refitted: its outputs at rows that the adversary has.

    These are predict_proba, where it has that; else decision_function or predict.
    """

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features)."""
        return Layers("outputs")(net, release)

    def facts(self) -> AccessFacts:
        return AccessFacts(outputs=True)


@dataclass(frozen=True, eq=False, repr=False)
class Sketch:
    """Some directions of what another access sees, from an origin: <u, seen - origin> for each row u."""

    access: Access
    origin: Tensor  # (features,) what is seen of one model
    directions: Tensor  # (r, features)

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, r)."""
        return self.reduced(self.access(net, release))

    def reduced(self, seen: Tensor) -> Tensor:
        """(m, features) -> (m, r), in float64 until the end: a record may change the last digits only."""
        far = seen.double() - self.origin.to(seen.device, torch.float64)
        return (far @ self.directions.to(far).mT).to(seen.dtype)

    def along(self, net: nn.Module, release: Release) -> Tensor:
        """(r, p) the gradients of the r numbers, with respect to the weights of the release's one model."""

        def seen(params: dict[str, Tensor]) -> Tensor:
            return self.access(net, Release(params))[0]

        _, pull, *_ = torch.func.vjp(seen, dict(release.params))
        (gradients,) = torch.func.vmap(pull)(self.directions)
        return torch.cat([value.flatten(1) for value in gradients.values()], 1)

    def __repr__(self) -> str:
        """With a fingerprint of the directions, on which a reconstructor depends."""
        return f"Sketch({self.access!r}, {len(self.directions)} directions, {fingerprint(self.directions)})"


LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Neuron(NamedTuple):
    """An output of a layer, or channel of a convolution; its row (superparameter) is its incoming weights and bias."""

    module: str  # as in net.named_modules()
    number: int

    def __str__(self) -> str:
        return f"{self.module}[{self.number}]"


class RowLayer(NamedTuple):
    """A layer whose parameters have one slice per neuron."""

    neurons: int
    params: tuple[str, ...]  # the trainable ones, (neurons, ...) each


def row_layers(net: nn.Module) -> dict[str, RowLayer]:
    """The trainable linear and convolutional layers, by name. Parameters of other layers are in no row."""
    trained, layers = trainable(net), {}
    for module, layer in net.named_modules():
        if isinstance(layer, LAYERS):
            names = (f"{module}.{part}".removeprefix(".") for part in ("weight", "bias"))
            if params := tuple(name for name in names if name in trained):
                layers[module] = RowLayer(len(trained[params[0]]), params)
    return layers


def neurons(net: nn.Module) -> tuple[Neuron, ...]:
    """All neurons that have a row, layer by layer."""
    return tuple(Neuron(module, n) for module, layer in row_layers(net).items() for n in range(layer.neurons))


@dataclass(frozen=True)
class Superparameters:
    """The rows of some neurons, concatenated: `Superparameters((Neuron("1", 0), Neuron("1", 7)))`."""

    rows: tuple[Neuron, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rows:
            raise ValueError("Superparameters: expected at least one neuron, got none.")

    def facts(self) -> AccessFacts:
        return AccessFacts(rows=True)

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the net, not of `rows`."""
        layers, present, asked = row_layers(net), neurons(net), set(self.rows)
        if missing := asked.difference(present):
            rows = ", ".join(f"{module}[0] to {module}[{layer.neurons - 1}]" for module, layer in layers.items())
            raise ValueError(
                f"Superparameters: the net has no row {min(missing)}. Its trainable rows are {rows or 'none'}."
            )
        wanted = [row for row in present if row in asked]
        seen = [release.params[name][:, row.number] for row in wanted for name in layers[row.module].params]
        return torch.cat([part.reshape(len(release), -1) for part in seen], 1)
