"""Shadow models on disk or in a bucket: trained once, then resumed, extended or shared.

Each game has two zarr arrays: weights (models, p), and the secrets' rows in the prior (models, k).

Both are declared far longer than will ever be filled, so that no file has to be changed later: a chunk is stored if
and only if its file exists. zarr's crc32c codec detects damaged chunks; swapped ones are detected by two more columns
next to the rows, hashes of the game, the chunk's number, and its weights or its rows.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.fields import check_fields
from lostwax.games import Cohort, Engine, Game, Release
from lostwax.progress import progress
from lostwax.provenance import build, build_of, differences, versions
from lostwax.seeds import generator
from lostwax.shadows.game import other_build, together
from lostwax.shadows.identity import identity, key
from lostwax.shadows.location import MARKER, Location
from lostwax.trainers.stacked import shaped, shapes_of

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store as ZarrStore


FORMAT = "lostwax shadow store"  # attributes of the root group
VERSION = 2  # raised when the layout changes, or when one description comes to mean other models
BUILD_PREFIX = "made_with."  # of the names of groups that hold the versions of models that were mixed in
MIN_CHUNK_MODELS, MAX_CHUNK_BYTES = 16, 32 << 20  # if the trainer's tile size allows
MAX_MODELS = 2**40
NO_ROW = -1
HASH_COLUMNS = 2  # for the weights, and for the rows
PARTS = ("weights", "rows")
_DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


class Layout(NamedTuple):
    """The shapes of one model, and the number of models per chunk. The field names are stored."""

    parameters: dict[str, list[int]]  # shapes, in the order of concatenation
    dtype: str
    secrets: int  # k
    chunk: int
    marks: int = HASH_COLUMNS  # next to the rows

    @classmethod
    def of(cls, release: Release, secrets: int) -> Layout:
        """The layout of one chunk of these models."""
        dtypes = {value.dtype for value in release.params.values()}
        if len(dtypes) != 1 or not dtypes <= set(_DTYPES):
            raise ValueError(
                f"Store: expected all parameters of a model in one dtype of {', '.join(_DTYPES.values())}, got "
                f"{', '.join(sorted(map(str, dtypes)))}. Cast the trainer's release, or leave store out."
            )
        shapes = {name: list(shape) for name, shape in shapes_of(release.params).items()}
        return cls(shapes, _DTYPES[dtypes.pop()], secrets, len(release))

    def split(self, flat: Tensor) -> Release:
        """The inverse of `Release.flat`."""
        return Release(shaped(flat, self.parameters))

    def declare(self, store: ZarrStore, folder: str, part: str) -> zarr.Array[Any]:
        """Declare the array of "weights", (models, p), or of "rows", (models, k + marks)."""
        import zarr
        from zarr.codecs import Crc32cCodec

        weights = part == "weights"
        width = sum(map(math.prod, self.parameters.values())) if weights else self.secrets + self.marks
        return zarr.create_array(
            store,
            name=f"{folder}/{part}",
            shape=(MAX_MODELS, width),
            chunks=(self.chunk, width),
            dtype=self.dtype if weights else "int64",
            fill_value=math.nan if weights else NO_ROW,
            compressors=[Crc32cCodec()],
            chunk_key_encoding={"name": "v2", "separator": "."},  # chunk 17 is the file 17.0
            config={"write_empty_chunks": True},  # a chunk is stored iff its file exists, whatever it holds
        )


def chunk_hash(folder: str, part: str, number: int, content: NDArray[Any]) -> int:
    """A hash of the game's folder, the array's name, the chunk's number and its bytes."""
    digest = blake2b(f"{folder}/{part}/{number}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(content).data.cast("B"))
    return int.from_bytes(digest.digest(), "little", signed=True)


@dataclass(frozen=True)
class StoredGame:
    """The stored models of one game, `chunk` of them per file. Files are written atomically and never changed.

    Any number of processes may fill it at once: two that train the same chunk write the same bytes.
    """

    location: Location
    game: Game
    description: dict[str, str]  # everything that determines the models
    chunk: int
    allow_mixed: bool = False  # of several versions of lostwax, torch or numpy

    @property
    def folder(self) -> str:
        return key(self.description)

    def present(self) -> set[int]:
        """The numbers of the stored chunks."""
        weights, rows = (self.location.names(self.folder, part) for part in PARTS)
        names = (name.removesuffix(".0") for name in weights & rows)
        return {int(name) for name in names if name.isdecimal()}

    def chunks(self, models: int) -> int:
        """The number of chunks that hold the first `models`."""
        return -(-models // self.chunk)

    def fill(self, models: int, engine: Engine, part: tuple[int, int] = (1, 1)) -> None:
        """Train the missing ones of the first `models`, rounded up to whole chunks; of `part` (i, n) every n-th chunk.

        In order, or in random order once another writer has been noticed, so that two rarely train the same chunk.
        """
        first, step = part
        if not 1 <= first <= step:
            raise ValueError(f"Store: expected a part i of n with 1 <= i <= n, got {first} of {step}.")
        self.location.declare("", {"format": FORMAT, "version": VERSION})
        missing = sorted(set(range(first - 1, self.chunks(models), step)) - self.present())
        crowded = False
        if missing:
            self._check_build()

        def spans() -> Iterator[range]:
            nonlocal crowded
            while missing:
                number = missing.pop(random.SystemRandom().randrange(len(missing)) if crowded else 0)
                if self._holds(number):
                    crowded = True
                else:
                    yield range(number * self.chunk, (number + 1) * self.chunk)

        arrays: _Arrays | None = None
        with progress("shadow models", len(missing) * self.chunk) as advance:
            for cohort, release in engine.parts(self.game, spans()):
                arrays = arrays or self._begin(Layout.of(release, cohort.secrets))
                crowded |= not self._write(arrays, cohort, release)
                advance(len(cohort))
        for parts in ((), (self.folder,), (self.folder, "weights"), (self.folder, "rows")):
            self.location.sweep(*parts)

    def read(self, models: int) -> Iterator[tuple[Cohort, Release]]:
        """The first `models` in order, one chunk at a time."""
        return self._each(range(self.chunks(models)), models)

    def shuffled(self, models: int, *, batch: int, seed: int, buffer: int = 8) -> Iterator[tuple[Cohort, Release]]:
        """The first `models` in random order, in batches of up to `batch`; `buffer` chunks are in memory at a time."""
        for setting, value in (("batch", batch), ("buffer", buffer)):
            if value < 1:
                raise ValueError(f"shuffled: expected {setting} >= 1, got {value}.")
        draws = generator(seed, "shuffle")
        numbers = draws.permutation(self.chunks(models)).tolist()
        for first in range(0, len(numbers), buffer):
            cohort, release = together(list(self._each(numbers[first : first + buffer], models)))
            order = torch.from_numpy(draws.permutation(len(cohort))).to(cohort.index.device)
            for rows in torch.split(order, batch):
                yield cohort[rows], Release({name: value[rows] for name, value in release.params.items()})

    def _holds(self, number: int) -> bool:
        return all(self.location.holds(self.folder, part, f"{number}.0") for part in PARTS)

    def _write(self, arrays: _Arrays, cohort: Cohort, release: Release) -> bool:
        """Write one chunk, weights last, so that they show it is complete; False if another writer was faster."""
        layout = Layout.of(release, cohort.secrets)
        if layout != arrays.layout:
            raise ValueError(
                f"Store: {self.location.shown(self.folder)} holds models of {arrays.layout}, but the trainer released "
                f"{layout}. All models of a game must have the same shapes."
            )
        number = int(cohort.index[0]) // self.chunk
        if self._holds(number):
            return False
        if (made_with := other_build(release)) is not None:
            self._note_build(made_with)
        span = slice(number * self.chunk, (number + 1) * self.chunk)
        rows, weights = self._rows(cohort).cpu().numpy(), release.flat().detach().cpu().numpy()
        parts = (("weights", weights), ("rows", rows))
        hashes = [chunk_hash(self.folder, part, number, content) for part, content in parts]
        marks = np.full((len(rows), HASH_COLUMNS), hashes, dtype=np.int64)
        with self.location.writing(self.folder, "rows", f"{number}.0"):
            arrays.rows[span] = np.concatenate([rows, marks], 1)  # (m, k + 2)
        with self.location.writing(self.folder, "weights", f"{number}.0"):
            arrays.weights[span] = weights
        return True

    def _rows(self, cohort: Cohort) -> Tensor:
        """(m, k) the secrets' rows in the pool, found by dealing a pool whose features are row numbers."""
        pool, start = self.game.pool, int(cohort.index[0])
        numbered = replace(pool, features=torch.arange(len(pool), device=pool.x.device).unsqueeze(1))
        numbers = self.game._replace(pool=numbered).deal(range(start, start + len(cohort))).own.features  # (m, k, 1)
        rows = None if numbers is None else numbers[..., 0]
        pairs = [] if rows is None else [(pool[rows].inputs, cohort.own.inputs), (pool[rows].y, cohort.own.y)]
        if rows is None or not all(torch.equal(*pair) for pair in pairs):
            raise ValueError(
                f"Store: {type(self.game.threat).__name__} deals records that are not rows of the prior, "
                "but a store keeps only row numbers. Leave store out."
            )
        return rows

    def _begin(self, layout: Layout) -> _Arrays:
        """The arrays to write to, created if nothing has been stored."""
        attributes = {"words": self.description, "layout": layout._asdict(), "made_with": {**versions(), **build()}}
        self.location.declare(self.folder, {**attributes, "checksum": key(attributes)})
        self._check_build()  # another writer may have been faster
        return self._open()

    def builds(self) -> list[dict[str, str]]:
        """The versions that trained the stored models; several if they were mixed, none if nothing is stored."""
        if (header := self._header()) is None:
            return []
        builds = [build_of(header[1])]
        for name in sorted(self.location.names(self.folder)):
            if name.startswith(BUILD_PREFIX):
                path = f"{self.folder}/{name}"
                with self.location.reading(f"{path}/{MARKER}", path):
                    made_with = self.location.attributes(path)
                    if name != BUILD_PREFIX + key(made_with):
                        raise ValueError("its versions do not match its name")
                builds.append(build_of(made_with))
        return builds

    def _check_build(self) -> None:
        """Raise ValueError if models of other versions are stored, unless they may be mixed: then note that."""
        builds = self.builds()
        if not builds or build() in builds:
            return
        if not self.allow_mixed:
            raise ValueError(
                f"Store: {self.location.shown(self.folder)} holds models of other versions, which may differ from "
                f"those trained now: {differences(builds[-1], 'store')}. Nothing was changed. The stored models can "
                "be read. To train more, use a new folder or those versions, or mix them: "
                "lw.simulate(..., allow_mixed=True)."
            )
        self._note_build(build())

    def _note_build(self, made_with: Mapping[str, str]) -> None:
        """Store, beside the models, the versions that trained some of them."""
        self.location.declare(f"{self.folder}/{BUILD_PREFIX}{key(made_with)}", made_with)

    def _header(self) -> tuple[Layout, dict[str, str]] | None:
        """The stored layout and versions; None if nothing has been stored."""
        path = f"{self.folder}/{MARKER}"
        if not self.location.holds(path):
            return None
        with self.location.reading(path, self.folder):
            header = self.location.attributes(self.folder)
            if header.pop("checksum") != key(header) or header["words"] != self.description:
                raise ValueError("its description does not match its name")
            layout = Layout(**header["layout"])
            if layout.chunk != self.chunk:
                raise ValueError(f"it holds chunks of {layout.chunk} models, not {self.chunk}")
        return layout, header["made_with"]

    def _open(self) -> _Arrays:
        """The arrays, checked against the layout; one that was not declared yet is declared."""
        import zarr
        from zarr.storage import MemoryStore

        if (header := self._header()) is None:
            raise ValueError(f"Store: {self.location.shown(self.folder)} holds no models yet. Fill it first.")
        layout, arrays = header[0], []
        for name in PARTS:
            path = f"{self.folder}/{name}"
            if not self.location.holds(path, MARKER):
                with self.location.writing(path, MARKER), suppress(zarr.errors.ContainsArrayError):
                    layout.declare(self.location.arrays, self.folder, name)
            with self.location.reading(f"{path}/{MARKER}", f"{path}/{MARKER}"):
                array = zarr.open_array(self.location.arrays, path=path, mode="r+", config={"write_empty_chunks": True})
                declared = layout.declare(MemoryStore(), self.folder, name)
                if array.metadata.to_dict() != declared.metadata.to_dict():
                    raise ValueError("it declares an array that does not fit the models of this game")
            arrays.append(array)
        return _Arrays(layout, *arrays)

    def _each(self, numbers: Sequence[int], models: int) -> Iterator[tuple[Cohort, Release]]:
        """The chunks with these numbers, cut to the first `models`."""
        arrays, pool, shared = self._open(), self.game.pool, self.game.deal(range(1)).shared
        for number in numbers:
            weights, rows = self._chunk(arrays, number)
            index = torch.arange(number * self.chunk, min((number + 1) * self.chunk, models))  # (m,)
            flat, in_pool = (torch.from_numpy(part[: len(index)]).to(pool.x.device) for part in (weights, rows))
            yield Cohort(shared, pool[in_pool], index.to(pool.x.device)), arrays.layout.split(flat)

    def _chunk(self, arrays: _Arrays, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """(m, p) weights and (m, k) rows of one whole chunk, checked against their hashes."""
        span, k = slice(number * self.chunk, (number + 1) * self.chunk), arrays.layout.secrets
        files = {part: f"{self.folder}/{part}/{number}.0" for part in PARTS}
        contents = {}
        for part, array in (("weights", arrays.weights), ("rows", arrays.rows)):
            with self.location.reading(files[part], files[part]):
                contents[part] = np.asarray(array[span])
                if not self.location.holds(files[part]):
                    raise ValueError("it does not exist")
        weights, rows = contents["weights"], np.ascontiguousarray(contents["rows"][:, :k])
        with self.location.reading(files["rows"], files["rows"]):
            if not ((rows >= 0) & (rows < len(self.game.pool))).all():
                raise ValueError("it names rows that the prior does not have")
        for part, content, hashes in (
            ("rows", rows, contents["rows"][:, k + 1 :]),
            ("weights", weights, contents["rows"][:, k : k + 1]),
        ):
            with self.location.reading(files[part], files[part]):
                if (hashes != chunk_hash(self.folder, part, number, content)).any():
                    raise ValueError("it is not the chunk that was written here")
        return weights, rows


class _Arrays(NamedTuple):
    layout: Layout
    weights: zarr.Array[Any]  # (models, p)
    rows: zarr.Array[Any]  # (models, k)


@final
@dataclass(frozen=True)
class Store:
    """A zarr group (format 3) in a folder or under any fsspec URL, with one subgroup per game.

    A game is identified by a hash of everything that determines its models (`identity`); the description is stored too.
    The store holds the weights and the secrets' rows in the prior, but not published training steps. No pickle.
    """

    where: str | Path
    allow_mixed: bool = False  # add to models of another version of lostwax, torch or numpy

    def __post_init__(self) -> None:
        check_fields(self)

    def open(self, game: Game) -> StoredGame:
        """The models of a game, possibly none; raises ValueError if the folder holds something else."""
        location = Location.at(self.where)
        _check_store(location)
        tile, numbers = game.tile(), sum(value.numel() for value in game.net.parameters()) or 1
        chunk = tile * max(1, min(-(-MIN_CHUNK_MODELS // tile), MAX_CHUNK_BYTES // (8 * numbers * tile)))
        return StoredGame(location, game, identity(game), chunk, self.allow_mixed)

    def simulate(
        self, game: Game, *, models: int, engine: Engine, announce: bool = True, part: tuple[int, int] = (1, 1)
    ) -> Iterator[tuple[Cohort, Release]]:
        """Train and store the missing ones of the first `models`, then read all; `announce` says so on stderr."""
        if models < 1:
            raise ValueError(f"Store: expected models >= 1, got {models}.")
        stored = self.open(game)
        if announce:
            print(_announcement(stored, models), file=sys.stderr)
        stored.fill(models, engine, part)
        return stored.read(models)


def _check_store(location: Location) -> None:
    """Raise ValueError if the folder is neither a store nor empty."""
    names = location.names()
    if MARKER not in names:
        others = sorted(name for name in names if not re.fullmatch("[0-9a-f]{16}", name))  # not the folder of a game
        if others:
            raise ValueError(
                f"Store: {location.name} is not a shadow store: it holds {', '.join(others[:3])}. Nothing was changed. "
                "Use an existing store, or a new or empty folder."
            )
        return
    with location.reading(MARKER, MARKER):
        attributes = location.attributes()
    if attributes.get("format") != FORMAT:
        raise ValueError(
            f"Store: {location.name} holds other zarr data. Nothing was changed. Use a store, or a new folder."
        )
    if (version := attributes.get("version")) != VERSION:
        raise ValueError(
            f"Store: {location.name} has version {version}, but this lostwax reads version {VERSION}. Nothing was "
            "changed. Upgrade lostwax, or use a new folder."
        )


def _announcement(stored: StoredGame, models: int) -> str:
    """What is stored, what will be trained, and why."""
    name, asked = stored.location.name, stored.chunks(models)
    there = len(stored.present() & set(range(asked))) * stored.chunk
    missing = f"{asked * stored.chunk - there:,} in chunks of {stored.chunk:,}"
    others = [differences(made_with, "store") for made_with in stored.builds() if made_with != build()]
    mixed = "".join(f"\nSome or all were trained with other versions: {text}." for text in others)
    if there >= models:
        return f"{name}: found all {models:,} shadow models of this game.{mixed}"
    if there:
        return f"{name}: found {there:,} shadow models of this game, training {missing}.{mixed}"
    reasons = _differences(stored)
    nearest = "." if not reasons else ". The nearest game differs in\n  " + "\n  ".join(reasons)
    if len(reasons) == 1 and reasons[0].startswith("net.start:"):
        nearest += (
            "\nNew torch layers have random weights. To reuse stored models, call torch.manual_seed before creating "
            "the net, or set an initialisation: init=lw.inits.LeCunNormal()."
        )
    return f"{name}: no shadow models of this game yet, training {missing}{nearest}"


def _differences(stored: StoredGame) -> list[str]:
    """How this game differs from the most similar stored one, field by field."""
    differences = []
    for folder in sorted(stored.location.names() - {MARKER}):
        marker = f"{folder}/{MARKER}"
        with suppress(Exception), stored.location.reading(marker, marker):  # a damaged game is reported when it is read
            theirs, ours = stored.location.attributes(folder)["words"], stored.description
            values = {name: (theirs.get(name, "nothing"), ours.get(name, "nothing")) for name in {**ours, **theirs}}
            unlike = [f"{name}: store has {a}, this run has {b}" for name, (a, b) in values.items() if a != b]
            differences.append(unlike)
    return min(differences, key=len, default=[])
