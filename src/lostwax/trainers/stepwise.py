"""The base of all trainers that proceed in steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.fields import Range, above, at_least, check_fields, expect
from lostwax.games import Cohort, Loss, Records, Release, Step
from lostwax.inits import FromNet, Init, public, trainable
from lostwax.losses import CrossEntropy
from lostwax.philox import on_host
from lostwax.progress import counted
from lostwax.schedules import Constant, Schedule
from lostwax.trainers.refusals import check_data, check_loss, check_net, check_outputs, check_takes
from lostwax.trainers.stacked import Architecture, Params, device_kind

# Models are computed in tiles, fixed groups. A matrix product rounds differently at another shape, so a model's last
# bits depend on the group it is trained in. Model i therefore always has position `i % tile` in tile `i // tile`.


Rows = NDArray[np.int64]

MAX_TILE_MODELS = {"cpu": 256, "cuda": 16_384}
TILE_BYTES = {"cpu": 32 << 20, "cuda": 4 << 30}  # working set: about a CPU's cache, a small part of a GPU


class Tile(NamedTuple):
    """One computation: the cohort's row at each position, and the positions that are requested."""

    rows: Rows
    wanted: Rows


def tiles(numbers: Sequence[int] | Rows, size: int) -> Iterator[Tile]:
    """The tiles that hold these models.

    If more than half of a tile is requested, it is computed whole, the free positions filled with copies of the first.
    Otherwise, and for models requested several times, only the requested ones are: one victim costs one training.
    """
    asked = np.asarray(numbers, dtype=np.int64)
    order = np.argsort(asked, kind="stable")
    tile, place = np.divmod(asked[order], size)
    for part in np.split(np.arange(len(order)), np.flatnonzero(np.diff(tile)) + 1):
        rows, places = order[part], place[part]
        if 2 * len(rows) > size and (np.diff(places) > 0).all():
            positions = np.full(size, rows[0])
            positions[places] = rows
            yield Tile(positions, places)
        else:
            for start in range(0, len(rows), size):
                packed = rows[start : start + size]
                yield Tile(packed, np.arange(len(packed)))


def gather(parts: Sequence[tuple[Tile, dict[str, Tensor]]]) -> dict[str, Tensor]:
    """The results of all tiles, in the order of the cohort."""
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

    It depends only on sizes, not on free memory, so that a game has the same tiles on every machine of a kind.
    """
    kind = device_kind(record)
    parameters = sum(value.numel() for value in trainable(net.net).values())
    leaves = [module for module in net.net.modules() if not any(module.children())]
    computing = [leaf for leaf in leaves if not isinstance(leaf, nn.Flatten | nn.Unflatten | nn.Identity)]
    outputs = [out for _, out in net.outputs_of(computing, record.unsqueeze(0)) if isinstance(out, Tensor)]
    numbers = records * sum(out.numel() for out in outputs) + own * record.numel() + 4 * parameters
    fits = TILE_BYTES[kind] // (numbers * record.element_size())
    return min(MAX_TILE_MODELS[kind], 1 << max(fits.bit_length() - 1, 0))


class State(NamedTuple):
    """m models between two steps."""

    params: Params  # (m, ...)
    buffers: tuple[Params, ...]  # the optimiser's state: a velocity, moments

    def map(self, change: Callable[[Tensor], Tensor]) -> State:
        parts = (self.params, *self.buffers)
        params, *buffers = ({name: change(value) for name, value in part.items()} for part in parts)
        return State(params, tuple(buffers))

    def zeros(self, models: int) -> State:
        return self.map(lambda value: value.new_zeros(models, *value.shape[1:]))


TRAINED_DTYPES = (torch.float32, torch.float64)
Trajectory = Iterator[tuple[Step, State]]  # each step, and the state after it


@dataclass(frozen=True, kw_only=True)
class Stepwise(ABC):
    """Training in steps, many models at once.

    Guarantees for model i, whatever the other models of the cohort, their order and the division into calls:

    - it depends only on its training set, `seed` and its number;
    - if more than half of its tile is requested, so in every grouping of whole tiles, it is the same to the last byte
      on one kind of device;
    - otherwise, and on another kind of device, it is equal to rounding.

    By default every model starts from the net's weights and is computed in their dtype. `tile` models are computed at a
    time; None: a power of two that depends on the sizes of net and data.
    """

    takes_tokens: ClassVar[bool] = False  # whether inputs may be token numbers
    takes_dropout: ClassVar[bool] = False  # whether nn.Dropout is trained, by private draws
    takes_batch_norm: ClassVar[bool] = False  # whether a record's gradient may depend on others of its batch

    lr: float
    weight_decay: float = 0.0
    schedule: Schedule = Constant()
    loss: Loss = CrossEntropy()
    init: Init = FromNet()
    dtype: torch.dtype | None = None
    tf32: bool = False
    tile: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, lr=above(0), weight_decay=at_least(0), tile=at_least(1), **self._ranges())
        expect(self, "dtype", "torch.float32 or torch.float64, or None", self.dtype in (None, *TRAINED_DTYPES))
        name = type(self).__name__
        check_loss(name, self.loss)
        check_takes(name, "init", self.init, "an initialisation, such as lw.inits.LeCunNormal()", None, [0], seed=0)
        check_takes(name, "schedule", self.schedule, "a schedule, such as lw.schedules.Cosine()", 0, 1)

    def _ranges(self) -> dict[str, Range]:
        """The ranges of the fields that a subclass adds."""
        return {}

    def first_rounds(self, count: int) -> tuple[Self, int] | None:
        """The same trainer for this many steps or epochs, and the number of them in a whole training.

        It is only for timing: the learning rate is constant. None if steps differ in cost, or are not counted.
        """
        return None

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        ours, cohort = self._prepare(net, cohort)
        tiles = list(self._tiles(ours, cohort))
        every = counted(tiles, "training: tiles of models", len(tiles))
        return Release(gather([(tile, self._end(ours, cohort[rows], seed)) for tile, rows in every]))

    @final
    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        ours, cohort = self._prepare(net, cohort)
        tiles = list(self._tiles(ours, cohort))
        histories = [self._trajectory(ours, cohort[rows], seed) for _, rows in tiles]
        for together in zip(*histories, strict=True):  # all tiles in step
            steps = [(tile, step) for (tile, _), (step, _) in zip(tiles, together, strict=True)]
            params = gather([(tile, dict(step.params)) for tile, step in steps])
            slopes = gather([(tile, dict(step.gradient)) for tile, step in steps])
            drawn = [(tile, {"sampled": step.sampled}) for tile, step in steps if step.sampled is not None]
            yield Step(steps[0][1].number, params, slopes, gather(drawn)["sampled"] if drawn else None)

    @final
    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        return self._tile_size(*self._prepare(net, cohort))

    @final
    def public_start(self, net: nn.Module) -> bool:
        """True if every model has the same initialisation (checked on two draws)."""
        return public(self.init, net)

    @final
    def computes_in(self, net: nn.Module) -> torch.dtype:
        """The dtype of training: `dtype`, else that of the net's parameters."""
        if self.dtype is not None:
            return self.dtype
        dtypes = {value.dtype for value in net.parameters() if value.is_floating_point()}
        if len(dtypes) != 1 or not dtypes <= set(TRAINED_DTYPES):
            names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            raise ValueError(
                f"{type(self).__name__}: the net's parameters are {names}, but training needs float32 or float64. Set "
                "dtype=torch.float32 to audit training in float32 instead, or use your own training function: "
                "lw.OwnTraining(train)."
            )
        return dtypes.pop()

    @abstractmethod
    def buffers(self, params: Params) -> tuple[Params, ...]:
        """The optimiser's state before the first step."""

    @abstractmethod
    def _trajectory(self, net: Architecture, cohort: Cohort, seed: int) -> Trajectory:
        """The training of one tile."""

    def _end(self, net: Architecture, cohort: Cohort, seed: int) -> Params:
        """The parameters of one tile after training; override if there is a faster way than step by step."""
        return last(self._trajectory(net, cohort, seed))

    @abstractmethod
    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        """The number of records per model in a step, and how many of them, at most, are its own."""

    @final
    def _tiles(self, net: Architecture, cohort: Cohort) -> Iterator[tuple[Tile, Tensor]]:
        """Each with its rows of the cohort; consecutive ones, the usual case, are generated on the device."""
        device = cohort.own.inputs.device
        for tile in tiles(on_host(cohort.index), self._tile_size(net, cohort)):
            first, end = int(tile.rows[0]), int(tile.rows[-1]) + 1
            consecutive = (np.diff(tile.rows) == 1).all()
            yield (
                tile,
                torch.arange(first, end, device=device) if consecutive else torch.from_numpy(tile.rows).to(device),
            )

    @final
    def _start(self, net: Architecture, cohort: Cohort, seed: int) -> State:
        start = self.init(net.net, cohort.index, seed=seed)
        params = {name: value.contiguous() for name, value in net.beside(cohort.own.inputs, start).items()}
        return State(params, self.buffers(params))

    @final
    def _prepare(self, net: nn.Module, cohort: Cohort) -> tuple[Architecture, Cohort]:
        """Check the net and the records, and bring them to one device and dtype."""
        check_net(net, dropout=self.takes_dropout, batch_norm=self.takes_batch_norm)
        check_data(cohort, tokens=self.takes_tokens)
        device, dtype = cohort.own.inputs.device, self.computes_in(net)
        ours = Architecture.of(net, device, dtype)
        shared, secrets = (Records(part.inputs, part.y).to(dtype) for part in (cohort.shared, cohort.own))
        cast = Cohort(shared, secrets, cohort.index.to(device))  # of records with features, x is not used in training
        check_outputs(ours, cast, self.loss)
        if device.type == "cpu":
            _keep_freed_memory()
        return ours, cast

    def _tile_size(self, net: Architecture, cohort: Cohort) -> int:
        record = cohort.own.inputs.new_zeros(cohort.own.inputs.shape[2:])
        seen, private = self._seen(cohort)
        return self.tile or default_size(net, record, records=seen, own=private)


def last(trajectory: Trajectory) -> Params:
    """The parameters after the last step."""
    for _, state in trajectory:
        after = state
    return after.params


@contextmanager
def float32_products(tf32: bool) -> Iterator[None]:
    """On a GPU: deterministic float32 products in full precision or in TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _keep_freed_memory() -> None:
    """Let the C library reuse large blocks instead of returning them to the system after every operation.

    glibc maps every block above a threshold anew, and page faults cost several times the arithmetic on it. The
    threshold rises to the largest such block freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD).
    """
    torch.empty(31 << 20, dtype=torch.uint8)
