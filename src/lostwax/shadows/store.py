"""Shadow models on disk or in a bucket: trained once, then resumed, extended or shared."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from lostwax.fields import check_fields
from lostwax.games import Cohort, Release
from lostwax.shadows.chunks import MARKER, Location, StoredGame, check_store
from lostwax.shadows.game import Engine, Game
from lostwax.shadows.identity import identity

FEWEST_MODELS, MOST_BYTES = 16, 32 << 20  # per chunk, if the trainer's tile size allows


@final
@dataclass(frozen=True)
class Store:
    """A zarr group (format 3) in a folder or under any fsspec URL, with one subgroup per game.

    A game is identified by a hash of everything that determines its models (`identity`); the description is stored too.
    The store holds the weights and the secrets' rows in the prior, but not published training steps. No pickle.
    """

    where: str | Path

    def __post_init__(self) -> None:
        check_fields(self)

    def open(self, game: Game) -> StoredGame:
        """The models of a game, possibly none; raises ValueError if the folder holds something else."""
        location = Location.at(self.where)
        check_store(location)
        return StoredGame(location, game, identity(game), _chunk(game))

    def simulate(
        self, game: Game, *, models: int, engine: Engine, announce: bool = True
    ) -> Iterator[tuple[Cohort, Release]]:
        """Train and store the missing ones of the first `models`, then read all; `announce` says so on stderr."""
        if models < 1:
            raise ValueError(f"Store: expected models >= 1, got {models}.")
        stored = self.open(game)
        if announce:
            print(_announcement(stored, models), file=sys.stderr)
        stored.fill(models, engine)
        return stored.read(models)


def _chunk(game: Game) -> int:
    """Models per file: at least one whole tile; depends only on the sizes of net and data."""
    tile, numbers = game.tile(), sum(value.numel() for value in game.net.parameters()) or 1
    return tile * max(1, min(-(-FEWEST_MODELS // tile), MOST_BYTES // (8 * numbers * tile)))


def _announcement(stored: StoredGame, models: int) -> str:
    """What is stored, what will be trained, and why."""
    name, asked = stored.location.name, stored.chunks(models)
    there = len(stored.present() & set(range(asked))) * stored.chunk
    missing = f"{asked * stored.chunk - there:,} in chunks of {stored.chunk:,}"
    if there >= models:
        return f"{name}: found all {models:,} shadow models of this game."
    if there:
        return f"{name}: found {there:,} shadow models of this game, training {missing}."
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
    import zarr

    differences = []
    for folder in sorted(stored.location.names() - {MARKER}):
        marker = f"{folder}/{MARKER}"
        with suppress(Exception), stored.location.reading(marker, marker):  # a damaged game is reported when it is read
            attributes: dict[str, Any] = zarr.open_group(stored.location.arrays, path=folder, mode="r").attrs.asdict()
            differences.append(_unlike(attributes["words"], stored.description))
    return min(differences, key=len, default=[])


def _unlike(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    unlike = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
    has = [(name, theirs.get(name, "nothing"), ours.get(name, "nothing")) for name in unlike]
    return [f"{name}: store has {their_value}, this run has {our_value}" for name, their_value, our_value in has]
