"""Validation of dataclass fields on creation: `RecoNN(epochs="3")` fails at once, not after an hour of training."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from numbers import Integral, Rational, Real
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

LARGEST_INT64 = 2**63 - 1
LARGEST_SIZE = 1 << 24  # of an axis of a net
SHOWN_CHARACTERS, SHOWN_ENTRIES = 60, 4  # of a value and of a tuple, in a message
PLAIN: set[Any] = {int, float, bool, str, tuple, Literal}
_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]+:/+)\S*@", re.IGNORECASE)  # before a URL's last @
_QUERY = re.compile(r"""(\b[a-z][a-z0-9+.-]+:/+[^\s'"?]*\?)[^\s'"]+""", re.IGNORECASE)
WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}


class Range(NamedTuple):
    """The numbers that a field may take."""

    text: str
    holds: Callable[[float], bool]
    infinite: bool = False  # whether infinity is allowed


def at_least(low: float, *, infinite: bool = False) -> Range:
    """Numbers >= `low`."""
    return Range(f">= {low}", lambda number: number >= low, infinite)


def above(low: float, *, infinite: bool = False) -> Range:
    """Numbers > `low`."""
    return Range(f"> {low}", lambda number: number > low, infinite)


def between(low: float, high: float, ends: Literal["[]", "[)", "(]", "()"]) -> Range:
    """Numbers from `low` to `high`; a square bracket includes that end."""

    def holds(number: float) -> bool:
        return low < number < high or (number == low and ends[0] == "[") or (number == high and ends[1] == "]")

    return Range(f"in {ends[0]}{low}, {high}{ends[1]}", holds)


def check_fields(value: Any, **ranges: Range) -> None:
    """Raise an error for the first field of a dataclass with a wrong type or out of its range.

    Call it in `__post_init__`: `check_fields(self, epochs=at_least(1), lr=above(0))`. Types come from the annotations.
    A bool is not an int, a float must be finite, and protocols that are not `runtime_checkable` are not checked.
    """
    kinds = _kinds(value.__class__)
    for field in fields(value):
        name, kind, setting = field.name, kinds[field.name], getattr(value, field.name)
        if not _accepts(kind, setting):
            error = ValueError if {kind, get_origin(kind), *get_args(kind)} & PLAIN else TypeError
            raise error(f"{_expected(value, name)} to be {_words(kind)}{_example(field)}, got {shown(setting)}.")
        limit = ranges.get(name)
        for number in setting if isinstance(setting, tuple) else (setting,):
            _check_number(value, name, setting, number, limit, _optional(kind))
        if limit is not None and isinstance(setting, tuple) and not setting:
            raise ValueError(f"{_expected(value, name)} to hold at least one number, got ().")


def expect(value: Any, name: str, wanted: str, holds: bool) -> None:
    """Raise a ValueError unless `holds`: for conditions that depend on other fields."""
    if not holds:
        raise ValueError(f"{_expected(value, name)} {wanted}, got {shown(getattr(value, name))}.")


def check_sizes(owner: str, **sizes: Any) -> None:
    """Raise an error for the first size of a net that is no whole number, less than 1 or absurdly large."""
    for name, size in sizes.items():
        if not is_number(size, whole=True) or not 1 <= size <= LARGEST_SIZE:
            raise ValueError(f"{owner}: expected {name} to be a whole number, 1 or more, got {shown(size)}.")


def shown(value: object) -> str:
    """A value for a message: numbers and text as written, anything else only by type, since it may hold records."""
    if isinstance(value, type):
        return f"the class {value.__name__} (create one: {value.__name__}(...))"
    if isinstance(value, int) and abs(value) > LARGEST_INT64:
        return f"a whole number of {value.bit_length()} bits"
    if _is_plain(value):
        text = redacted(repr(value))
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
    if isinstance(value, tuple | list) and len(value) <= SHOWN_ENTRIES and all(_is_plain(part) for part in value):
        return redacted(repr(value))[: SHOWN_CHARACTERS * SHOWN_ENTRIES]
    kind = value if inspect.isfunction(value) else type(value)
    if kind.__module__.partition(".")[0] == "torch":
        return str(value) if kind.__name__ in ("dtype", "device") else f"torch's {kind.__name__}"
    return f"{'an' if type(value).__name__[0] in 'aeiouAEIOU' else 'a'} {type(value).__name__}"


def redacted(text: str) -> str:
    """The text with *** for what a URL may hide: all before its last @, and its query. Rather too much than a key."""
    return _QUERY.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


@cache
def _kinds(cls: type) -> dict[str, Any]:
    """The evaluated annotations of a class; Any if a name cannot be resolved."""
    kinds: dict[str, Any] = {field.name: Any for field in fields(cls)} if is_dataclass(cls) else {}
    for base in reversed(cls.__mro__):
        with suppress(NameError):
            kinds |= get_type_hints(base)
    return kinds


def _accepts(kind: Any, value: Any) -> bool:
    """Whether a value has an annotated type."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_accepts(part, value) for part in parts)
    if origin is Literal:
        return isinstance(value, str | int) and value in parts
    if origin is tuple:
        each = parts[:1] * len(value) if parts[-1] is ... and isinstance(value, tuple) else parts
        return isinstance(value, tuple) and len(value) == len(each) and all(map(_accepts, each, value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        named = isinstance(value, origin)
        return named and all(_accepts(parts[0], key) and _accepts(parts[1], part) for key, part in value.items())
    if kind in (int, float):
        return is_number(value, whole=kind is int)
    if getattr(kind, "_is_protocol", False):
        checkable = getattr(kind, "_is_runtime_protocol", False)
        return not checkable or (isinstance(value, kind) and not isinstance(value, type))
    if isinstance(kind, type) and issubclass(kind, tuple) and isinstance(value, kind):  # a named tuple
        return all(_accepts(part, getattr(value, name)) for name, part in _kinds(kind).items())
    return isinstance(value, kind if origin is None else origin)


def is_number(value: object, *, whole: bool) -> bool:
    """True for Python and numpy numbers, but not for bools, fractions, tensors or text."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Integral) or (not whole and isinstance(value, Real) and not isinstance(value, Rational))


def _check_number(value: Any, name: str, setting: Any, number: Any, limit: Range | None, optional: str) -> None:
    """Raise a ValueError for a number out of range, infinite or NaN, or too large for 64 bits."""
    if not is_number(number, whole=False):
        return
    if limit is not None and not limit.holds(number):
        each = f"each of {name}" if isinstance(setting, tuple) else name
        raise ValueError(f"{_expected(value, each)} {limit.text}{optional}, got {shown(setting)}.")
    if isinstance(number, Integral) and abs(int(number)) > LARGEST_INT64:
        raise ValueError(f"{_expected(value, name)} to be below 2**63{optional}, got {shown(int(number))}.")
    if not math.isfinite(number) and not (limit is not None and limit.infinite and number == math.inf):
        raise ValueError(f"{_expected(value, name)} to be finite{optional}, got {shown(setting)}.")


def _expected(value: object, name: str) -> str:
    return f"{type(value).__name__}: expected {name}"


def _optional(kind: Any) -> str:
    return ", or None" if NoneType in get_args(kind) else ""


def _words(kind: Any) -> str:
    """An annotation as text: `int | None` is "a whole number, or None"."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        words = " or ".join(_words(part) for part in parts if part is not NoneType)
        return words.replace(" or of type", " or") + _optional(kind)
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is tuple:
        many = "" if parts[-1] is ... else f"{len(parts)} "
        each = _words(parts[0]).removeprefix("a ").removesuffix("number")
        return f"a tuple of {many}{each}numbers" if parts[0] in (int, float) else f"a tuple, each {_words(parts[0])}"
    if kind is PathLike or origin is PathLike:
        return "a path"
    name = getattr(origin or kind, "__name__", kind)
    return WORDS.get(kind, "lw.Records(x, y)" if name == "Records" else f"of type {name}")


def _example(field: Field[Any]) -> str:
    """An example, if the default is an object of lostwax."""
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if default is MISSING or default is None or isinstance(default, int | float | str | tuple):
        return ""
    return f", such as {type(default).__name__}()" if type(default).__module__.startswith("lostwax") else ""


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST_INT64  # Python does not print very long integers
    return value is None or isinstance(value, float | str)
