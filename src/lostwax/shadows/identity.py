"""What decides a shadow model, in words: games with the same words have the same models.

Words outlive the process, name no address in memory, and hold a fingerprint in place of every tensor.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.defences import undefended
from lostwax.inits import Init, trainable
from lostwax.provenance import fingerprint
from lostwax.seeds import GENERATION
from lostwax.shadows.game import Game
from lostwax.trainers import Optimum
from lostwax.types import Trainer

_PLAIN = (type(None), bool, int, float, str, PurePath, torch.dtype, torch.device)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_SETTLED = {"lostwax", "torch", *sys.stdlib_module_names}  # whose code is known by its name


def identity(game: Game) -> dict[str, str]:
    """The game field by field: {"trainer": "GD", "trainer.lr": "0.1", ...}."""
    trainer = words("trainer", game.trainer)
    return {
        "net": _ADDRESS.sub("", " ".join(repr(game.net).split())),
        "net.code": ", ".join(sorted({_kind(type(module)) for module in game.net.modules()})),
        **_settings(game.net),
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
    if isinstance(value, np.ndarray | np.generic):
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Tensor):
        return {name: f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} #{fingerprint(value)}"}
    if isinstance(value, _PLAIN):
        return {name: repr(value)}
    if isinstance(value, type):
        return {name: _kind(value)}
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | type | None):
        return {name: f"{value.__module__}.{value.__qualname__}"}  # torch.relu
    parts = _parts(value)
    if parts is None:
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for nothing lasting describes {name}, an object of "
            f"{_kind(type(value))}. Make it a frozen dataclass whose fields say all that matters, or leave store out."
        )
    described = {name: _kind(value if isinstance(value, FunctionType) else type(value))}
    for part, held in parts.items():
        described |= words(f"{name}.{part}", held)
    return described


def _parts(value: Any) -> dict[str, object] | None:
    """What a value is made of, by name; None for a kind of value that does not say."""
    if isinstance(value, FunctionType):
        return _bound(value)
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): held for name, held in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if isinstance(value, tuple | list):
        return {str(place): held for place, held in enumerate(value)}
    return None


def _bound(function: FunctionType) -> dict[str, object]:
    """What a function holds besides its source: the values of its defaults, and those it closes over."""
    defaults = {
        name: argument.default
        for name, argument in inspect.signature(function).parameters.items()
        if argument.default is not inspect.Parameter.empty
    }
    outer = {name: value for name, value in inspect.getclosurevars(function).nonlocals.items() if value is not function}
    return {**defaults, **outer}


def _kind(code: type | FunctionType) -> str:
    """The name of a class or function and, where it is code of the user's, a hash of its source and its bases'."""
    name = f"{code.__module__}.{code.__qualname__}".removeprefix("builtins.")
    bases = code.__mro__ if isinstance(code, type) else (code,)
    theirs = [part for part in bases if part.__module__.split(".")[0] not in _SETTLED]
    if theirs:
        return f"{name} #{sha256(''.join(_source(part) for part in theirs).encode()).hexdigest()[:16]}"
    return code.__qualname__ if name.startswith("lostwax.") else name


def _source(code: type | FunctionType) -> str:
    name = f"{code.__module__}.{code.__qualname__}"
    try:
        source = inspect.getsource(code)
    except TypeError:  # compiled, a part of its library
        return ""
    except OSError as error:
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for the source of {name} cannot be read, and a change "
            "in it would go unnoticed. Define it in a file, or leave store out."
        ) from error
    if "<lambda>" in name and source.count("lambda") > 1:
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for {name} stands in one statement with another "
            "lambda. Write it as a function with a name (def), or leave store out."
        )
    return source


def _settings(net: nn.Module) -> dict[str, str]:
    """What modules of the user's own were made with, and hooks: a repr need not tell."""
    described: dict[str, str] = {}
    common = vars(nn.Module())
    for path, module in net.named_modules():
        name = f"net.made_with.{path}" if path else "net.made_with"
        for kind in ("forward_pre_hooks", "forward_hooks"):
            for number, hook in enumerate(getattr(module, f"_{kind}").values()):
                described |= words(f"{name}.{kind}.{number}", hook)
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
