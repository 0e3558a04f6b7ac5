"""`lostwax list`: all attacks, trainers, metrics or bounds, found in their packages."""

from __future__ import annotations

import inspect
import re
import shutil
import textwrap
from collections.abc import Iterable
from types import ModuleType
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

What = Literal["attacks", "trainers", "metrics", "bounds"]


def show(what: Positional[Annotated[What, arg(metavar="attacks|trainers|metrics|bounds")]]) -> None:
    """List attacks, trainers, metrics, or functions that bound the success of every attack, with a line on each.

    Args:
        what: Which list.
    """
    print(listed(what))


def listed(what: What) -> str:
    """A line on each part, as its docstring begins."""
    import lostwax as lw

    if what == "attacks":
        lines = _lines(_kinds(lw.attacks, "prepare"))
        return f"{lines}\n\nWhich apply to a game, and why others do not: audit.left_out, without attack=."
    if what == "trainers":
        return _lines([kind for room in (lw.trainers, lw.defences, lw.adapters) for kind in _kinds(room, "tile_size")])
    if what == "metrics":
        return _lines(kind for kind in _kinds(lw.metrics, "__call__") if hasattr(kind, "better"))
    parts = [getattr(lw.bounds, name) for name in lw.bounds.__all__]
    return _lines(part for part in parts if inspect.isfunction(part) or hasattr(part, "ceiling"))


def _kinds(room: ModuleType, method: str) -> list[Any]:
    values = [getattr(room, name) for name in room.__all__]
    return [value for value in values if inspect.isclass(value) and callable(getattr(value, method, None))]


def _lines(things: Iterable[Any]) -> str:
    docs = {thing.__name__: (inspect.getdoc(thing) or "").split("\n\n")[0] for thing in things}
    rows = [(name, re.split(r"(?<=\.) (?=[A-Z])", " ".join(doc.split()))[0].rstrip(":")) for name, doc in docs.items()]
    indent, width = max(len(name) for name, _ in rows) + 2, shutil.get_terminal_size((120, 24)).columns
    return "\n".join(
        textwrap.fill(line, min(120, max(60, width)), initial_indent=name.ljust(indent), subsequent_indent=" " * indent)
        for name, line in rows
    )
