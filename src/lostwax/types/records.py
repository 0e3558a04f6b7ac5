"""Records: the unit of privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Records:
    """What somebody wants kept private: inputs `x`, labels `y`, one row a record.

    Further leading axes are allowed ((m, k, ...) in a Cohort). `features` are what the net trains on when
    that is not `x` itself: a frozen backbone's output, while an attack still tries to rebuild `x`.
    """

    x: Tensor  # (n, ...)
    y: Tensor  # (n,) or (n, targets)
    features: Tensor | None = None  # (n, ...)

    def __post_init__(self) -> None:
        for name, part in (("y", self.y), ("features", self.features)):
            if part is not None and (part.ndim == 0 or part.shape[0] != self.x.shape[0]):
                raise ValueError(
                    f"Records: {name} must have one row a record, as x has: "
                    f"expected {self.x.shape[0]} rows, got shape {tuple(part.shape)}."
                )

    def __len__(self) -> int:
        return int(self.x.shape[0])

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
            return self._each(lambda part: part.to(target))
        return self._each(lambda part: part.to(target) if part.is_floating_point() else part)

    def split(self, *sizes: int, seed: int) -> tuple[Records, ...]:
        """Disjoint random parts: `known, prior, secrets = records.split(500, 1_000, 100, seed=0)`."""
        import torch

        if min(sizes, default=0) < 1 or sum(sizes) > len(self):
            raise ValueError(
                f"Records.split: expected sizes of at least 1 that sum to at most {len(self)}, got {sizes}."
            )
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return tuple(self[part] for part in torch.split_with_sizes(order[: sum(sizes)], list(sizes)))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Records:
        features = None if self.features is None else change(self.features)
        return replace(self, x=change(self.x), y=change(self.y), features=features)
