"""The stored shadow models of one game."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.progress import progress
from lostwax.provenance import versions
from lostwax.seeds import generator
from lostwax.shadows.game import Engine, Game, together
from lostwax.shadows.identity import key
from lostwax.shadows.layout import Layout, mark
from lostwax.shadows.place import Place
from lostwax.shadows.sign import put_up
from lostwax.types import Cohort, Records, Release

if TYPE_CHECKING:
    import zarr


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
