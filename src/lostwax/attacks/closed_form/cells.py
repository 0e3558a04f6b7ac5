"""Cells of the missing row that each part of a release tells, brought back to the table and put together."""

from __future__ import annotations

import torch
from torch import Tensor

from lostwax.attacks.closed_form.attack import collected, found_by, known_extremes
from lostwax.attacks.closed_form.evidence import certain_labels, solve
from lostwax.attacks.closed_form.stored import held
from lostwax.games import Extremes, Part, Present, Records
from lostwax.games.cells import Revealed
from lostwax.games.fitted import sums_of_others

SAME = 1e-9  # of a column's spread: two means are equal


def revealed(part: Part, games: Tensor, *, label_given: bool) -> list[Revealed]:
    """What each fact of a part tells, those that hold to rounding first.

    `part.back` takes NaN for a cell that is not known, and infinity for one that is known to be missing.
    """
    fitted, found = part.fitted, []
    table, weight = fitted.table, fitted.weight
    ones = weight.new_ones(len(games))
    for stored in fitted.stored:
        x, y = held(stored, table, games)
        x = torch.where(x.isnan() & ~x.isnan().all(1, keepdim=True), torch.inf, x)  # missing in a row that is held
        rows_held = ~x.isnan().all(1)
        found.append(Revealed((part.back(x),), part.labels(y), ones, rows_held, rows_held))
    for sums in fitted.sums:
        share = collected(sums, table, weight, games)  # (g, groups, d + 1)
        x, size = solve(share, torch.zeros_like(ones))
        x = torch.where(((weight[games] > 0) | (not sums.weighted))[:, None], x, torch.nan)
        label = part.labels(share[..., -1].argmax(-1)) if sums.by_label else None  # the class with one row missing
        found.append(Revealed((part.back(x),), label, size, size > 0, size > 0))
    for present in fitted.present:
        found.append(Revealed((part.back(_present(present, table, games)),), None, ones))
    for extremes in fitted.extremes:
        found.append(Revealed((part.back(_extreme(extremes, table, games)),), None, ones))
    if fitted.model is not None:
        rows = found_by(fitted.model, table, weight, games, table.y[games][:, None] if label_given else None)
        # NaN rows are lost; a row without weight left no trace in the model
        x = torch.where((weight[games] > 0)[:, None, None], rows.determined(), torch.nan)
        y = part.labels(rows.guess().records.y[:, 0])
        known = ~rows.lost()  # also of a row whose features have no weight
        certain = certain_labels(fitted.model, table, weight, rows.size)
        found.append(Revealed(tuple(part.back(one) for one in x.unbind(1)), y, rows.size, known, certain))
    return found


def _extreme(extremes: Extremes, table: Records, games: Tensor) -> Tensor:
    """(g, d) an extreme that no known row reaches belongs to the missing row; NaN elsewhere."""
    low, high = known_extremes(table, games)
    x = torch.where(extremes.low < low, extremes.low, torch.nan)
    return torch.where(extremes.high > high, extremes.high, x)


def _present(present: Present, table: Records, games: Tensor) -> Tensor:
    """(g, d) the value that takes the mean of the known values to the published one; +inf: the cell is missing.

    Differences from the published mean sum to zero: the missing row has minus the sum of the known ones, or no value
    where that is zero already. A value that equals the mean is possible there too: NaN if another row has such a value.
    """
    missing = table.x.isnan()
    away = torch.where(missing, 0.0, table.x - present.means)  # (n, d)
    total, squares, count = (sums_of_others(part)[games] for part in (away, away.square(), (~missing).to(away)))
    spread = (squares / count.clamp_min(1)).sqrt()  # (g, d)
    if present.known_total is not None and present.known_count is not None:
        total = total + (present.known_total - present.known_count * present.means)
        count = count + present.known_count
    unchanged = torch.where(count > 0, total.abs() <= SAME * count * spread.clamp_min(1e-300), present.means.isnan())
    at_mean = (table.x == present.means).long()  # (n, d)
    ambiguous = unchanged & (at_mean.sum(0) > at_mean[games])
    return torch.where(ambiguous, torch.nan, torch.where(unchanged, torch.inf, present.means - total))
