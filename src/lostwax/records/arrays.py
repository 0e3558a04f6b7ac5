"""A user's array, tensor or list as a plain numpy array. No message quotes a value: rows and columns are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def plain_array(source: str, name: str, values: Any) -> NDArray[Any]:
    """What was passed as a dense array in the CPU's memory; messages begin with `source` and call it by its name."""
    if hasattr(values, "toarray"):
        raise TypeError(f"{source}: {name} is a sparse matrix; all its numbers are needed: pass {name}.toarray().")
    if isinstance(values, Tensor):
        return _from_tensor(source, name, values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(
            f"{source}: {name} has {int(np.ma.getmaskarray(values).sum())} masked values. Fill them or drop their rows."
        )
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise ValueError(
            f"{source}: {name} cannot be read as an array: are its rows of different lengths? Pass one number "
            "or label per cell."
        ) from None


def numbers(source: str, name: str, values: Any) -> NDArray[np.float64]:
    """The same in float64, writable and by rows."""
    array = plain_array(source, name, values)
    if array.dtype.kind == "c":
        raise TypeError(f"{source}: {name} holds complex numbers; expected real ones.")
    if array.dtype.kind in "mMV":
        raise TypeError(f"{source}: expected numbers in {name}, got {array.dtype}. Encode it first.")
    try:
        return np.require(array, dtype=np.float64, requirements=["C", "W"])  # torch wants to be able to write
    except (TypeError, ValueError, OverflowError):
        if array.ndim == 0:
            raise TypeError(
                f"{source}: expected {name} to be an array of numbers, got {type(values).__name__}."
            ) from None
        place, kind = _first_that_is_no_number(array)
        raise TypeError(
            f"{source}: expected numbers in {name}, got {array.dtype}: the value at {place} is {kind}. Encode it first."
        ) from None


def position(index: tuple[int, ...]) -> str:
    """Where a cell is: "row 3, column 1"; of images all further indices."""
    row, *rest = index
    if not rest:
        return f"row {row}"
    return f"row {row}, column {rest[0] if len(rest) == 1 else tuple(rest)}"


def _from_tensor(source: str, name: str, values: Tensor) -> NDArray[Any]:
    if values.is_nested or values.layout is not torch.strided:
        raise TypeError(
            f"{source}: {name} is a sparse or nested tensor; all its numbers are needed: pass {name}.to_dense()."
        )
    if values.is_meta:
        raise ValueError(f"{source}: {name} lies on the meta device and holds no numbers. Pass the tensor itself.")
    if values.is_quantized:
        raise TypeError(f"{source}: {name} is a quantised tensor; pass {name}.dequantize().")
    plain = values.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.float()  # numpy has no bfloat16 and no float8
    array: NDArray[Any] = plain.numpy()
    return array


def _first_that_is_no_number(array: NDArray[Any]) -> tuple[str, str]:
    """Where it is, and what kind of thing."""
    for index, cell in np.ndenumerate(array):
        try:
            float(cell)
        except OverflowError:
            return position(index), "a whole number too large for a float"
        except (TypeError, ValueError):
            return position(index), f"of type {type(cell).__name__}"
    return "some place", "no number"
