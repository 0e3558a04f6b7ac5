"""Tiles: the fixed groups in which models are computed.

A matrix product rounds differently at another shape, so that a model's last bits depend on the company it is
trained in. Model i therefore has a fixed place, `i % tile` in tile `i // tile`, whatever else is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.inits import trainable
from lostwax.trainers.stacked import Architecture

Rows = NDArray[np.int64]

_MOST = {"cpu": 256, "cuda": 16_384}  # models in a tile
_BYTES = {"cpu": 32 << 20, "cuda": 4 << 30}  # what a tile works on: about a processor's cache, a small part of a GPU


class Tile(NamedTuple):
    """One computation: which row of the cohort sits in each place, and which places are wanted."""

    rows: Rows
    wanted: Rows

    def taken(self, device: torch.device) -> Tensor:
        """The rows, as an index on the device: neighbours, as they mostly are, are counted there and not copied."""
        first, last = int(self.rows[0]), int(self.rows[-1])
        if (np.diff(self.rows) == 1).all():
            return torch.arange(first, last + 1, device=device)
        return torch.from_numpy(self.rows).to(device)


def tiles(numbers: Sequence[int], size: int) -> Iterator[Tile]:
    """The tiles that hold these models.

    A tile of which more than half is wanted is computed whole, each model in its own place and the empty
    places filled with a copy of the first. Less than that is packed together at just its own size: one victim
    costs one training. So is a number that is asked for several times.
    """
    asked = np.asarray(numbers, dtype=np.int64)
    order = np.argsort(asked, kind="stable")
    tile, place = np.divmod(asked[order], size)
    for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(tile)) + 1):
        rows, places = order[part], place[part]
        if 2 * len(rows) > size and (np.diff(places) > 0).all():
            whole = np.full(size, rows[0])
            whole[places] = rows
            yield Tile(whole, places)
        else:
            for start in range(0, len(rows), size):
                packed = rows[start : start + size]
                yield Tile(packed, np.arange(len(packed)))


def gather(parts: Sequence[tuple[Tile, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """What was computed tile by tile, in the order of the cohort."""
    came = np.concatenate([tile.rows[tile.wanted] for tile, _ in parts])
    order = None if (np.diff(came) > 0).all() else torch.from_numpy(np.argsort(came))
    together: dict[str, Tensor] = {}
    for name in parts[0][1]:
        pieces = [
            values[name] if len(tile.wanted) == len(tile.rows) else values[name][torch.from_numpy(tile.wanted)]
            for tile, values in parts
        ]
        joined = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        together[name] = joined if order is None else joined[order]  # (m, ...)
    return together


def default_size(net: Architecture, record: Tensor, *, records: int, own: int) -> int:
    """The largest power of two whose activations, parameters and own records fit the device's working set.

    `records` is how many a model sees in a step, `own` how many of them it does not share with the others.

    From the sizes alone, never from what is free: a game has the same tiles on every machine of a kind.
    """
    kind = "cpu" if record.device.type == "cpu" else "cuda"
    parameters = sum(value.numel() for value in trainable(net.net).values())
    numbers = records * _activations(net, record) + own * record.numel() + 4 * parameters
    fits = _BYTES[kind] // (numbers * record.element_size())
    return min(_MOST[kind], 1 << max(fits.bit_length() - 1, 0))


def _activations(net: Architecture, record: Tensor) -> int:
    """How many numbers the modules of the net put out for one record."""
    counted = 0

    def count(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal counted
        if isinstance(output, Tensor) and not isinstance(module, nn.Flatten | nn.Unflatten | nn.Identity):
            counted += output.numel()

    leaves = [module for module in net.net.modules() if not any(module.children())]
    hooks = [leaf.register_forward_hook(count) for leaf in leaves]
    try:
        net(net.initial(record), record.unsqueeze(0))
    finally:
        for hook in hooks:
            hook.remove()
    return counted
