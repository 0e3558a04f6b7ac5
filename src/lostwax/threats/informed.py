"""The informed adversary: knows every training record but one, or but a few (S1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from lostwax.seeds import generator
from lostwax.threats.candidates import line_up
from lostwax.types import Cohort, Hints, Records
from lostwax.types.fields import at_least, check_fields


@final
@dataclass(frozen=True)
class Informed:
    """All models are trained on `known` and one secret record each, of which the adversary may know something.

    With `label_known` it knows the label. With `parts`, a mask of a record's shape, it knows those numbers of the
    record and is after the others: informed attribute inference (S1 section II-C, aux = eta(z)). With `candidates=2`
    it gets two records of which one is the secret: informed membership inference (S1 section II-D, Algorithm 2). With
    `secrets=2` two records of each training set are secret.
    """

    known: Records
    label_known: bool = False
    parts: Tensor | None = None  # (...) True where known
    candidates: int | None = None
    secrets: int = 1

    def __post_init__(self) -> None:
        check_fields(self, candidates=at_least(2), secrets=at_least(1))
        if self.known.x.is_leaf:
            object.__setattr__(self, "known", self.known.detached())
        if self.secrets > 1 and (self.parts is not None or self.candidates is not None):
            raise ValueError(
                f"Informed: parts and candidates tell about one secret record, but there are secrets={self.secrets}. "
                "Leave them out, or play for one secret."
            )
        if self.parts is not None:
            _check_parts(self.parts, self.known.x)

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1, each with its secrets from the pool; each pass over it has its own order."""
        k, turns = self.secrets, len(pool) // self.secrets  # models that a pass serves
        if turns == 0:
            raise ValueError(f"Informed.deal: expected a pool of at least {k} records, got {len(pool)}.")
        if m < 1 or start < 0:
            raise ValueError(f"Informed.deal: expected m >= 1 and start >= 0, got m={m} and start={start}.")
        models = np.arange(start, start + m)
        first, last = start // turns, (start + m - 1) // turns
        orders = [generator(seed, "deal", turn).permutation(len(pool))[: turns * k] for turn in range(first, last + 1)]
        rows = np.concatenate(orders).reshape(-1, k)[models - first * turns]  # (m, k)
        return Cohort(self.known, pool[_on(pool, rows)], _on(pool, models))  # own (m, k, ...)

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """What is told about the secrets of a cohort that was dealt from the pool; None where nothing is."""
        if not self.label_known and self.parts is None and self.candidates is None:
            return None
        x, parts = cohort.own.x, self.parts
        hints = Hints(
            labels=cohort.own.y if self.label_known else None,
            parts=None if parts is None else torch.where(parts.to(x.device), x, torch.nan),
        )
        if self.candidates is None:
            return hints
        candidates, chances = line_up(cohort, pool, self.candidates, seed=seed)
        return replace(hints, candidates=candidates, chances=chances)

    @classmethod
    def examples(cls) -> tuple[Informed, ...]:
        """Instances to test."""
        random = generator(0, "example")
        x = torch.from_numpy(random.random((6, 4), dtype=np.float32))
        known = Records(x, torch.tensor([0, 1, 2, 0, 1, 2]))
        halves = torch.tensor([True, True, False, False])
        told = cls(known, label_known=True), cls(known, parts=halves), cls(known, candidates=3)
        return cls(known), *told, cls(known, secrets=2)


def _check_parts(parts: Tensor, x: Tensor) -> None:
    if parts.dtype != torch.bool or parts.shape != x.shape[1:]:
        raise ValueError(
            f"Informed: expected parts to be a mask (torch.bool) of a record's shape {tuple(x.shape[1:])}, "
            f"got {parts.dtype} of shape {tuple(parts.shape)}."
        )
    if parts.all() or not parts.any():
        raise ValueError(
            f"Informed: expected parts to know some numbers of a record and not all, got {int(parts.sum())} of "
            f"{parts.numel()}. Where nothing is known, leave parts out."
        )
    if not x.is_floating_point():
        raise ValueError(f"Informed: parts needs records of floating-point numbers, got {x.dtype}.")


def _on(records: Records, numbers: np.ndarray) -> Tensor:
    return torch.from_numpy(numbers).to(records.x.device)
