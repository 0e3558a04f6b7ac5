"""The nearest-neighbour oracle: the error of the best record that the adversary already has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Records
from lostwax.seeds import generator

BLOCK_DISTANCES = 8_000_000  # distances held at a time: 64 MB in float64
POOL_ROWS = 16_384  # rows of the pool that a product copies at a time
SAMPLED_ROWS = 1_000  # rows that stand for a large table
MAX_WORK = 1e11  # multiplications for which a table is compared whole
FIXED_PAIR_COST = 20  # of a pair, in multiplications


class Oracle(NamedTuple):
    """Mean squared errors between targets and the records of a pool (Balle et al. 2022, section V-B)."""

    mean: float  # over targets, of the error of the nearest record: a threshold for success
    percentiles: dict[float, float]  # over the pool, mean over targets: {1: ..., 10: ..., 50: ...}
    errors: NDArray[np.float64]  # (targets,) of the nearest record
    nearest: NDArray[np.int64]  # (targets,) its row in the pool
    pool: int  # records in the pool


def nearest_neighbour(
    targets: Tensor, pool: Tensor, percentiles: Sequence[float] = (1, 10, 50), *, not_row: Tensor | None = None
) -> Oracle:
    """The error of the best record of the pool for each target.

    An attack with a larger error has rebuilt nothing new. Percentiles are taken per target over the pool, then averaged
    over targets: that, not the percentile of all pairs, gives the 0.05 of Balle et al. 2022 on CIFAR-10. `not_row`
    (targets,) is a row of the pool to exclude for each target, as the target itself. Memory is bounded.
    """
    _check(targets, pool, percentiles)
    rows, wanted = pool.flatten(1), targets.flatten(1)  # (n, d), (games, d)
    errors: list[Tensor] = []
    nearest: list[Tensor] = []
    orders: list[NDArray[np.float64]] = []
    size = max(1, BLOCK_DISTANCES // len(pool))
    for start, block in zip(range(0, len(wanted), size), torch.split(wanted, size), strict=True):
        distance = torch.cat([torch.cdist(block, part) for part in torch.split(rows, POOL_ROWS)], 1)  # (block, n)
        if not_row is not None:
            distance[torch.arange(len(block)), not_row[start : start + size]] = torch.inf
        best = distance.argmin(1)
        nearest.append(best)
        # exactly: cdist loses the digits of small distances
        errors.append((block - rows[best]).double().square().mean(1))
        if not percentiles:
            continue
        squared = (distance.square_() / rows.shape[1]).cpu().numpy()  # |difference|^2 / d, the MSE
        orders.append(np.percentile(squared, percentiles, axis=1, overwrite_input=True))  # (percentiles, block)
    nearest_errors = torch.cat(errors).cpu().numpy()
    means = dict(zip(percentiles, np.concatenate(orders, 1).mean(1).tolist(), strict=True)) if orders else {}
    return Oracle(float(nearest_errors.mean()), means, nearest_errors, torch.cat(nearest).cpu().numpy(), len(pool))


class NearestKnown(NamedTuple):
    """For each row its nearest other row, of all others or of a sample of them."""

    rows: NDArray[np.int64]  # (games,)
    compared: int  # rows of the table that each was compared with; equal rows are found in any case
    whole: bool  # these are all of them


def nearest_known(table: Tensor, games: Tensor, unit: Tensor | float = 1.0) -> NearestKnown:
    """The nearest other row of the table (n, ...), in units of each column, for each row of `games`.

    Large games are compared with `SAMPLED_ROWS` random rows, the same for all, and with the rows equal to their own:
    work that grows with the square of the table is not done.
    """
    rows = table.flatten(1)
    n, d = rows.shape
    if len(games) * n * (d + FIXED_PAIR_COST) <= MAX_WORK:
        neighbours = nearest_neighbour(rows[games] / unit, rows / unit, (), not_row=games).nearest
        return NearestKnown(neighbours, n - 1, whole=True)
    drawn = torch.from_numpy(generator(0, "nearest known").permutation(n)[: SAMPLED_ROWS + 1]).sort().values
    place = torch.searchsorted(drawn, games).clamp_max(len(drawn) - 1)
    # a row of the sample is not compared with itself, all others not with the last one: SAMPLED_ROWS rows for each
    not_row = torch.where(drawn[place] == games, place, len(drawn) - 1)
    near = nearest_neighbour(rows[games] / unit, rows[drawn] / unit, (), not_row=not_row).nearest
    nearest, twin = drawn[torch.from_numpy(near)], _equal_row(rows, games)
    return NearestKnown(torch.where(twin >= 0, twin, nearest).numpy(), SAMPLED_ROWS, whole=False)


def _equal_row(rows: Tensor, games: Tensor) -> Tensor:
    """(games,) another row that is equal to the row of the game; -1 where there is none."""
    table = Records(rows, torch.zeros(len(rows)))
    first = table.matches(table)  # (n,) the row itself, unless an earlier one is equal
    later = torch.full_like(first, -1)
    repeated = (first != torch.arange(len(first))).nonzero()[:, 0]
    later[first[repeated]] = repeated
    return torch.where(first[games] != games, first[games], later[games])


def _check(targets: Tensor, pool: Tensor, percentiles: Sequence[float]) -> None:
    if len(targets) == 0 or len(pool) == 0:
        got = f"{len(targets)} and {len(pool)}"
        raise ValueError(f"nearest_neighbour: expected at least one target and one record in the pool, got {got}.")
    if targets.shape[1:] != pool.shape[1:] or targets.dtype != pool.dtype or not pool.is_floating_point():
        raise ValueError(
            "nearest_neighbour: expected targets and pool of one shape and one floating dtype, got "
            f"{tuple(targets.shape[1:])} {targets.dtype} and {tuple(pool.shape[1:])} {pool.dtype}."
        )
    if not all(0 <= number <= 100 for number in percentiles):
        raise ValueError(f"nearest_neighbour: expected percentiles in 0..100, got {tuple(percentiles)}.")
