"""What tells a shadow store from other folders: the attributes of its root."""

from __future__ import annotations

import re
from contextlib import suppress

from lostwax.shadows.place import Place

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
