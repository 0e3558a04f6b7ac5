"""Shadow models trained on a Ray cluster."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, final

import torch
from torch import Tensor

from lostwax.fields import at_least, check_fields
from lostwax.games import Cohort, Game, Hints, Records, Release, Threat
from lostwax.games.nouns import sending
from lostwax.provenance import build, build_of, differences
from lostwax.shadows.game import Local, OtherBuild, released, task_spans

RETRIES = 10  # of lost chunks, one after another, while none finishes
MAX_WAITING = 32  # chunks that are held until an earlier one finishes
LOOPBACK = "127.0.0.1"

Task = TypeVar("Task", range, int)


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

    def __call__(self, game: Game, models: int) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order, in chunks of some tiles."""
        if models < 1:
            raise ValueError(f"Ray: expected models >= 1, got {models}.")
        return self._in_order(game, task_spans(game, models))

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans as they finish, so that a slow or lost worker does not delay the others."""
        return self._models(game, spans, lambda: True)

    def each(
        self, compute: Callable[[int], dict[str, Tensor]], numbers: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """The numbers as they finish. What workers of other versions would compute otherwise is computed here."""
        for number, tensors, made_with in self._finished(_compute, compute, numbers, lambda: True):
            yield number, tensors if made_with is None else compute(number)

    def _in_order(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans in order; only a few wait for an earlier one, which bounds memory."""
        waiting: dict[int, tuple[Cohort, Release]] = {}
        due = 0
        for cohort, release in self._models(game, spans, lambda: len(waiting) < MAX_WAITING):
            waiting[int(cohort.index[0])] = cohort, release
            while due in waiting:
                chunk = waiting.pop(due)
                due += len(chunk[0])
                yield chunk

    def _models(
        self, game: Game, spans: Iterable[range], has_room: Callable[[], bool]
    ) -> Iterator[tuple[Cohort, Release]]:
        """The spans as they finish; new ones are requested while `has_room`."""
        for span, params, made_with in self._finished(_train, game, spans, has_room):
            cohort = game.deal(span)
            release = released(game, cohort, params)
            if made_with is not None:
                release = OtherBuild(release.params, release.steps, made_with=made_with)
            yield cohort, release

    def _finished(
        self, work: Callable[[Any, Task], Any], subject: Any, tasks: Iterable[Task], has_room: Callable[[], bool]
    ) -> Iterator[tuple[Task, dict[str, Tensor], dict[str, str] | None]]:
        """`work(subject, task)` of each task as it finishes, and the worker's versions if they are not those here.

        New tasks are requested while `has_room`; lost ones are done again after them. A lost task counts as a failure
        only if no other finished meanwhile: losing workers again and again delays, but a task that always ends its
        worker is reported once the others are done.
        """
        ray = _import_ray()
        self._connect(ray)
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        slots = gpus or max(int(resources.get("CPU", 1)), 1)
        slots = min(slots, self.workers or slots)
        at_once = self.workers or 2 * slots  # Ray runs one per slot; the others wait, so that no slot is idle
        remote = ray.remote(work).options(num_cpus=1, num_gpus=1 if gpus else 0, max_retries=0)
        with sending():
            subject_in_cluster = ray.put(subject)
        new_tasks, lost_tasks = iter(tasks), deque[Task]()
        running: dict[Any, _Attempt[Task]] = {}
        results = failures = 0

        def start() -> None:
            while len(running) < at_once and failures <= RETRIES:
                task = next(new_tasks, None) if has_room() else None
                again = task is None
                if task is None and lost_tasks:
                    task = lost_tasks.popleft()
                elif task is None and len(running) < slots:  # a lost one is done twice where nothing else is left
                    tasks_again = [attempt.task for attempt in running.values() if attempt.again]
                    task = next((task for task in tasks_again if tasks_again.count(task) == 1), None)
                if task is None:
                    return
                running[remote.remote(subject_in_cluster, task)] = _Attempt(task, results, failures, again)

        try:
            while True:
                start()
                if not running:
                    return
                (promise,), _ = ray.wait(list(running))
                attempt = running.pop(promise)
                try:
                    result = ray.get(promise)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # the original exception
                except ray.exceptions.RayError as error:  # its worker or machine was lost
                    if attempt.task not in (other.task for other in running.values()):
                        lost_tasks.append(attempt.task)
                    if attempt.results == results:
                        failures = max(failures, attempt.failures + 1)  # a lost machine loses several at once
                    if failures > RETRIES and not running:  # a result of the others would show progress
                        raise RuntimeError(
                            f"Ray: {_named(attempt.task)} failed after {RETRIES} retries ({error}). If workers run out "
                            "of memory, use fewer workers or a smaller tile. Models that are already in a store are "
                            "kept."
                        ) from error
                    continue
                tensors, made_with = self._checked(result)
                results, failures = results + 1, 0
                for other in [other for other, twin in running.items() if twin.task == attempt.task]:
                    del running[other]  # it is left to end: a worker that is killed takes seconds to come back
                start()  # before the caller writes this result
                yield attempt.task, tensors, made_with
        finally:
            for promise in running if ray.is_initialized() else ():  # whoever needs no more results ends their tasks
                ray.cancel(promise, force=True)

    def _checked(self, result: Any) -> tuple[dict[str, Tensor], dict[str, str] | None]:
        """The tensors, and the worker's versions if they differ from those here; raises unless that is allowed."""
        tensors, stated = result if isinstance(result, tuple) else (result, {})  # workers up to 0.2.0 state nothing
        made_with = build_of(stated)
        if made_with == build():
            return tensors, None
        if not self.allow_mixed:
            raise RuntimeError(
                f"Ray: a worker would train other models than this process: {differences(made_with, 'the worker')}. "
                "Install the same versions on all machines. To mix them all the same: Ray(allow_mixed=True)."
            )
        return tensors, made_with

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


class _Attempt(NamedTuple, Generic[Task]):
    """A task that is being done, and how many results and failures there were when it was started."""

    task: Task
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


def _compute(compute: Callable[[int], dict[str, Tensor]], number: int) -> tuple[dict[str, Tensor], dict[str, str]]:
    """On a worker: what it gives for this number, and the versions."""
    return compute(number), build()


def _named(task: range | int) -> str:
    return f"number {task}" if isinstance(task, int) else f"models {task.start} to {task.stop - 1}"


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'Ray: the package ray is not installed. Install the extra: pip install "lostwax[cluster]".'
        ) from error
    return ray
