"""Missing rows that the equations do not determine: their posterior means, and how far off these will be.

What is seen is the sum of k terms, so that the share of each falls as 1/k, unless one stands out by its size. Terms of
the others are taken as Gaussian, with the moments of the known rows' terms, and rows as Gaussian around the mean of
their class; the row that fits best is the minimum of both, and its term is subtracted before the next.
Sums of a class, or of all rows, give the mean of the missing ones exactly.

Where all columns have two values (flags, one-hot codes), k rows are determined all the same, by one output. Along any
mix of the outputs, column j of the equations is a sum over those missing rows that have its higher value,

    s_j = sum over i of b_ij a_i,        with bits b_ij and a_i the residual of row i,

and the intercept is the sum of all a_i. So all columns are subset sums of k unknown numbers, most of which are seen
alone, or missing alone, in some column. Where few different rows are possible at all, every set of them is tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from lostwax.attacks.closed_form.sections import LEAST, Kinds, Prior, Quadratic, RebuiltRows, Terms, gauss_newton
from lostwax.games import Records

MOST_NUMBERS = 2_000  # of a term, whose covariance is inverted
APART = 3  # rows that are looked for one after the other
STEPS = 12
STANDS_OUT = 0.5  # predicted error of a row with a target, of which no other estimate is used
SHRUNK = 0.1  # share of a covariance that is its diagonal


def middle(known: Records, k: int) -> RebuiltRows:
    """Without anything but the known rows."""
    y = known.y.mean(0) if known.y.is_floating_point() else known.y.mode().values
    u, ones = known.x.mean(0), torch.ones(k, dtype=known.x.dtype)
    return RebuiltRows(u.expand(k, -1), y.expand(k, *known.y.shape[1:]), torch.zeros(k, dtype=torch.bool), ones)


def _expected(u: Tensor, y: Tensor, predicted: Tensor) -> RebuiltRows:
    """Rows that nothing certifies."""
    return RebuiltRows(u, y, torch.zeros(len(u), dtype=torch.bool), predicted)


def from_sums(terms: Terms, gap: Tensor, known: Records, k: int) -> RebuiltRows:
    """Means of the missing rows of each class, or of all, from the last of the released sums that tells classes."""
    start = len(gap)
    best, labelled = gap[-1:], False
    for sums in reversed(terms.sums):
        start -= len(sums.counts)
        if sums.by_label and not labelled:
            best, labelled = gap[start : start + len(sums.counts)], True
    shares = (best[:, -1] / best[:, -1].sum() * k).round().long().clamp_min(0)  # rows of each group
    blind, parts = middle(known, k), list[RebuiltRows]()
    for group in shares.nonzero().flatten().tolist():
        m = min(int(shares[group]), k - sum(len(part.u) for part in parts))
        rows = known.x[known.y == group] if labelled else known.x
        spread = rows.var(0, correction=0).mean() if len(rows) > 1 else torch.ones(())
        y = torch.full_like(blind.y[:m], group) if labelled else blind.y[:m]
        u = best[group, :-1] / best[group, -1]
        parts.append(_expected(u.expand(m, -1), y, ((m - 1) / m * spread).sqrt().expand(m).to(u)))
    parts.append(middle(known, k - sum(len(part.u) for part in parts)))
    return RebuiltRows.joined(parts)


def with_target(terms: Terms, gap: Tensor, known: Records, weight: Tensor, k: int) -> RebuiltRows:
    """Of rows with targets the one whose residual is nearly all of the sum: any target explains any residual.

    The others are expected to add what known rows would.
    """
    model, blind = terms.model, middle(known, k)
    if model is None or not terms.affine:
        return blind
    r = gap[: len(model.weight), -1]
    u = r @ gap[: len(r), :-1] / r.square().sum().clamp_min(LEAST)
    theirs = model.factors(terms.as_table(known), torch.ones(len(known)).to(u))[0].square().sum(1)  # |r_j|^2
    away = (theirs * (known.x - u).square().mean(1)).mean()
    predicted = ((k - 1) * away / r.square().sum().clamp_min(LEAST)).sqrt()
    if not predicted < STANDS_OUT:
        return blind
    y = model.loss.label(terms.outputs(u[None]), r[None] / weight[:1, None])
    return RebuiltRows.joined([_expected(u[None], y, predicted[None]), middle(known, k - 1)])


@dataclass(frozen=True)
class Crowd:
    """The known rows' terms, among which a row may stand out."""

    terms: Terms
    known: Records
    prior: Prior
    weight: Tensor  # (l,) of each label

    @classmethod
    def of(cls, terms: Terms, known: Records, kinds: Kinds, prior: Prior) -> Crowd:
        """Of labels with several weights the first counts."""
        return cls(terms, known, prior, torch.stack([kinds.weight[kinds.y == y][0] for y in prior.labels.tolist()]))

    def expected(self, gap: Tensor, k: int) -> RebuiltRows:
        """The rows that stand out, one after the other; the others are answered by the middle of the known ones."""
        if gap.numel() > MOST_NUMBERS:
            return middle(self.known, k)
        left, parts = gap.flatten(), list[RebuiltRows]()
        mean, precision = self._moments
        for others in range(k - 1, max(-1, k - 1 - APART), -1):
            seen, noise = left - others * mean, precision / max(others, SHRUNK)
            u, label, error = _stands_out(self.terms, seen, noise, self.prior, self.weight)
            if error >= 1:
                break
            left = left - self._flat(u[None], label[None])[0]
            parts.append(_expected(u[None], self.prior.labels[label][None], error[None]))
        return RebuiltRows.joined([*parts, middle(self.known, k - len(parts))])

    def _flat(self, u: Tensor, labels: Tensor) -> Tensor:
        r = self.terms.residuals(self.terms.outputs(u), Kinds(self.prior.labels[labels], self.weight[labels]))
        return (r[:, :, None] * self.terms.with_ones(u)[:, None]).flatten(1)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """The mean of a term (D,), and the inverse of its covariance (D, D)."""
        every = self._flat(self.known.x, (self.known.y[:, None] == self.prior.labels).int().argmax(1))
        mean = every.mean(0)
        away = every - mean
        covariance = (1 - SHRUNK) * away.mT @ away / len(away)
        covariance.diagonal().add_(SHRUNK * away.square().mean(0) + 1e-12 * away.square().mean())
        return mean, torch.cholesky_inverse(torch.linalg.cholesky(covariance))


def _stands_out(
    terms: Terms, seen: Tensor, precision: Tensor, prior: Prior, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest row whose term is `seen` up to Gaussian noise: by Gauss-Newton from the mean of each label.

    A term is r f^T, of residuals r (C,) and features f (d + 1,); its slope in u is r' f^T + r [I 0], with r' (C, d). So
    the normal equations need contractions of the precision (D, D) with r and f alone, and never a slope (D, d).
    """
    kinds, d = Kinds(prior.labels, weight), prior.means.shape[1]
    size, many = d + terms.affine, len(precision) // (d + terms.affine)  # f and C
    to_f = precision.reshape(-1, size).mT.contiguous()  # (f, D C)
    to_r = precision.reshape(len(precision), many, size).transpose(0, 1).flatten(1)  # (C, D f)

    def around(u: Tensor) -> Quadratic:
        outputs, from_mean = terms.outputs(u), u - prior.means
        r, f = terms.residuals(outputs, kinds), terms.with_ones(u)
        misfit = (r[:, :, None] * f[:, None]).flatten(1) - seen
        pull = misfit @ precision  # (l, D)
        value = (pull * misfit).sum(1) + ((from_mean @ prior.precision) * from_mean).sum(1)
        moved = terms.bends(outputs, kinds) @ terms.slopes  # (l, C, d)
        by_f, by_r = (f @ to_f).view(-1, many, size, many), (r @ to_r).view(-1, many, size, size)
        mixed = moved.mT @ (by_r * f[:, None, :, None]).sum(2)[..., :d]  # (l, d, d)
        normal = moved.mT @ (by_f * f[:, None, :, None]).sum(2) @ moved + mixed + mixed.mT
        normal = normal + (r[:, None] @ by_r.flatten(2)).view(-1, size, size)[:, :d, :d] + prior.precision
        pulls = pull.view(-1, many, size)
        slope = (moved.mT @ pulls @ f[..., None] + pulls.mT[:, :d] @ r[..., None])[..., 0]
        return Quadratic(value, slope + from_mean @ prior.precision, normal)

    u, (value, _, normal) = gauss_newton(around, prior.means, STEPS, damping=1.0)
    variance = torch.linalg.inv(normal).diagonal(dim1=1, dim2=2).mean(1)  # (l,)
    evidence = 2 * prior.shares.log() - value - torch.linalg.slogdet(normal).logabsdet
    best = evidence.argmax()
    return u[best], best, variance[best].sqrt()


# columns of two values

MOST_SETS = 200_000  # of residuals that are tried
SLACK = 100  # times the rounding error of a sum
MOST_ROWS, MOST_HALVES = 2_000, 400_000  # different rows, with their labels; halves of sets of them
CHANCE = 1e-6  # that some wrong set explains all equations


def two_valued(
    terms: Terms, gap: Tensor, noise: float, known: Records, kinds: Kinds | None, weight: Tensor
) -> RebuiltRows | None:
    """The k missing rows, of these weights; None unless exactly one set of rows explains the gap (C, d + 1)."""
    low, high = known.x.amin(0), known.x.amax(0)
    model, k = terms.model, len(weight)
    if model is not None and kinds is not None and k > 1 and bool((weight == weight[0]).all()):
        values = [torch.unique(column) for column in known.x.mT]
        labels = torch.unique(kinds.y[kinds.weight == weight[0]])
        count = math.prod(map(len, values)) * len(labels)
        if count <= MOST_ROWS and math.comb(count + (k - k // 2) - 1, k - k // 2) <= MOST_HALVES:
            x = torch.cartesian_prod(*values).view(-1, len(values))
            return _enumerated(terms, gap, noise, x, labels, weight)
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
            sure = torch.full((k,), kinds is not None)  # residuals are those of the rows, and not free as of targets
            solutions.append(RebuiltRows(u, y, sure, torch.zeros_like(total).expand(k)))
    return solutions[0] if len(solutions) == 1 else None


def _enumerated(
    terms: Terms, gap: Tensor, noise: float, x: Tensor, labels: Tensor, weight: Tensor
) -> RebuiltRows | None:
    """The only k of all possible rows, with any of the labels, that explain the gap; one half against the other."""
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
    luck = math.log(len(left) * len(right)) + float((2 * error / spread[spread > error]).log().sum())
    if len(sets) != 1 or luck > math.log(CHANCE):
        return None
    return RebuiltRows(u[sets[0]], y[sets[0]], torch.ones(k, dtype=torch.bool), torch.zeros_like(gap[0, 0]).expand(k))


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
