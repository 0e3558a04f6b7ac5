"""Victim architectures; any other `nn.Module` works as well."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lostwax.fields import check_sizes, is_number, shown

__all__ = ["ShortFeatures", "cnn", "lora", "mlp"]


def linear_layer(net: nn.Module) -> nn.Linear | None:
    """The net's only layer, if the net is an nn.Linear, possibly after an nn.Flatten; else None."""
    layers = [net] if not isinstance(net, nn.Sequential) else [part for part in net if not isinstance(part, nn.Flatten)]
    return layers[0] if len(layers) == 1 and isinstance(layers[0], nn.Linear) else None


class ShortFeatures(nn.Module):
    """Features whose norm is above `norm` are scaled down to it: `Sequential(ShortFeatures(1.0), Linear(d, c))`.

    It bounds what one record adds to a gradient without clipping that, so that the loss stays convex in the weights.
    """

    def __init__(self, norm: float = 1.0) -> None:
        super().__init__()
        if not is_number(norm, whole=False) or not 0 < norm < math.inf:
            raise ValueError(f"ShortFeatures: expected norm to be a number > 0, got {shown(norm)}.")
        self.norm = float(norm)

    def forward(self, x: Tensor) -> Tensor:
        """(n, ...) -> (n, d)."""
        flat = x.flatten(1)
        longest = self.norm * (1 - 4 * torch.finfo(flat.dtype).eps)  # which rounding does not take above the norm
        factor: Tensor = (longest / flat.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp_max(1)
        return flat * factor

    def extra_repr(self) -> str:
        """The norm."""
        return f"{self.norm:g}"


def trained_head(net: nn.Module) -> tuple[nn.Linear, float | None]:
    """The linear layer at the end of a net of which nothing else is trained, and the norm its features are cut to."""
    layers = list(net) if type(net) is nn.Sequential else [net]
    head = layers[-1] if layers else net
    otherwise = "or leave out released: the ceiling of all steps holds."
    if type(head) is not nn.Linear:
        raise ValueError(
            f"last_weights: the last layer is {type(head).__name__}, and convexity in the weights is known for an "
            f"nn.Linear alone. End a plain nn.Sequential with one, {otherwise}"
        )
    for place, layer in enumerate(layers[:-1]):  # layer by layer: one may share the head's weights
        for name in (name for name, value in layer.named_parameters() if value.requires_grad):
            raise ValueError(
                f"last_weights: {place}.{name} is trained too, a hidden layer, so the loss is not convex in the "
                f"weights. Freeze all layers before the last, {otherwise}"
            )
    if any(part._forward_hooks or part._forward_pre_hooks for part in (net, *layers[-2:])):  # such as weight_norm's
        raise ValueError(f"last_weights: a hook changes what the last layer computes. Remove it, {otherwise}")
    shortened = layers[-2] if len(layers) > 1 else None
    return head, shortened.norm if type(shortened) is ShortFeatures else None


def check_values(source: str, net: nn.Module) -> None:
    """Raise a ValueError if weights or buffers have no shape yet, or no values."""
    weights = [*net.named_parameters(), *net.named_buffers()]
    if lazy := [name for name, value in weights if is_lazy(value)]:
        raise ValueError(
            f"{source}: {lazy[0]} of the net has no shape yet, as in nn.LazyLinear. Call the net on a batch first."
        )
    if empty := [name for name, value in weights if value.is_meta]:
        raise ValueError(
            f"{source}: {empty[0]} of the net has no values: it is on the device meta. Load its weights first."
        )


def mlp(*sizes: int, activation: Callable[[], nn.Module] = nn.ELU) -> nn.Sequential:
    """A fully connected net: `mlp(784, 10, 10)` is the released model of Balle et al. 2022, Table V."""
    check_sizes("mlp", **{f"size {number}": size for number, size in enumerate(sizes, 1)})
    if len(sizes) < 2:
        raise ValueError(f"mlp: expected two sizes or more, each at least 1, got {sizes}.")
    first, *later = (nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes))
    layers: list[nn.Module] = [nn.Flatten(), first]
    for linear in later:
        layers += [activation(), linear]
    return nn.Sequential(*layers)


Activation = Callable[[], nn.Module]


def cnn(
    shape: tuple[int, int, int] = (3, 32, 32), classes: int = 10, *, hidden: int = 10, activation: Activation = nn.ELU
) -> nn.Sequential:
    """A convolutional net for images (channels, height, width): the CIFAR-10 model of Balle et al. 2022, Table VI.

    Without padding, which the paper does not mention, it has 55,208 parameters, the 50K of section VI-B.
    """
    if not isinstance(shape, tuple | list) or len(shape) != 3:
        raise ValueError(f"cnn: expected shape to be (channels, height, width), got {shown(shape)}.")
    channels, height, width = shape
    check_sizes("cnn", channels=channels, height=height, width=width, classes=classes, hidden=hidden)
    if min(height, width) < 10:  # 10 -> 4 -> 1
        raise ValueError(f"cnn: expected images of at least 10 x 10, got {height} x {width}. Use nets.mlp.")
    rows, columns = ((side - 4) // 2 + 1 - 3 for side in (height, width))  # what the two convolutions leave
    return nn.Sequential(
        *(nn.Conv2d(channels, 16, 4, stride=2), activation(), nn.Conv2d(16, 32, 4), activation()),
        *(nn.Flatten(), nn.Linear(32 * rows * columns, hidden), activation(), nn.Linear(hidden, classes)),
    )


def lora(net: nn.Module, rank: int, *, seed: int = 0) -> nn.Module:
    """A copy with adapters of low rank on every linear layer but the last; all else is frozen (Hu et al. 2022).

    As PEFT's `target_modules="all-linear"` with lora_alpha = r: A starts at a public draw, B at zero, and only they are
    trained. Layers of a special kind, as inside nn.MultiheadAttention, are left as they are.
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"lora: expected a torch nn.Module, got {shown(net)}.")
    check_values("lora", net)
    check_sizes("lora", rank=rank)
    if not is_number(seed, whole=True) or not 0 <= seed < 1 << 63:
        raise ValueError(f"lora: expected seed to be a whole number, 0 or more, got {shown(seed)}.")
    ours = deepcopy(net).requires_grad_(False)
    names = [name for name, module in ours.named_modules() if type(module) is nn.Linear][:-1]
    if not names:
        raise ValueError("lora: expected a net with two linear layers or more.")
    draw = torch.Generator().manual_seed(int(seed))
    for name in names:
        ours.set_submodule(name, _Adapted(ours.get_submodule(name), rank, draw))
    return ours


class _Adapted(nn.Module):
    """A frozen linear layer and its adapter:  W x + b + B A x."""

    def __init__(self, layer: nn.Module, rank: int, draw: torch.Generator) -> None:
        super().__init__()
        self.layer, like = layer, layer.get_parameter("weight")
        outputs, inputs = like.shape
        self.a = nn.Parameter((torch.randn(rank, inputs, generator=draw) / inputs**0.5).to(like))
        self.b = nn.Parameter(like.new_zeros(outputs, rank))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        changed: Tensor = self.layer(x) + nn.functional.linear(nn.functional.linear(x, self.a), self.b)
        return changed
