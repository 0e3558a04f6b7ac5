"""Shadow models trained on a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Game, Hints, Records, Release, Threat, Trainer
from lostwax.games.nouns import sending
from lostwax.provenance import build, build_of, differences
from lostwax.shadows.game import Local, OtherBuild, released, task_spans

RETRIES = 10  # of lost chunks, one after another, while none finishes
MAX_WAITING = 32  # chunks that are held until an earlier one finishes
LOOPBACK = "127.0.0.1"


@final
@dataclass(frozen=True)
class Ray:
    """Train chunks in parallel, on the cluster at `address` or on all cores of this machine.

    Without `address`, uses the connected cluster or RAY_ADDRESS, else starts one here with `workers` (default: one per
    GPU, or per core), which no other machine can reach. At most `workers` chunks are trained at once. Chunks of a lost
    worker are trained again. Workers need the same lostwax, torch and numpy; with `allow_mixed`, models of others are
    taken, and a store notes it.
    """

    address: str | None = None
    workers: int | None = None
    allow_mixed: bool = False

    def __post_init__(self) -> None:
        check_fields(self, workers=at_least(1))
        _import_ray()

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order, in chunks of some tiles."""
        if models < 1:
            raise ValueError(f"Ray: expected models >= 1, got {models}.")
        game = Game(net, trainer, threat, pool, seed)
        return self._in_order(game, task_spans(game, models))

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans as they finish, so that a slow or lost worker does not delay the others."""
        return self._finished(game, spans, lambda: True)

    def _in_order(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans in order; only a few wait for an earlier one, which bounds memory."""
        waiting: dict[int, tuple[Cohort, Release]] = {}
        due = 0
        for cohort, release in self._finished(game, spans, lambda: len(waiting) < MAX_WAITING):
            waiting[int(cohort.index[0])] = cohort, release
            while due in waiting:
                chunk = waiting.pop(due)
                due += len(chunk[0])
                yield chunk

    def _finished(
        self, game: Game, spans: Iterable[range], has_room: Callable[[], bool]
    ) -> Iterator[tuple[Cohort, Release]]:
        """The spans as they finish. New spans are requested while `has_room`; lost ones are trained again after them.

        A lost chunk counts as a failure only if no other finished while it was trained: losing workers again and again
        delays, but a chunk that always ends its worker is reported once the others are done.
        """
        ray = _import_ray()
        self._connect(ray)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        slots = gpus or max(int(resources.get("CPU", 1)), 1)
        slots = min(slots, self.workers or slots)
        tasks = self.workers or 2 * slots  # Ray runs one per slot; the others wait, so that no slot is idle
        train = ray.remote(_train).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=0)
        with sending():
            game_in_cluster = ray.put(game)
        new_spans, lost_spans = iter(spans), deque[range]()
        running: dict[Any, _Attempt] = {}
        results = failures = 0

        def start() -> None:
            while len(running) < tasks and failures <= RETRIES:
                span = next(new_spans, None) if has_room() else None
                again = span is None
                if span is None and lost_spans:
                    span = lost_spans.popleft()
                elif span is None and len(running) < slots:  # a lost one is trained twice where nothing else is left
                    spans_again = [attempt.span for attempt in running.values() if attempt.again]
                    span = next((span for span in spans_again if spans_again.count(span) == 1), None)
                if span is None:
                    return
                running[train.remote(game_in_cluster, span)] = _Attempt(span, results, failures, again)

        try:
            while True:
                start()
                if not running:
                    return
                (promise,), _ = ray.wait(list(running))
                attempt = running.pop(promise)
                try:
                    trained = ray.get(promise)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # the original exception
                except ray.exceptions.RayError as error:  # its worker or machine was lost
                    if attempt.span not in (other.span for other in running.values()):
                        lost_spans.append(attempt.span)
                    if attempt.results == results:
                        failures = max(failures, attempt.failures + 1)  # a lost machine loses several at once
                    if failures > RETRIES and not running:  # a result of the others would show progress
                        raise RuntimeError(
                            f"Ray: models {attempt.span.start} to {attempt.span.stop - 1} failed after {RETRIES} "
                            f"retries ({error}). If workers run out of memory, use fewer workers or a smaller tile. "
                            "Models that are already in a store are kept."
                        ) from error
                    continue
                params, made_with = self._checked(trained)
                results, failures = results + 1, 0
                for other in [other for other, twin in running.items() if twin.span == attempt.span]:
                    del running[other]  # it is left to end: a worker that is killed takes seconds to come back
                start()  # before the caller writes these models
                cohort = game.deal(attempt.span)
                release = released(game, cohort, params)
                if made_with is not None:
                    release = OtherBuild(release.params, release.steps, made_with=made_with)
                yield cohort, release
        finally:
            for promise in running if ray.is_initialized() else ():  # whoever needs no more results ends their tasks
                ray.cancel(promise, force=True)

    def _checked(self, trained: Any) -> tuple[dict[str, Tensor], dict[str, str] | None]:
        """The weights, and the worker's versions if they differ from those here; raises unless that is allowed."""
        params, stated = trained if isinstance(trained, tuple) else (trained, {})  # workers up to 0.2.0 state nothing
        made_with = build_of(stated)
        if made_with == build():
            return params, None
        if not self.allow_mixed:
            raise RuntimeError(
                f"Ray: a worker would train other models than this process: {differences(made_with, 'the worker')}. "
                "Install the same versions on all machines. To mix them all the same: Ray(allow_mixed=True)."
            )
        return params, made_with

    def _connect(self, ray: Any) -> None:
        if ray.is_initialized():
            return
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        address = self.address or os.environ.get("RAY_ADDRESS")
        try:
            if address is None:
                _start(ray, num_cpus=self.workers, **quiet)
            else:
                _check_reachable(address)
                ray.init(address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(
                f"Ray: no cluster at {address or 'this machine'} ({error}). Start one (`ray start --head`) and pass "
                "its address. Without an address, one is started on this machine."
            ) from error


def _start(ray: Any, **settings: Any) -> None:
    """Start a cluster whose ports listen on the loopback interface only: Ray runs whatever is sent to them.

    Ray replaces a loopback address by the machine's own where it allows clusters of several machines.
    """
    constants = ray._private.ray_constants
    allowed = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        ray.init("local", include_dashboard=False, _node_ip_address=LOOPBACK, **settings)
    finally:
        constants.ENABLE_RAY_CLUSTER = allowed
    if {node["NodeManagerAddress"] for node in ray.nodes()} != {LOOPBACK}:
        ray.shutdown()
        raise RuntimeError(f"its ports cannot be kept to {LOOPBACK} with ray {ray.__version__}, and are closed again")


class _Attempt(NamedTuple):
    """A chunk that is being trained, and how many results and failures there were when it was started."""

    span: range
    results: int
    failures: int
    again: bool  # it was lost before


class _OnGPU(NamedTuple):
    """The same training sets, on a worker's GPU."""

    threat: Threat

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        cohort = self.threat.deal(pool, m, seed=seed, start=start)
        return Cohort(cohort.shared.to("cuda"), cohort.own.to("cuda"), cohort.index.to("cuda"))

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        return self.threat.hints(cohort, pool, seed=seed)


def _check_reachable(address: str) -> None:
    """Raise at once if nothing listens there: Ray itself retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _train(game: Game, span: range) -> tuple[dict[str, Tensor], dict[str, str]]:
    """On a worker: train these models and return their weights, and its versions."""
    if torch.cuda.is_available():  # Ray shows each worker only its own GPUs
        game = game._replace(threat=_OnGPU(game.threat))
    ((_, release),) = Local().parts(game, [span])
    return {name: value.cpu() for name, value in release.params.items()}, build()


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'Ray: the package ray is not installed. Install the extra: pip install "lostwax[cluster]".'
        ) from error
    return ray
