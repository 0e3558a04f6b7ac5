"""Everything that a fitted model holds: numbers by path, and fingerprints of what is not numbers.

A released file holds what pickle stores: attributes and items, the state of compiled objects, the values that a
function encloses. All of it is looked into here, so that no part of a model is taken for constant because it was not
seen.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.adapters.sklearn.walk import FRAMES, OBJECTS, attributes, content

Numbers = NDArray[np.float64]
EMPTY = (type(None), type, ModuleType, BuiltinFunctionType, np.random.Generator, np.random.RandomState)
REAL = (int, float, np.integer, np.floating, np.bool_)
TEXT = (str, bytes, bytearray, memoryview)
PLAIN = (*REAL, str, type(None))  # settings that a fit leaves as they are
CELLS = (*TEXT, *REAL, complex, np.generic, type(None))  # a list of these with a text among them has one fingerprint
FINGERPRINT = 4  # numbers


class Contents(NamedTuple):
    """The values that a model holds, by path."""

    numbers: dict[str, Numbers]
    others: dict[str, Numbers]  # fingerprints of texts, bytes and dates
    complete: bool = True  # every object was looked into

    def fingerprints(self, paths: Iterable[str]) -> Numbers:
        """One for all paths, and one for each of some: equal for equal values, else unrelated."""
        every = "\n".join(sorted((*self.numbers, *self.others)))
        return np.concatenate([fingerprint(every.encode()), *(self.of(path) for path in paths)])

    def sizes(self) -> Counter[str]:
        """How many numbers each attribute holds."""
        found = Counter[str]()
        for path, numbers in self.numbers.items():
            found[path.partition(".")[0]] += numbers.size
        return found

    def of(self, path: str) -> Numbers:
        """The fingerprint of one value."""
        number = self.numbers.get(path)
        return self.others.get(path, np.zeros(FINGERPRINT)) if number is None else fingerprint(number.tobytes())


def fingerprint(value: bytes) -> Numbers:
    """(4,) numbers that are equal for equal bytes."""
    digest = blake2b(value, digest_size=2 * FINGERPRINT).digest()
    return np.frombuffer(digest, dtype=np.uint16).astype(np.float64)


def contents(model: Any) -> Contents:
    """Look into a fitted model. Its plain settings are left out: they are the same in every fit, or private seeds."""
    found, walk = Contents({}, {}), Walked(model)
    for path, value in walk:
        if (numbers := numbers_of(value)) is not None:
            found.numbers[path] = numbers
        elif (text := bytes_of(value)) is not None:
            found.others[path] = fingerprint(text)
    return found._replace(complete=walk.complete)


class Walked:
    """Every value and object that is held by a model, by path, and the model itself; those of its attributes first.

    Those that `is_entered` denies are left out. Afterwards `complete` says whether every object was visited.
    """

    def __init__(self, model: Any, is_entered: Callable[[Any], bool] | None = None) -> None:
        self.model, self.complete, self.is_entered = model, True, is_entered

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        seen = dict[int, Any]()  # an object's number is its own only as long as the object is kept
        todo: deque[tuple[str, Any]] = deque([("", self.model)])
        while todo and len(seen) <= OBJECTS:
            path, value = todo.popleft()
            if isinstance(value, EMPTY) or id(value) in seen or (self.is_entered and not self.is_entered(value)):
                continue
            yield path, value
            if not is_numbers(value) and not is_text(value):
                seen[id(value)] = value
                todo += [(f"{path}.{name}".removeprefix("."), member) for name, member in _held(value)]
        self.complete = not todo


def is_numbers(value: Any) -> bool:
    """A number, or numbers in an array, a tensor or a list."""
    if isinstance(value, list | tuple):
        return len(value) > 0 and all(isinstance(member, REAL) for member in value)
    if isinstance(value, array):
        return value.typecode not in "uw"  # characters
    return isinstance(value, (*REAL, torch.Tensor)) or (isinstance(value, np.ndarray) and value.dtype.kind in "fiubMm")


def numbers_of(value: Any) -> Numbers | None:
    """Numbers as one row; None for what is none."""
    if not is_numbers(value):
        return None
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to_dense()
        value = (torch.view_as_real(value) if value.is_complex() else value).double().numpy()
    value = np.asarray(value)
    try:
        numbers: Numbers = (value.view(np.int64) if value.dtype.kind in "Mm" else value).astype(np.float64).ravel()
    except OverflowError:  # whole numbers of more than 308 digits
        return fingerprint(repr([hex(cell) if isinstance(cell, int) else cell for cell in value.flat]).encode())
    return numbers


def is_text(value: Any) -> bool:
    """Text or bytes, or a list or an array of them, with numbers between them or not."""
    if isinstance(value, TEXT) or (isinstance(value, np.ndarray) and value.dtype.kind in "USc"):
        return True
    if not isinstance(value, list | tuple | Set) and not (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        return False
    kinds = set(map(type, value.flat if isinstance(value, np.ndarray) else value))
    return any(issubclass(kind, TEXT) for kind in kinds) and all(issubclass(kind, CELLS) for kind in kinds)


def bytes_of(value: Any) -> bytes | None:
    """Of a text, or of all cells of a list; None for what is neither."""
    if not is_text(value):
        return None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return value.tobytes()
    texts = [repr(cell) for cell in (value.flat if isinstance(value, np.ndarray) else value)]
    return "\n".join(sorted(texts) if isinstance(value, Set) else texts).encode(errors="surrogatepass")


def _held(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, by name: attributes that are no plain settings, items, or what pickle stores of it."""
    if type(value).__module__.startswith(FRAMES) and hasattr(value, "to_numpy"):
        names = [name for name in ("index", "columns") if hasattr(type(value), name)]
        return [("values", value.to_numpy()), *((name, getattr(value, name)) for name in names)]
    settings = _settings(value)
    own = attributes(value) or {}
    named = [(name, member) for name, member in own.items() if name not in settings or not isinstance(member, PLAIN)]
    items = _items(value)
    return named + (([] if own else _pickled(value)) if items is None else items)


def _items(value: Any) -> list[tuple[str, Any]] | None:
    """The members of a container, of an array or of a function, by name; None for other objects."""
    if isinstance(value, Mapping):
        names = [str(place if isinstance(key, torch.Tensor) else key) for place, key in enumerate(value)]
        return [("keys", names), *zip(names, value.values(), strict=True)]
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [(name, value[name]) for name in value.dtype.names]
    if isinstance(value, np.ndarray):
        return [(str(place), member) for place, member in enumerate(np.ravel(value) if value.ndim else ())]
    if isinstance(value, Set):
        return [(str(place), member) for place, member in enumerate(sorted(value, key=repr))]
    if isinstance(value, FunctionType):
        cells = [content(cell) for cell in value.__closure__ or ()]
        return [("closure", cells), ("defaults", value.__defaults__), ("keywords", value.__kwdefaults__)]
    if isinstance(value, MethodType):
        return [("self", value.__self__)]
    if isinstance(value, partial):
        return [("function", value.func), ("arguments", value.args), ("keywords", value.keywords)]
    if isinstance(value, Sequence) and not isinstance(value, range):
        return [(str(place), member) for place, member in enumerate(value)]
    return None


def _settings(value: Any) -> set[str]:
    """Names of the arguments of an estimator."""
    return set(value.get_params(deep=False)) if callable(getattr(type(value), "get_params", None)) else set()


def _pickled(value: Any) -> list[tuple[str, Any]]:
    """The state of a compiled object, or of one with slots, as pickle would store it; nothing where it cannot."""
    try:
        _, arguments, *state = value.__reduce_ex__(4)
    except Exception:  # of any class
        return []
    state = [list(part) if hasattr(part, "__next__") else part for part in state]
    return [("arguments", arguments), *((f"state{place}", part) for place, part in enumerate(state))]
