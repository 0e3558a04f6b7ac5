"""Records of several parts, such as an image and a row of a table, packed into one tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class _Packed(NamedTuple):
    name: str | None  # None: one of a sequence
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Parts:
    """What was packed: `parts(x)` is the dict or tuple again, `parts.taken_by(net)` a net that takes the packed x."""

    every: tuple[_Packed, ...]

    def __call__(self, x: Tensor) -> Any:
        """(n, numbers) -> a dict of parts by name, or a tuple of them; what was True or False is so again."""
        sizes = [math.prod(part.shape) for part in self.every]
        if x.shape[-1] != sum(sizes):
            raise ValueError(f"parts: expected {sum(sizes)} numbers per record, got {x.shape[-1]}.")
        cut = zip(torch.split(x, sizes, dim=-1), self.every, strict=True)
        shaped = [(numbers.reshape(*x.shape[:-1], *part.shape), part) for numbers, part in cut]
        values = [value > 0.5 if part.dtype == torch.bool else value for value, part in shaped]
        if self.every[0].name is None:
            return tuple(values)
        return {part.name: value for part, value in zip(self.every, values, strict=True)}

    def taken_by(self, net: nn.Module) -> nn.Module:
        """A net that takes packed records, for the built-in trainers: they train `net` itself, inside."""
        return _Taking(net, self)


class _Taking(nn.Module):
    def __init__(self, net: nn.Module, parts: Parts) -> None:
        super().__init__()
        self.net, self.parts = net, parts

    def forward(self, x: Tensor) -> Any:
        inputs = self.parts(x)
        return self.net(**inputs) if isinstance(inputs, dict) else self.net(*inputs)


def pack(inputs: Mapping[str, Tensor] | Sequence[Tensor]) -> tuple[Tensor, Parts]:
    """Several inputs of a net, each (n, ...), as one tensor (n, numbers), and the way back.

        x, parts = lw.records.pack({"image": image, "table": table})  # or a tuple: lw.records.pack((image, table))

        def train(net, x, y, seed):
            outputs = net(**parts(x))  # net(*parts(x)) for a tuple

    A record is then rebuilt as a whole. Parts must be floating-point numbers, or True and False.
    """
    if isinstance(inputs, Tensor):
        raise TypeError("pack: expected a dict or a tuple of tensors, got one tensor. A single input needs no packing.")
    named = list(inputs.items()) if isinstance(inputs, Mapping) else [(None, part) for part in inputs]
    if not named:
        raise ValueError("pack: expected at least one part, got none.")
    for name, part in named:
        what = "a part" if name is None else repr(name)
        if not isinstance(part, Tensor) or part.ndim < 1 or len(part) != len(named[0][1]):
            got = tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise TypeError(f"pack: expected tensors with one row per record in each part, got {got} for {what}.")
        if not part.is_floating_point() and part.dtype != torch.bool:
            raise TypeError(
                f"pack: expected floating-point numbers in {what}, got {part.dtype}. Scale pixels to [0, 1]; encode "
                "categories as torch.nn.functional.one_hot(codes).float(). Token numbers cannot be packed "
                "(docs/text.md)."
            )
    dtype = torch.float64 if all(part.dtype in (torch.float64, torch.bool) for _, part in named) else torch.float32
    every = tuple(_Packed(name, tuple(part.shape[1:]), part.dtype) for name, part in named)
    return torch.cat([part.reshape(len(part), -1).to(dtype) for _, part in named], 1), Parts(every)
