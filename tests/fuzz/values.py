"""Values that no field expects, or only some."""

import datetime
import enum
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lostwax.games import Records

MOST = 2**63


class Stubborn:
    """It raises whatever is asked of it."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no ==")

    def __bool__(self):
        raise RuntimeError("no truth")

    def __len__(self):
        raise RuntimeError("no length")

    def __float__(self):
        raise RuntimeError("no number")

    __hash__ = None


class Colour(enum.Enum):
    RED = 1


HOSTILE = (
    *("3", "", "nan", "0.1", "auto", "x" * 10_000, "\ud800", "\0", "line\nbreak", b"3", bytearray(b"3")),
    *(0, 1, -1, 3, 2.5, -0.0, 0.5, 1e300, 5e-324, -1e-300, 10**30, -(10**30), 10**400, 10**5000, MOST, -MOST),
    *(math.inf, -math.inf, math.nan, True, False, None, ..., NotImplemented),
    *([], [1], (), (1,), (0.5, 0.9), (1, 2, 3), ("a",), (None,), (math.nan, 1.0), {}, {"a": 1}, set(), range(3)),
    *(object(), int, float, nn.ReLU, nn.ReLU(), len, math, lambda: 1, Stubborn(), Colour.RED),
    *(Fraction(1, 2), Decimal("0.5"), 1 + 2j, datetime.date(2020, 1, 1)),
    *(np.array([1, 2]), np.array(3), np.float64("nan"), np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a")),
    *(Records(torch.empty(0, 3), torch.empty(0)), Records(torch.ones(1, 3), torch.zeros(1)), nn.LazyLinear(2)),
    *(torch.tensor(3), torch.ones(2, 3), torch.float16, torch.float32, torch.int8, torch.device("cpu"), Path("x")),
)


def words(value: object) -> str:
    """A value in a case's name."""
    if isinstance(value, Stubborn):
        return "Stubborn()"
    if isinstance(value, int) and abs(value) > MOST:
        return f"int of {value.bit_length()} bits"
    return f"{type(value).__name__} {str(value)[:30]!r}"


def fits(annotation: str, value: object) -> bool:
    """Whether a value may stand in a field that is annotated so. Written apart from the package's own check."""
    return any(_fits_one(part.strip(), value) for part in _alternatives(annotation))


def _alternatives(annotation: str) -> list[str]:
    if annotation.startswith(("tuple[", "Literal[", "Mapping[")) and annotation.endswith("]"):
        return [annotation]
    if annotation.startswith("tuple[") and annotation.endswith("] | None"):
        return [annotation.removesuffix(" | None"), "None"]
    return annotation.split(" | ")


def _fits_one(annotation: str, value: object) -> bool:
    if annotation == "None":
        return value is None
    if annotation == "bool":
        return value is True or value is False
    if annotation == "int":
        return type(value) in (int, np.int64) and -MOST < value < MOST
    if annotation == "float":
        if type(value) not in (int, float, np.float32, np.float64, np.int64):
            return False
        return -MOST < value < MOST if isinstance(value, int) else not math.isnan(value)
    if annotation == "str":
        return isinstance(value, str)
    if annotation.startswith("Literal["):
        return isinstance(value, str) and f'"{value}"' in annotation
    if annotation.startswith("tuple["):
        inner = annotation[len("tuple[") : -1].split(", ")
        if type(value) is not tuple:
            return False
        if inner[-1] == "...":
            return all(fits(inner[0], part) for part in value)
        return len(value) == len(inner) and all(map(fits, inner, value))
    if annotation.startswith("Mapping["):
        return value == {} if isinstance(value, dict) else False
    if annotation == "torch.dtype":
        return isinstance(value, torch.dtype)
    if annotation in ("Tensor",):
        return isinstance(value, torch.Tensor)
    if annotation in ("Path", "PathLike[str]"):
        return isinstance(value, Path)
    if annotation == "Records":
        return isinstance(value, Records)
    if annotation == "nn.Module":
        return isinstance(value, nn.Module)
    # a part by protocol: whatever can be called may be one, nothing else here is
    return callable(value) and not isinstance(value, type)
