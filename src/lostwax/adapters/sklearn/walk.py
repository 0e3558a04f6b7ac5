"""Every array that can be reached from a fitted object, whatever its class: attributes, containers and nested objects.

What a function encloses, and its defaults, are reached too. Bytes and texts are kept aside (`texts`). Only stored
values are read (`vars`, items of containers): no property or method of the object is called.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from inspect import unwrap
from numbers import Number
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import issparse
from scipy.spatial import cKDTree
from sklearn.neighbors import BallTree, KDTree

Array = np.ndarray[Any, np.dtype[Any]]
TEXTS = (str, bytes, bytearray, memoryview)
OPAQUE = (*TEXTS, type, ModuleType, BuiltinFunctionType, np.random.Generator)
TREES = (KDTree, BallTree, cKDTree)  # they keep their points in `data`, which is no attribute of `vars`
FRAMES = ("pandas", "polars")
DEPTH = 16  # levels of nested objects
OBJECTS = 200_000  # objects visited
CELLS = 200_000_000  # of a sparse matrix that is made dense
SET_BY_SKLEARN = ("n_features_in_", "feature_names_in_", "_sklearn_output_config", "_metadata_request")


class Holder(NamedTuple):
    """Arrays that are held side by side: the attributes of one object, or the items of one container."""

    path: str  # from the fitted object, such as "estimators_[0]."; empty for the object itself
    arrays: dict[str, Array]
    unnamed: bool = False  # items of a list: their names are numbers


class Walk:
    """Iterates over the holders; afterwards `complete` says whether every object was visited."""

    def __init__(self, part: Any, columns: int) -> None:
        self.part, self.columns = part, columns
        self.complete = True
        self.texts: dict[str, str | bytes] = {}

    def __iter__(self) -> Iterator[Holder]:
        seen: set[int] = set()
        todo: deque[tuple[str, Any, int]] = deque([("", self.part, 0)])
        while todo:
            path, value, depth = todo.popleft()
            members = _members(value)
            if members is None or id(value) in seen or _other_inputs(value, self.columns):
                continue
            seen.add(id(value))
            if depth > DEPTH or len(seen) > OBJECTS:
                self.complete = False
                return
            unnamed = isinstance(value, Sequence | np.ndarray)
            prefix = path if unnamed or not path else f"{path}."
            arrays = {}
            for name, member in members.items():
                if (array := as_array(member)) is not None:
                    arrays[name] = array
                elif _too_large(member):
                    self.complete = False
                elif isinstance(member, TEXTS):
                    self.texts[f"{prefix}{name}"] = member if isinstance(member, str) else bytes(member)
                else:
                    todo.append((f"{prefix}{name}", member, depth + 1))
            yield Holder(prefix, arrays, unnamed)


def _members(value: Any) -> dict[str, Any] | None:
    """The values that are held by one object or container, by name; None if it holds none."""
    if isinstance(value, OPAQUE):
        return None
    if isinstance(value, FunctionType):
        cells = {
            name: content(cell) for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        }
        return {**cells, "__defaults__": value.__defaults__, "__kwdefaults__": value.__kwdefaults__}
    if isinstance(value, MethodType):
        return {"__self__": value.__self__}
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, TREES):
        return {"data": np.asarray(value.data)}
    if isinstance(value, Mapping):
        return {str(name): member for name, member in value.items()}
    if isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1):
        return {f"[{index}]": member for index, member in enumerate(value)} if len(value) <= OBJECTS else None
    return dict(own) if (own := attributes(value)) is not None else None


def attributes(value: Any) -> dict[str, Any] | None:
    """What an object holds by name; None if it has no place for that."""
    try:
        own: dict[str, Any] = vars(value)
    except Exception:  # of any class, which may raise what it likes for an unknown name
        return None
    return own


def unmentioned(value: Any) -> dict[str, Any]:
    """The attributes of an object that are no settings, and that no code of its class mentions: no `fit` sets them."""
    known = _mentioned(type(value))  # type: ignore[arg-type]  # classes have a hash
    if callable(getattr(type(value), "get_params", None)):
        known |= set(value.get_params(deep=False))
    return {name: member for name, member in (attributes(value) or {}).items() if name not in known}


@lru_cache(maxsize=1_000)
def _mentioned(kind: type) -> frozenset[str]:
    """Every name and every text in the code of a class and its bases, and names that scikit-learn itself sets."""
    names = {*SET_BY_SKLEARN}
    for base in kind.__mro__:
        names |= {*vars(base), *vars(base).get("__annotations__", {})}
        todo: list[Any] = list(vars(base).values())
        while todo:
            member = todo.pop()
            if isinstance(member, property):
                todo += [member.fget, member.fset]
            elif isinstance(member, CodeType):
                names |= {*member.co_names, *(one for one in member.co_consts if isinstance(one, str))}
                todo += [one for one in member.co_consts if isinstance(one, CodeType | tuple | frozenset)]
            elif isinstance(member, tuple | frozenset):
                names |= {one for one in member if isinstance(one, str)}
            elif isinstance(member, FunctionType):
                todo.append(unwrap(member).__code__)
            else:  # class methods, and methods that are there at times
                todo += [getattr(member, name) for name in ("__func__", "fn") if hasattr(member, name)]
    return frozenset(names)


def content(cell: CellType) -> Any:
    """What a function encloses in one of its variables; None where it is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def as_array(value: Any) -> Array | None:
    """Numbers as an array of one or two dimensions, sparse ones made dense; None for everything else."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        value = (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    elif issparse(value):
        value = None if _too_large(value) else value.toarray()
    elif type(value).__module__.startswith(FRAMES) and hasattr(value, "to_numpy"):
        value = value.to_numpy()
    elif isinstance(value, array) and value.typecode not in "uw":  # characters
        value = np.asarray(value)
    elif isinstance(value, list | tuple) and _numeric(value):
        try:
            value = np.asarray(value)
        except ValueError:  # rows of several lengths
            return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "USO" and value.ndim in (1, 2) and _written(value):
        try:
            value = value.astype(np.float64)
        except (ValueError, TypeError):  # other texts
            return None
    numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and value.ndim in (1, 2) and value.size > 0
    return np.asarray(value) if numbers else None


def _numeric(values: Sequence[Any]) -> bool:
    """Whether a list starts as numbers, or lists of numbers, do."""
    first = values[0] if len(values) else None
    return isinstance(first[0] if isinstance(first, list | tuple) and len(first) else first, Number)


def _written(values: Array) -> bool:
    """Whether an array of texts or objects starts with a number, as such or as a text."""
    first = values.flat[0] if values.size else None
    return isinstance(first, str | bytes | Number)


def _too_large(value: Any) -> bool:
    return issparse(value) and int(np.prod(value.shape, dtype=np.int64)) > CELLS


def _other_inputs(value: Any, columns: int) -> bool:
    """Whether this is an estimator that was fitted on inputs of another width."""
    return bool((attributes(value) or {}).get("n_features_in_", columns) != columns)
