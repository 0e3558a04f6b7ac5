"""Dealing candidates: the secret among decoys (S1 Algorithm 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.seeds import generator
from lostwax.types import Cohort, Records


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
