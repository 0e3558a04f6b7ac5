"""Records: the unit of privacy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


ROWS_AT_A_TIME = 4_096


@dataclass(frozen=True, repr=False)
class Records:
    """What somebody wants kept private: inputs `x`, labels `y`, one row a record.

    Further leading axes are allowed ((m, k, ...) in a Cohort). `features` are what the net trains on when
    that is not `x` itself: a frozen backbone's output, while an attack still tries to rebuild `x`. Labels that are
    whole numbers, of whatever size, are kept as int64.
    """

    x: Tensor  # (n, ...)
    y: Tensor  # (n,) or (n, targets)
    features: Tensor | None = None  # (n, ...)

    def __post_init__(self) -> None:
        _check_tensor("x", self.x)
        _check_tensor("y", self.y)
        if self.features is not None:
            _check_tensor("features", self.features)
        for name, part in (("y", self.y), ("features", self.features)):
            if part is not None and (part.ndim == 0 or part.shape[0] != self.x.shape[0]):
                raise ValueError(
                    f"Records: {name} must have one row a record, as x has: "
                    f"expected {self.x.shape[0]} rows, got shape {tuple(part.shape)}."
                )
        if not self.y.is_floating_point():
            object.__setattr__(self, "y", self.y.long())  # frozen: this once

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def __repr__(self) -> str:
        """How many and of what shape, never the records: a notebook prints what its last line evaluates to."""
        parts = (("x", self.x), ("y", self.y), ("features", self.features))
        said = (f"{name}: {tuple(part.shape)} {part.dtype}" for name, part in parts if part is not None)
        return f"Records({', '.join(said)})"

    def __getitem__(self, rows: Tensor | slice) -> Records:
        """The records at `rows` (a slice, or an index or boolean tensor)."""
        return self._each(lambda part: part[rows])

    @property
    def inputs(self) -> Tensor:
        """What the net trains on."""
        return self.x if self.features is None else self.features

    def to(self, target: torch.device | torch.dtype | str) -> Records:
        """The same records on another device, or in another floating dtype (whole-number labels stay whole)."""
        if isinstance(target, str) or not hasattr(target, "is_floating_point"):
            _check_device(target)
            return self._each(lambda part: part.to(target))
        return self._each(lambda part: part.to(target) if part.is_floating_point() else part)

    def through(self, backbone: nn.Module, *, batch_size: int = 256) -> Records:
        """The same records, with what the frozen backbone makes of x as features: what a new last layer trains on."""

        return replace(self, features=features(backbone, self.x, batch_size))  # (n, d)

    def split(self, *sizes: int, seed: int) -> tuple[Records, ...]:
        """Disjoint random parts: `known, prior, secrets = records.split(500, 1_000, 100, seed=0)`."""
        import torch

        if any(isinstance(number, bool) or not isinstance(number, Integral) for number in (*sizes, seed)):
            raise TypeError("Records.split: expected whole numbers, known, prior = records.split(500, 1_000, seed=0).")
        if min(sizes, default=0) < 1 or sum(sizes) > len(self):
            raise ValueError(
                f"Records.split: expected sizes of at least 1 that sum to at most {len(self)}, got {sizes!s:.200}."
            )
        if not -(2**63) <= seed < 2**63:
            raise ValueError("Records.split: expected a seed of at most 64 bits.")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(int(seed)))
        return tuple(self[part] for part in torch.split_with_sizes(order[: sum(sizes)], list(sizes)))

    def is_cut(self) -> bool:
        """Whether a part is a piece of a larger tensor, which can be reached from it (`x._base`, its storage)."""
        held = [part for part in (self.x, self.y, self.features) if part is not None]
        return any(part.untyped_storage().nbytes() > part.numel() * part.element_size() for part in held)

    def apart(self) -> Records:
        """The same records in memory of their own, where they were cut from a larger tensor."""
        return self._each(lambda part: part.clone()) if self.is_cut() else self

    def detached(self) -> Records:
        """The same records as plain numbers, where gradients or a lazy minus sign hang on them."""
        held = [part for part in (self.x, self.y, self.features) if part is not None]
        plain = not any(part.requires_grad or part.is_neg() for part in held)
        return self if plain else self._each(lambda part: part.detach().resolve_neg())

    def matches(self, other: Records) -> Tensor:
        """(n,) for each record the first row of `other` that has exactly its x, whatever the label; -1 for none."""
        import torch

        row_of: dict[bytes, int] = {}
        for row, key in enumerate(_keys(other.x)):
            row_of.setdefault(key, row)
        return torch.tensor([row_of.get(key, -1) for key in _keys(self.x)], dtype=torch.long)

    def without(self, *others: Records) -> Records:
        """The records whose x stands in none of the others: `secrets = secrets.without(known, prior)`."""
        import torch

        kept = torch.ones(len(self), dtype=torch.bool)
        for other in others:
            kept &= self.matches(other) < 0
        return self[kept.to(self.x.device)]

    def _each(self, change: Callable[[Tensor], Tensor]) -> Records:
        features = None if self.features is None else change(self.features)
        return replace(self, x=change(self.x), y=change(self.y), features=features)


def _check_tensor(name: str, part: Tensor) -> None:
    """Refuse what is no tensor, or one without a number in each cell."""
    if not hasattr(part, "is_floating_point"):  # no tensor; torch need not be loaded
        kind = type(part).__name__
        raise TypeError(f"Records: expected {name} to be a tensor, got {kind}. Pass torch.as_tensor({name}).")
    if part.is_nested or str(part.layout) != "torch.strided":
        raise TypeError(
            f"Records: expected {name} to hold a number in each cell, got a sparse or nested tensor. Pass "
            f"{name}.to_dense()."
        )
    if part.is_meta:
        raise ValueError(f"Records: {name} lies on the meta device and holds no numbers. Pass the tensor itself.")
    if part.is_quantized or part.is_complex():
        raise TypeError(
            f"Records: expected {name} to hold real numbers, got {part.dtype}. Pass {name}.dequantize() or "
            "its real part."
        )
    if part.ndim == 0:
        raise ValueError(f"Records: expected {name} with one row per record, got a single number. Pass {name}[None].")


def _check_device(device: torch.device | str) -> None:
    """Refuse one that torch does not know or does not have here."""
    import torch

    if not isinstance(device, str | torch.device):
        raise TypeError(
            "Records.to: expected a device such as 'cuda', or a dtype such as torch.float32, got "
            f"{type(device).__name__}."
        )
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).partition(". ")[0].rstrip(".")
        raise ValueError(
            f"device={str(device)!r} cannot be used here: {why}. Name one that torch has on this machine, such as "
            "'cpu', or leave device out."
        ) from error


def _keys(x: Tensor) -> Iterator[bytes]:
    """A hash of each row's numbers; equal numbers have equal hashes, whatever their dtype and device."""
    for start in range(0, len(x), ROWS_AT_A_TIME):
        block = x[start : start + ROWS_AT_A_TIME].flatten(1)
        numbers = (block.detach().cpu().double() + 0.0).numpy()  # -0 + 0 = 0
        for row in numbers:
            yield hashlib.blake2b(row.tobytes(), digest_size=16).digest()


# What a frozen backbone makes of records.


def features(backbone: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """(n, d) the backbone's outputs in evaluation mode, one row a record, a batch at a time on the backbone's device.

    Kept where x is. The backbone stays as it is, in the mode it was in.
    """
    import torch

    if batch_size < 1 or len(x) == 0:
        raise ValueError(
            f"Records.through: expected batch_size >= 1 and at least one record, got {batch_size} and {len(x)}."
        )
    if not x.is_floating_point():
        raise TypeError(
            f"Records.through: expected x in floating point, got {x.dtype}. Scale pixels as the backbone was trained, "
            "or pass records.to(torch.float32)."
        )
    like = next(backbone.parameters(), x)
    modes = [(module, module.training) for module in backbone.modules()]
    backbone.eval()
    try:
        with torch.no_grad():
            batches = ((batch, backbone(batch.to(like.device, like.dtype))) for batch in torch.split(x, batch_size))
            made = torch.cat([_rows(outputs, len(batch)).to(x.device) for batch, outputs in batches])
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(
            f"Records.through: the backbone cannot take records of shape {tuple(x.shape[1:])}: {error}. Bring x to the "
            "shape it was trained on (channels, height, width), or put what does that before it: "
            "nn.Sequential(nn.Upsample(224), backbone)."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    _check_telling(made)
    return made


def _rows(outputs: object, records: int) -> Tensor:
    """The outputs of a batch as a table."""
    import torch

    if not isinstance(outputs, torch.Tensor) or outputs.ndim < 2 or len(outputs) != records:
        got = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ValueError(
            f"Records.through: expected the backbone to put out (n, ...), one row a record, got {got} for n={records}. "
            "Give it as a module that ends where the new layer begins."
        )
    return outputs.flatten(1)


def _check_telling(made: Tensor) -> None:
    """Features that are the same whatever the record leave nothing to learn, and nothing to rebuild."""
    import torch

    bad = int((~torch.isfinite(made)).sum())
    if bad:
        raise ValueError(
            f"Records.through: {bad} of {made.numel()} features are NaN or infinite. Look at the backbone's weights, "
            "and at the scale of x."
        )
    spread = (made.amax(0) - made.amin(0)).max()
    if len(made) > 1 and spread <= 1e-6 * made.abs().max():
        raise ValueError(
            f"Records.through: the backbone puts out the same features for all {len(made)} records, so that a head "
            "on them learns nothing of a record. Was it trained, and is x scaled as it was then?"
        )
