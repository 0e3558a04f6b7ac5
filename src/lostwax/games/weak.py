"""The weak adversary knows the training and the distribution, but no record (Maciazek and Allison 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lostwax import philox
from lostwax.fields import at_least, check_fields, expect
from lostwax.games.facts import HintFacts, ThreatFacts
from lostwax.games.judges import NearestOfClass
from lostwax.games.nouns import Cohort, Hints
from lostwax.games.records import Records
from lostwax.seeds import key


def dealt_rows(pool: int, count: int, *, start: int, m: int, key: int, device: torch.device) -> Tensor:
    """(m, count) the rows of a pool that models start .. start + m - 1 are trained on.

    A pass over the shuffled pool deals disjoint sets to pool // count models, so all rows are used equally often.
    """
    served = pool // count  # models per pass
    first, last = start // served, (start + m - 1) // served
    orders = philox.orders(key, torch.arange(first, last + 1, device=device), pool)  # (passes, pool)
    rows = orders[:, : served * count].reshape(-1, count)
    return rows[start - first * served :][:m]


@final
@dataclass(frozen=True)
class Weak:
    """Every training set is `size` secret records of the pool (Maciazek and Allison 2025, assumptions A.1 to A.3).

    All classes have equally many records, or as `per_class` says (9 and 1 in their CelebA experiment), which the
    adversary knows. If labels are not class numbers, records are drawn regardless of their label.
    """

    size: int
    per_class: tuple[int, ...] | None = None  # records of class 0, 1, ...; None: equally many

    def __post_init__(self) -> None:
        check_fields(self, size=at_least(1), per_class=at_least(0))
        summed = self.per_class is None or sum(self.per_class) == self.size
        expect(self, "per_class", f"to be numbers that sum to size={self.size}", summed)

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1, the records of each sorted by class, on the pool's device."""
        if m < 1 or start < 0:
            raise ValueError(f"Weak.deal: expected m >= 1 and start >= 0, got m={m} and start={start}.")
        device, drawn = pool.x.device, []
        everything = torch.arange(len(pool), device=device)
        for label, count in self._records_per_class(pool).items():
            rows = everything if label is None else everything[pool.y == label]
            if len(rows) < count:
                kind = "records" if label is None else f"records of class {label}"
                raise ValueError(
                    f"Weak.deal: a training set needs {count} {kind}, but the pool holds {len(rows)}. Add more, or use "
                    "a smaller size."
                )
            ours = key(seed, "deal", "any" if label is None else label)
            drawn.append(rows[dealt_rows(len(rows), count, start=start, m=m, key=ours, device=device)])  # (m, count)
        own = pool[torch.cat(drawn, 1)]  # (m, size, ...)
        return Cohort(pool[:0], own, torch.arange(start, start + m, device=device))

    def facts(self) -> ThreatFacts:
        """No record is known, but the labels are."""
        return ThreatFacts(None, self.size, HintFacts(labels=True))

    def judge(self) -> NearestOfClass:
        """How guesses are paired with secrets."""
        return NearestOfClass()

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """The labels, if they are classes: the adversary knows the number of records per class."""
        return Hints(labels=cohort.own.y) if _are_classes(pool.y) else None

    def _records_per_class(self, pool: Records) -> dict[int | None, int]:
        """How many records a training set has of each class; the key is None if there are no classes."""
        if not _are_classes(pool.y):
            if self.per_class is not None:
                raise ValueError(
                    f"Weak.deal: per_class={self.per_class} needs labels that are class numbers, got "
                    f"{pool.y.dtype} of shape {tuple(pool.y.shape)}. Leave per_class out."
                )
            return {None: self.size}
        if self.per_class is not None:
            return {label: count for label, count in enumerate(self.per_class) if count}
        present = torch.unique(pool.y).tolist()
        if present != list(range(len(present))):
            missing = next(number for number in range(len(present)) if present[number] != number)
            raise ValueError(
                f"Weak.deal: the pool has no record of class {missing}, but labels beyond {len(present) - 1}. Add "
                "some, number the classes from 0, or set per_class."
            )
        if self.size % len(present):
            raise ValueError(
                f"Weak.deal: {self.size} records cannot be divided equally among the {len(present)} classes of the "
                f"pool. Use a size that is a multiple of {len(present)}, or set per_class."
            )
        return dict.fromkeys(present, self.size // len(present))


def _are_classes(y: Tensor) -> bool:
    return y.ndim == 1 and not y.is_floating_point()
