"""Shadow models trained on this machine, one chunk after another."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass, replace
from typing import NamedTuple, final

import torch
from torch import nn

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Records, Release, Threat, Trainer
from lostwax.shadows.game import Game, together


@final
@dataclass(frozen=True)
class Local:
    """Train models in chunks of about `chunk`; None: as many as fit a quarter of the free memory.

    A chunk is whole tiles, so its size does not change the models. If one does not fit the GPU's memory, it is halved;
    if one tile does not, tiles get smaller, and their models agree to rounding only. Both give a warning.
    """

    chunk: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, chunk=at_least(1))

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order: the training sets of each chunk, and their releases."""
        if models < 1:
            raise ValueError(f"Local: expected models >= 1, got {models}.")
        yield from self._chunks(Game(net, trainer, threat, pool, seed), range(models))

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """One span after another, each in one piece."""
        for span in spans:
            yield together(list(self._chunks(game, span)))

    def _chunks(self, game: Game, numbers: range) -> Iterator[tuple[Cohort, Release]]:
        first = game.deal(range(1))
        tile = game.trainer.tile_size(game.net, first)
        plan = _Plan(game.trainer, tile, max((self.chunk or _affordable(game.net, first)) // tile, 1) * tile)
        while numbers:
            some = numbers[: plan.chunk]
            try:
                cohort = game.deal(some)
                release = plan.trainer(game.net, cohort, seed=game.seed)
            except torch.cuda.OutOfMemoryError as error:
                plan = _smaller(plan, len(some), error)
            else:
                yield cohort, release
                del cohort, release  # free them before the next chunk
                numbers = numbers[len(some) :]


class _Plan(NamedTuple):
    """How the remaining models are trained."""

    trainer: Trainer
    tile: int  # models computed at a time
    chunk: int  # models trained per call, whole tiles


def _smaller(plan: _Plan, count: int, error: torch.cuda.OutOfMemoryError) -> _Plan:
    """The plan after `count` models did not fit: half the chunk, else a smaller tile."""
    trainer, tile, _ = plan
    if count > tile:
        chunk = max(count // tile // 2, 1) * tile
        words = (
            f"Local: out of GPU memory with {count} models at a time; continuing with {chunk}. Results do not change."
        )
        warnings.warn(words, RuntimeWarning, stacklevel=3)
        return plan._replace(chunk=chunk)
    kind = type(trainer).__name__
    if count == 1 or not is_dataclass(trainer) or not hasattr(trainer, "tile"):
        raise torch.cuda.OutOfMemoryError(
            f"Local: out of GPU memory with {count} models, and {kind} cannot train fewer at a time. Free GPU memory, "
            "use fewer known records, smaller batches or a smaller net, or move the records to the CPU "
            '(Records.to("cpu")).'
        ) from error
    while tile >= count:  # by halving, the models before and after fill whole tiles
        tile //= 2
    words = f"Local: out of GPU memory with {count} models in one tile; continuing with tiles of {tile}. Models of "
    words += f"different tile sizes agree to rounding only. Use {kind}(tile={tile}) to avoid this."
    warnings.warn(words, RuntimeWarning, stacklevel=3)
    return _Plan(replace(trainer, tile=tile), tile, tile)


def _affordable(net: nn.Module, one: Cohort) -> int:
    """How many models fit a quarter of the free memory: the release, a working copy, the secrets.

    At least two: a training function is checked by training the first of several models again.
    """
    numbers = 2 * sum(value.numel() for value in net.parameters()) + one.own.x.numel() + one.own.inputs.numel()
    return max(_free_bytes(one.own.x.device) // 4 // (8 * numbers), 2)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 << 30  # unknown
