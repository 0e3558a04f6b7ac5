"""What tells a shadow store from other folders: the attributes of its root."""

from __future__ import annotations

import re
from contextlib import suppress

from lostwax.shadows.place import Place

FORMAT = "lostwax shadow store"
VERSION = 1  # raised when the layout changes, or when the same words come to mean other models
SIGN = "zarr.json"


def check(place: Place) -> None:
    """Refuse a place that is neither a store nor empty."""
    import zarr

    names = place.names()
    if SIGN not in names:
        foreign = sorted(name for name in names if not re.fullmatch("[0-9a-f]{16}", name))  # not the name of a shelf
        if foreign:
            raise ValueError(
                f"Store: {place.name} is not a shadow store: it holds {', '.join(foreign[:3])}. Nothing was changed. "
                "Name a store, or a folder that is new or empty."
            )
        return
    with place.reading(SIGN, SIGN):
        held = zarr.open_group(place.arrays, mode="r").attrs.asdict()
    if held.get("format") != FORMAT:
        raise ValueError(
            f"Store: {place.name} holds zarr data of another kind. Nothing was changed. Name a store, or a new folder."
        )
    if held.get("version") != VERSION:
        raise ValueError(
            f"Store: {place.name} is of version {held.get('version')}, and this lostwax reads {VERSION}. Nothing was "
            "changed. Upgrade lostwax, or name a new folder."
        )


def put_up(place: Place) -> None:
    """Make the place a store, where it is none yet."""
    import zarr

    if not place.holds(SIGN):
        with place.writing(SIGN), suppress(zarr.errors.ContainsGroupError):
            zarr.create_group(place.arrays, attributes={"format": FORMAT, "version": VERSION})
