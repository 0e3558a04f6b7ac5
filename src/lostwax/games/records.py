"""Records: the unit of privacy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.fields import is_number, shown

ROWS_AT_A_TIME = 4_096


@dataclass(frozen=True, repr=False)
class Records:
    """Inputs `x` and labels `y`, one row per record; more leading axes are allowed ((m, k, ...) in a Cohort).

    `features` are what the net trains on if that is not `x` itself: the output of a frozen backbone. Integer labels are
    kept as int64.
    """

    x: Tensor  # (n, ...)
    y: Tensor  # (n,) or (n, targets)
    features: Tensor | None = None  # (n, ...)

    def __post_init__(self) -> None:
        for name, part in self._named():
            _check_tensor(name, part)
            if part.shape[0] != self.x.shape[0]:
                raise ValueError(
                    f"Records: {name} must have one row per record, as x has: "
                    f"expected {self.x.shape[0]} rows, got shape {tuple(part.shape)}."
                )
        if not self.y.is_floating_point():
            object.__setattr__(self, "y", self.y.long())

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __repr__(self) -> str:
        """Shapes and dtypes, never the values: a notebook prints the result of its last line."""
        shapes = (f"{name}: {tuple(part.shape)} {part.dtype}" for name, part in self._named())
        return f"Records({', '.join(shapes)})"

    @classmethod
    def together(cls, parts: Sequence[Records], axis: int = 0) -> Records:
        """Concatenate records; with features if every part has them."""
        if not isinstance(parts, Sequence) or not parts or not all(isinstance(part, Records) for part in parts):
            raise TypeError(f"Records.together: expected a list of records, one or more, got {shown(parts)}.")
        features = [part.features for part in parts if part.features is not None]
        return cls(
            torch.cat([part.x for part in parts], axis),
            torch.cat([part.y for part in parts], axis),
            torch.cat(features, axis) if len(features) == len(parts) else None,
        )

    def __getitem__(self, rows: Tensor | slice | tuple[slice, int]) -> Records:
        """The records at `rows` (a slice, an index or boolean tensor, or `[:, 0]` for the first of each model)."""
        return self._each(lambda part: part[rows])

    @property
    def inputs(self) -> Tensor:
        """What the net trains on."""
        return self.x if self.features is None else self.features

    def to(self, target: torch.device | torch.dtype | str) -> Records:
        """The same records on another device, or in another floating dtype (integer labels stay integers)."""
        if isinstance(target, str) or not hasattr(target, "is_floating_point"):
            _check_device(target)
            return self._each(lambda part: part.to(target))
        return self._each(lambda part: part.to(target) if part.is_floating_point() else part)

    def through(self, backbone: nn.Module, *, batch_size: int = 256) -> Records:
        """The same records with the outputs of a frozen backbone as features, on which a new last layer is trained."""
        return replace(self, features=features(backbone, self.x, batch_size))  # (n, d)

    def split(self, *sizes: int, seed: int) -> tuple[Records, ...]:
        """Disjoint random parts: `known, prior, secrets = records.split(500, 1_000, 100, seed=0)`."""
        if any(isinstance(number, bool) or not isinstance(number, Integral) for number in (*sizes, seed)):
            raise TypeError("Records.split: expected whole numbers, known, prior = records.split(500, 1_000, seed=0).")
        if min(sizes, default=0) < 1 or sum(sizes) > len(self):
            raise ValueError(
                f"Records.split: expected sizes of at least 1 that sum to at most {len(self)}, got {shown(sizes)}."
            )
        if not -(2**63) <= seed < 2**63:
            raise ValueError("Records.split: expected a seed of at most 64 bits.")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(int(seed)))
        return tuple(self[part] for part in torch.split_with_sizes(order[: sum(sizes)], list(sizes)))

    def apart(self) -> Records:
        """A copy if a part is a slice of a larger tensor, which can be reached from it (`x._base`, its storage)."""
        cut = any(part.untyped_storage().nbytes() > part.numel() * part.element_size() for _, part in self._named())
        return self._each(lambda part: part.clone()) if cut else self

    def detached(self) -> Records:
        """The same records without gradients or lazy negation."""
        plain = not any(part.requires_grad or part.is_neg() for _, part in self._named())
        return self if plain else self._each(lambda part: part.detach().resolve_neg())

    def matches(self, other: Records) -> Tensor:
        """(n,) for each record the first row of `other` with exactly the same x, whatever its label; -1 if none."""
        if not len(self) or not len(other):
            return torch.full((len(self),), -1)
        theirs, row_of = list(_keys(other.x)), dict[bytes, int]()
        for row, key in enumerate(theirs):
            row_of.setdefault(key, row)
        ours = theirs if self.x is other.x else _keys(self.x)
        return torch.tensor([row_of.get(key, -1) for key in ours], dtype=torch.long)

    def without(self, *others: Records) -> Records:
        """The records whose x is in none of the others: `secrets = secrets.without(known, prior)`."""
        remaining = torch.ones(len(self), dtype=torch.bool)
        for other in others:
            if not isinstance(other, Records):
                raise TypeError(f"Records.without: expected lw.Records(x, y), got {shown(other)}.")
            remaining &= self.matches(other) < 0
        return self[remaining.to(self.x.device)]

    def _named(self) -> list[tuple[str, Tensor]]:
        return [(name, part) for name, part in vars(self).items() if name != "features" or part is not None]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Records:
        features = None if self.features is None else change(self.features)
        return replace(self, x=change(self.x), y=change(self.y), features=features)


def _check_tensor(name: str, part: Any) -> None:
    """Raise an error unless it is a dense tensor of real numbers."""
    wanted = f"Records: expected {name} to"
    if isinstance(part, dict | tuple | list) and any(
        isinstance(value, Tensor) for value in (part.values() if isinstance(part, dict) else part)
    ):
        raise TypeError(
            f"{wanted} be a tensor, got several in a {type(part).__name__}. Pack them into one: "
            "x, parts = lw.records.pack(...); parts(x) gives them back in the training function."
        )
    if not isinstance(part, Tensor):
        raise TypeError(f"{wanted} be a tensor, got {type(part).__name__}. Pass torch.as_tensor({name}).")
    if part.is_nested or str(part.layout) != "torch.strided":
        raise TypeError(f"{wanted} be a dense tensor, got a sparse or nested one. Pass {name}.to_dense().")
    if part.is_meta:
        raise ValueError(f"Records: {name} is on the meta device and holds no numbers. Pass a tensor with data.")
    if part.is_quantized or part.is_complex():
        raise TypeError(f"{wanted} hold real numbers, got {part.dtype}. Pass {name}.dequantize() or its real part.")
    if part.ndim == 0:
        raise ValueError(f"Records: expected {name} with one row per record, got a single number. Pass {name}[None].")


def _check_device(device: torch.device | str) -> None:
    """Raise an error for a device that torch does not know or have here."""
    if not isinstance(device, str | torch.device):
        kind = type(device).__name__
        raise TypeError(f"Records.to: expected a device such as 'cuda', or a dtype such as torch.float32, got {kind}.")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition(". ")[0].rstrip(".")
        raise ValueError(
            f"device={str(device)!r} cannot be used here: {why}. Use one that torch has on this machine, such as "
            "'cpu', or leave device out."
        ) from error


def _numbers(x: Tensor) -> Iterator[NDArray[np.float64]]:
    """Some records at a time, (b, d); equal numbers have equal bits, whatever their dtype and device."""
    for start in range(0, len(x), ROWS_AT_A_TIME):
        block = x[start : start + ROWS_AT_A_TIME].flatten(1)
        numbers = (block.detach().cpu().double() + 0.0).numpy()  # -0 + 0 = 0
        numbers[np.isnan(numbers)] = np.nan  # NaN has many bit patterns
        yield numbers


def _keys(x: Tensor) -> Iterator[bytes]:
    """A hash of each row."""
    for numbers in _numbers(x):
        for row in numbers:
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def features(backbone: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """(n, d) the backbone's outputs in evaluation mode, in batches on its device, returned on x's device."""
    if not isinstance(backbone, nn.Module):
        raise TypeError(f"Records.through: expected a torch nn.Module, got {shown(backbone)}.")
    if not is_number(batch_size, whole=True) or batch_size < 1 or len(x) == 0:
        raise ValueError(
            f"Records.through: expected batch_size >= 1 and at least one record, got {shown(batch_size)} and {len(x)}."
        )
    if not x.is_floating_point():
        raise TypeError(
            f"Records.through: expected x in floating point, got {x.dtype}. Scale pixels as in the backbone's "
            "training, or use records.to(torch.float32)."
        )
    like = next(backbone.parameters(), x)
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    try:
        with torch.no_grad():
            batches = ((batch, backbone(batch.to(like.device, like.dtype))) for batch in torch.split(x, batch_size))
            computed = torch.cat([_rows(outputs, len(batch)).to(x.device) for batch, outputs in batches])
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"Records.through: the backbone cannot take records of shape {tuple(x.shape[1:])}: {error}. Reshape x to "
            "(channels, height, width) as in its training, or prepend a layer: "
            "nn.Sequential(nn.Upsample(224), backbone)."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    if bad := int((~torch.isfinite(computed)).sum()):
        raise ValueError(
            f"Records.through: {bad} of {computed.numel()} features are NaN or infinite. Check the backbone's weights "
            "and the scale of x."
        )
    spread = (computed.amax(0) - computed.amin(0)).max()
    if len(computed) > 1 and spread <= 1e-6 * computed.abs().max():
        raise ValueError(
            f"Records.through: the backbone gives the same features for all {len(computed)} records. Check that it is "
            "trained, and that x is scaled as in its training."
        )
    return computed


def _rows(outputs: object, records: int) -> Tensor:
    """The outputs of a batch, flattened to (n, d)."""
    if not isinstance(outputs, torch.Tensor) or outputs.ndim < 2 or len(outputs) != records:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ValueError(
            f"Records.through: expected backbone outputs (n, ...), one row per record, got {got} for n={records}. "
            "Pass a module that ends where the new layer begins."
        )
    return outputs.flatten(1)
