"""Nets inside wrappers, whose weights have other names: DataParallel, torch.compile, Opacus."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

WRAPPERS = {  # the class that wraps a net, and the attribute that holds it
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "OptimizedModule": "_orig_mod",
    "GradSampleModule": "_module",
}


def unwrapped(net: nn.Module) -> nn.Module:
    """The net inside DataParallel, torch.compile or Opacus' GradSampleModule."""
    while isinstance(inside := getattr(net, WRAPPERS.get(type(net).__name__, ""), None), nn.Module):
        net = inside
    return net


def without_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state_dict with the names of the net inside, where all names begin with that of a wrapper."""
    names, prefixes = dict(state), [f"{one}." for one in WRAPPERS.values()]
    while names and (shared := [one for one in prefixes if all(str(name).startswith(one) for name in names)]):
        names = {name.removeprefix(shared[0]): value for name, value in names.items()}
    return names
