"""Everything that a fitted model holds: numbers by path, and fingerprints of what is not numbers.

A released file holds what pickle stores: attributes and items, the state of compiled objects, the values that a
function encloses. All of it is looked into here, so that no part of a model is taken for constant because it was not
seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.adapters.sklearn.walk import FRAMES, OBJECTS, content

Numbers = NDArray[np.float64]
EMPTY = (type(None), type, ModuleType, BuiltinFunctionType, np.random.Generator, np.random.RandomState)
CELLS = (str, bytes, int, float, complex, np.generic, type(None))  # a sequence of these has one fingerprint
FINGERPRINT = 4  # numbers


class Contents(NamedTuple):
    """The values that a model holds, by path."""

    numbers: dict[str, Numbers]
    others: dict[str, Numbers]  # fingerprints of texts, bytes and dates

    def fingerprints(self, paths: Iterable[str]) -> Numbers:
        """One for all paths, and one for each of some: equal for equal values, else unrelated."""
        every = "\n".join(sorted((*self.numbers, *self.others)))
        return np.concatenate([fingerprint(every.encode()), *(self._fingerprint(path) for path in paths)])

    def _fingerprint(self, path: str) -> Numbers:
        number = self.numbers.get(path)
        return self.others.get(path, np.zeros(FINGERPRINT)) if number is None else fingerprint(number.tobytes())


def fingerprint(value: bytes) -> Numbers:
    """(4,) numbers that are equal for equal bytes."""
    digest = blake2b(value, digest_size=2 * FINGERPRINT).digest()
    return np.frombuffer(digest, dtype=np.uint16).astype(np.float64)


def contents(model: Any) -> Contents:
    """Look into a fitted model. Its settings are left out: they are the same in every fit, or private seeds."""
    found = Contents({}, {})
    for path, value in walked(model):
        if (numbers := _numbers(value)) is not None:
            found.numbers[path] = numbers
        elif (text := _bytes(value)) is not None:
            found.others[path] = fingerprint(text)
    return found


def walked(model: Any) -> Iterator[tuple[str, Any]]:
    """Every value and object that is held by a model, by path, and the model itself."""
    seen = dict[int, Any]()  # an object's number is its own only as long as the object is kept
    todo: list[tuple[str, Any]] = [("", model)]
    while todo and len(seen) <= OBJECTS:
        path, value = todo.pop()
        if isinstance(value, EMPTY) or id(value) in seen:
            continue
        yield path, value
        if _numbers(value) is None and _bytes(value) is None:
            seen[id(value)] = value
            todo += [(f"{path}.{name}".removeprefix("."), member) for name, member in _held(value)]


def _numbers(value: Any) -> Numbers | None:
    """Numbers as one row; None for everything else."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to_dense()
        value = np.asarray(value.double() if not value.is_complex() else torch.view_as_real(value).double())
    if isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, complex | np.complexfloating):
        return np.atleast_1d(np.asarray(value, dtype=np.float64))
    if isinstance(value, np.ndarray) and value.dtype.kind in "Mm":
        value = value.view(np.int64)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return value.astype(np.float64).ravel()
    return None


def _bytes(value: Any) -> bytes | None:
    """A value that is no number and has no parts, or a sequence of such values; None for everything else."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "USc":
        return value.tobytes()
    some = isinstance(value, list | tuple | Set) or (isinstance(value, np.ndarray) and value.dtype.kind == "O")
    if not some or not _all_cells(value):
        return None
    texts = [repr(cell) for cell in (np.ravel(value) if isinstance(value, np.ndarray) else value)]
    return "\n".join(sorted(texts) if isinstance(value, Set) else texts).encode(errors="surrogatepass")


def _all_cells(values: Any) -> bool:
    """Whether these are texts, or texts and numbers: numbers alone are looked at one by one."""
    cells = np.ravel(values).tolist() if isinstance(values, np.ndarray) else list(values)
    texts = any(isinstance(cell, str | bytes) for cell in cells)
    return texts and all(isinstance(cell, CELLS) for cell in cells)


def _held(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, by name: attributes that are no settings, items, or what pickle stores of it."""
    if isinstance(value, type):
        return []
    if isinstance(value, Mapping):
        return [("keys", list(map(str, value))), *((str(key), member) for key, member in value.items())]
    if type(value).__module__.startswith(FRAMES) and hasattr(value, "to_numpy"):
        return [("values", value.to_numpy())]
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
    if isinstance(value, Sequence):
        return [(str(place), member) for place, member in enumerate(value)]
    if not getattr(value, "__dict__", None):
        return _pickled(value)
    settings = _settings(value) - {"steps"}
    return [(name, member) for name, member in vars(value).items() if name not in settings]


def _settings(value: Any) -> set[str]:
    """Names of the arguments of an estimator."""
    return set(value.get_params(deep=False)) if callable(getattr(value, "get_params", None)) else set()


def _pickled(value: Any) -> list[tuple[str, Any]]:
    """The state of a compiled object, or of one with slots, as pickle would store it; nothing where it cannot."""
    try:
        _, arguments, *state = value.__reduce_ex__(4)
    except Exception:  # of any class
        return []
    state = [list(part) if hasattr(part, "__next__") else part for part in state]
    return [("arguments", arguments), *((f"state{place}", part) for place, part in enumerate(state))]
