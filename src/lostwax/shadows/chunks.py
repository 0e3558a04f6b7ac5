"""The stored shadow models of one game."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Cohort, Records, Release
from lostwax.progress import progress
from lostwax.provenance import versions
from lostwax.seeds import generator
from lostwax.shadows.game import Engine, Game, together
from lostwax.shadows.identity import key

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store as ZarrStore


# A folder or any fsspec URL, as files and as zarr sees it.


PARTIAL = ".partial"  # what zarr calls a file until it is whole


class Place(NamedTuple):
    """Where a store lies. A file appears there whole or not at all: renamed in a folder, one put in a bucket."""

    name: str  # as the user says it
    files: Any  # fsspec's file system (untyped)
    root: str
    arrays: ZarrStore

    @classmethod
    def at(cls, where: str | Path) -> Place:
        """The folder or URL; nothing is made there yet."""
        from fsspec import url_to_fs
        from fsspec.implementations.local import LocalFileSystem
        from zarr.storage import FsspecStore, LocalStore

        name = str(where)
        try:
            files, root = url_to_fs(name, use_listings_cache=False)
            local = isinstance(files, LocalFileSystem)
            arrays = LocalStore(root) if local else FsspecStore.from_url(name)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"Store: {name} is neither a folder nor a URL that fsspec can open here ({error})."
            ) from error
        return cls(name, files, root.rstrip("/"), arrays)

    def path(self, *parts: str) -> str:
        """As fsspec wants it, and as a person can find it."""
        return "/".join((self.root, *parts))

    def holds(self, *parts: str) -> bool:
        """Whether a file is there, whole, at this moment."""
        return bool(self.files.exists(self.path(*parts)))

    def names(self, *parts: str) -> set[str]:
        """What lies in a folder, files in the making left out; nothing in one that is not there."""
        path = self.path(*parts)
        self.files.invalidate_cache()
        try:
            if self.files.isfile(path):
                raise ValueError(f"Store: {path} is a file. Name a folder or a URL.")
            found = self.files.ls(path, detail=False)
        except FileNotFoundError:
            return set()
        except PermissionError as error:
            raise _unreadable(path) from error
        names = {str(path).rstrip("/").rpartition("/")[2] for path in found}
        return {name for name in names if not name.endswith(PARTIAL)}

    def sweep(self, *parts: str) -> None:
        """Remove what killed writers left half-written of files that are there by now.

        Another writer of the same file may be at work on it: it finds its half gone and the same bytes in place.
        """
        folder = Path(self.path(*parts))
        if self.files.protocol[0] != "file" or not folder.is_dir():
            return
        whole = {path.stem for path in folder.iterdir() if path.suffix != PARTIAL}
        for path in folder.glob(f"*{PARTIAL}"):
            if path.name.split(".")[0] in whole:
                with suppress(OSError):  # somebody else's, or a folder that may only be read
                    path.unlink()

    @contextmanager
    def reading(self, path: str, cure: str) -> Iterator[None]:
        """Whatever is raised over damaged bytes, said in one way: which file, and what to delete to be rid of it."""
        try:
            self._check_regular(path)
            yield
        except PermissionError as error:
            raise _unreadable(self.path(path)) from error
        except (ConnectionError, TimeoutError, MemoryError):  # the bytes may be sound
            raise
        except Exception as error:  # zarr and its codecs raise many kinds
            raise ValueError(
                f"Store: {self.path(path)} is damaged ({error}). Nothing was changed. Restore it from a copy, or "
                f"delete {self.path(cure)} and run again: what is missing is made anew."
            ) from error

    @contextmanager
    def writing(self, *parts: str) -> Iterator[None]:
        """What keeps a file from being written, and the cure.

        Where another writer was faster with the same bytes, and has swept up, that is none.
        """
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.holds(*parts):
                return
            raise OSError(
                f"Store: cannot write to {self.name}: {self.path(*parts)} ({error.strerror or error}). What was "
                "written before stays. Make room there or get the right to write, or name another store."
            ) from error

    def _check_regular(self, path: str) -> None:
        """A folder has no bytes, and a pipe would be waited for without end."""
        found = Path(self.path(path))
        if self.files.protocol[0] == "file" and found.exists() and not found.is_file():
            raise ValueError("it is no regular file")


def _unreadable(path: str) -> PermissionError:
    return PermissionError(f"Store: {path} may not be read. Get the right to, or name another store.")


# How the models of a game lie in zarr: weights (models, p), and the secrets' rows in the prior (models, k).
#
# Both arrays are declared far longer than anybody will fill them, so that no file ever has to be changed: the chunks
# that are there are the truth. crc32c, a codec of zarr's, tells a whole chunk from a damaged one, but not from another
# chunk: so two columns beside the rows are marks, hashes of the shelf, the chunk's number, and its weights or its rows.
# Shelves of stores of version 1 have no marks.


MOST_MODELS = 2**40
NO_ROW = -1
MARKS = 2  # of the weights, and of the rows
_DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


class Layout(NamedTuple):
    """What one model is made of, and how many make a chunk."""

    parameters: dict[str, list[int]]  # shapes, in the order in which they lie side by side
    dtype: str
    secrets: int  # k
    chunk: int
    marks: int = 0

    @classmethod
    def of(cls, release: Release, secrets: int, marks: int = MARKS) -> Layout:
        """The layout of models like these, one chunk of them."""
        dtypes = {value.dtype for value in release.params.values()}
        if len(dtypes) != 1 or not dtypes <= set(_DTYPES):
            raise ValueError(
                f"Store: expected all parameters of a model in one dtype of {', '.join(_DTYPES.values())}, got "
                f"{', '.join(sorted(map(str, dtypes)))}. Cast what the trainer releases, or leave store out."
            )
        shapes = {name: list(value.shape[1:]) for name, value in release.params.items()}
        return cls(shapes, _DTYPES[dtypes.pop()], secrets, len(release), marks)

    def words(self) -> dict[str, Any]:
        """As it is stored; an older lostwax finds nothing that it does not know where there are no marks."""
        held = self._asdict()
        return held if self.marks else {name: value for name, value in held.items() if name != "marks"}

    def split(self, flat: Tensor) -> Release:
        """The inverse of `Release.flat`."""
        pieces = torch.split(flat, [math.prod(shape) for shape in self.parameters.values()], 1)  # (m, size) each
        named = zip(self.parameters.items(), pieces, strict=True)
        return Release({name: piece.reshape(-1, *shape) for (name, shape), piece in named})

    def weights(self, store: ZarrStore, folder: str) -> zarr.Array[Any]:
        """Declare the weights, (models, p)."""
        width = sum(math.prod(shape) for shape in self.parameters.values())
        return self._declare(store, f"{folder}/weights", width, self.dtype, math.nan)

    def rows(self, store: ZarrStore, folder: str) -> zarr.Array[Any]:
        """Declare the rows, (models, k + marks)."""
        return self._declare(store, f"{folder}/rows", self.secrets + self.marks, "int64", NO_ROW)

    def _declare(self, store: ZarrStore, name: str, width: int, dtype: str, empty: float) -> zarr.Array[Any]:
        import zarr
        from zarr.codecs import Crc32cCodec

        return zarr.create_array(
            store,
            name=name,
            shape=(MOST_MODELS, width),
            chunks=(self.chunk, width),
            dtype=dtype,
            fill_value=empty,
            compressors=[Crc32cCodec()],
            chunk_key_encoding={"name": "v2", "separator": "."},  # chunk 17 is the file 17.0
            config={"write_empty_chunks": True},  # presence is the truth, whatever a chunk holds
        )


def mark(folder: str, part: str, number: int, content: NDArray[Any]) -> int:
    """By which a chunk is known in its place: a hash of the shelf, the array, the number and the bytes."""
    digest = blake2b(f"{folder}/{part}/{number}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(content).data.cast("B"))
    return int.from_bytes(digest.digest(), "little", signed=True)


# What tells a shadow store from other folders: the attributes of its root.


FORMAT = "lostwax shadow store"
VERSION = 2  # raised when the layout changes, or when the same words come to mean other models
UNMARKED = 1  # is read and filled as well: its chunks do not know their place
SIGN = "zarr.json"


def check(place: Place) -> int:
    """The version of the store; a place that is neither a store nor empty is refused."""
    import zarr

    names = place.names()
    if SIGN not in names:
        foreign = sorted(name for name in names if not re.fullmatch("[0-9a-f]{16}", name))  # not the name of a shelf
        if foreign:
            raise ValueError(
                f"Store: {place.name} is not a shadow store: it holds {', '.join(foreign[:3])}. Nothing was changed. "
                "Name a store, or a folder that is new or empty."
            )
        return VERSION
    with place.reading(SIGN, SIGN):
        held = zarr.open_group(place.arrays, mode="r").attrs.asdict()
    if held.get("format") != FORMAT:
        raise ValueError(
            f"Store: {place.name} holds zarr data of another kind. Nothing was changed. Name a store, or a new folder."
        )
    version = held.get("version")
    if version != VERSION and version != UNMARKED:
        raise ValueError(
            f"Store: {place.name} is of version {version}, and this lostwax reads {UNMARKED} and {VERSION}. Nothing "
            "was changed. Upgrade lostwax, or name a new folder."
        )
    return int(version)


def put_up(place: Place) -> None:
    """Make the place a store, where it is none yet."""
    import zarr

    if not place.holds(SIGN):
        with place.writing(SIGN), suppress(zarr.errors.ContainsGroupError):
            zarr.create_group(place.arrays, attributes={"format": FORMAT, "version": VERSION})


@dataclass(frozen=True)
class Shelf:
    """Models by number, `chunk` of them a file, in whole chunks; a file appears whole, and none is ever changed.

    Any number of processes may fill a shelf at once without knowing of each other. Two that train the same chunk write
    the same bytes, so it does not matter whose stay.
    """

    place: Place
    game: Game
    words: dict[str, str]  # all that decides the models
    chunk: int
    marks: int  # columns beside the rows, in a shelf that is begun here

    @property
    def folder(self) -> str:
        """A hash of the words."""
        return key(self.words)

    def present(self) -> set[int]:
        """The chunks that are there."""
        weights, rows = (self.place.names(self.folder, part) for part in ("weights", "rows"))
        names = (name.removesuffix(".0") for name in weights & rows)
        return {int(name) for name in names if name.isdecimal()}

    def chunks(self, models: int) -> int:
        """How many chunks hold so many models."""
        return -(-models // self.chunk)

    def fill(self, models: int, engine: Engine) -> None:
        """Train what is missing of the first `models`, rounded up to whole chunks.

        In order while alone; at random once another writer has been noticed, so that they seldom meet.
        """
        put_up(self.place)
        missing = sorted(set(range(self.chunks(models))) - self.present())
        crowded = False

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
                arrays = arrays or self._begin(Layout.of(release, cohort.secrets, self.marks))
                crowded |= not self._write(arrays, cohort, release)
                advance(len(cohort))
        for parts in ((), (self.folder,), (self.folder, "weights"), (self.folder, "rows")):
            self.place.sweep(*parts)

    def read(self, models: int) -> Iterator[tuple[Cohort, Release]]:
        """The first `models` in order, a chunk at a time."""
        return self._each(range(self.chunks(models)), models)

    def shuffled(self, models: int, *, batch: int, seed: int, buffer: int = 8) -> Iterator[tuple[Cohort, Release]]:
        """The first `models`, each once, in random order, in batches of up to `batch`.

        Chunks come in random order, and models are shuffled within every `buffer` of them: so many are in memory.
        """
        for setting, value in (("batch", batch), ("buffer", buffer)):
            if value < 1:
                raise ValueError(f"Shelf.shuffled: expected {setting} >= 1, got {value}.")
        draws = generator(seed, "shuffle")
        numbers = draws.permutation(self.chunks(models)).tolist()
        for first in range(0, len(numbers), buffer):
            cohort, release = together(list(self._each(numbers[first : first + buffer], models)))
            order = torch.from_numpy(draws.permutation(len(cohort))).to(cohort.index.device)
            for rows in torch.split(order, batch):
                yield cohort[rows], Release({name: value[rows] for name, value in release.params.items()})

    def _holds(self, number: int) -> bool:
        return all(self.place.holds(self.folder, part, f"{number}.0") for part in ("weights", "rows"))

    def _write(self, arrays: _Arrays, cohort: Cohort, release: Release) -> bool:
        """One chunk, its weights last, for they tell that it is whole; False where another writer was faster."""
        layout = Layout.of(release, cohort.secrets, arrays.layout.marks)
        if layout != arrays.layout:
            raise ValueError(
                f"Store: {self.place.path(self.folder)} holds models of {arrays.layout}, but the trainer released "
                f"{layout}. All models of a game must be alike."
            )
        number = int(cohort.index[0]) // self.chunk
        if self._holds(number):
            return False
        span = slice(number * self.chunk, (number + 1) * self.chunk)
        rows, weights = self._rows(cohort).cpu().numpy(), release.flat().detach().cpu().numpy()
        with self.place.writing(self.folder, "rows", f"{number}.0"):
            arrays.rows[span] = self._marked(rows, weights, number, layout.marks)
        with self.place.writing(self.folder, "weights", f"{number}.0"):
            arrays.weights[span] = weights
        return True

    def _rows(self, cohort: Cohort) -> Tensor:
        """(m, k) which records of the pool the secrets are: told by dealing a pool whose features are row numbers."""
        pool, start = self.game.pool, int(cohort.index[0])
        numbered = replace(pool, features=torch.arange(len(pool), device=pool.x.device).unsqueeze(1))
        dealt = self.game._replace(pool=numbered).deal(range(start, start + len(cohort))).own.features  # (m, k, 1)
        if dealt is None or not _same(pool[dealt[..., 0]], cohort.own):
            raise ValueError(
                f"Store: {type(self.game.threat).__name__} deals records that do not stand in the prior as they are, "
                "and a store keeps records by their rows there. Leave store out."
            )
        return dealt[..., 0]

    def _marked(self, rows: NDArray[Any], weights: NDArray[Any], number: int, marks: int) -> NDArray[Any]:
        """(m, k + marks) the rows, and beside each the marks of its chunk."""
        found = [mark(self.folder, part, number, held) for part, held in (("weights", weights), ("rows", rows))][:marks]
        return np.concatenate([rows, np.full((len(rows), marks), found, dtype=np.int64)], 1)

    def _begin(self, layout: Layout) -> _Arrays:
        """The arrays to write to; where nothing has been stored, the shelf is declared first."""
        import zarr

        if self._layout() is None:
            held = {"words": self.words, "layout": layout.words(), "made_with": versions()}
            with self.place.writing(self.folder, "zarr.json"), suppress(zarr.errors.ContainsGroupError):
                zarr.create_group(self.place.arrays, path=self.folder, attributes={**held, "checksum": key(held)})
        return self._open()

    def _layout(self) -> Layout | None:
        """What a stored model is made of; None where nothing has been stored."""
        import zarr

        path = f"{self.folder}/zarr.json"
        if not self.place.holds(path):
            return None
        with self.place.reading(path, self.folder):
            held: dict[str, Any] = zarr.open_group(self.place.arrays, path=self.folder, mode="r").attrs.asdict()
            checksum = held.pop("checksum")
            if checksum != key(held) or held["words"] != self.words:
                raise ValueError("its words are not those of its name")
            layout = Layout(**held["layout"])
            if layout.chunk != self.chunk:
                raise ValueError(f"it holds chunks of {layout.chunk} models, not {self.chunk}")
        return layout

    def _open(self) -> _Arrays:
        """The arrays, just as the layout asks; one whose declaration is not there is declared."""
        import zarr
        from zarr.storage import MemoryStore

        layout = self._layout()
        if layout is None:
            raise ValueError(f"Store: {self.place.path(self.folder)} holds no models yet. Fill it first.")
        found = []
        for name, declare in (("weights", layout.weights), ("rows", layout.rows)):
            path = f"{self.folder}/{name}"
            if not self.place.holds(path, "zarr.json"):
                with self.place.writing(path, "zarr.json"), suppress(zarr.errors.ContainsArrayError):
                    declare(self.place.arrays, self.folder)
            with self.place.reading(f"{path}/zarr.json", f"{path}/zarr.json"):
                array = zarr.open_array(self.place.arrays, path=path, mode="r+", config={"write_empty_chunks": True})
                if array.metadata.to_dict() != declare(MemoryStore(), self.folder).metadata.to_dict():
                    raise ValueError("it declares another array than the models of this game need")
            found.append(array)
        return _Arrays(layout, *found)

    def _each(self, numbers: Sequence[int], models: int) -> Iterator[tuple[Cohort, Release]]:
        """The chunks with these numbers, as far as they belong to the first `models`."""
        arrays, pool, shared = self._open(), self.game.pool, self.game.deal(range(1)).shared
        for number in numbers:
            weights, rows = self._chunk(arrays, number)
            index = torch.arange(number * self.chunk, min((number + 1) * self.chunk, models))  # (m,)
            flat, places = (torch.from_numpy(part[: len(index)]).to(pool.x.device) for part in (weights, rows))
            yield Cohort(shared, pool[places], index.to(pool.x.device)), arrays.layout.split(flat)

    def _chunk(self, arrays: _Arrays, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """(m, p) weights and (m, k) rows of one whole chunk, each known to be the one of this place."""
        span, k = slice(number * self.chunk, (number + 1) * self.chunk), arrays.layout.secrets
        files = {part: f"{self.folder}/{part}/{number}.0" for part in ("weights", "rows")}
        held = {}
        for part, array in (("weights", arrays.weights), ("rows", arrays.rows)):
            with self.place.reading(files[part], files[part]):
                held[part] = np.asarray(array[span])
                if not self.place.holds(files[part]):
                    raise ValueError("it is not there")
        weights, rows = held["weights"], np.ascontiguousarray(held["rows"][:, :k])
        with self.place.reading(files["rows"], files["rows"]):
            if not ((rows >= 0) & (rows < len(self.game.pool))).all():
                raise ValueError("it names rows that the prior does not have")
            self._check_marks(held["rows"][:, k + 1 :], "rows", number, rows)
        with self.place.reading(files["weights"], files["weights"]):
            self._check_marks(held["rows"][:, k : k + 1][:, : arrays.layout.marks], "weights", number, weights)
        return weights, rows

    def _check_marks(self, marks: NDArray[Any], part: str, number: int, content: NDArray[Any]) -> None:
        """Raise where a chunk is not the one that was written here; without marks there is nothing to compare."""
        if marks.size and (marks != mark(self.folder, part, number, content)).any():
            raise ValueError("it is not the chunk that was written here")


def _same(one: Records, other: Records) -> bool:
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.y, other.y)


class _Arrays(NamedTuple):
    """An open shelf."""

    layout: Layout
    weights: zarr.Array[Any]  # (models, p)
    rows: zarr.Array[Any]  # (models, k)
