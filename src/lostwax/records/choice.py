"""Names a user may mistype."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice


def check_choice(what: str, got: Hashable, choices: Sequence[Hashable]) -> None:
    """Refuse a name that is not among the choices, and suggest the nearest."""
    if got in choices:
        return
    near = get_close_matches(str(got), [str(choice) for choice in choices], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what}: expected one of {listing(map(repr, choices))}, got {got!r}.{hint}")


def listing(items: Iterable[str], most: int = 12) -> str:
    """The first few items, then how many more there are."""
    rest = iter(items)
    shown = ", ".join(islice(rest, most))
    more = sum(1 for _ in rest)
    return f"{shown} and {more} more" if more else shown
