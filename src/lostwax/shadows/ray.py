"""Shadow models on a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Hints, Records, Release, Threat, Trainer
from lostwax.shadows.game import Game
from lostwax.shadows.local import Local

RETRIES = 5  # of a chunk whose worker was lost


@final
@dataclass(frozen=True)
class Ray:
    """Trains chunks wherever there is room: on the cluster at `address`, or on all cores of this machine.

    None for `address` takes the cluster this process is connected to, that of RAY_ADDRESS, or a new one here, of
    `workers`. Twice as many chunks are asked for at a time; None for `workers` is one a GPU, or one a core where there
    are no GPUs. The chunks of a lost worker are trained again by others. Workers need lostwax installed; their results
    come back to this process, which writes them to the store.
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, workers=at_least(1))
        _import_ray()

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order, a tile a chunk."""
        if models < 1:
            raise ValueError(f"Ray: expected models >= 1, got {models}.")
        game = Game(net, trainer, threat, pool, seed)
        tile = game.tile()
        return self.parts(game, (range(models)[start : start + tile] for start in range(0, models, tile)))

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans in order, twice as many asked for as there are workers, so that a slow one holds up no other."""
        ray = _import_ray()
        self._connect(ray)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        workers = self.workers or gpus or max(int(resources.get("CPU", 1)), 1)
        task = ray.remote(_train).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=RETRIES)
        held = ray.put(game)
        asked: deque[tuple[range, Any]] = deque()
        for span in spans:
            asked.append((span, task.remote(held, span)))
            if len(asked) == 2 * workers:
                yield _result(ray, game, *asked.popleft())
        while asked:
            yield _result(ray, game, *asked.popleft())

    def _connect(self, ray: Any) -> None:
        if ray.is_initialized():
            return
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        address = self.address or os.environ.get("RAY_ADDRESS")
        try:
            if address is None:
                ray.init("local", num_cpus=self.workers, include_dashboard=False, **quiet)
            else:
                _knock(address)
                ray.init(address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(
                f"Ray: no cluster at {address or 'this machine'} ({error}). Start one (`ray start --head`) and name "
                "its address; without an address, one is started on this machine."
            ) from error


class _OnGPU(NamedTuple):
    """The same training sets on a worker's GPU."""

    threat: Threat

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        cohort = self.threat.deal(pool, m, seed=seed, start=start)
        return Cohort(cohort.shared.to("cuda"), cohort.own.to("cuda"), cohort.index.to("cuda"))

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        return self.threat.hints(cohort, pool, seed=seed)


def _knock(address: str) -> None:
    """Raise at once where nobody is at home: Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _train(game: Game, span: range) -> dict[str, Tensor]:
    """On a worker: the weights of these models."""
    if torch.cuda.is_available():  # Ray shows a worker those GPUs that are its own
        game = game._replace(threat=_OnGPU(game.threat))
    ((_, release),) = Local().parts(game, [span])
    return {name: value.cpu() for name, value in release.params.items()}


def _result(ray: Any, game: Game, span: range, promise: Any) -> tuple[Cohort, Release]:
    try:
        params = ray.get(promise)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None  # as it would have been raised here
    except ray.exceptions.RayError as error:
        raise RuntimeError(
            f"Ray: models {span.start} to {span.stop - 1} were given up after {RETRIES} retries ({error}). If workers "
            "run out of memory, ask for fewer at a time (workers=) or a smaller tile. With a store, what is done stays."
        ) from error
    cohort = game.deal(span)
    return cohort, Release({name: value.to(cohort.index.device) for name, value in params.items()})


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'Ray: the package ray is not installed. Install the extra: pip install "lostwax[cluster]".'
        ) from error
    return ray
