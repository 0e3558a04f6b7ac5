"""The shadow models of one game, the engines that train them, and the one of this machine."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Engine, Game, Knowledge, Records, Release, Step, Threat
from lostwax.games.facts import trainer_facts
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.trainers.dpsgd import as_dpsgd
from lostwax.trainers.stacked import shaped, shapes_of


@final
@dataclass(frozen=True)
class OtherBuild(Release):
    """Models that a worker with other versions trained, for a store to note."""

    made_with: Mapping[str, str] = field(kw_only=True)


def other_build(release: Release) -> Mapping[str, str] | None:
    """The versions of the worker that trained these models, if they differ from those of this process."""
    return release.made_with if isinstance(release, OtherBuild) else None


def models_of(
    knowledge: Knowledge, threat: Threat, pool: Records, *, models: int, seed: int, chunk: int | None = None
) -> Iterator[tuple[Cohort, Release]]:
    """Models that an attack or an audit asks for, in order, trained where the audit trains; `chunk` as in `Local`."""
    engine = knowledge.engine or Local(chunk)
    return engine(Game(knowledge.net, knowledge.trainer, threat, pool, seed), models)


def released(game: Game, cohort: Cohort, params: Mapping[str, Tensor]) -> Release:
    """The release of models that were trained elsewhere. Published steps are recomputed here if they are asked for."""

    def steps() -> Iterator[Step]:
        return as_dpsgd(game.trainer).transcript(game.net, cohort, seed=game.seed)

    stated = trainer_facts(game.trainer, game.net, cohort.records)
    on_device = {name: value.to(cohort.index.device) for name, value in params.items()}
    return Release(on_device, steps if stated.publishes_steps else None)


TASKS, TASK_BYTES = 512, 32 << 20  # about so many tasks for all models of a game; of one task, at most


def task_spans(game: Game, models: int) -> Iterator[range]:
    """Models 0 .. models - 1 in tasks of whole tiles, by the game alone: whoever continues finds the same tasks.

    At least two models each: a training function is checked by training the first of several models again.
    """
    tile, numbers = game.tile(), sum(value.numel() for value in game.net.parameters()) or 1
    wanted = max(2, min(-(-models // TASKS), TASK_BYTES // (8 * numbers)))
    chunk = -(-wanted // tile) * tile
    return (range(models)[start : start + chunk] for start in range(0, models, chunk))


def together(parts: Sequence[tuple[Cohort, Release]]) -> tuple[Cohort, Release]:
    """Concatenate several chunks of one game."""
    if len(parts) == 1:
        return parts[0]
    cohorts, releases = zip(*parts, strict=True)
    secrets = Records.together([cohort.own for cohort in cohorts])
    cohort = Cohort(cohorts[0].shared, secrets, torch.cat([cohort.index for cohort in cohorts]))
    return cohort, Release.together([Release(release.params) for release in releases])


MIN_COVARIANCE_MODELS = 4_096  # at least this many models for the covariance, ...
COVARIANCE_MODELS_PER_PARAMETER = 2  # ... or this many per parameter, ...
MAX_COVARIANCE_NUMBERS = 2**31  # ... with at most this many numbers in all


def covariance_models(p: int) -> int:
    """How many shadow models of p parameters are trained to estimate their covariance."""
    return max(MIN_COVARIANCE_MODELS, min(COVARIANCE_MODELS_PER_PARAMETER * p, MAX_COVARIANCE_NUMBERS // p))


def gaussian_weights(game: Game, models: int, engine: Engine | None = None) -> Release:
    """Normal weights with the mean and covariance of the shadow models (Maciazek and Allison 2025, Algorithms 2 and 3).

    With z standard normal and the rows of D the deviations of s shadow models from their mean, z D / sqrt(s - 1) has
    the covariance D^T D / (s - 1), and the relative error of the variance in any direction is sqrt(2 / s), whatever p.
    """
    first_model = game.trainer(game.net, game.deal(range(1)), seed=game.seed)
    origin = first_model.flat()  # (1, p) subtracted before summing, to reduce rounding
    p, tile = origin.shape[1], game.tile()
    shadows = covariance_models(p)
    random = generator(game.seed, "gaussian weights")
    total, drawn_total, mixed = (origin.new_zeros(shape) for shape in ((1, p), (models, 1), (models, p)))
    chunks = (engine or Local(tile))(game, shadows)
    tiles = (weights for _, release in chunks for weights in torch.split(release.flat(), tile))
    for weights in counted(tiles, "models without secrets: tiles", -(-shadows // tile)):
        off = weights - origin  # (tile, p)
        draws = torch.from_numpy(random.standard_normal((len(off), models), dtype=np.float32)).to(off)
        total += off.sum(0)
        drawn_total += draws.sum(0).unsqueeze(1)
        mixed += draws.mT @ off
    mean = total / shadows  # from the origin, (1, p)
    drawn = origin + mean + (mixed - drawn_total * mean) / math.sqrt(shadows - 1)  # z D = z off - (z 1) mean
    return Release(shaped(drawn, shapes_of(first_model.params)))


@final
@dataclass(frozen=True)
class Local:
    """Train models in chunks of about `chunk`; None: as many as fit a quarter of the free memory.

    A chunk is whole tiles, so its size does not change the models. If one does not fit the GPU's memory, it is halved,
    with a warning.
    """

    chunk: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, chunk=at_least(1))

    def __call__(self, game: Game, models: int) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order: the training sets of each chunk, and their releases."""
        if models < 1:
            raise ValueError(f"Local: expected models >= 1, got {models}.")
        yield from self._chunks(game, range(models))

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """One span after another, each in one piece."""
        for span in spans:
            yield together(list(self._chunks(game, span)))

    def each(
        self, compute: Callable[[int], dict[str, Tensor]], numbers: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """One number after another."""
        return ((number, compute(number)) for number in numbers)

    def _chunks(self, game: Game, numbers: range) -> Iterator[tuple[Cohort, Release]]:
        first = game.deal(range(1))
        tile = game.trainer.tile_size(game.net, first)
        at_once = max((self.chunk or _affordable(game.net, first.own)) // tile, 1) * tile  # models, whole tiles
        while numbers:
            chunk = numbers[:at_once]
            try:
                cohort = game.deal(chunk)
                release = game.trainer(game.net, cohort, seed=game.seed)
            except torch.cuda.OutOfMemoryError as error:
                at_once = _fewer(len(chunk), tile, error)
            else:
                yield cohort, release
                del cohort, release  # free them before the next chunk
                numbers = numbers[len(chunk) :]


def _fewer(count: int, tile: int, error: torch.cuda.OutOfMemoryError) -> int:
    """Half of the models that did not fit, in whole tiles; smaller tiles would change the last digits of models."""
    if count <= tile:
        raise torch.cuda.OutOfMemoryError(
            f"Local: out of GPU memory with {count} models in one tile. Free GPU memory, train fewer at a time (like "
            f"GD(tile={max(count // 2, 1)})), use fewer known records, smaller batches or a smaller net, or move the "
            'records to the CPU (Records.to("cpu")).'
        ) from error
    fewer = max(count // tile // 2, 1) * tile
    words = f"Local: out of GPU memory with {count} models at a time; continuing with {fewer}."
    warnings.warn(f"{words} Results do not change.", RuntimeWarning, stacklevel=3)
    return fewer


def _affordable(net: nn.Module, secrets: Records) -> int:
    """How many models fit a quarter of the free memory: the release, a working copy, the secrets.

    At least two: a training function is checked by training the first of several models again.
    """
    free_bytes = 2 << 30  # if unknown
    if secrets.x.is_cuda:
        free_bytes = int(torch.cuda.mem_get_info(secrets.x.device)[0])
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    numbers = 2 * sum(value.numel() for value in net.parameters()) + secrets.x.numel() + secrets.inputs.numel()
    return max(free_bytes // 4 // (8 * numbers), 2)
