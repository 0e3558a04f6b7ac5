"""Rebuild k missing rows at once from the equations of a released table, labels unknown.

K classes give (K - 1)(d + 1) equations for k (d + 1) unknown numbers, so that up to K - 1 rows can be determined; a
scaler's sums are one more output. Rows are found in sections (`sections`) and subtracted, which makes the others easier
to find; in the end all are polished together. A certificate says that a row explains the release to rounding in more
equations than it has numbers, that these determine it, and that no other row was found which does so too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.closed_form.sections import (
    LEAST,
    Kinds,
    Limits,
    Prior,
    Section,
    Terms,
    corners,
    descend,
    misfits,
)
from lostwax.games import Fitted, Records, Stationary
from lostwax.games.facts import loss_facts
from lostwax.games.fitted import blocks, rounding
from lostwax.progress import counted
from lostwax.seeds import generator

CERTAIN = 1e-3  # predicted error of a certified row, in deviations of the columns
CLOSE = 1e-6  # misfit of a row that is taken for one, unless rounding hides more
DOUBTFUL = 1e-2  # ... and even then
WALKS = (400, 4_000)  # to corners, until one is a row
STARTS = 64  # of roots, per row that is missing
POLISH = 8  # steps
EPS = torch.finfo(torch.float64).eps
AGREES = 30  # times its rounding error: an equation that holds
FLAT = 1e-7  # a column that moves less than this within a section has no limit there


class MissingRows(NamedTuple):
    """k rows for each of g games, in no order: they are paired with the true ones by their judge."""

    records: Records  # x (g, k, d), y (g, k)
    certified: Tensor  # (g, k) bool
    predicted: Tensor  # (g, k) root mean square error over columns, in standard deviations of the known rows


def missing_rows(fitted: Fitted, games: Tensor, *, seed: int) -> MissingRows:
    """Rebuild the rows `games` (g, k) of the table, of which an adversary knows all others."""
    answers = [
        _Game.of(fitted, rows, generator(seed, "missing rows", number)).answer()
        for number, rows in enumerate(counted(games, "missing rows: games", len(games)))
    ]
    x, y, certified, predicted = (torch.stack(part) for part in zip(*answers, strict=True))
    return MissingRows(Records(x, y), certified, predicted)


def most_missing(fitted: Fitted) -> int:
    """As many rows as there are equations for: the number of independent residuals, if labels are classes."""
    kinds = _kinds(fitted, torch.ones(len(fitted.table), dtype=torch.bool), fitted.weight[:1])
    if kinds is None:
        return 1
    d = fitted.table.x.shape[1]
    terms = _terms(fitted, torch.zeros_like(fitted.table.x[0]), torch.ones_like(fitted.table.x[0]))
    return min(_independent(terms, kinds), d + terms.affine)


def _terms(fitted: Fitted, mean: Tensor, unit: Tensor) -> Terms:
    """The released equations; without an intercept features keep their origin, and sums have no place."""
    model = fitted.model
    if model is None or model.bias is not None:
        return Terms(model, fitted.sums, mean, unit)
    return Terms(None, fitted.sums, mean, unit) if fitted.sums else Terms(model, (), model.shift, unit)


def _independent(terms: Terms, kinds: Kinds) -> int:
    """Dimensions of the residuals that rows can have."""
    rng = generator(0, "missing rows", "dimensions")
    places = torch.from_numpy(rng.integers(len(kinds.y), size=200))
    count = 0 if terms.model is None else len(terms.model.weight)
    outputs = torch.from_numpy(rng.standard_normal((200, count)))
    return int(torch.linalg.matrix_rank(terms.residuals(outputs, kinds.at(places))))


def _kinds(fitted: Fitted, known: Tensor, missing_weights: Tensor) -> Kinds | None:
    """Labels and weights that a missing row may have; None if labels are targets.

    Where the weight of every known row follows from its label (class weights), so does that of a missing one.
    """
    y = fitted.table.y
    if y.is_floating_point() or y.ndim > 1:
        return None
    facts = None if fitted.model is None else loss_facts(fitted.model.loss, len(fitted.model.weight))
    classes = int(y[known].max()) + 1 if facts is None or facts.classes is None else facts.classes
    pairs = torch.stack([y[known].double(), fitted.weight[known]], 1).unique(dim=0)
    if len(pairs) <= classes:
        return Kinds(pairs[:, 0].long(), pairs[:, 1])
    weights = missing_weights.unique()
    return Kinds(torch.arange(classes).repeat_interleave(len(weights)), weights.repeat(classes))


class _Answer(NamedTuple):
    x: Tensor  # (k, d)
    y: Tensor  # (k,)
    certified: Tensor  # (k,)
    predicted: Tensor  # (k,)


class _Found(NamedTuple):
    """Rows that explain a part of the gap."""

    u: Tensor  # (j, d)
    kinds: Kinds  # (j,)
    corner: Tensor  # (j,) it was not found by its equations
    doubled: bool = False  # others explain the same

    def beside(self, more: _Found) -> _Found:
        """Both."""
        u, corner = (torch.cat([getattr(part, name) for part in (self, more)]) for name in ("u", "corner"))
        kinds = Kinds(*(torch.cat(pair) for pair in zip(self.kinds, more.kinds, strict=True)))
        return _Found(u, kinds, corner, self.doubled or more.doubled)


@dataclass(frozen=True)
class _Game:
    """What the known rows leave of the equations in one game."""

    terms: Terms
    gap: Tensor  # (C, d + 1)
    noise: float  # rounding error of a number in it
    missing: int  # k
    kinds: Kinds | None
    known: Records  # u, in units of their spread
    rng: np.random.Generator

    @classmethod
    def of(cls, fitted: Fitted, rows: Tensor, rng: np.random.Generator) -> _Game:
        """The game about some rows of a table."""
        is_known = torch.ones(len(fitted.table), dtype=torch.bool)
        is_known[rows] = False
        known, weight = fitted.table[is_known], fitted.weight[is_known]
        mean, spread = known.x.mean(0), known.x.std(0, correction=0)
        terms = _terms(fitted, mean, torch.where(spread > 0, spread, 1.0))
        gaps, noises = [], []
        for equation in terms.equations:
            gap = equation.total()
            for part in blocks(known):
                r, f = equation.factors(known[part], weight[part])
                gap = gap - r.mT @ f
            gaps.append(terms.in_units(equation, gap))
            noises.append(terms.in_units(equation, rounding(equation, known, weight), sizes=True))
        noise = float(torch.cat(noises).square().mean().sqrt())
        kinds = _kinds(fitted, is_known, fitted.weight[rows])
        units = Records((known.x - terms.centre) / terms.unit, known.y)
        return cls(terms, torch.cat(gaps), noise, len(rows), kinds, units, rng)

    @cached_property
    def prior(self) -> Prior:
        """The known rows."""
        return Prior.of(self.known)

    @cached_property
    def limits(self) -> Limits:
        """The natural ends of columns."""
        return Limits.of(self.known.x)

    @cached_property
    def dimensions(self) -> int:
        """Of residuals."""
        assert self.kinds is not None
        return _independent(self.terms, self.kinds)

    def answer(self) -> _Answer:
        """The missing rows, those that are not found in the middle of the known ones."""
        found = self._found()
        certified, predicted = torch.zeros(len(found.u), dtype=torch.bool), torch.ones(len(found.u)).double()
        if len(found.u):
            found, certified, predicted = self._judged(found)
        blank = self.missing - len(found.u)
        x = torch.cat([self.terms.records(found.u), self.terms.centre.expand(blank, -1)])
        y = torch.cat([found.kinds.y, self.prior.labels[self.prior.shares.argmax()].expand(blank)])
        certified = torch.cat([certified, certified.new_zeros(blank)])
        return _Answer(x, y, certified, torch.cat([predicted, predicted.new_ones(blank)]))

    def _left(self, found: _Found) -> Tensor:
        """What found rows leave of the gap."""
        r = self.terms.residuals(self.terms.outputs(found.u), found.kinds)
        return self.gap - r.mT @ self.terms.with_ones(found.u)

    def _found(self) -> _Found:
        """Rows one section after the other, each of what is left by those before."""
        assert self.kinds is not None
        none = self.kinds.at(torch.zeros(0, dtype=torch.long))
        found = _Found(self.gap.new_zeros(0, len(self.terms.unit)), none, torch.zeros(0, dtype=torch.bool))
        if self.missing > self.dimensions:
            return found
        while (left := self.missing - len(found.u)) > 0:
            gap = self._left(found)
            sizes = torch.linalg.svdvals(gap)
            rank = min(left, int((sizes > 3 * self.noise * len(gap) ** 0.5).sum()))
            if not rank:
                break
            section = Section.of(gap, rank, affine=self.terms.affine)
            # what the solver left shows where residuals have more dimensions than rows
            seen = float(sizes[rank]) / len(gap) ** 0.5 if rank < self.dimensions else 0.0
            rows = self._rows(section, max(self.noise, seen) / float(section.sizes[-1]))
            if rows is None:
                break
            found = found.beside(rows)
        return found

    def _rows(self, section: Section, hidden: float) -> _Found | None:
        """Rows of a section, by any of the ways that lead to some."""
        enough = min(max(CLOSE, 100 * hidden), DOUBTFUL)
        for c, corner in self._candidates(section, hidden, enough):
            if len(c) and (rows := self._chosen(section, c, enough, corner)) is not None:
                return rows
        return None

    def _candidates(self, section: Section, hidden: float, enough: float) -> Iterator[tuple[Tensor, bool]]:
        """Places in a section where rows may be (b, q); whether they owe nothing to the equations of a row."""
        rank, free = len(section.sizes), section.free
        if not free:
            yield self.gap.new_zeros(1, 0), True
            return
        normals, bounds = self.limits.within(section, max(FLAT, 100 * hidden))
        yield corners(normals, bounds, WALKS[0], self.rng), True
        if self.dimensions - rank + 1 >= free:
            c, labels = self.prior.draw(section, STARTS * rank, self.rng)
            c, value = descend(section, self.terms, c[:, None], self._of_labels(labels[:, None]))
            yield c[value < enough, 0], False
        yield corners(normals, bounds, WALKS[1], self.rng), True
        c, labels = self.prior.draw(section, STARTS * rank * rank, self.rng)
        c, value = descend(section, self.terms, c.view(-1, rank, free), self._of_labels(labels.view(-1, rank)))
        best = value.argmin()
        yield (c[best] if value[best] < enough else c[0, :0]), False

    def _of_labels(self, places: Tensor) -> Kinds:
        """A kind for each label of the prior, one of several by chance."""
        assert self.kinds is not None
        fits = (self.prior.labels[places].unsqueeze(-1) == self.kinds.y).double()  # (..., l)
        lots = torch.from_numpy(self.rng.random(fits.shape))
        return self.kinds.at((fits * (1 + lots)).argmax(-1))

    def _chosen(self, section: Section, c: Tensor, enough: float, corner: bool) -> _Found | None:
        """The candidates that are rows: each by its own equations, and all of them together."""
        assert self.kinds is not None
        kinds = len(self.kinds.y)
        places = torch.arange(kinds).repeat(len(c))
        each = c.repeat_interleave(kinds, 0)[:, None]
        values = misfits(section, self.terms, each, self.kinds.at(places[:, None]), slopes=False).values.norm(dim=1)
        values = values.view(-1, kinds).nan_to_num(torch.inf)
        best, place = values.min(1)
        doubled = bool(((values < enough).sum(1) > 1).any())
        order = best.argsort()
        order = order[best[order] < enough]
        some: list[int] = []
        while len(order):
            first, order = int(order[0]), order[1:]
            tried = [*some, first]
            both = misfits(section, self.terms, c[tried][None], self.kinds.at(place[tried][None]), slopes=False).values
            if float(both.abs().max()) < max(1e-3, 10 * enough):
                some = tried
            else:
                doubled = True
            apart = (c[order] - c[first]).norm(dim=1) > 1e-4 * (1 + c[first].norm())
            order = order[apart]
        if not some:
            return None
        at, chosen = c[some], self.kinds.at(place[some])
        if self.dimensions - len(section.sizes) + len(some) >= section.free > 0:
            at = descend(section, self.terms, at[None], chosen.as_one, POLISH)[0][0]
        return _Found(section.rows(at), chosen, torch.full((len(some),), corner), doubled)

    def _judged(self, found: _Found) -> tuple[_Found, Tensor, Tensor]:
        """Rows polished together, which of them are certified, and their predicted errors."""
        gap, j = self.gap, len(found.u)
        above = int((torch.linalg.svdvals(gap) > 3 * self.noise * len(gap) ** 0.5).sum())
        section = Section.of(gap, max(1, min(self.missing, above)), affine=self.terms.affine)
        free, surplus = section.free, (self.dimensions - len(section.sizes)) + j - section.free  # equations of a row
        c, kinds = section.coordinates(found.u), found.kinds
        if surplus >= 0 and free:
            c = descend(section, self.terms, c[None], kinds.as_one, POLISH)[0][0]
        u = section.rows(c)
        outputs = self.terms.outputs(u)
        r = self.terms.residuals(outputs, kinds)
        by_row = (r @ (section.left / section.sizes) / section.sizes).norm(dim=1)  # (j,) |S^-1 a|
        by_dual = ((section.foot + c @ section.turn.mT) / section.sizes).norm(dim=1)  # (j,) |S^-1 b|
        length = r.norm(dim=1).clamp_min(LEAST)
        own = EPS * (1 + outputs.abs().amax(1)) * kinds.weight if outputs.shape[1] else torch.zeros_like(length)
        outside = (self.noise * by_row + own) / length
        pairs = (self.noise * by_row + own)[:, None] * by_dual
        noise = torch.cat([outside.repeat_interleave(section.beyond.shape[1]), pairs.flatten()]).clamp_min(1e-14)
        misfit, jacobian = misfits(section, self.terms, c[None], kinds.as_one)
        assert jacobian is not None
        values, slopes = misfit[0] / noise, jacobian[0] / noise[:, None]
        if surplus < 1:  # the limits that a corner is at are equations too
            slopes = torch.cat([slopes, self._at_limits(section, u, found.corner)])
        size = slopes.norm(dim=0).clamp_min(LEAST)
        left, sizes, right = torch.linalg.svd(slopes / size, full_matrices=False)
        full = len(slopes) >= j * free and (not free or bool(sizes[-1] > 1e-12 * sizes[0]))
        scale = max(1.0, float(values.square().mean().sqrt()))
        variance = ((right / sizes[:, None].clamp_min(LEAST)).square().sum(0) / size.square()).view(j, free).sum(1)
        predicted = scale * (variance / len(self.terms.unit) + (self.noise * by_dual).square()).sqrt()
        predicted = torch.where(predicted.isfinite(), predicted, 1.0).clamp_max(1.0) if full else torch.ones_like(length)
        sure = full and scale < AGREES and not found.doubled
        certain = (predicted < CERTAIN) & sure & (found.corner | (surplus >= 1))
        return found._replace(u=u), certain, predicted

    def _at_limits(self, section: Section, u: Tensor, corner: Tensor) -> Tensor:
        """The slopes of cells that are at a limit, for rows that are corners, (e, j q)."""
        j, blocks_of = len(u), []
        for row in corner.nonzero().flatten().tolist():
            normals, bounds = self.limits.within(section, FLAT)
            at = (bounds - section.coordinates(u[row]) @ normals.mT).abs() < 1e-6
            block = normals.new_zeros(int(at.sum()), j, section.free)
            block[:, row] = normals[at] / 1e-9
            blocks_of.append(block.flatten(1))
        return torch.cat(blocks_of) if blocks_of else u.new_zeros(0, j * section.free)
