"""Missing rows of a table whose columns have two values each: flags, one-hot codes, categories of two.

Along any mix of the outputs, column j of the equations is a sum over those missing rows that have its higher value,

    s_j = sum over i of b_ij a_i,        with bits b_ij and a_i the residual of row i,

and the intercept is the sum of all a_i. So all columns are subset sums of k unknown numbers, most of which are seen
alone, or missing alone, in some column. This needs no more outputs than one: the equations of real numbers end at as
many rows as residuals have dimensions, those of bits do not. Where few different rows are possible at all, every set
of them is tried, one half against the other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.closed_form.sections import Kinds, Terms
from lostwax.games import Records

MOST_SETS = 200_000  # of residuals that are tried
SLACK = 100  # times the rounding error of a sum
MOST_ROWS, MOST_HALVES = 2_000, 400_000  # different rows, with their labels; halves of sets of them
CHANCE = 1e-6  # that some wrong set explains all equations


class Bits(NamedTuple):
    """Rows of two-valued columns that explain a gap, and no others do."""

    u: Tensor  # (k, d)
    y: Tensor  # (k,)
    certified: bool  # residuals are those of the rows, and not free as those of targets


def two_valued(
    terms: Terms, gap: Tensor, noise: float, known: Records, kinds: Kinds | None, weight: Tensor
) -> Bits | None:
    """The k missing rows, of these weights; None unless exactly one set of rows explains the gap (C, d + 1)."""
    low, high = known.x.amin(0), known.x.amax(0)
    model, k = terms.model, len(weight)
    if model is not None and kinds is not None and k > 1 and bool((weight == weight[0]).all()):
        values = [torch.unique(column) for column in known.x.mT]
        labels = torch.unique(kinds.y[kinds.weight == weight[0]])
        count = math.prod(map(len, values)) * len(labels)
        if count <= MOST_ROWS and math.comb(count + (k - k // 2) - 1, k - k // 2) <= MOST_HALVES:
            return _enumerated(terms, gap, noise, torch.cartesian_prod(*values).view(-1, len(values)), labels, weight)
    if model is None or not terms.affine or k < 2 or not ((known.x == low) | (known.x == high)).all():
        return None
    if kinds is None and (bool((weight != weight[0]).any()) or known.y.dim() > 1):
        return None
    outputs, varies = len(model.weight), high > low
    mix = torch.linspace(1.0, 2.0, outputs).to(gap) ** 2  # softmax residuals add up to zero: not alike
    g = mix @ gap[:outputs]
    total, width = g[-1], torch.where(varies, high - low, 1.0)
    sums = (g[:-1] - low * total) / width
    error = SLACK * noise * float(mix.norm()) * float(((1 + low.abs()) / width)[varies].max())
    solutions = []
    for atoms in _atoms(sums[varies], total, k, error):
        subsets = torch.cartesian_prod(*[torch.tensor([False, True])] * k)  # (2^k, k)
        misses = (sums[:, None] - subsets.to(atoms) @ atoms).abs()  # (d, 2^k)
        if ((misses <= error).sum(1) > 1)[varies].any():
            return None  # two subsets have the same sum
        bits = subsets[misses.argmin(1)].mT  # (k, d)
        u = torch.where(bits & varies, high, low)
        y = _labels(terms, gap[:outputs], mix, u, atoms, kinds, weight, error)
        if y is not None:
            solutions.append(Bits(u, y, kinds is not None))
    return solutions[0] if len(solutions) == 1 else None


def _enumerated(terms: Terms, gap: Tensor, noise: float, x: Tensor, labels: Tensor, weight: Tensor) -> Bits | None:
    """The only k of all possible rows, x (v, d) with any of the labels, that explain the gap; None if others do."""
    u, y, k = x.repeat(len(labels), 1), labels.repeat_interleave(len(x)), len(weight)
    r = terms.residuals(terms.outputs(u), Kinds(y, weight[0].expand(len(y))))
    parts = (r[:, :, None] * terms.with_ones(u)[:, None]).flatten(1)  # (n, E)
    mix, error = torch.linspace(1.0, 2.0, parts.shape[1]).to(parts) ** 2, SLACK * noise
    left, right = (torch.combinations(torch.arange(len(y)), h, with_replacement=True) for h in (k // 2, k - k // 2))
    sums, beside = ((parts @ mix)[half].sum(1) for half in (left, right))
    order, slack = beside.argsort(), error * float(mix.sum())
    needed = float(mix @ gap.flatten()) - sums
    first = torch.searchsorted(beside[order], needed - slack)
    fits = torch.searchsorted(beside[order], needed + slack, right=True) - first
    if int(fits.sum()) > MOST_HALVES:
        return None
    places = torch.arange(int(fits.sum())) - (fits.cumsum(0) - fits).repeat_interleave(fits)
    partner = order[first.repeat_interleave(fits) + places]
    sets = torch.unique(torch.cat([left.repeat_interleave(fits, 0), right[partner]], 1).sort(1).values, dim=0)
    sets = sets[((parts[sets].sum(1) - gap.flatten()).abs() <= error).all(1)]
    spread = parts.std(0) * k**0.5
    seen = spread > error
    luck = math.log(len(left) * len(right)) + float((2 * error / spread[seen]).log().sum())
    if len(sets) != 1 or luck > math.log(CHANCE):
        return None
    return Bits(u[sets[0]], y[sets[0]], True)


def _atoms(sums: Tensor, total: Tensor, k: int, error: float) -> Iterator[Tensor]:
    """Sets of k numbers (k,) that add up to the total, and some of which add up to each sum."""
    values = _distinct(sums, error)
    seen = torch.cat([values, total - values])
    seen = _distinct(seen[(seen.abs() > error) & ((seen - total).abs() > error)], error)
    if math.comb(len(seen), k - 1) > MOST_SETS or len(seen) < k - 1:
        return
    sets = torch.tensor(list(itertools.combinations(range(len(seen)), k - 1)), dtype=torch.long)
    atoms = seen[sets]
    atoms = torch.cat([atoms, total - atoms.sum(1, keepdim=True)], 1)
    atoms = atoms[atoms[:, -1].abs() > error]
    subsets = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=seen.dtype)] * k)
    for value in values:
        atoms = atoms[((atoms @ subsets.mT - value).abs() <= error).any(1)]
    distinct = list[Tensor]()
    for numbers in atoms.sort(1).values:
        if not any(bool(((numbers - other).abs() <= k * error).all()) for other in distinct):
            distinct.append(numbers)
    yield from distinct


def _distinct(values: Tensor, error: float) -> Tensor:
    ordered = values.sort().values
    new = torch.ones(len(ordered), dtype=torch.bool)
    new[1:] = ordered[1:] - ordered[:-1] > error
    return ordered[new]


def _labels(
    terms: Terms,
    gap: Tensor,
    mix: Tensor,
    u: Tensor,
    atoms: Tensor,
    kinds: Kinds | None,
    weight: Tensor,
    error: float,
) -> Tensor | None:
    """The labels with which rows (k, d) have these residuals along the mix; None if there are none, or several."""
    ones, outputs = terms.with_ones(u), terms.outputs(u)
    if kinds is None:
        assert terms.model is not None
        r = torch.linalg.lstsq(ones.mT, gap.mT).solution  # (k, C)
        fits = (ones.mT @ r - gap.mT).abs().max() <= error
        return terms.model.loss.label(outputs, r / weight[:, None]) if bool(fits) else None
    count = len(kinds.y)
    r = torch.stack([terms.residuals(outputs, kinds.at(torch.full((len(u),), place))) for place in range(count)], 1)
    fits = ((r[..., : len(gap)] @ mix) - atoms[:, None]).abs() <= error  # (k, l)
    if not bool((fits.sum(1) == 1).all()):
        return None
    place = fits.int().argmax(1)
    chosen = r[torch.arange(len(u)), place][:, : len(gap)]
    return kinds.y[place] if bool((chosen.mT @ ones - gap).abs().max() <= error) else None
