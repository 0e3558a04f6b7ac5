"""What the rows an adversary knows look like, for all n games at once and never with a look at the missing row."""

from __future__ import annotations

import torch
from torch import Tensor

from lostwax.attacks.closed_form.missing_row import missing_rows
from lostwax.types import Records, Sums


def known_moments(table: Records, games: Tensor) -> tuple[Tensor, Tensor]:
    """`moments` of the rows known in each game, (games, d) twice.

    Columns are counted from a row s that is known in the game: in  E[x^2] - E[x]^2  a timestamp would cancel, while in
    E[(x - s)^2] - E[x - s]^2  at most a share n eps of the spread is lost, for s is itself one of the n rows.
    """
    mean, spread = (table.x.new_empty(len(games), table.x.shape[1]) for _ in range(2))
    for played, row in ((games == 0, 1), (games != 0, 0)):
        if played.any():
            origin = table.x[min(row, len(table) - 1)]
            away = table.x - origin
            sums = Records(torch.cat([away, away.square()], 1), table.y)
            first, second = _known_mean(sums, games[played]).chunk(2, 1)  # (g, d) twice
            mean[played] = origin + first
            spread[played] = (second - first.square()).clamp_min(0).sqrt()
    return mean, spread if len(table) > 2 else torch.full_like(spread, torch.inf)


def moments(known: Records) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, (1, d) twice.

    One row tells nothing of how far others lie from it: an infinite deviation, to which all records are as likely.
    """
    mean = known.x.sum(0, keepdim=True) / max(1, len(known))
    return mean, known.x.std(0, correction=0, keepdim=True) if len(known) > 1 else torch.full_like(mean, torch.inf)


def known_label(table: Records, games: Tensor) -> Tensor:
    """A blind guess at the label: the most frequent class of the known rows, or their mean target, (games, ...)."""
    y = table.y
    if y.is_floating_point():
        rows = Records(y.reshape(len(y), -1), y)
        return known_moments(rows, games)[0].reshape(len(games), *y.shape[1:])
    counts = torch.bincount(y) - torch.nn.functional.one_hot(y[games], int(y.max()) + 1)  # (games, classes)
    return counts.argmax(1)


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
