"""`lostwax list`: all attacks, trainers, metrics or bounds, found in their packages."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import product, zip_longest
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from lostwax.numerals import side_by_side

if TYPE_CHECKING:
    from lostwax.games import Attack, Knowledge, Records, Threat, Trainer

What = Literal["attacks", "trainers", "metrics", "bounds"]
CLASSES = (3, 5, 2, 1)  # numbers of classes to try for an example that a threat can deal from


def show(what: Positional[Annotated[What, arg(metavar="attacks|trainers|metrics|bounds")]]) -> None:
    """List attacks and where they apply, trainers, metrics, or bounds.

    Args:
        what: Which list.
    """
    print(LISTS[what]())


def attacks() -> str:
    """Which attacks apply to which adversary and trainer, and why others do not."""
    import torch

    from lostwax import attacks as room
    from lostwax import games as threats
    from lostwax import trainers
    from lostwax.inits import LeCunNormal

    every = {kind.__name__: _with_defaults(kind, room.RecoNN()) for kind in _kinds(room, "prepare")}
    known, halves = _records(3, 6), torch.tensor([[[True] * 4] * 2 + [[False] * 4] * 2])  # (1, 4, 4)
    adversaries: tuple[Threat, ...] = (
        threats.Informed(known),
        threats.Informed(known, label_known=True),
        threats.Informed(known, parts=halves),
        threats.Informed(known, candidates=3),
        threats.Informed(known, secrets=2),
        threats.Weak(size=5),
        threats.Weak(size=2, per_class=(1, 0, 1)),
    )
    by_name = {_in_words(threat): threat for threat in adversaries}
    settings = {"DPSGD": {"noise_multiplier": 0.5}}
    trained = {  # without those that wrap another trainer
        kind.__name__: kind(**settings.get(kind.__name__, {}))
        for kind in _kinds(trainers, "tile_size")
        if _needed(kind) == [*settings.get(kind.__name__, {})]
    }
    trained["private start"] = trainers.GD(init=LeCunNormal(seed=None))

    def games(some: Iterable[Any], ways: Iterable[Any]) -> list[Knowledge]:
        return [_game(way, threat) for way, threat in product(ways, some)]

    by_threat = {name: games([threat], trained.values()) for name, threat in by_name.items()}
    by_trainer = {name: games(by_name.values(), [way]) for name, way in trained.items()}
    titles = (
        "By adversary (yes: applies with at least one trainer; [n]: why not):",
        "By trainer (yes: applies to at least one adversary; [n]: why not):",
    )
    return "\n\n".join(_matrix(title, every, by) for title, by in zip(titles, (by_threat, by_trainer), strict=True))


def _needed(kind: Any) -> list[str]:
    """The names of the fields without a default."""
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    return [field.name for field in dataclasses.fields(kind) if (field.default, field.default_factory) == missing]


def _with_defaults(kind: Any, inside: Attack) -> Any:
    """An attack with default settings; a field without a default takes the attack `inside`."""
    return kind(**dict.fromkeys(_needed(kind), inside))


def _game(trainer: Trainer, threat: Threat) -> Knowledge:
    """A small example game: a linear net, and a prior with a number of classes that the threat can deal from."""
    from torch import nn

    from lostwax.access import Weights
    from lostwax.games import Knowledge

    for classes in CLASSES:
        prior = _records(classes, 60)
        try:
            threat.deal(prior, 1, seed=0)
        except ValueError:
            continue
        net = nn.Sequential(nn.Flatten(), nn.Linear(16, classes))
        return Knowledge(net, trainer, threat, Weights(), prior)
    raise ValueError(f"lostwax list: {threat!r} cannot deal a training set from 60 records of {CLASSES} classes.")


def _records(classes: int, count: int) -> Records:
    import torch

    from lostwax.games import Records

    x = torch.rand(count, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    return Records(x, torch.arange(count) % classes)


def trainers() -> str:
    """All trainers."""
    from lostwax import adapters, defences
    from lostwax import trainers as room

    return _listed([*_kinds(room, "tile_size"), *_kinds(defences, "tile_size"), *_kinds(adapters, "tile_size")])


def metrics() -> str:
    """All metrics."""
    from lostwax import metrics as room

    return _listed(kind for kind in _kinds(room, "__call__") if hasattr(kind, "better"))


def bounds() -> str:
    """All functions that bound the success of every attack, and the samplings they take."""
    from lostwax import bounds as room

    parts = [getattr(room, name) for name in room.__all__]
    return _listed(part for part in parts if inspect.isfunction(part) or hasattr(part, "ceiling"))


LISTS: dict[str, Callable[[], str]] = {"attacks": attacks, "trainers": trainers, "metrics": metrics, "bounds": bounds}


def _kinds(room: ModuleType, method: str) -> list[Any]:
    values = [getattr(room, name) for name in room.__all__]
    return [value for value in values if inspect.isclass(value) and callable(getattr(value, method, None))]


def _listed(things: Iterable[Any]) -> str:
    docs = {thing.__name__: (inspect.getdoc(thing) or "").split("\n\n")[0] for thing in things}
    rows = [(name, re.split(r"(?<=\.) (?=[A-Z])", " ".join(doc.split()))[0].rstrip(":")) for name, doc in docs.items()]
    indent = max(len(name) for name, _ in rows) + 2
    return "\n".join(_wrapped(line, name.ljust(indent)) for name, line in rows)


def _matrix(title: str, rows: Mapping[str, Attack], columns: Mapping[str, list[Knowledge]]) -> str:
    """One row per attack; a cell is "yes" if it applies to any of the column's games, or the number of a reason.

    Columns with the same attacks are merged, with the reasons of the first. A shared reason is listed once.
    """
    every = [game for games in columns.values() for game in games]
    objections_by_column = {
        name: [_objection(attack, games, every) for attack in rows.values()] for name, games in columns.items()
    }
    attacks_by: dict[str, list[str]] = {}  # the attacks that a reason is about
    for objections in objections_by_column.values():
        for name, why in zip(rows, objections, strict=True):
            if why is not None and name not in attacks_by.setdefault(why, []):
                attacks_by[why].append(name)
    alike: dict[tuple[bool, ...], list[str]] = {}
    for name, objections in objections_by_column.items():
        alike.setdefault(tuple(why is None for why in objections), []).append(name)
    reasons = list(
        dict.fromkeys(why for names in alike.values() for why in objections_by_column[names[0]] if why is not None)
    )
    marks: dict[str | None, str] = {None: "yes", **{why: f"[{number}]" for number, why in enumerate(reasons, 1)}}
    cells = [[marks[why] for why in objections_by_column[names[0]]] for names in alike.values()]
    titles = [",\n".join(names) for names in alike.values()]
    lines = _table(titles, rows, cells)
    if max(map(len, lines)) > _width():
        lines = _table([name.replace("(", "\n(") for name in titles], rows, cells)
    notes = [_wrapped(f"{', '.join(attacks_by[why])}: {why}", f"[{number}] ") for number, why in enumerate(reasons, 1)]
    return "\n".join([title, *lines, "", *notes])


def _table(titles: list[str], rows: Iterable[str], cells: list[list[str]]) -> list[str]:
    """The lines of a table: titles of one or more lines, and a name before each row."""
    head = zip_longest(*(title.split("\n") for title in titles), fillvalue="")
    return side_by_side([*(("", *line) for line in head), *zip(rows, *cells, strict=True)])


def _wrapped(text: str, mark: str) -> str:
    """Lines no wider than the terminal, indented below the mark."""
    return textwrap.fill(text, _width(), initial_indent=mark, subsequent_indent=" " * len(mark))


def _width() -> int:
    return min(120, max(60, shutil.get_terminal_size((120, 24)).columns))


def _objection(attack: Attack, games: list[Knowledge], every: list[Knowledge]) -> str | None:
    """Why it applies to none of the games; of several reasons, the one about what these games have in common."""
    from lostwax.games.protocols import objection_to

    reasons = [objection_to(attack, game) for game in games]
    if None in reasons:
        return None
    applicable = [game for game in every if objection_to(attack, game) is None]

    def is_near(game: Knowledge) -> bool:
        return any(game.trainer is other.trainer or game.threat is other.threat for other in applicable)

    return next((reason for reason, game in zip(reasons, games, strict=True) if is_near(game)), reasons[0])


def _in_words(threat: Threat) -> str:
    """The threat's class with its non-default settings: Informed(candidates)."""
    assert dataclasses.is_dataclass(threat)
    changed = [
        field.name
        for field in dataclasses.fields(threat)
        if field.default is not dataclasses.MISSING and getattr(threat, field.name) is not field.default
    ]
    return f"{type(threat).__name__}({', '.join(changed)})" if changed else type(threat).__name__
