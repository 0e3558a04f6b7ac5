"""The informed adversary: knows every training record but one, or but a few (S1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from lostwax.fields import at_least, check_fields
from lostwax.games.facts import HintFacts, ThreatFacts
from lostwax.games.judges import OneToOne
from lostwax.games.nouns import Cohort, Hints
from lostwax.games.records import Records
from lostwax.seeds import generator

# Dealing candidates: the secret among decoys (S1 Algorithm 2).


class LineUp(NamedTuple):
    """The candidates of every model."""

    candidates: Records  # (m, c, ...)
    chances: Tensor | None  # (m, c) of each to be the secret; None where they are equal


def line_up(cohort: Cohort, pool: Records, count: int, *, seed: int) -> LineUp:
    """(m, count, ...) each model's secret at a random place among other records of the pool it was dealt from.

    All of a model's candidates differ from each other in x, so that naming one of them is right or wrong. The draws
    depend on the seed and the model's number alone. Each model is one adversary's game: a secret here is a decoy
    elsewhere, and who compared the candidates of many games could tell more than Algorithm 2 allows.

    Without the release, a candidate is as likely to be the secret as its x is frequent in the pool. The secret is a row
    of the pool, all rows being equally likely. The decoys are distinct values of x, all sets of them being equally
    likely, each shown as one of the rows that have that x (copies may differ in their labels). So with n rows, D
    distinct values and n_i rows of the value of candidate i, a line-up whose secret is candidate j has the probability

        1/n * 1/binomial(D - 1, count - 1) * product over i != j of 1/n_i,

    which is proportional to n_j.
    """
    m = len(cohort)
    both = _secrets_and_pool(cohort.own, pool)  # (m + n, ...)
    copies = _Copies.of(pool)
    in_pool = copies.of_row[both[:m].matches(pool).numpy()]  # (m,) the value of each secret
    dealt, values = np.empty((2, m, count), dtype=np.int64)
    for game, number in enumerate(cohort.index.tolist()):
        random = generator(seed, "candidates", number)
        others = np.delete(np.arange(len(copies.counts)), in_pool[game])
        if len(others) < count - 1:
            raise ValueError(
                f"Informed.hints: {count} candidates need {count - 1} records besides the secret, and the pool of "
                f"{len(pool)} holds {len(others)} that differ from it. Bring more records, or ask for fewer candidates."
            )
        decoys = random.choice(others, count - 1, replace=False)
        place = random.integers(count)
        dealt[game] = np.insert(m + copies.any_row(decoys, random), place, game)  # row `game` of both is the secret
        values[game] = np.insert(decoys, place, in_pool[game])
    frequency = torch.from_numpy(copies.counts[values]).double().to(both.x.device)  # (m, count)
    alike = (copies.counts == copies.counts[0]).all()
    return LineUp(
        both[torch.from_numpy(dealt).to(both.x.device)],
        None if alike else frequency / frequency.sum(1, keepdim=True),
    )


class _Copies(NamedTuple):
    """Which rows of a pool have the same x: its v distinct values, in the order of their first rows."""

    of_row: np.ndarray  # (n,) the value of each row
    counts: np.ndarray  # (v,) the rows of each value
    rows: np.ndarray  # (n,) all rows, those of the first value first, and so on

    @classmethod
    def of(cls, pool: Records) -> _Copies:
        _, of_row, counts = np.unique(pool.matches(pool).numpy(), return_inverse=True, return_counts=True)
        return cls(of_row, counts, of_row.argsort(kind="stable"))

    def any_row(self, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """One row of each of the values, at random."""
        starts = self.counts.cumsum() - self.counts  # (v,) in `rows`
        return np.asarray(self.rows[starts[values] + random.integers(self.counts[values])])


def _secrets_and_pool(own: Records, pool: Records) -> Records:
    """The one secret of each model (k = 1), and then the pool."""
    features = None
    if own.features is not None and pool.features is not None:
        features = torch.cat([own.features[:, 0], pool.features])
    return Records(torch.cat([own.x[:, 0], pool.x]), torch.cat([own.y[:, 0], pool.y]), features)


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

    def facts(self) -> ThreatFacts:
        """All other records are known."""
        return ThreatFacts(self.known, self.secrets, HintFacts(self.label_known, self.parts, self.candidates))

    def judge(self) -> OneToOne:
        """How guesses are paired with secrets."""
        return OneToOne()

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


# Training sets dealt in the order in which the pool lies.


class InOrder(NamedTuple):
    """Model i is trained on `known` and record i of the pool: for an attack that simulates candidates of its own."""

    known: Records

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """Models start .. start + m - 1; nothing is drawn."""
        rows = torch.arange(start, start + m, device=pool.x.device)
        return Cohort(self.known, pool[rows.unsqueeze(1)], rows)  # own (m, 1, ...)

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """Nothing has to be told."""
        return None


@final
@dataclass(frozen=True, eq=False)
class Table:
    """One training set that was really used: one release, and one game per row.

    There is nothing to deal: in the game about row i the adversary is informed, and knows all other rows.
    """

    records: Records
    rows: Tensor | None = None  # those that the release depends on; None: all

    def facts(self) -> ThreatFacts:
        """As in every game: all rows but one are known."""
        return self.without(0).facts()

    @property
    def playable(self) -> Tensor:
        """(n,) the rows that there is a game about."""
        return torch.arange(len(self.records)) if self.rows is None else self.rows

    def draw(self, games: int | None, seed: int) -> Tensor:
        """(m,) which rows are played for, in order; all of them if games is None."""
        rows = self.playable
        if games is None:
            return rows
        return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:games].sort().values]

    def without(self, row: int) -> Informed:
        """The adversary of one game."""
        others = torch.arange(len(self.records)) != row
        return Informed(self.records[others.to(self.records.x.device)])
