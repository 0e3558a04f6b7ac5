"""Files of R, .rds and .RData: values only, no code of R is run.

Everything that such a file stores is kept: attributes of any value, variables that a function or a formula encloses,
constants of compiled functions. The format is that of serialize() (R Internals, section 1.8), versions 2 and 3. The
package `rdata` 1.1 reads no glm of R: the environment of its family holds an unbound variable.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from lostwax import files
from lostwax.adapters.objects import attributes

RDS, RDATA = ".rds", (".rdata", ".rda")
PACKED: Mapping[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\x00": lzma.decompress,
}
SAVED, BINARY = (b"RDX2\n", b"RDX3\n"), b"X\n"
ENCODED = 3  # the version from which on a file names its encoding

# Numbers of types, as R Internals lists them.
SYMBOL, PAIRS, CLOSURE, ENVIRONMENT, PROMISE, CALL, SPECIAL, BUILTIN, CHARACTERS, LOGICAL = range(1, 11)
INTEGER, REAL, COMPLEX, TEXTS, DOTS = 13, 14, 15, 16, 17
LIST, EXPRESSIONS, COMPILED, POINTER, WEAK, RAW, OBJECT = range(19, 26)
ALTERNATIVE, PAIRS_WITH, CALL_WITH, REPEATED, REPEATS = 238, 239, 240, 243, 244
PERSISTENT, NAMESPACE, PACKAGE, REFERENCE = 248, 249, 250, 255
NOTHING = (0, 241, 242, 247, 251, 252, 253, 254)  # NULL, environments that are not saved, absent arguments
HAS_ATTRIBUTES, HAS_TAG = 1 << 9, 1 << 10
MISSING = -(2**31)  # NA among whole numbers
NUMBERS = {LOGICAL: ">i4", INTEGER: ">i4", REAL: ">f8", COMPLEX: ">c16"}


class RList(dict[str, Any]):
    """A list, an environment or a function of R by name; what R calls its attributes are attributes here."""


class RArray(np.ndarray[Any, Any]):
    """A vector or a matrix of R, with its attributes."""


def is_from_r(model: Any) -> bool:
    """Whether this is what `load_r` returns."""
    return type(model).__module__ == __name__


@dataclass(frozen=True, eq=False)
class RModel:
    """An object in a file of R, and everything else that the file holds."""

    name: str
    value: Any
    contents: Any  # all objects of the file

    @property
    def kind(self) -> str:
        """The first of its classes in R."""
        return kind_of(self.value)


def load_r(path: str | PathLike[str], name: str | None = None) -> RModel:
    """The model in a .rds file; or in a .RData file, where `name` chooses one of several.

    The audit is about that model and about everything that the file holds beside it.
    """
    source = files.named("load_r", Path(path))
    stored = source.read_bytes()
    try:
        for mark, unpack in PACKED.items():
            stored = unpack(stored) if stored.startswith(mark) else stored
        saved = stored.startswith(SAVED)
        contents = _Reader(stored[5:] if saved else stored).file()
    except MemoryError:
        raise
    except Exception as error:  # of an unpacker, of a text or of an array, whatever is damaged
        raise ValueError(
            f"audit: {source} is damaged, or no file that saveRDS() or save() of R wrote with ascii = FALSE. Save it "
            "again."
        ) from error
    if not saved and name is None:
        return RModel(kind_of(contents), contents, contents)
    objects = contents if isinstance(contents, dict) else {}
    models = [each for each, value in objects.items() if isinstance(value, dict) and "terms" in value]
    if name is None and len(models) != 1:
        shown = ", ".join(f"{each} ({kind_of(value)})" for each, value in objects.items())
        example = next(iter([*models, *objects]), "name")
        raise ValueError(
            f"audit: {source} holds {len(models)} models with a formula: {shown}. Choose an object by its name: "
            f'lw.audit(lw.adapters.load_r("{source}", "{example}"), (X, y)).'
        )
    name = models[0] if name is None else name
    if name not in objects:
        raise ValueError(f"load_r: {source} holds no {name!r}, but {', '.join(objects)}.")
    return RModel(name, objects[name], contents)


def kind_of(value: Any) -> str:
    """The first class of a value in R."""
    classes = attributes(value).get("class", ["list" if isinstance(value, dict) else "vector"])
    return str(classes[0])


class _Reader:
    """One value after the other from the bytes of a file."""

    def __init__(self, stored: bytes) -> None:
        self.stored, self.place = stored, 0
        self.shared = list[Any]()  # what later parts refer to by number
        self.repeated = dict[int, Any]()  # ... inside of a compiled function

    def file(self) -> Any:
        """The value that a file holds."""
        if self._bytes(len(BINARY)) != BINARY:
            raise ValueError("not in the binary format")
        version, _, _ = self._whole(), self._whole(), self._whole()
        if version >= ENCODED:
            self._bytes(self._whole())
        contents = self.value()
        if self.place != len(self.stored):
            raise ValueError("more bytes than one value")
        return contents

    def _bytes(self, count: int) -> bytes:
        part = self.stored[self.place : self.place + count]
        if len(part) < count:
            raise EOFError
        self.place += count
        return part

    def _whole(self) -> int:
        (number,) = struct.unpack(">i", self._bytes(4))
        return int(number)

    def _length(self) -> int:
        length = self._whole()
        return length if length >= 0 else (self._whole() << 32) + (self._whole() & 0xFFFFFFFF)

    def value(self) -> Any:
        """The next value."""
        return self._typed(self._whole())

    def _typed(self, flags: int) -> Any:
        """The value of a type, which has attributes and a tag or not."""
        kind = flags & 0xFF
        if kind in NOTHING:
            return None
        if kind == REFERENCE:
            return self.shared[(flags >> 8 or self._whole()) - 1]
        if kind in (PERSISTENT, NAMESPACE, PACKAGE):
            self._whole()
            return self._share([self.value() for _ in range(self._whole())])
        if kind == SYMBOL:
            return self._share(self.value())
        if kind == ENVIRONMENT:
            return self._environment()
        if kind in (PAIRS, CALL, DOTS, CLOSURE, PROMISE):
            return self._pairs(kind, flags)
        if kind == ALTERNATIVE:
            return self._alternative()
        if kind in (SPECIAL, BUILTIN):
            return self._bytes(self._whole()).decode()
        if kind == CHARACTERS:
            length = self._whole()
            return None if length < 0 else self._bytes(length).decode("utf-8", "replace")
        content = self._content(kind)
        return _made(content, kind, self._named(flags))

    def _share(self, value: Any) -> Any:
        self.shared.append(value)
        return value

    def _named(self, flags: int) -> dict[str, Any]:
        return dict(self.value() or {}) if flags & HAS_ATTRIBUTES else {}

    def _environment(self) -> Any:
        """Its variables by name, and the environment that encloses it."""
        environment = self._share(RList())
        self._whole()  # whether it is locked
        enclosing, frame, table, named = (self.value() for _ in range(4))
        for chain in (frame, *(table or {}).values()):
            environment.update(chain or {})
        if enclosing is not None:
            environment["enclosing"] = enclosing
        return _with(environment, dict(named or {}))

    def _pairs(self, kind: int, flags: int) -> Any:
        """A linked list; or a function or a promise, which are stored like one."""
        members, named = RList(), self._named(flags)
        tag = self.value() if flags & HAS_TAG else None
        if kind in (CLOSURE, PROMISE):
            names = ("formals", "body") if kind == CLOSURE else ("value", "expression")
            inside = RList({**{name: self.value() for name in names}, "environment": tag})
            return _with(inside, {"class": ["function"], **named} if kind == CLOSURE else named)
        while True:
            members[_unused(members, tag)] = self.value()
            flags = self._whole()
            if flags & 0xFF not in (PAIRS, CALL, DOTS):
                end = self._typed(flags)
                members |= {} if end is None else {"end": end}
                return _with(members, named)
            named |= self._named(flags)
            tag = self.value() if flags & HAS_TAG else None

    def _alternative(self) -> Any:
        """A vector in another form: a sequence, numbers as texts, or one that is wrapped."""
        information, state, named = self.value(), self.value(), self.value() or {}
        name, parts = next(iter(information.values())), [*state.values()] if isinstance(state, dict) else [state]
        kind = REAL
        if name.startswith("compact"):
            length, first, step = np.asarray(state)
            content = first + step * np.arange(int(length))
        elif name == "deferred_string":
            content, kind = np.array([f"{number:.15g}" for number in np.asarray(parts[0])], object), TEXTS
        elif name.startswith("wrap"):
            return _with(parts[0], dict(named))
        else:
            raise ValueError(f"a vector of the form {name}")
        return _made(content, kind, dict(named))

    def _content(self, kind: int) -> Any:
        """What a vector holds, or a compiled function or an object."""
        if kind in NUMBERS:
            size = np.dtype(NUMBERS[kind])
            count = self._length()
            numbers = np.frombuffer(self._bytes(count * size.itemsize), size).astype(size.newbyteorder("="))
            return np.where(numbers == MISSING, np.nan, numbers) if (numbers == MISSING).any() else numbers
        if kind == RAW:
            return self._bytes(self._length())
        if kind in (TEXTS, LIST, EXPRESSIONS):
            members = [self.value() for _ in range(self._length())]
            return np.array([*members, None], object)[:-1] if kind == TEXTS else members
        if kind == COMPILED:
            self._whole()  # how many parts are repeated
            return self._compiled()
        if kind == POINTER:
            content = self._share([None, None])
            content[:] = self.value(), self.value()
            return content
        if kind == WEAK:
            return self._share([])
        if kind == OBJECT:
            return []
        raise ValueError(f"a value of the type {kind}")

    def _compiled(self) -> list[Any]:
        """The constants of a compiled function."""
        self.value()  # its code
        kinds = (self._whole() for _ in range(self._whole()))
        return [self._compiled() if kind == COMPILED else self._constant(kind) for kind in kinds]

    def _constant(self, kind: int) -> Any:
        """One of them; calls are stored part by part, and may be repeated."""
        if kind == REPEATED:
            return self.repeated.get(self._whole())
        if kind not in (REPEATS, CALL, PAIRS, CALL_WITH, PAIRS_WITH):
            return self.value()
        number, kind = (self._whole(), self._whole()) if kind == REPEATS else (-1, kind)
        members = self.repeated[number] = RList()
        if kind in (CALL_WITH, PAIRS_WITH):
            vars(members).update(self.value() or {})
        tag = self.value()
        members[str(tag)] = self._constant(self._whole())
        members["end"] = self._constant(self._whole())
        return members


def _made(content: Any, kind: int, named: dict[str, Any]) -> Any:
    """A vector, a matrix, a factor, or a list, as a data frame is one."""
    names, shape = named.pop("names", None), named.pop("dim", None)
    if isinstance(content, list):
        members = RList()
        for place, member in enumerate(content):
            members[_unused(members, None if names is None else names[place])] = member
        return _with(members, named)
    if kind == RAW:
        return content if not named else _with(RList({"bytes": content}), named)
    if "factor" in named.get("class", ()):
        levels = np.array([np.nan, *named["levels"]], dtype=object)
        content = levels[np.nan_to_num(content).astype(int)]
    if shape is not None:
        content = content.reshape(np.asarray(shape).astype(int), order="F")
    named |= {} if names is None else {"names": names}
    return _with(content.view(RArray), named) if named else content


def _unused(members: Mapping[str, Any], name: Any) -> str:
    """The name of the next member; its number where it has none, and beside the name where two have one name."""
    place = str(len(members))
    text = str(name) if name else place
    return f"{text}.{place}" if text in members else text


def _with(value: Any, named: dict[str, Any]) -> Any:
    """A value with its attributes."""
    if named and isinstance(value, np.ndarray):
        value, named = value.view(RArray), {**attributes(value), **named}
    if named and isinstance(value, dict | np.ndarray):
        vars(value).update(named)
    return value
