"""A text description of everything that determines a shadow model, stable across processes."""

from __future__ import annotations

import dis
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property, partial, singledispatch
from hashlib import sha256
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.defences import undefended
from lostwax.games import Game, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.inits import StartsFrom, trainable
from lostwax.provenance import fingerprint
from lostwax.seeds import GENERATION

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, PurePath, torch.dtype, torch.device)


def describe_plain(value: object) -> str | None:
    """Describe a value that has no parts; None for all others."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} #{fingerprint(value)}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | type | None):
        return f"{value.__module__}.{value.__qualname__}"  # torch.relu
    return None


@singledispatch
def parts(value: Any) -> dict[str, object] | None:
    """The parts of a value, by name; None for an opaque value. A room below registers what only it can describe."""
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if is_dataclass(value):
        counted = {field.name: field.metadata.get("identity", True) for field in fields(value)}
        settings = {name: getattr(value, name) for name, counts in counted.items() if counts}
        # fields that are younger than stores count if they are set
        return {name: part for name, part in settings.items() if counted[name] != "if set" or part is not None}
    if isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if isinstance(value, tuple | list):
        return {str(place): part for place, part in enumerate(value)}
    return None


# User code is described by its source and by everything that it reaches by name: functions, constants, classes. Code of
# lostwax, torch and Python is described by its name, other installed packages by name and, if a game uses it, source.


_KNOWN_BY_NAME = {"lostwax", "torch", *sys.stdlib_module_names}
_PACKAGES = {"site-packages", "dist-packages"}  # folders of installed packages


def describe_code(code: type | FunctionType) -> str:
    """The name of a class or function and, if it is not known by name, a hash of its source and what it reaches."""
    bases = code.__mro__ if isinstance(code, type) else (code,)
    theirs = [part for part in bases if not _is_known_by_name(part.__module__)]
    if not theirs:
        return code.__qualname__ if code.__module__.split(".")[0] == "lostwax" else _name(code)
    reach = _ReachableCode()
    for part in theirs:
        reach.follow(part, bound=part is not code)
    text = "".join([*map(_source, theirs), *reach.texts])
    return f"{_name(code)} #{sha256(text.encode()).hexdigest()[:16]}"


def code_of(values: Iterable[object]) -> str:
    """The functions and classes of these values: the user's by their source, all others by name and version."""
    described = set()
    for value in values:
        code = value if isinstance(value, FunctionType) else type(value)
        version = vars(sys.modules[code.__module__.split(".")[0]]).get("__version__", "")
        described.add(describe_code(code) if _is_users(code.__module__) else f"{_name(code)} {version}".rstrip())
    return ", ".join(sorted(described))


class _ReachableCode:
    """The text of everything that user code reaches by name, each item once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._seen: dict[object, object] = {}  # by id; the objects are kept alive so that no id is reused

    def follow(self, code: type | FunctionType, *, bound: bool = True) -> None:
        """Add what a class or function of the user reaches, unless it was added before.

        The source of an imported module is added whole. Scripts, recipes and notebooks are not: they change too often.
        """
        if not _is_users(code.__module__) or not self._first_time(id(code), code):
            return
        if self._first_time(code.__module__) and code.__module__ != "__main__":
            with suppress(KeyError, OSError, TypeError):
                self.texts.append(inspect.getsource(sys.modules[code.__module__]))
        if isinstance(code, FunctionType):
            self._follow_function(code, bound=bound)
            return
        for name, member in vars(code).items():
            functions = list(_functions(member))
            for function in functions:
                self.texts.append(_source(function, generated=True))  # it may have been assigned later
                self._follow_function(function)
            if not functions and not name.startswith(("__", "_abc_")):
                self._add_value(name, member, frozenset())

    def _follow_function(self, function: FunctionType, *, bound: bool = True) -> None:
        """Add the globals that a function names and, with `bound`, its closure and defaults."""
        if not _is_users(function.__globals__.get("__name__")):
            return  # a wrapper from torch or a package
        names, attributes = _names(function.__code__)
        for name in sorted(names & function.__globals__.keys()):
            if not name.startswith("__"):
                self._add_value(name, function.__globals__[name], attributes)
        if bound:
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
                try:
                    enclosed = cell.cell_contents
                except ValueError:  # an empty cell
                    continue
                self._add_value(name, enclosed, attributes)
            self._add_value("defaults", (function.__defaults__, function.__kwdefaults__), attributes)

    def _add_value(self, name: str, value: Any, attributes: frozenset[str]) -> None:
        """Add a value under its name: for a module, those `attributes` that the code names; for code, its source."""
        if (text := describe_plain(value)) is not None:
            self.texts.append(f"{name}: {text}\n")
        elif isinstance(value, ModuleType):
            self.texts.append(f"{name}: {value.__name__}\n")
            if _is_users(value.__name__) and self._first_time((value.__name__, attributes)):
                for attribute in sorted(attributes & vars(value).keys()):
                    self._add_value(f"{name}.{attribute}", vars(value)[attribute], attributes)
        elif isinstance(value, type) or (functions := list(_functions(value))):
            for code in value.__mro__ if isinstance(value, type) else functions:
                self.texts.append(f"{name}: {_name(code)}\n")
                if _is_users(code.__module__) and id(code) not in self._seen:
                    self.texts.append(_source(code))
                self.follow(code)
            if isinstance(value, MethodType):
                self._add_value(f"{name}.self", value.__self__, attributes)
        else:
            self._add_value(f"{name}.kind", type(value), attributes)
            members = parts(sorted(value, key=repr) if isinstance(value, set | frozenset) else value)
            if members is None and (_is_users(type(value).__module__) or isinstance(value, nn.Module)):
                members = getattr(value, "__dict__", None)
            if members is not None and self._first_time(id(value), value):  # other objects (a logger): only the class
                for part, inner in members.items():
                    self._add_value(f"{name}.{part}", inner, attributes)

    def _first_time(self, key: object, thing: object = None) -> bool:
        """Whether it has not been seen; marks it as seen."""
        new = key not in self._seen
        self._seen.setdefault(key, thing)
        return new


def _name(code: type | FunctionType) -> str:
    return f"{code.__module__}.{code.__qualname__}".removeprefix("builtins.")


def _is_known_by_name(module: str | None) -> bool:
    return (module or "").split(".")[0] in _KNOWN_BY_NAME


def _is_users(module: str | None) -> bool:
    """Whether a module is the user's: neither known by name nor installed."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return not _is_known_by_name(module) and not _PACKAGES & set(PurePath(file or "").parts)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions behind a class attribute or global: several for a property or a decorated function."""
    if isinstance(value, FunctionType):
        yield value
    if isinstance(value, property):
        inner = [value.fget, value.fset, value.fdel]
    elif isinstance(value, staticmethod | classmethod | MethodType):
        inner = [value.__func__]
    elif isinstance(value, cached_property):
        inner = [value.func]
    else:
        inner = [getattr(value, "__dict__", {}).get("__wrapped__")]  # functools.wraps, lru_cache
    for function in inner:
        if function is not None:
            yield from _functions(function)


def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code reads, and all names in it including attributes; nested functions count."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    attributes = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _names(inner)
            names, attributes = names | more[0], attributes | more[1]
    return frozenset(names), frozenset(attributes)


def _source(code: type | FunctionType, *, generated: bool = False) -> str:
    """The source; raises ValueError if there is none, unless the method was `generated` by a decorator."""
    name = _name(code)
    try:
        source = inspect.getsource(code)
    except (OSError, TypeError) as error:
        if isinstance(code, type):  # in a recipe or a notebook only its methods have a source
            generated = is_dataclass(code) or issubclass(code, tuple)
            functions = [function for member in vars(code).values() for function in _functions(member)]
            return "".join(_source(function, generated=generated) for function in functions)
        if generated:
            return ""
        raise ValueError(
            f"Store: the source of {name} cannot be read, so a change in it would go unnoticed. Define it in a file, "
            "or leave store out."
        ) from error
    if "<lambda>" in name and source.count("lambda") > 1 and not generated:
        raise ValueError(
            f"Store: {name} is in one statement with another lambda, so they cannot be told apart. Write it as a named "
            "function (def), or leave store out."
        )
    return source


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def identity(game: Game) -> dict[str, str]:
    """Describe a game field by field: {"trainer": "GD", "trainer.lr": "0.1", ...}."""
    trainer = describe("trainer", game.trainer)
    return {
        "net": _ADDRESS.sub("", " ".join(repr(game.net).split())),
        "net.code": ", ".join(sorted({describe_code(type(module)) for module in game.net.modules()})),
        **_settings(game.net),
        "net.dtype": ", ".join(sorted({str(value.dtype) for value in game.net.parameters()})),
        "net.start": _start(game.net, game.trainer, game.seed),
        **{name: value for name, value in trainer.items() if not name.endswith(".tile")},  # see "tile"
        **describe("threat", game.threat),
        **describe("prior", game.pool),
        "seed": str(game.seed),
        "seed.generation": str(GENERATION),
        "tile": str(game.tile()),
    }


def key(description: Mapping[str, object]) -> str:
    """A hash of a description, 16 hexadecimal digits."""
    return sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]


def describe(name: str, value: object) -> dict[str, str]:
    """Describe a value and, under dotted names, all its parts."""
    if (text := describe_plain(value)) is not None:
        return {name: text}
    if isinstance(value, type):
        return {name: describe_code(value)}
    members = parts(value)
    if isinstance(value, FunctionType):  # what it holds besides its source: default values and closure
        arguments, none = inspect.signature(value).parameters.items(), inspect.Parameter.empty
        members = {name: argument.default for name, argument in arguments if argument.default is not none}
        closure = inspect.getclosurevars(value).nonlocals
        members |= {outer: inner for outer, inner in closure.items() if inner is not value}
    if members is None:
        raise ValueError(
            f"Store: {name} is an object of {describe_code(type(value))}, which has no stable description. Make it a "
            "frozen dataclass whose fields hold all its settings, or leave store out."
        )
    described = {name: describe_code(value if isinstance(value, FunctionType) else type(value))}
    for part, inner in members.items():
        described |= describe(f"{name}.{part}", inner)
    return described


def _settings(net: nn.Module) -> dict[str, str]:
    """The attributes of user-defined modules, and all hooks: a repr need not show them."""
    described: dict[str, str] = {}
    common = vars(nn.Module())
    for path, module in net.named_modules():
        name = f"net.made_with.{path}" if path else "net.made_with"
        for hooks in ("forward_pre_hooks", "forward_hooks"):
            for number, hook in enumerate(getattr(module, f"_{hooks}").values()):
                described |= describe(f"{name}.{hooks}.{number}", hook)
        if type(module).__module__.split(".")[0] != "torch":
            for attribute, value in vars(module).items():
                if attribute not in common:
                    described |= describe(f"{name}.{attribute}", value)
    return described


def _start(net: nn.Module, trainer: Trainer, seed: int) -> str:
    """A fingerprint of the initial weights and of what training leaves unchanged (frozen parameters, buffers).

    The net's own weights do not count if the trainer draws others. Nor do weights that every model draws for itself:
    init, seed and generation determine them, up to rounding that depends on the machine.
    """
    trainer = undefended(trainer)
    if trainer_facts(trainer, net, 1).objective is not None:
        start = {}  # the optimum does not depend on it
    elif isinstance(trainer, StartsFrom):
        first, second = (trainer.init(net, [number], seed=seed) for number in (0, 1))
        start = {name: value for name, value in first.items() if torch.equal(value, second[name])}
    else:
        start = trainable(net)
    frozen = {name: value.detach() for name, value in net.named_parameters() if not value.requires_grad}
    tensors = {**start, **frozen, **dict(net.named_buffers())}
    return f"{', '.join(tensors) or 'nothing'} #{fingerprint(*tensors.values())}"
