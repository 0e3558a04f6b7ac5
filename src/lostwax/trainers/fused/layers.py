"""The layers that the kernels know."""

from __future__ import annotations

from torch import nn

IDENTITY, ELU, RELU, TANH, SIGMOID = range(5)
ACTIVATIONS: dict[type[nn.Module], int] = {
    nn.Identity: IDENTITY,
    nn.ELU: ELU,
    nn.ReLU: RELU,
    nn.Tanh: TANH,
    nn.Sigmoid: SIGMOID,
}


def code(layer: nn.Module) -> int | None:
    """The number of an activation; None for what the kernels do not know."""
    return ACTIVATIONS.get(type(layer)) if getattr(layer, "alpha", 1.0) == 1.0 else None


def flattens(layer: nn.Module) -> bool:
    """Does it make each record one row?"""
    return type(layer) is nn.Flatten and layer.start_dim == 1 and layer.end_dim == -1


def plain(net: nn.Module) -> bool:
    """Is it its layers one after another, and nothing else: no forward of its own, no hook?"""
    return type(net) is nn.Sequential and not any(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks for module in net.modules()
    )
