"""Gradients of m stacked models, on shared records and on each model's own; and gradients of single records.

Models are an axis of the parameters, over which `torch.func.vmap` maps one model's code; chains of linear layers and
activations go without it, layer by layer. Shared records are never copied: a linear layer on them is one matrix product
for all models, forward and backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lostwax import philox
from lostwax.games import Loss
from lostwax.inits import trainable
from lostwax.seeds import key

Params = dict[str, Tensor]
Part = tuple[Tensor, Tensor]  # inputs and labels of some records
Shapes = Mapping[str, Sequence[int]]  # of one model's parameters


def flat(params: Mapping[str, Tensor]) -> Tensor:
    """(m, p)."""
    return torch.cat([value.flatten(1) for value in params.values()], 1)


def shapes_of(params: Mapping[str, Tensor]) -> Shapes:
    """Of stacked parameters (m, ...)."""
    return {name: value.shape[1:] for name, value in params.items()}


def shaped(values: Tensor, shapes: Shapes) -> Params:
    """(m, p) -> (m, ...), the inverse of `flat`."""
    parts = torch.split(values, [math.prod(shape) for shape in shapes.values()], 1)
    return {name: part.reshape(-1, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def batch_norms(net: nn.Module) -> bool:
    """Whether a record's outputs depend on the others of its batch."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return any(isinstance(part, kinds) for part in net.modules())


def device_kind(like: Tensor) -> str:
    """The kind of device, by which sizes are chosen."""
    return "cpu" if like.device.type == "cpu" else "cuda"


class Batch(NamedTuple):
    """The records of one step."""

    shared: tuple[Part, ...]  # (b, ...) the same for every model; one part, or none if empty
    own: tuple[Part, ...]  # (m, b, ...) each model's own; likewise, or several with sampling
    masks: tuple[Params, ...] = ()  # (m, b, ...) what dropout keeps, of each part; none without dropout

    @property
    def sizes(self) -> list[int]:
        """The number of records per model in each part."""
        return [int(y.shape[0]) for _, y in self.shared] + [int(y.shape[1]) for _, y in self.own]

    @property
    def size(self) -> int:
        return sum(self.sizes)


@dataclass(frozen=True)
class Architecture:
    """A net as a function of its trainable parameters."""

    net: nn.Module
    constants: Params  # frozen parameters and buffers, the same for every model
    dtype: torch.dtype | None = None  # of the parameters; None: that of the inputs

    @classmethod
    def of(cls, net: nn.Module, device: torch.device, dtype: torch.dtype) -> Architecture:
        """A copy in training mode, with its constants on the device; the user's net is not changed.

        In-place layers (`nn.ReLU(inplace=True)`) are replaced: torch cannot differentiate a layer that overwrites its
        input, and the first layer would overwrite the records. Dropout is replaced too, and drops nothing without a
        mask.
        """
        ours = deepcopy(net).train()
        every = ours.named_modules(remove_duplicate=False)
        dropouts = {name: module for name, module in every if type(module) is nn.Dropout and module.p > 0}
        thinnings = {id(module): Thinning(module.p) for module in dropouts.values()}  # several names: still one
        for name, module in dropouts.items():
            ours.set_submodule(name, thinnings[id(module)])
        for part in ours.modules():
            if getattr(part, "inplace", False) is True:
                part.inplace = False  # type: ignore[assignment]  # torch declares every attribute a tensor or a module
        frozen = {name: value for name, value in ours.named_parameters() if not value.requires_grad}
        constants = {**frozen, **dict(ours.named_buffers())}
        return cls(ours, {name: _cast(value, device, dtype) for name, value in constants.items()}, dtype)

    def initial(self, inputs: Tensor) -> Params:
        """The net's current parameters, on the device of the inputs."""
        return self.beside(inputs, trainable(self.net))

    def beside(self, inputs: Tensor, params: Params) -> Params:
        """Parameters on the device of the inputs, in their dtype; token numbers do not state it."""
        dtype = inputs.dtype if inputs.is_floating_point() else self.dtype
        return {name: _cast(value, inputs.device, dtype or value.dtype) for name, value in params.items()}

    @property
    def layers(self) -> tuple[tuple[str, nn.Module], ...]:
        """The layers of an nn.Sequential, or the net as its only one, each with the prefix of its parameters ("0.").

        None with hooks or tied parameters: they are more than their layers.
        """
        modules = self.net.modules()
        hooked = any(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks for part in modules)
        return () if hooked else self._untied_layers

    @cached_property
    def _untied_layers(self) -> tuple[tuple[str, nn.Module], ...]:
        every = self.net._modules.items() if type(self.net) is nn.Sequential else ()  # with those that occur twice
        layers = [(f"{name}.", part) for name, part in every if part is not None] or [("", self.net)]
        names = [name for name, _ in self.net.named_parameters(remove_duplicate=False)]
        return tuple(layers) if len(names) == len(list(self.net.parameters())) else ()

    def outputs_of(self, modules: Iterable[nn.Module], x: Tensor) -> list[tuple[nn.Module, Any]]:
        """What these modules return when the net runs on x, each time that one is called."""
        outputs: list[tuple[nn.Module, Any]] = []
        hooks = [part.register_forward_hook(lambda part, _, out: outputs.append((part, out))) for part in modules]
        try:
            self(self.initial(x), x)
        finally:
            for hook in hooks:
                hook.remove()
        return outputs

    def __call__(self, params: Params, x: Tensor) -> Tensor:
        answer: Any = torch.func.functional_call(self.net, {**self.constants, **params}, (x,))
        outputs: Tensor = getattr(answer, "logits", answer)  # of transformers: a ModelOutput
        return outputs


# The gradient (m, ...) of each model's mean loss over its batch.
Gradient = Callable[[Architecture, Loss, Params, Batch], Params]


def _cast(value: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return value.detach().to(device, dtype if value.is_floating_point() else value.dtype)


def gradient(net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
    """The gradient of each model's mean loss over its batch, (m, ...)."""
    chain = _Chain.of(net, params, batch)
    return gradient_by_vmap(net, loss, params, batch) if chain is None else chain.gradient(loss, params, batch)


def gradient_by_vmap(net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
    """The same, of any net."""
    mixing = batch_norms(net.net)

    def of_one_model(
        params: Params, shared: tuple[Part, ...], own: tuple[Part, ...], masks: tuple[Params, ...]
    ) -> Params:
        parts = shared + own
        if mixing and len(parts) > 1:  # one batch
            parts = ((torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])),)
            masks = tuple({name: torch.cat([mask[name] for mask in masks]) for name in each} for each in masks[:1])
        inputs = [(x, mask) for (x, _), mask in zip(parts, masks or ({},) * len(parts), strict=True)]

        def outputs_of(params: Params) -> tuple[Tensor, ...]:
            with _RecordsLast():
                return tuple(net({**params, **mask}, x) for x, mask in inputs)  # (n, c) each

        outputs, pull, *_ = torch.func.vjp(outputs_of, params)
        residuals = tuple(loss.residual(out, y) / batch.size for out, (_, y) in zip(outputs, parts, strict=True))
        (gradient,) = pull(residuals)  # J^T residual / n
        return dict(gradient)

    stacked: Callable[..., Params] = torch.func.vmap(of_one_model, in_dims=(0, None, 0, 0))
    return stacked(params, batch.shared, batch.own, batch.masks)


class _RecordsLast(TorchFunctionMode):
    """Computes `linear` as (W X^T)^T, so that records are last in memory.

    Under vmap, m matrices W (h, d) and one X (n, d) then become a single product (m h, d) (d, n) with the result
    (m, h, n); likewise the gradient becomes (m h, n) (n, d). torch's own rule would copy the result to (m, n, h).
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear and args and args[0].ndim >= 2:
            func = linear
        return func(*args, **(kwargs or {}))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b of one model, with the records last in memory."""
    out = weight @ x.flatten(0, -2).mT  # (h, n)
    if bias is not None:
        out = out + bias.unsqueeze(-1)
    return out.mT.reshape(*x.shape[:-1], -1)  # (..., h)


# The layers that the fused kernels support.
IDENTITY, ELU, RELU, TANH, SIGMOID = range(5)
ACTIVATIONS: dict[type[nn.Module], int] = {nn.Identity: IDENTITY, nn.ELU: ELU, nn.ReLU: RELU}
ACTIVATIONS |= {nn.Tanh: TANH, nn.Sigmoid: SIGMOID}


def code(layer: nn.Module) -> int | None:
    """The number of an activation; None if the kernels do not support it."""
    return ACTIVATIONS.get(type(layer)) if getattr(layer, "alpha", 1.0) == 1.0 else None


def flattens(layer: nn.Module) -> bool:
    """Whether it flattens each record to one row."""
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def is_plain_convolution(layer: nn.Module) -> bool:
    """Whether it is a convolution of all channels, over zeros where it reaches outside."""
    return (
        type(layer) is nn.Conv2d
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
    )


class _Activation(NamedTuple):
    """An activation and its derivative, as torch computes them."""

    apply: Callable[[Tensor], Tensor]
    pull: Callable[[Tensor, Tensor, Tensor], Tensor]  # of d loss / d output, input and output


_aten: Any = torch.ops.aten
_BY_CODE = {  # those of ACTIVATIONS
    IDENTITY: _Activation(lambda x: x, lambda back, x, out: back),
    ELU: _Activation(nn.functional.elu, lambda back, x, out: _aten.elu_backward(back, 1.0, 1.0, 1.0, False, x)),
    RELU: _Activation(torch.relu, lambda back, x, out: _aten.threshold_backward(back, out, 0)),
    TANH: _Activation(torch.tanh, lambda back, x, out: _aten.tanh_backward(back, out)),
    SIGMOID: _Activation(torch.sigmoid, lambda back, x, out: _aten.sigmoid_backward(back, out)),
}


class _Chain(NamedTuple):
    """Linear layers and activations one after the other: the operations that vmap runs, without its overhead."""

    layers: tuple[str | _Activation, ...]  # a linear layer by the prefix of its parameters

    @classmethod
    def of(cls, net: Architecture, params: Params, batch: Batch) -> _Chain | None:
        """None for other nets, frozen or tied parameters, dropout, and own records in several parts."""
        if net.constants or batch.masks or len(batch.own) > 1:
            return None
        flattened, layers, trained = False, list[str | _Activation](), list[str]()
        for prefix, layer in net.layers:
            if type(layer) is nn.Linear:
                layers.append(prefix)
                trained += [prefix + part for part, _ in layer.named_parameters()]
            elif (number := code(layer)) is not None:
                layers.append(_BY_CODE[number])
            elif flattens(layer) and not layers:
                flattened = True
            else:
                return None
        seen = [x for x, _ in batch.shared] + [x[0] for x, _ in batch.own]  # (b, ...) by one model
        usual = all(x.is_floating_point() and (flattened or x.ndim == 2) for x in seen)
        return cls(tuple(layers)) if usual and trained and trained == list(params) else None

    def gradient(self, loss: Loss, params: Params, batch: Batch) -> Params:
        """J^T residual / n, from the last layer to the first; records are last in memory throughout."""
        slopes: Params = {}
        for (x, y), axis in [(part, None) for part in batch.shared] + [(part, 0) for part in batch.own]:
            states = [x.flatten(1 if axis is None else 2).mT]  # (d, n) shared, (m, d, n) own
            for layer in self.layers:
                if isinstance(layer, str):
                    out = params[layer + "weight"] @ states[-1]
                    out = out + params[layer + "bias"].unsqueeze(-1) if layer + "bias" in params else out
                else:
                    out = layer.apply(states[-1])
                states.append(out)  # (m, h, n)
            residual = torch.func.vmap(loss.residual, in_dims=(0, axis))(states[-1].mT, y)  # (m, n, c)
            back = (residual / batch.size).mT
            for place, layer in reversed(list(enumerate(self.layers))):
                before, after = states[place : place + 2]
                if not isinstance(layer, str):
                    back = layer.pull(back, before, after)
                    continue
                for name, slope in ((layer + "weight", back @ before.mT), (layer + "bias", back.sum(-1))):
                    if name in params:
                        slopes[name] = slopes[name] + slope if name in slopes else slope
                if place:
                    back = params[layer + "weight"].mT @ back
        return {name: slopes[name] for name in params}


# Gradients of single records.
#
# By definition one backward pass per record, which `torch.func.vmap` batches for any net. For layers in a row, one
# backward pass serves all records: with a_i a layer's input and d_i = d loss_i / d output, the gradient of record i is
#
#     d_i a_i^T                 of a linear layer's weights,
#     sum_s d_is w_is^T         of a convolution's, w_is the window of a_i at position s,
#
# and d_i, summed over positions, of its bias. vmap computes the second as a grouped convolution, a group per record,
# which is slow. The windows are a view with repeated strides, so that one copy and one batched product serve all
# records (`torch.nn.functional.unfold` copies record by record on a GPU).

WINDOW_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # at a time: about a cache, and 1 GiB in double precision
POOLING = (nn.MaxPool2d, nn.AvgPool2d)
DIMENSIONS: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv2d: 4}  # of the inputs of layers with parameters


def record_gradient(net: Architecture, loss: Loss, params: Params, x: Tensor, y: Tensor) -> Params:
    """(...) of one model and one record, for any net."""
    outputs, pull, *_ = torch.func.vjp(lambda params: net(params, x.unsqueeze(0)), params)
    (gradient,) = pull(loss.residual(outputs, y.unsqueeze(0)))
    return dict(gradient)


def record_gradients(net: Architecture, loss: Loss, params: Params, records: Part, *, own: bool = True) -> Params:
    """(m, b, ...) of m stacked models, for any net; `own` records are (m, b, ...), shared ones (b, ...)."""

    def of_one_record(params: Params, x: Tensor, y: Tensor) -> Params:
        return record_gradient(net, loss, params, x, y)

    of_one_model = torch.func.vmap(of_one_record, in_dims=(None, 0, 0))
    side = 0 if own else None
    gradients: Params = torch.func.vmap(of_one_model, in_dims=(0, side, side))(params, *records)
    return gradients


def layered_gradients(net: Architecture, loss: Loss, params: Params, records: Part) -> Params | None:
    """(b, ...) of one model, its params (1, ...), on records (b, ...); None unless it is layers in a row."""
    layers, (x, y) = net.layers, records
    if type(net.net) is not nn.Sequential or not (layers and params and all(_is_supported(part) for _, part in layers)):
        return None
    values = {**net.constants, **{name: value[0] for name, value in params.items()}}
    passed: list[tuple[str, nn.Module, Tensor, Callable[[Tensor], tuple[Tensor]]]] = []  # with inputs and transposes
    for prefix, layer in layers:
        if x.ndim != DIMENSIONS.get(type(layer), x.ndim):
            return None
        inside = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
        before = x
        x, pull, *_ = torch.func.vjp(partial(torch.func.functional_call, layer, inside), before)
        passed.append((prefix, layer, before, pull))
    slope, gradients = loss.residual(x, y), Params()  # d loss / d outputs of the last layer, and then of those below
    for prefix, layer, before, pull in reversed(passed):
        if type(layer) is nn.Conv2d:
            by_position = slope.flatten(2)  # (b, outputs, positions)
            gradients[f"{prefix}weight"] = _window_sums(layer, before, by_position)
            gradients[f"{prefix}bias"] = by_position.sum(2)
        elif type(layer) is nn.Linear:
            gradients[f"{prefix}weight"] = slope.unsqueeze(2) * before.unsqueeze(1)
            gradients[f"{prefix}bias"] = slope
        if params.keys() <= gradients.keys():
            return {name: gradients[name] for name in params}
        (slope,) = pull(slope)
    return None


def _is_supported(layer: nn.Module) -> bool:
    """Whether it maps records one by one and has a known gradient."""
    known = code(layer) is not None or flattens(layer) or type(layer) in (nn.Linear, *POOLING)
    return known or is_plain_convolution(layer)


def _window_sums(module: nn.Conv2d, before: Tensor, slope: Tensor) -> Tensor:
    """(b, outputs, channels, rows, columns) sum over positions of slope (b, outputs, positions) times window."""
    down, across = (int(pad) for pad in module.padding)
    windows = nn.functional.pad(before, (across, across, down, down))
    for axis, size, dilation, stride in zip((2, 3), module.kernel_size, module.dilation, module.stride, strict=True):
        windows = windows.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
    windows = windows.permute(0, 1, 4, 5, 2, 3)  # (b, channels, rows, columns, positions down, across), a view
    taps, numbers = module.weight[0].numel(), WINDOW_NUMBERS[device_kind(before)]
    some = max(1, numbers // (taps * slope.shape[2]))  # records at a time, whose windows are copied
    parts = zip(torch.split(windows, some), torch.split(slope, some), strict=True)
    sums = [push @ seen.reshape(len(seen), taps, -1).mT for seen, push in parts]
    return torch.cat(sums).view(len(slope), *module.weight.shape)


# Dropout: draws that are an input, private to each model.
#
# torch's generator would give a model other draws in another tile. Here every draw depends on the seed, the step, the
# layer and the model's number alone. They are not those of torch's nn.Dropout for any seed, but have the same law.


def drops(net: nn.Module) -> bool:
    """Whether training draws what is dropped."""
    return any(isinstance(module, nn.Dropout | Thinning) and module.p > 0 for module in net.modules())


class Thinning(nn.Module):
    """In place of nn.Dropout: multiplies by its mask, which is 1 unless a training step brings another."""

    mask: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


class Masks(NamedTuple):
    """What a net drops: the shape of one record at each layer, and the chance, by the name of the layer."""

    layers: Mapping[str, tuple[tuple[int, ...], float]]

    @classmethod
    def of(cls, net: Architecture, x: Tensor) -> Masks:
        """Of a net that takes records like x (n, ...); raises ValueError where a layer's draws have no place."""
        thinned = {module: name for name, module in net.net.named_modules() if isinstance(module, Thinning)}
        outputs = net.outputs_of(thinned, x) if thinned else []
        layers: dict[str, tuple[tuple[int, ...], float]] = {}
        for layer, name in thinned.items():
            shapes = [tuple(out.shape) for module, out in outputs if module is layer]
            if len(shapes) > 1:
                raise ValueError(
                    f"net: module '{name}' (Dropout) is applied {len(shapes)} times in one pass. Give each place its "
                    "own nn.Dropout, or use lw.OwnTraining(train)."
                )
            if shapes and shapes[0][:1] != (len(x),):
                raise ValueError(
                    f"net: module '{name}' (Dropout) is given {shapes[0]} for {len(x)} records. Keep records as the "
                    "first axis, or use lw.OwnTraining(train)."
                )
            if shapes:
                layers[name] = (shapes[0][1:], layer.p)
        return cls(layers)

    def drawn(self, models: Tensor, size: int, like: Tensor, *, seed: int, step: int) -> Params:
        """(m, size, ...) of each layer: 1 / (1 - p) with probability 1 - p, else 0."""
        masks = {}
        for number, (name, (shape, p)) in enumerate(self.layers.items()):
            of_step = key(seed, "dropout", step, number)
            mask = philox.happens(of_step, models, size * math.prod(shape), 1 - p)  # (m, count)
            masks[f"{name}.mask"] = mask.view(len(models), size, *shape).to(like) / (1 - p)
        return masks
