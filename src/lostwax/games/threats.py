"""What adversaries know: all training records except a few (Balle et al. 2022), or none (Maciazek and Allison 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from lostwax import philox
from lostwax.fields import at_least, check_fields, expect
from lostwax.games.facts import HintFacts, ThreatFacts
from lostwax.games.judges import NearestOfClass, OneToOne
from lostwax.games.nouns import Cohort, Hints
from lostwax.games.records import Records
from lostwax.seeds import generator, key


def line_up(cohort: Cohort, pool: Records, count: int, *, seed: int) -> tuple[Records, Tensor | None]:
    """(m, count, ...) each model's secret at a random position among decoys, and the candidates' chances unless equal.

    This is Algorithm 2 of Balle et al. 2022. All candidates of a model differ in x. Each model is a separate game: a
    secret of one is a decoy of another, so an adversary must not compare the candidates of several games.

    The prior probability of a candidate is proportional to how often its x occurs in the pool. All rows are equally
    likely to be the secret. The decoys are distinct values of x, with all sets of them equally likely, each shown as
    one of the rows that have that x (copies may differ in their labels). With n rows, D distinct values and n_i rows of
    the value of candidate i, a line-up whose secret is candidate j has the probability

        1/n * 1/binomial(D - 1, count - 1) * product over i != j of 1/n_i,

    which is proportional to n_j.
    """
    m = len(cohort)
    both = Records.together([cohort.own[:, 0], pool])  # (m + n, ...): k = 1
    # the value of x of each row of the pool (n,), and how many rows have each value (v,), in the order of first rows
    _, value_of, counts = np.unique(pool.matches(pool).numpy(), return_inverse=True, return_counts=True)
    by_value, starts = m + value_of.argsort(kind="stable"), counts.cumsum() - counts  # rows of both, sorted by value
    in_pool = value_of[both[:m].matches(pool).numpy()]  # (m,) the value of each secret
    dealt, values = np.empty((2, m, count), dtype=np.int64)
    for game, number in enumerate(cohort.index.tolist()):
        random = generator(seed, "candidates", number)
        others = np.delete(np.arange(len(counts)), in_pool[game])
        if len(others) < count - 1:
            raise ValueError(
                f"Informed.hints: {count} candidates need {count - 1} records besides the secret, but the pool of "
                f"{len(pool)} holds {len(others)} that differ from it. Add records, or use fewer candidates."
            )
        decoys = random.choice(others, count - 1, replace=False)
        position = random.integers(count)
        rows = by_value[starts[decoys] + random.integers(counts[decoys])]  # any one of those with the decoy's x
        dealt[game] = np.insert(rows, position, game)  # row `game` of both is the secret
        values[game] = np.insert(decoys, position, in_pool[game])
    frequency = torch.from_numpy(counts[values]).double().to(both.x.device)  # (m, count)
    candidates = both[torch.from_numpy(dealt).to(both.x.device)]
    return candidates, None if (counts == counts[0]).all() else frequency / frequency.sum(1, keepdim=True)


@final
@dataclass(frozen=True)
class Informed:
    """Every model is trained on `known` and one secret record (Balle et al. 2022), or several `secrets`.

    The adversary may know the secret's label, or the features where the mask `parts` is True (attribute inference,
    section II-C), or `candidates`, one of which is the secret (membership inference, section II-D, Algorithm 2).
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
                f"Informed: parts and candidates need a single secret record, got secrets={self.secrets}. Leave them "
                "out, or use secrets=1."
            )
        if self.parts is not None:
            _check_parts(self.parts, self.known.x)

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1, with secrets from the pool, which is reshuffled for each pass over it."""
        k, turns = self.secrets, len(pool) // self.secrets  # `turns` models per pass
        if turns == 0:
            raise ValueError(f"Informed.deal: expected a pool of at least {k} records, got {len(pool)}.")
        if m < 1 or start < 0:
            raise ValueError(f"Informed.deal: expected m >= 1 and start >= 0, got m={m} and start={start}.")
        models = np.arange(start, start + m)
        first, last = start // turns, (start + m - 1) // turns
        orders = [generator(seed, "deal", turn).permutation(len(pool))[: turns * k] for turn in range(first, last + 1)]
        rows = np.concatenate(orders).reshape(-1, k)[models - first * turns]  # (m, k)
        dealt, numbers = (torch.from_numpy(part).to(pool.x.device) for part in (rows, models))
        return Cohort(self.known, pool[dealt], numbers)  # own (m, k, ...)

    def facts(self) -> ThreatFacts:
        return ThreatFacts(self.known, self.secrets, HintFacts(self.label_known, self.parts, self.candidates))

    def judge(self) -> OneToOne:
        return OneToOne()

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """What the adversary is given about the secrets of a cohort dealt from the pool; None if nothing."""
        if not self.label_known and self.parts is None and self.candidates is None:
            return None
        x, y = cohort.own.x, cohort.own.y
        labels = y if self.label_known else None
        parts = None if self.parts is None else torch.where(self.parts.to(x.device), x, torch.nan)
        if self.candidates is None:
            return Hints(labels, parts)
        return Hints(labels, parts, *line_up(cohort, pool, self.candidates, seed=seed))


def _check_parts(parts: Tensor, x: Tensor) -> None:
    if parts.dtype != torch.bool or parts.shape != x.shape[1:]:
        raise ValueError(
            f"Informed: expected parts to be a mask (torch.bool) of a record's shape {tuple(x.shape[1:])}, "
            f"got {parts.dtype} of shape {tuple(parts.shape)}."
        )
    if parts.all() or not parts.any():
        raise ValueError(
            f"Informed: expected parts to mark some features of a record but not all, got {int(parts.sum())} of "
            f"{parts.numel()}. If none are known, leave parts out."
        )
    if not x.is_floating_point():
        raise ValueError(f"Informed: parts needs records of floating-point numbers, got {x.dtype}.")


class InOrder(NamedTuple):
    """Model i is trained on `known` and record i of the pool: for attacks that simulate their own candidates."""

    known: Records

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1; deterministic."""
        rows = torch.arange(start, start + m, device=pool.x.device)
        return Cohort(self.known, pool[rows.unsqueeze(1)], rows)  # own (m, 1, ...)

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        return None


@final
@dataclass(frozen=True, eq=False)
class Table:
    """One training set that was really used: one release, and one game per row, whose adversary knows all others."""

    records: Records
    rows: Tensor | None = None  # those that the release depends on; None: all

    def facts(self) -> ThreatFacts:
        return self.without(0).facts()

    @property
    def playable(self) -> Tensor:
        """(n,) the rows that there is a game about."""
        return torch.arange(len(self.records)) if self.rows is None else self.rows

    def draw(self, games: int | None, seed: int) -> Tensor:
        """(m,) which rows are played for, in order; all of them if games is None."""
        rows = self.playable
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed % (1 << 63)))
        return rows if games is None else rows[order[:games].sort().values]

    def without(self, row: int) -> Informed:
        """The adversary of one game."""
        others = torch.arange(len(self.records)) != row
        return Informed(self.records[others.to(self.records.x.device)])


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
