"""`lostwax list`: what there is, found by walking the rooms."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from lostwax.games import Attack, Knowledge, Records, Threat, Trainer

What = Literal["attacks", "trainers", "metrics", "bounds"]
CLASSES = (3, 5, 2, 1)  # of an example's records: the first that a threat can deal from


def show(what: Positional[Annotated[What, arg(metavar="attacks|trainers|metrics|bounds")]]) -> None:
    """Attacks and the games they apply to, trainers, metrics, or bounds.

    Args:
        what: Which list.
    """
    print(LISTS[what]())


def attacks() -> str:
    """Which attacks apply to which adversary and which training, and why others do not."""
    import torch

    from lostwax import attacks as room
    from lostwax import games as threats
    from lostwax import trainers
    from lostwax.inits import LeCunNormal

    players = {kind.__name__: _with_defaults(kind, room.RecoNN()) for kind in _kinds(room, "prepare")}
    known, halves = _records(3, 6), torch.arange(64).view(1, 8, 8) < 32
    adversaries: tuple[Threat, ...] = (
        threats.Informed(known),
        threats.Informed(known, label_known=True),
        threats.Informed(known, parts=halves),
        threats.Informed(known, candidates=3),
        threats.Informed(known, secrets=2),
        threats.Weak(size=5),
        threats.Weak(size=2, per_class=(1, 0, 1)),
    )
    told = {_in_words(one): one for one in adversaries}
    settings = {"DPSGD": {"noise_multiplier": 0.5}}
    trained = {kind.__name__: kind(**settings.get(kind.__name__, {})) for kind in _kinds(trainers, "tile_size")}
    trained["private start"] = trainers.GD(init=LeCunNormal(seed=None))

    def games(some: Iterable[Any], ways: Iterable[Any]) -> list[Knowledge]:
        return [_game(way, threat) for way, threat in product(ways, some)]

    by_threat = {name: games([threat], trained.values()) for name, threat in told.items()}
    by_trainer = {name: games(told.values(), [way]) for name, way in trained.items()}
    return "\n\n".join(
        [
            _matrix(
                "What the adversary knows (yes: applicable, with some way of training; [n]: not applicable):",
                players,
                by_threat,
            ),
            _matrix(
                "How the net is trained (yes: applicable, to some adversary; [n]: not applicable):", players, by_trainer
            ),
        ]
    )


def _with_defaults(kind: Any, inside: Attack) -> Any:
    """An attack with its default settings; where a field has none, it is for an attack inside."""
    missing = (dataclasses.MISSING, dataclasses.MISSING)
    needed = [field.name for field in dataclasses.fields(kind) if (field.default, field.default_factory) == missing]
    return kind(**dict.fromkeys(needed, inside))


def _game(trainer: Trainer, threat: Threat) -> Knowledge:
    """A small game of this threat: a linear net and a prior of as many classes as its training sets can be drawn from.

    What a threat cannot deal from the prior would be an objection to our example, not to the attack.
    """
    from torch import nn

    from lostwax.access import Weights
    from lostwax.games import Knowledge

    for classes in CLASSES:
        prior = _records(classes, 60)
        try:
            threat.deal(prior, 1, seed=0)
        except ValueError:
            continue
        return Knowledge(nn.Sequential(nn.Flatten(), nn.Linear(64, classes)), trainer, threat, Weights(), prior)
    raise ValueError(f"lostwax list: {threat!r} deals no training set from 60 records of {CLASSES} classes.")


def _records(classes: int, count: int) -> Records:
    import torch

    from lostwax.games import Records

    x = torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return Records(x, torch.arange(count) % classes)


def trainers() -> str:
    """Ways of training."""
    from lostwax import adapters, defences
    from lostwax import trainers as room

    return _listed([*_kinds(room, "tile_size"), *_kinds(defences, "tile_size"), *_kinds(adapters, "tile_size")])


def metrics() -> str:
    """Distances between guess and truth."""
    from lostwax import metrics as room

    return _listed(kind for kind in _kinds(room, "__call__") if hasattr(kind, "better"))


def bounds() -> str:
    """Functions that bound what any attack can do."""
    from lostwax import bounds as room

    return _listed(getattr(room, name) for name in room.__all__ if inspect.isfunction(getattr(room, name)))


LISTS: dict[str, Callable[[], str]] = {"attacks": attacks, "trainers": trainers, "metrics": metrics, "bounds": bounds}


def _kinds(room: ModuleType, method: str) -> list[Any]:
    values = [getattr(room, name) for name in room.__all__]
    return [value for value in values if inspect.isclass(value) and callable(getattr(value, method, None))]


def _listed(things: Iterable[Any]) -> str:
    rows = [(thing.__name__, _first_sentence(inspect.getdoc(thing) or "")) for thing in things]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {line}" for name, line in rows)


def _first_sentence(text: str) -> str:
    """Of a docstring, on one line."""
    return re.split(r"(?<=\.) (?=[A-Z])", " ".join(text.split("\n\n")[0].split()))[0].rstrip(":")


def _matrix(title: str, rows: Mapping[str, Attack], columns: Mapping[str, list[Knowledge]]) -> str:
    """One row per attack; a cell is a yes where it applies to any of the column's games, or the number of the reason.

    Columns to which the same attacks apply are drawn as one, with the reasons of the first. A reason that several
    attacks share is listed once.
    """
    every = [game for games in columns.values() for game in games]
    heard = {name: [_objection(attack, games, every) for attack in rows.values()] for name, games in columns.items()}
    players: dict[str, list[str]] = {}  # by objection, who raises it
    for objections in heard.values():
        for name, why in zip(rows, objections, strict=True):
            if why is not None and name not in players.setdefault(why, []):
                players[why].append(name)
    alike: dict[tuple[bool, ...], list[str]] = {}
    for name, objections in heard.items():
        alike.setdefault(tuple(why is None for why in objections), []).append(name)
    reasons = list(dict.fromkeys(why for names in alike.values() for why in heard[names[0]] if why is not None))
    cells = [
        ["yes" if why is None else f"[{reasons.index(why) + 1}]" for why in heard[names[0]]] for names in alike.values()
    ]
    table = [("", *(", ".join(names) for names in alike.values())), *zip(rows, *cells, strict=True)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
    notes = [_note(number, players[why], why) for number, why in enumerate(reasons, 1)]
    return "\n".join([title, *lines, "", *notes])


def _note(number: int, players: list[str], why: str) -> str:
    mark = f"[{number}] "
    width = max(60, shutil.get_terminal_size((100, 24)).columns)
    return textwrap.fill(f"{', '.join(players)}: {why}", width, initial_indent=mark, subsequent_indent=" " * len(mark))


def _objection(attack: Attack, games: list[Knowledge], every: list[Knowledge]) -> str | None:
    """Why it applies to none of the games; of several reasons the one that rests on what these games share."""
    heard = [(_reason(attack, game), game) for game in games]
    if any(why is None for why, _ in heard):
        return None
    played = [game for game in every if attack.objection(game) is None]
    near = [why for why, game in heard if any(_differ_in_one(game, other) for other in played)]
    return near[0] if near else heard[0][0]


def _reason(attack: Attack, game: Knowledge) -> str | None:
    """Its objection, without the words that all begin with."""
    why = attack.objection(game)
    return None if why is None else why.removeprefix(f"{type(attack).__name__} is not applicable: ")


def _differ_in_one(game: Knowledge, other: Knowledge) -> bool:
    return game.trainer is other.trainer or game.threat is other.threat


def _in_words(threat: Threat) -> str:
    """Informed, or with what it is besides: Informed(candidates)."""
    assert dataclasses.is_dataclass(threat)
    told = [
        field.name
        for field in dataclasses.fields(threat)
        if field.default is not dataclasses.MISSING and getattr(threat, field.name) is not field.default
    ]
    return f"{type(threat).__name__}({', '.join(told)})" if told else type(threat).__name__
