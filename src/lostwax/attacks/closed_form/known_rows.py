"""What the rows an adversary knows look like, for all n games at once and never with a look at the missing row."""

from __future__ import annotations

import torch
from torch import Tensor

from lostwax.attacks.closed_form.missing_row import missing_rows
from lostwax.types import Records, Sums


def known_moments(table: Records, games: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over the rows known in each game, (games, d) twice."""
    mean = _known_mean(table, games)
    variance = _known_mean(Records(table.x.square(), table.y), games) - mean.square()
    return mean, variance.clamp_min(0).sqrt()


def known_extremes(table: Records, games: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of each column over the rows known in each game, (games, d) twice."""
    low = _exclusive_minimum(table.x)[games]
    return low, -_exclusive_minimum(-table.x)[games]


def _known_mean(table: Records, games: Tensor) -> Tensor:
    n, d = table.x.shape
    nothing = Sums("", table.x.new_zeros(1, d), table.x.new_zeros(1), by_label=False, weighted=False)
    mean = table.x.new_empty(len(games), d)
    for which, missing in missing_rows(nothing, table, table.x.new_ones(n), games):
        mean[which] = missing[:, 0, :-1] / missing[:, 0, -1:]  # minus the sum, over minus the count
    return mean


def _exclusive_minimum(columns: Tensor) -> Tensor:
    """Minimum over all the other rows, for each row: over those before it and those after it."""
    none = torch.full_like(columns[:1], torch.inf)
    before = torch.cat([none, columns[:-1].cummin(0).values])
    after = torch.cat([columns[1:].flip(0).cummin(0).values.flip(0), none])
    return torch.minimum(before, after)
