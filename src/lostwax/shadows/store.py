"""Shadow models kept on disk or in a bucket: trained once, resumed, topped up, shared."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from lostwax.fields import check_fields
from lostwax.games import Cohort, Release
from lostwax.shadows.chunks import MARKS, SIGN, UNMARKED, Place, Shelf, check
from lostwax.shadows.game import Engine, Game
from lostwax.shadows.identity import identity

FEWEST_MODELS, MOST_BYTES = 16, 32 << 20  # in a chunk, where the trainer's tiles allow


@final
@dataclass(frozen=True)
class Store:
    """A zarr group (format 3) in a folder or under any fsspec URL, with a shelf for each game.

    A shelf is named by a hash of all that decides its models (`identity`), and keeps it in words: a game that is not
    there hears how it differs from the nearest one that is. Kept are the weights and the rows of the secrets in the
    prior; not the steps that some releases publish. No pickle.
    """

    where: str | Path

    def __post_init__(self) -> None:
        check_fields(self)

    def shelf(self, game: Game) -> Shelf:
        """The shelf of a game, be it empty; a place that holds something else is refused."""
        place = Place.at(self.where)
        marks = MARKS if check(place) > UNMARKED else 0
        return Shelf(place, game, identity(game), _chunk(game), marks)

    def simulate(
        self, game: Game, *, models: int, engine: Engine, announce: bool = True
    ) -> Iterator[tuple[Cohort, Release]]:
        """Train and store what is missing of the first `models`, and say so on stderr; then read them in order."""
        if models < 1:
            raise ValueError(f"Store: expected models >= 1, got {models}.")
        shelf = self.shelf(game)
        if announce:
            print(_announcement(shelf, models), file=sys.stderr)
        shelf.fill(models, engine)
        return shelf.read(models)


def _chunk(game: Game) -> int:
    """How many models a file holds: whole tiles, at least one, by the sizes of the game alone."""
    tile, numbers = game.tile(), sum(value.numel() for value in game.net.parameters()) or 1
    return tile * max(1, min(-(-FEWEST_MODELS // tile), MOST_BYTES // (8 * numbers * tile)))


def _announcement(shelf: Shelf, models: int) -> str:
    """What is there, what will be trained, and why."""
    name, asked = shelf.place.name, shelf.chunks(models)
    there = len(shelf.present() & set(range(asked))) * shelf.chunk
    missing = f"{asked * shelf.chunk - there:,} in chunks of {shelf.chunk:,}"
    if there >= models:
        return f"{name}: all {models:,} shadow models of this game are there."
    if there:
        return f"{name}: {there:,} shadow models of this game are there, training {missing}."
    reasons = _differences(shelf)
    nearest = "." if not reasons else ". The nearest game differs in\n  " + "\n  ".join(reasons)
    if len(reasons) == 1 and reasons[0].startswith("net.start:"):
        nearest += (
            "\nFresh torch layers are random: to find these models again, call torch.manual_seed before the net is "
            "made, or name a start, init=lw.inits.LeCunNormal()."
        )
    return f"{name}: no shadow models of this game yet, training {missing}{nearest}"


def _differences(shelf: Shelf) -> list[str]:
    """How this game differs from the one in the store that is most like it, field by field."""
    import zarr

    found = []
    for folder in sorted(shelf.place.names() - {SIGN}):
        sign = f"{folder}/{SIGN}"
        with (
            suppress(Exception),
            shelf.place.reading(sign, sign),
        ):  # another game's shelf: whatever is wrong with it is said when it is asked for
            held: dict[str, Any] = zarr.open_group(shelf.place.arrays, path=folder, mode="r").attrs.asdict()
            found.append(_unlike(held["words"], shelf.words))
    return min(found, key=len, default=[])


def _unlike(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    names = [*ours, *(name for name in theirs if name not in ours)]
    return [
        f"{name}: store has {theirs.get(name, 'nothing')}, this run has {ours.get(name, 'nothing')}"
        for name in names
        if theirs.get(name) != ours.get(name)
    ]
