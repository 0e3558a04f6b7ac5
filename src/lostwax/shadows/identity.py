"""What decides a shadow model, in words: games with the same words have the same models.

Words outlive the process, name no address in memory, and hold a fingerprint in place of every tensor.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from hashlib import sha256
from types import FunctionType
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from lostwax.defences import undefended
from lostwax.inits import Init, trainable
from lostwax.provenance import fingerprint
from lostwax.seeds import GENERATION
from lostwax.shadows.game import Game
from lostwax.shadows.own_code import kind
from lostwax.shadows.values import parts, plain
from lostwax.trainers import Optimum
from lostwax.types import Trainer

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def identity(game: Game) -> dict[str, str]:
    """The game field by field: {"trainer": "GD", "trainer.lr": "0.1", ...}."""
    trainer = words("trainer", game.trainer)
    return {
        "net": _ADDRESS.sub("", " ".join(repr(game.net).split())),
        "net.code": ", ".join(sorted({kind(type(module)) for module in game.net.modules()})),
        **_settings(game.net),
        "net.dtype": ", ".join(sorted({str(value.dtype) for value in game.net.parameters()})),
        "net.start": _start(game.net, game.trainer, game.seed),
        **{name: value for name, value in trainer.items() if not name.endswith(".tile")},  # see "tile"
        **words("threat", game.threat),
        **words("prior", game.pool),
        "seed": str(game.seed),
        "seed.generation": str(GENERATION),
        "tile": str(game.tile()),
    }


def key(held: Mapping[str, object]) -> str:
    """16 hexadecimal digits for words like these."""
    return sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()[:16]


def words(name: str, value: object) -> dict[str, str]:
    """A value and, under dotted names, all that it is made of."""
    if (told := plain(value)) is not None:
        return {name: told}
    if isinstance(value, type):
        return {name: kind(value)}
    held = _bound(value) if isinstance(value, FunctionType) else parts(value)
    if held is None:
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for nothing lasting describes {name}, an object of "
            f"{kind(type(value))}. Make it a frozen dataclass whose fields say all that matters, or leave store out."
        )
    described = {name: kind(value if isinstance(value, FunctionType) else type(value))}
    for part, inner in held.items():
        described |= words(f"{name}.{part}", inner)
    return described


def _bound(function: FunctionType) -> dict[str, object]:
    """What a function holds besides its source: the values of its defaults, and those it closes over."""
    defaults = {
        name: argument.default
        for name, argument in inspect.signature(function).parameters.items()
        if argument.default is not inspect.Parameter.empty
    }
    outer = {name: value for name, value in inspect.getclosurevars(function).nonlocals.items() if value is not function}
    return {**defaults, **outer}


def _settings(net: nn.Module) -> dict[str, str]:
    """What modules of the user's own were made with, and hooks: a repr need not tell."""
    described: dict[str, str] = {}
    common = vars(nn.Module())
    for path, module in net.named_modules():
        name = f"net.made_with.{path}" if path else "net.made_with"
        for hooks in ("forward_pre_hooks", "forward_hooks"):
            for number, hook in enumerate(getattr(module, f"_{hooks}").values()):
                described |= words(f"{name}.{hooks}.{number}", hook)
        if type(module).__module__.split(".")[0] != "torch":
            for attribute, value in vars(module).items():
                if attribute not in common:
                    described |= words(f"{name}.{attribute}", value)
    return described


@runtime_checkable
class _SaysWhere(Protocol):
    """A trainer that does not start from the weights the net came with, but says from where."""

    init: Init


def _start(net: nn.Module, trainer: Trainer, seed: int) -> str:
    """A fingerprint of where training starts and of what it leaves alone (frozen parameters, buffers).

    The weights of a fresh `nn.Linear` are random, and no part of it where the trainer draws its own. Nor are those that
    every model draws for itself: init, seed and generation tell them, and their last bits belong to the machine.
    """
    trainer = undefended(trainer)
    if isinstance(trainer, Optimum):
        start = {}  # the optimum is the same from anywhere
    elif isinstance(trainer, _SaysWhere):
        one, other = (trainer.init(net, [number], seed=seed) for number in (0, 1))
        start = {name: value for name, value in one.items() if torch.equal(value, other[name])}
    else:
        start = trainable(net)
    frozen = {name: value.detach() for name, value in net.named_parameters() if not value.requires_grad}
    held = {**start, **frozen, **dict(net.named_buffers())}
    return f"{', '.join(held) or 'nothing'} #{fingerprint(*held.values())}"
