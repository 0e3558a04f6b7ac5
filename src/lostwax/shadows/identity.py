"""What decides a shadow model, in words: games with the same words have the same models.

Words outlive the process, name no address in memory, and hold a fingerprint in place of every tensor.
"""

from __future__ import annotations

import dis
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property, partial
from hashlib import sha256
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.defences import undefended
from lostwax.games import Trainer
from lostwax.games.facts import trainer_facts
from lostwax.inits import StartsFrom, trainable
from lostwax.provenance import fingerprint
from lostwax.seeds import GENERATION
from lostwax.shadows.game import Game

# Values in words that outlive the process: no address in memory, and a fingerprint in place of every tensor.


_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, PurePath, torch.dtype, torch.device)


def plain(value: object) -> str | None:
    """A value that has no parts; None for all others."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} #{fingerprint(value)}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | type | None):
        return f"{value.__module__}.{value.__qualname__}"  # torch.relu
    return None


def parts(value: Any) -> dict[str, object] | None:
    """What a value is made of, by name; None for a kind of value that does not say."""
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


# Code in words that change when what it does may have changed.
#
# The source of a class does not tell what the class does: it calls functions and reads constants by their names. So
# names are followed, from code to code, through all that is the user's own. Code of lostwax, torch and Python is
# known by its name, that of other installed packages by its name and, where a game is made of it, its source.


_SETTLED = {"lostwax", "torch", *sys.stdlib_module_names}  # whose code is known by its name
_PACKAGES = {"site-packages", "dist-packages"}  # folders of installed code


def kind(code: type | FunctionType) -> str:
    """The name of a class or function and, where it is not settled, a hash of its source and of what it reaches."""
    bases = code.__mro__ if isinstance(code, type) else (code,)
    theirs = [part for part in bases if not _settled(part.__module__)]
    if not theirs:
        return code.__qualname__ if code.__module__.split(".")[0] == "lostwax" else _name(code)
    reach = _Reach()
    for part in theirs:
        reach.follow(part, bound=part is not code)
    text = "".join([*map(_source, theirs), *reach.told])
    return f"{_name(code)} #{sha256(text.encode()).hexdigest()[:16]}"


class _Reach:
    """All that code of the user's own can reach by name, each thing told once."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._seen: dict[object, object] = {}  # things by their id; they are kept, so that no id is used again

    def follow(self, code: type | FunctionType, *, bound: bool = True) -> None:
        """Tell what a class or function of the user's own reaches, if it has not been told.

        A module that was imported is told whole. Scripts, recipes and notebooks are not: they change from run to run.
        """
        if not _own(code.__module__) or not self._new(id(code), code):
            return
        if self._new(code.__module__):
            self.told.append(_whole(code.__module__))
        if isinstance(code, FunctionType):
            self._function(code, bound=bound)
            return
        for name, held in vars(code).items():
            functions = list(_functions(held))
            for function in functions:
                self.told.append(_source(function, made=True))  # it may have been put there later
                self._function(function)
            if not functions and not name.startswith(("__", "_abc_")):
                self._value(name, held, frozenset())

    def _function(self, function: FunctionType, *, bound: bool = True) -> None:
        """What a function names and, unless others tell it, what it is `bound` to: its closure and its defaults."""
        if not _own(function.__globals__.get("__name__")):
            return  # a wrapper that torch or a package made
        names, attributes = _names(function.__code__)
        for name in sorted(names & function.__globals__.keys()):
            if not name.startswith("__"):
                self._value(name, function.__globals__[name], attributes)
        if bound:
            for name, value in _closed_over(function):
                self._value(name, value, attributes)
            self._value("defaults", (function.__defaults__, function.__kwdefaults__), attributes)

    def _value(self, name: str, value: Any, attributes: frozenset[str]) -> None:
        """A value under its name: a module by those `attributes` of it that the code names, code by its source."""
        if (told := plain(value)) is not None:
            self.told.append(f"{name}: {told}\n")
        elif isinstance(value, ModuleType):
            self.told.append(f"{name}: {value.__name__}\n")
            if _own(value.__name__) and self._new((value.__name__, attributes)):
                for attribute in sorted(attributes & vars(value).keys()):
                    self._value(f"{name}.{attribute}", vars(value)[attribute], attributes)
        elif isinstance(value, type) or (functions := list(_functions(value))):
            for code in value.__mro__ if isinstance(value, type) else functions:
                self.told.append(f"{name}: {_name(code)}\n")
                if _own(code.__module__) and id(code) not in self._seen:
                    self.told.append(_source(code))
                self.follow(code)
            if isinstance(value, MethodType):
                self._value(f"{name}.self", value.__self__, attributes)
        else:
            self._value(f"{name}.kind", type(value), attributes)
            held = parts(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
            if held is None and (_own(type(value).__module__) or isinstance(value, nn.Module)):
                held = getattr(value, "__dict__", None)
            if held is not None and self._new(id(value), value):  # of other objects (a logger) the class must do
                for part, inner in held.items():
                    self._value(f"{name}.{part}", inner, attributes)

    def _new(self, key: object, thing: object = None) -> bool:
        """Whether it has not been seen; from now on it has."""
        new = key not in self._seen
        self._seen.setdefault(key, thing)
        return new


def _name(code: type | FunctionType) -> str:
    return f"{code.__module__}.{code.__qualname__}".removeprefix("builtins.")


def _settled(module: str | None) -> bool:
    return (module or "").split(".")[0] in _SETTLED


def _own(module: str | None) -> bool:
    """Whether a module is the user's: neither settled nor installed."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return not _settled(module) and not _PACKAGES & set(PurePath(file or "").parts)


def _whole(module: str) -> str:
    """The source of a module that was imported; nothing for others."""
    imported = None if module == "__main__" else sys.modules.get(module)
    try:
        return "" if imported is None else inspect.getsource(imported)
    except (OSError, TypeError):
        return ""


def _functions(held: Any) -> Iterator[FunctionType]:
    """The functions behind an attribute of a class or a global: a property has several, a decorated function too."""
    if isinstance(held, FunctionType):
        yield held
    if isinstance(held, property):
        inner = [held.fget, held.fset, held.fdel]
    elif isinstance(held, staticmethod | classmethod | MethodType):
        inner = [held.__func__]
    elif isinstance(held, cached_property):
        inner = [held.func]
    else:
        inner = [getattr(held, "__dict__", {}).get("__wrapped__")]  # functools.wraps, lru_cache
    for function in inner:
        if function is not None:
            yield from _functions(function)


def _closed_over(function: FunctionType) -> Iterator[tuple[str, object]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # nothing yet
            continue
        yield name, value


def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code reads, and all names in it, those of attributes too; functions inside it count."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    attributes = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _names(inner)
            names, attributes = names | more[0], attributes | more[1]
    return frozenset(names), frozenset(attributes)


def _source(code: type | FunctionType, *, made: bool = False) -> str:
    """Its source, or an error where there is none to be read; no error for a method that a decorator `made`."""
    name = _name(code)
    try:
        source = inspect.getsource(code)
    except (OSError, TypeError) as error:
        if isinstance(code, type):  # of a recipe or a notebook, its methods can be read; compiled code has none
            made = is_dataclass(code) or issubclass(code, tuple)
            functions = [function for held in vars(code).values() for function in _functions(held)]
            return "".join(_source(function, made=made) for function in functions)
        if made:
            return ""
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for the source of {name} cannot be read, and a change "
            "in it would go unnoticed. Define it in a file, or leave store out."
        ) from error
    if "<lambda>" in name and source.count("lambda") > 1 and not made:
        raise ValueError(
            f"Store: cannot tell whether two games are the same, for {name} stands in one statement with another "
            "lambda. Write it as a function with a name (def), or leave store out."
        )
    return source


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


def _start(net: nn.Module, trainer: Trainer, seed: int) -> str:
    """A fingerprint of where training starts and of what it leaves alone (frozen parameters, buffers).

    The weights of a fresh `nn.Linear` are random, and no part of it where the trainer draws its own. Nor are those that
    every model draws for itself: init, seed and generation tell them, and their last bits belong to the machine.
    """
    trainer = undefended(trainer)
    if trainer_facts(trainer, net, 1).objective is not None:
        start = {}  # the optimum is the same from anywhere
    elif isinstance(trainer, StartsFrom):
        one, other = (trainer.init(net, [number], seed=seed) for number in (0, 1))
        start = {name: value for name, value in one.items() if torch.equal(value, other[name])}
    else:
        start = trainable(net)
    frozen = {name: value.detach() for name, value in net.named_parameters() if not value.requires_grad}
    held = {**start, **frozen, **dict(net.named_buffers())}
    return f"{', '.join(held) or 'nothing'} #{fingerprint(*held.values())}"
