"""Dropout in stacked nets: draws that are an input, private to each model.

torch's generator would give a model other draws in another tile. Here every draw depends on the seed, the step, the
layer and the model's number alone. They are not those of torch's nn.Dropout for any seed, but have the same law.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax import philox
from lostwax.seeds import key


def drops(net: nn.Module) -> bool:
    """Whether training draws what is dropped."""
    return any(isinstance(module, nn.Dropout | Thinning) and module.p > 0 for module in net.modules())


class Thinning(nn.Module):
    """In place of nn.Dropout: multiplies by `kept`, which is 1 unless a training step brings its mask."""

    kept: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("kept", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """(n, ...), the same."""
        return x * self.kept


def thin(net: nn.Module) -> None:
    """Replace every nn.Dropout of a net, in place; one that has several names stays one."""
    dropouts = [
        (name, module)
        for name, module in net.named_modules(remove_duplicate=False)
        if type(module) is nn.Dropout and module.p > 0
    ]
    ours = {id(module): Thinning(module.p) for _, module in dropouts}
    for name, module in dropouts:
        net.set_submodule(name, ours[id(module)])


class Masks(NamedTuple):
    """What the layers of a net drop: the shape of one record there, and the chance, by the name of the layer."""

    shapes: Mapping[str, tuple[int, ...]]
    chances: Mapping[str, float]

    @classmethod
    def of(cls, net: nn.Module, run: Callable[[], object], records: int) -> Masks:
        """Of a net that `run` applies to some records; raises ValueError where a layer's draws have no place."""
        layers = {name: module for name, module in net.named_modules() if isinstance(module, Thinning)}
        seen: dict[str, list[tuple[int, ...]]] = {name: [] for name in layers}
        hooks = [
            module.register_forward_hook(lambda _, inputs, out, name=name: seen[name].append(tuple(out.shape)))
            for name, module in layers.items()
        ]
        try:
            if layers:
                run()
        finally:
            for hook in hooks:
                hook.remove()
        for name, shapes in seen.items():
            if len(shapes) > 1:
                raise ValueError(
                    f"net: module '{name}' (Dropout) is applied {len(shapes)} times in one pass. Give each place its "
                    "own nn.Dropout, or use lw.OwnTraining(train)."
                )
            if shapes and shapes[0][:1] != (records,):
                raise ValueError(
                    f"net: module '{name}' (Dropout) is given {shapes[0]} for {records} records. Keep records as the "
                    "first axis, or use lw.OwnTraining(train)."
                )
        used = {name: shapes[0][1:] for name, shapes in seen.items() if shapes}
        return cls(used, {name: layers[name].p for name in used})

    def drawn(self, models: Tensor, size: int, like: Tensor, *, seed: int, step: int) -> dict[str, Tensor]:
        """(m, size, ...) of each layer: 1 / (1 - p) with probability 1 - p, else 0."""
        masks = {}
        for layer, (name, shape) in enumerate(self.shapes.items()):
            keep, of_step = 1 - self.chances[name], key(seed, "dropout", step, layer)
            mask = philox.happens(of_step, models, size * math.prod(shape), keep)  # (m, 1, count)
            masks[f"{name}.kept"] = mask.view(len(models), size, *shape).to(like) / keep
        return masks
