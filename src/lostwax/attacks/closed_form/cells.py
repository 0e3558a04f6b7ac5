"""Cells of the missing row that each part of a release tells, brought back to the table and put together."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.closed_form.attack import collected, found_by, known_extremes
from lostwax.attacks.closed_form.evidence import solve
from lostwax.attacks.closed_form.stored import held
from lostwax.games import Extremes, Part, Present, Records, TableCells
from lostwax.games.fitted import sums_of_others

SAME = 1e-9  # of a column's spread: two means are equal


class Told(NamedTuple):
    """What one fact tells of the missing row of each game."""

    candidates: tuple[TableCells, ...]  # (g, d) each, the likeliest first; several explain a model without intercept
    labels: Tensor | None  # (g, ...); None: it does not depend on them
    size: Tensor  # (g,) |r|: what the row was divided by


def told(part: Part, games: Tensor, *, label_given: bool) -> list[Told]:
    """What each fact of a part tells, those that hold to rounding first.

    `part.back` takes NaN for a cell that is not told, and infinity for one that is told to be missing.
    """
    fitted, found = part.fitted, []
    table, weight = fitted.table, fitted.weight
    ones = weight.new_ones(len(games))
    for stored in fitted.stored:
        x, y = held(stored, table, games)
        x = torch.where(x.isnan() & ~x.isnan().all(1, keepdim=True), torch.inf, x)  # missing in a row that is held
        found.append(Told((part.back(x),), y if part.labelled else None, ones))
    for sums in fitted.sums:
        share = collected(sums, table, weight, games)  # (g, groups, d + 1)
        x, size = solve(share, torch.zeros_like(ones))
        label = share[..., -1].argmax(-1) if sums.by_label and part.labelled else None  # the class with one row missing
        found.append(Told((part.back(x),), label, size))
    for present in fitted.present:
        found.append(Told((part.back(_present(present, table, games)),), None, ones))
    for extremes in fitted.extremes:
        found.append(Told((part.back(_extreme(extremes, table, games)),), None, ones))
    if fitted.model is not None:
        rows = found_by(fitted.model, table, weight, games, table.y[games][:, None] if label_given else None)
        # NaN rows are lost; a row without weight left no trace in the model
        x = torch.where((weight[games] > 0)[:, None, None], rows.determined(), torch.nan)
        y = rows.guess().records.y[:, 0] if part.labelled else None
        found.append(Told(tuple(part.back(one) for one in x.unbind(1)), y, rows.size))
    return found


def _extreme(extremes: Extremes, table: Records, games: Tensor) -> Tensor:
    """(g, d) an extreme that no known row reaches belongs to the missing row; NaN elsewhere."""
    low, high = known_extremes(table, games)
    x = torch.where(extremes.low < low, extremes.low, torch.nan)
    return torch.where(extremes.high > high, extremes.high, x)


def _present(present: Present, table: Records, games: Tensor) -> Tensor:
    """(g, d) the value that takes the mean of the known values to the published one; +inf: the cell is missing.

    With m known values of sum s: (m + 1) mean - s, or nothing where the mean is s / m already.
    """
    missing = table.x.isnan()
    outside = (
        torch.zeros_like(present.means) if part is None else part for part in (present.known_total, present.known_count)
    )
    other_total, other_count = outside
    values = table.x.nan_to_num()
    number = (~missing).sum(0) + other_count
    origin = (values.sum(0) + other_total) / number.clamp_min(1)
    away = torch.where(missing, 0.0, values - origin)
    total = sums_of_others(away)[games] + (other_total - other_count * origin)  # (g, d)
    count = sums_of_others((~missing).to(away))[games] + other_count
    mean = present.means - origin
    unchanged = (mean * count - total).abs() <= SAME * count * away.square().mean(0).sqrt().clamp_min(1e-300)
    return torch.where(unchanged, torch.inf, origin + mean * (count + 1) - total)
