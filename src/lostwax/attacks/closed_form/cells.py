"""Cells of the missing row that each part of a release tells, brought back to the table and put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.closed_form.attack import GAMES_NUMBERS, collected, extreme_values, found_by, known_label
from lostwax.attacks.closed_form.evidence import certain_labels, solve
from lostwax.attacks.closed_form.partial_likelihood import missing_rows
from lostwax.attacks.closed_form.stored import held
from lostwax.games import Cells, Guess, Kept, Part, Present, Records, ReleasedTable
from lostwax.games.cells import Revealed
from lostwax.games.fitted import sums_of_others
from lostwax.progress import progress

SAME = 1e-9  # of a column's spread: two means are equal


def revealed(part: Part, games: Tensor, *, label_given: bool) -> list[Revealed]:
    """What each fact of a part tells, those that hold to rounding first.

    `part.back` takes NaN for a cell that is not known, and infinity for one that is known to be missing.
    """
    fitted, answers = part.fitted, []
    table, weight = fitted.table, fitted.weight
    ones = weight.new_ones(len(games))
    for stored in fitted.stored:
        x, y = held(stored, table, games)
        x = torch.where(x.isnan() & ~x.isnan().all(1, keepdim=True), torch.inf, x)  # missing in a row that is held
        rows_held = ~x.isnan().all(1)
        answers.append(Revealed((part.back(x),), part.labels(y), ones, rows_held, rows_held))
    for sums in fitted.sums:
        share = collected(sums, table, weight, games)  # (g, groups, d + 1)
        x, size = solve(share, torch.zeros_like(ones))
        x = torch.where(((weight[games] > 0) | (not sums.weighted))[:, None], x, torch.nan)
        label = part.labels(share[..., -1].argmax(-1)) if sums.by_label else None  # the class with one row missing
        answers.append(Revealed((part.back(x),), label, size, size > 0, size > 0))
    for present in fitted.present:
        answers.append(Revealed((part.back(_present(present, table, games)),), None, ones))
    for extremes in fitted.extremes:
        answers.append(Revealed((part.back(extreme_values(extremes, table, games)),), None, ones))
    if fitted.hazards is not None:
        rows_solved, size = missing_rows(fitted.hazards, table, games)
        answers.append(Revealed(tuple(map(part.back, rows_solved)), None, size, size > 0))
    if fitted.model is not None:
        rows = found_by(fitted.model, table, weight, games, table.y[games][:, None] if label_given else None)
        # NaN rows are lost; a row without weight left no trace in the model
        x = torch.where((weight[games] > 0)[:, None, None], rows.determined(), torch.nan)
        y = part.labels(rows.guess().records.y[:, 0])
        known = ~rows.lost()  # also of a row whose features have no weight
        certain = certain_labels(fitted.model, table, weight, rows.size)
        answers.append(Revealed(tuple(map(part.back, x.unbind(1))), y, rows.size, known, certain))
    return answers


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


class SolvedRows(NamedTuple):
    """What a release tells of the missing row of each game."""

    guess: Guess
    cells: Cells  # of the likeliest candidate
    certain: Cells | None  # what holds without any equation to solve
    labels_known: Tensor | None  # (games, ...) those that are more than a blind guess; None: all
    labels_certain: Tensor | None  # (games, ...) ... and that follow from what was read; None: none


class _Merged(NamedTuple):
    """What all parts together tell of the missing row of some games."""

    candidates: tuple[Cells, ...]
    labels: Tensor  # (g, ...)
    labels_known: Tensor  # (g, ...)
    labels_certain: Tensor  # (g, ...)
    size: Tensor  # (g,)
    certain: Cells  # what trees, rows that are held, sums and extremes tell


def solved_by_parts(
    released: ReleasedTable,
    parts: Sequence[Part],
    rows: Tensor,
    blind: Tensor,
    by_trees: Sequence[Revealed],
    *,
    label_given: bool,
) -> SolvedRows:
    """Cell by cell from the part that tells most of it: facts that hold to rounding come before models.

    `blind` (games, d) are guesses at what no part tells, `by_trees` what the trees of the parts do.
    """
    width = max((part.fitted.numbers_per_game for part in parts), default=1)
    groups = list[_Merged]()
    with progress("rows", len(rows)) as advance:
        for some in torch.split(torch.arange(len(rows)), max(1, GAMES_NUMBERS // width)):
            trees = [each.at(some) for each in by_trees]
            groups.append(_merged(released, parts, rows[some], label_given, trees))
            advance(len(some))
    count = max(len(group.candidates) for group in groups)
    padded = [(*group.candidates, *[group.candidates[0]] * (count - len(group.candidates))) for group in groups]
    candidates = [Cells.joined(cells) for cells in zip(*padded, strict=True)]
    labels, known, certain, size = (torch.cat(each) for each in zip(*(group[1:5] for group in groups), strict=True))
    x = torch.stack([cells.filled(blind) for cells in candidates], 1)  # (g, candidates, d)
    y = labels[:, None].expand(-1, count, *labels.shape[1:])
    guess = Guess(Records(x[:, :1], y[:, :1]), size[:, None], Records(x, y) if count > 1 else None)
    certain_cells = Cells.joined([group.certain for group in groups])
    return SolvedRows(guess, candidates[0], certain_cells, known, certain)


def _merged(
    released: ReleasedTable, parts: Sequence[Part], games: Tensor, label_given: bool, by_trees: Sequence[Revealed]
) -> _Merged:
    table = released.table
    given_labels = table.y[games] if label_given else None
    facts = [
        replace(part, fitted=replace(part.fitted, model=None, hazards=None))
        for part in parts
        if part.fitted.forest is None
    ]
    models = [
        replace(part, fitted=replace(part.fitted, stored=(), sums=(), present=(), extremes=()))
        for part in parts
        if part.fitted.model is not None or part.fitted.hazards is not None
    ]
    by_facts = [answer for part in facts for answer in revealed(part, games, label_given=label_given)]
    answers = [*by_facts, *by_trees]
    answers += [answer for part in models for answer in revealed(part, games, label_given=label_given)]
    lost = Cells.lost(len(games), table.x.shape[1])
    certain = [
        answer.candidates[0] for answer in (*(fact for fact in by_facts if len(fact.candidates) == 1), *by_trees)
    ]
    best, others = lost, list[Cells]()
    labels, size = known_label(table, games), torch.zeros(len(games), dtype=table.x.dtype)
    labelled, labels_certain = (torch.zeros(labels.shape, dtype=torch.bool) for _ in range(2))
    for answer in answers:
        first, *alternatives = answer.candidates
        some = torch.from_numpy(first.kept.max(1) > Kept.LOST)  # (g,)
        others = [*(other.or_else(first) for other in others), *(best.or_else(cells) for cells in alternatives)]
        best = best.or_else(first)
        if answer.labels is not None:
            each = (-1, *[1] * (labels.ndim - 1))
            known = (some if answer.labels_known is None else answer.labels_known).reshape(each)
            new = known & ~answer.labels.isnan() & ~labelled
            labels = torch.where(new, answer.labels.to(labels), labels)
            labelled |= new
            if answer.labels_certain is not None:
                labels_certain |= new & answer.labels_certain.reshape(each)
        size = torch.where(size == 0, answer.size * some, size)
    several = tuple(released.columns.likeliest(cells, table.x, games) for cells in (best, *others))
    labels = labels if given_labels is None else given_labels
    decided = reduce(Cells.or_else, certain, lost).decided()
    return _Merged(several, labels, labelled, labels_certain, size, decided)
