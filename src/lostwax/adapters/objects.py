"""One walk over everything that a fitted model or a net holds, whatever its class, as a released file would store it.

Attributes and items, what functions enclose, nested objects, and the state of compiled ones: no part of a model is
taken for constant because it was not seen. Only stored values are read: no property or method of an object is called,
except those by which pickle would store it. `unpacked` goes into bytes and texts too: compressed data, base64, JSON,
CSV, and the numbers that are written there.
"""

from __future__ import annotations

import base64
import bz2
import csv
import json
import lzma
import re
import zlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache, partial
from hashlib import blake2b
from inspect import unwrap
from itertools import groupby
from numbers import Number
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse

Array = np.ndarray[Any, np.dtype[Any]]
Numbers = NDArray[np.float64]

# What a value is to the walk: opaque, a number, a text; everything else is an object or a container, and is entered.
OPAQUE = (type(None), type, ModuleType, BuiltinFunctionType, np.random.Generator, np.random.RandomState)
REAL = (int, float, np.integer, np.floating, np.bool_)
TEXT = (str, bytes, bytearray, memoryview)
CELLS = (*TEXT, *REAL, complex, np.generic, type(None))  # a list of these with a text among them has one fingerprint
SETTINGS = (*REAL, str, type(None))  # arguments of an estimator that a fit leaves as they are
FRAMES = ("pandas", "polars")
PLAIN_LIBRARIES = ("builtins", "array", "numpy", "scipy", "torch")  # whose numbers and texts hold nothing else
POINT_TREES = {"KDTree", "BallTree", "cKDTree"}  # they keep their points in `data`, which is no attribute of `vars`

MAX_OBJECTS = 200_000  # that are entered
MAX_DENSE_CELLS = 200_000_000  # of a sparse matrix that is made dense
FINGERPRINT = 4  # numbers
BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
SHORTEST_BASE64 = 64  # characters
GZIP_OR_ZLIB = 47  # the header decides
MAX_DEPTH = 4  # of packed bytes inside of others
MAX_SEARCHED = 100_000_000  # bytes or characters that are searched for rows
MAX_PARSED = 20_000_000  # characters of a text that is read as JSON or CSV
FEWEST_LINES = 3  # of a text: fewer are no table
SET_BY_SKLEARN = ("n_features_in_", "feature_names_in_", "_sklearn_output_config", "_metadata_request")


def plain(value: Any) -> Any | None:
    """Numbers and texts as they are; None for what has to be entered."""
    return value if is_numbers(value) or is_text(value) else None


class Walk:
    """Every value that is reached from an object, by path, and the object itself; those of its attributes first.

    What `leaf` makes of a value is shown in its place; where that is None, the value is entered. Values that
    `is_entered` denies are left out. With `pickled`, keys of mappings and the state of compiled objects are shown too,
    and plain arguments of estimators are not: they are the same in every fit, or private seeds. Afterwards `complete`
    says whether every object was visited.
    """

    def __init__(
        self,
        root: Any,
        *,
        is_entered: Callable[[Any], bool] | None = None,
        leaf: Callable[[Any], Any | None] = plain,
        pickled: bool = True,
    ) -> None:
        self.root, self.is_entered, self.leaf, self.pickled = root, is_entered, leaf, pickled
        self.complete = True

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((_joined(holder, name), value) for holder, name, value in self._visits())

    def holders(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """By path of an object or a container, the values that it holds side by side."""
        for holder, visits in groupby(self._visits(), key=lambda visit: visit[0]):
            yield holder, {name: value for _, name, value in visits}

    def _visits(self) -> Iterator[tuple[str, str, Any]]:
        seen = dict[int, Any]()  # an object's id is its own only as long as the object is kept
        todo: deque[tuple[str, str, Any]] = deque([("", "", self.root)])
        while todo and len(seen) <= MAX_OBJECTS:
            holder, name, value = todo.popleft()
            if isinstance(value, OPAQUE) or id(value) in seen or (self.is_entered and not self.is_entered(value)):
                continue
            leaf = self.leaf(value)
            yield holder, name, value if leaf is None else leaf
            members = _beside(value) if leaf is not None else _members(value, pickled=self.pickled)
            if leaf is None or members:
                seen[id(value)] = value
                path = _joined(holder, name)
                todo += [(path, inner, member) for inner, member in members]
        self.complete = not todo


def _joined(holder: str, name: str) -> str:
    return f"{holder}.{name}" if holder else name


def _beside(value: Any) -> list[tuple[str, Any]]:
    """What a user's subclass of numbers or texts, or a frame, holds beside them."""
    library = type(value).__module__.partition(".")[0]
    if library in FRAMES:
        return [("attrs", value.attrs)] if getattr(value, "attrs", None) else []
    return [] if library in PLAIN_LIBRARIES else [*attributes(value).items()]


def _members(value: Any, *, pickled: bool) -> list[tuple[str, Any]]:
    """What one object holds, by name: attributes, items, or what pickle stores of it."""
    if type(value).__module__.startswith(FRAMES) and hasattr(value, "to_numpy"):
        names = [name for name in ("index", "columns") if hasattr(type(value), name)]
        return [("values", value.to_numpy()), *((name, getattr(value, name)) for name in names), *_beside(value)]
    if not pickled and type(value).__name__ in POINT_TREES:
        return [("data", np.asarray(value.data))]
    arguments = arguments_of(value) if pickled else set()
    own = attributes(value)
    named = [
        (name, member) for name, member in own.items() if name not in arguments or not isinstance(member, SETTINGS)
    ]
    items = _items(value, keys=pickled)
    return named + (([] if own or not pickled else _state(value)) if items is None else items)


def _items(value: Any, *, keys: bool) -> list[tuple[str, Any]] | None:
    """The members of a container, of an array or of a function, by name; None for other objects."""
    if isinstance(value, Mapping):
        names = [str(place if isinstance(key, torch.Tensor) else key) for place, key in enumerate(value)]
        return [*([("keys", names)] if keys else []), *zip(names, value.values(), strict=True)]
    if isinstance(value, np.ndarray) and value.dtype.names:
        return [(name, value[name]) for name in value.dtype.names]
    if isinstance(value, np.ndarray):
        return [(str(place), member) for place, member in enumerate(value.flat)]
    if isinstance(value, Set):
        return [(str(place), member) for place, member in enumerate(sorted(value, key=repr))]
    if isinstance(value, FunctionType):
        return [*enclosed(value), ("defaults", value.__defaults__), ("keywords", value.__kwdefaults__)]
    if isinstance(value, MethodType):
        return [("self", value.__self__)]
    if isinstance(value, partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if isinstance(value, Sequence) and not isinstance(value, range):
        return [(str(place), member) for place, member in enumerate(value)]
    return None


def enclosed(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function encloses, by the name of the variable; those that are not set yet are left out."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue


def attributes(value: Any) -> dict[str, Any]:
    """What an object holds by name; nothing if it has no place for that."""
    try:
        return dict(vars(value))
    except Exception:  # of any class, which may raise what it likes for an unknown name
        return {}


def arguments_of(value: Any) -> set[str]:
    """Names of the arguments of an estimator."""
    return set(value.get_params(deep=False)) if callable(getattr(type(value), "get_params", None)) else set()


def _state(value: Any) -> list[tuple[str, Any]]:
    """The state of a compiled object, or of one with slots, as pickle would store it; nothing where it cannot."""
    try:
        _, arguments, *state = value.__reduce_ex__(4)
    except Exception:  # of any class
        return []
    state = [list(part) if isinstance(part, Iterator) else part for part in state]
    return [("arguments", arguments), *((f"state{place}", part) for place, part in enumerate(state))]


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


def as_numpy(value: Any) -> Any:
    """Tensors and frames as arrays of numpy; everything else as it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().to_dense()
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    return value.to_numpy() if hasattr(type(value), "to_numpy") else value


def as_array(value: Any) -> Array | None:
    """Numbers as an array of one or two dimensions, sparse ones made dense; None for everything else."""
    if isinstance(value, torch.Tensor) or type(value).__module__.startswith(FRAMES):
        value = as_numpy(value)
    elif issparse(value):
        value = None if is_too_large(value) else value.toarray()
    elif isinstance(value, array) and value.typecode not in "uw":  # characters
        value = np.asarray(value)
    elif isinstance(value, list | tuple) and len(value):
        first = value[0][0] if isinstance(value[0], list | tuple) and len(value[0]) else value[0]
        try:
            value = np.asarray(value) if isinstance(first, Number) else None
        except ValueError:  # rows of several lengths
            return None
    if not isinstance(value, np.ndarray) or value.ndim not in (1, 2) or not value.size:
        return None
    if value.dtype.kind in "USO" and isinstance(value.flat[0], str | bytes | Number):
        try:
            value = value.astype(np.float64)
        except (ValueError, TypeError):  # other texts
            return None
    return np.asarray(value) if value.dtype.kind in "fiub" else None


def is_too_large(value: Any) -> bool:
    """A sparse matrix that is not made dense."""
    return issparse(value) and int(np.prod(value.shape, dtype=np.int64)) > MAX_DENSE_CELLS


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
        sizes = Counter[str]()
        for path, numbers in self.numbers.items():
            sizes[path.partition(".")[0]] += numbers.size
        return sizes

    def of(self, path: str) -> Numbers:
        """The fingerprint of one value."""
        number = self.numbers.get(path)
        return self.others.get(path, np.zeros(FINGERPRINT)) if number is None else fingerprint(number.tobytes())


def fingerprint(value: bytes) -> Numbers:
    """(4,) numbers that are equal for equal bytes."""
    digest = blake2b(value, digest_size=2 * FINGERPRINT).digest()
    return np.frombuffer(digest, dtype=np.uint16).astype(np.float64)


def contents(model: Any) -> Contents:
    """Look into a fitted model."""
    numbers, others, walk = dict[str, Numbers](), dict[str, Numbers](), Walk(model)
    for path, value in walk:
        if (array := numbers_of(value)) is not None:
            numbers[path] = array
        elif (text := bytes_of(value)) is not None:
            others[path] = fingerprint(text)
    return Contents(numbers, others, walk.complete)


def unmentioned(value: Any, classes: Iterable[type]) -> dict[str, Any]:
    """The attributes of an object that no code of some of its classes mentions: no `fit` of theirs sets them."""
    known = set(SET_BY_SKLEARN).union(*map(_mentioned, classes))
    return {name: member for name, member in attributes(value).items() if name not in known}


@lru_cache(maxsize=1_000)
def _mentioned(kind: type) -> frozenset[str]:
    """Every name and every text in the code of a class."""
    names = {*vars(kind), *vars(kind).get("__annotations__", {})}
    todo: list[Any] = list(vars(kind).values())
    while todo:
        member = todo.pop()
        if isinstance(member, property):
            todo += [member.fget, member.fset]
        elif isinstance(member, CodeType):
            names |= {*member.co_names, *(constant for constant in member.co_consts if isinstance(constant, str))}
            todo += [inner for inner in member.co_consts if isinstance(inner, CodeType | tuple | frozenset)]
        elif isinstance(member, tuple | frozenset):
            names |= {text for text in member if isinstance(text, str)}
        elif isinstance(member, FunctionType):
            todo.append(unwrap(member).__code__)
        else:  # class methods, and methods that are there at times
            todo += [getattr(member, name) for name in ("__func__", "fn") if hasattr(member, name)]
    return frozenset(names)


def decompressed(value: str | bytes | bytearray) -> bytes | None:
    """What is packed in bytes (gzip, zlib, bzip2, xz), or in a text as base64; None if nothing is."""
    if isinstance(value, str):
        if len(value) < SHORTEST_BASE64 or len(value) % 4 or not BASE64.fullmatch(value):
            return None
        return base64.b64decode(value, altchars=b"-_")
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)  # the older format has no mark: small numbers look like an empty one
    for unpacking in (zlib.decompressobj(GZIP_OR_ZLIB), bz2.BZ2Decompressor(), xz):
        try:
            if packed := unpacking.decompress(bytes(value), MAX_SEARCHED):
                return packed
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            continue
    return None


def unpacked(model: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Every value that is held, by path, with those inside of compressed bytes and of JSON."""
    for path, value in Walk(model):
        yield path, value
        if depth and isinstance(value, str | bytes | bytearray) and (opened := _opened(value)) is not None:
            for inner, member in unpacked(opened, depth - 1):
                yield f"{path}.{inner}".removesuffix("."), member


def _opened(value: str | bytes | bytearray) -> Any:
    """What is packed in a text or in bytes; None if nothing is."""
    if not FEWEST_LINES < len(value) <= MAX_PARSED:
        return None
    if isinstance(value, str) and (table := parsed(value)) is not None:
        return table
    if (packed := decompressed(value)) is not None or isinstance(value, str):
        return packed
    return decoded(value)


def decoded(value: bytes | bytearray) -> str | None:
    """Bytes as a text; None if they are none."""
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or "\n" in text else None


def parsed(text: str) -> Any:
    """Rows of a CSV or JSON text; None if it is neither."""
    if len(text) > MAX_PARSED or sum(map(text.count, "\n{[")) < FEWEST_LINES:
        return None
    try:
        if text.lstrip()[:1] in ("[", "{"):
            return json.loads(text)
        return list(csv.DictReader(text.splitlines()))
    except (ValueError, csv.Error, RecursionError):
        return None


def as_text(value: Any) -> str:
    """A text, or all cells of a list; no more than is searched."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return (value if isinstance(value, str) else bytes(value).decode(errors="ignore"))[:MAX_PARSED]
    return "\n".join(map(str, value.flat if isinstance(value, np.ndarray) else value))[:MAX_PARSED]
