"""Rebuild k missing rows at once from the equations of a released table, labels unknown.

K classes give (K - 1)(d + 1) equations for k (d + 1) unknown numbers, so that up to K - 1 rows can be determined; a
scaler's sums are one more output. Rows are found in sections (`sections`) and subtracted, which makes the others easier
to find; in the end all are polished together. A certificate says that a row explains the release to rounding in more
equations than it has numbers, that these determine it, and that no other row was found which does so too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    RebuiltRows,
    Section,
    Terms,
    agreement,
    corners,
    descend,
    largest_groups,
    misfits,
)
from lostwax.attacks.closed_form.undetermined import Crowd, from_sums, middle, two_valued, with_target
from lostwax.games import Fitted, Records
from lostwax.games.facts import loss_facts
from lostwax.progress import counted
from lostwax.seeds import generator, one_thread

CERTAIN = 1e-3  # predicted error of a certified row, in deviations of the columns
CLOSE = 1e-6  # misfit of a row that is taken for one, unless rounding hides more
DOUBTFUL = 1e-2  # ... and even then
WALKS = (400, 4_000)  # to corners, until one is a row
STARTS = 64  # of roots, per row that is missing
ROUNDS, ROUND = 6, 64  # of whole sets of rows, at most
FIRST_STEPS = 15  # after which the best quarter goes on
HOPELESS = 10.0  # misfit of the best set of a round then: sets that end at a root are near 1
MOST_TRIED = 60  # candidates of a section
POLISH = 8  # steps
SAFETY, MANY_TESTS = 10, 8  # a measured rounding error is multiplied; from so many equations
CHANCE = 1e-9  # of passing all equations that are left over, for each candidate that is tried
AT_LIMIT = 1e-8  # the error of a cell at a limit
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
    with one_thread():  # systems are small: on a busy machine threads that wait for each other take ten times the work
        answers = [
            _Game.of(fitted, rows, generator(seed, "missing rows", number)).records()
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
    pairs = torch.unique(torch.stack([y[known].double(), fitted.weight[known]], 1), dim=0)
    seen, counts = torch.unique(pairs[:, 0], return_counts=True)
    other = [label for label in range(classes) if label not in seen] if bool((counts == 1).all()) else range(classes)
    weights = torch.unique(missing_weights)
    labels = torch.tensor(other, dtype=torch.long).repeat_interleave(len(weights))
    if len(other) == classes:
        return Kinds(labels, weights.repeat(classes))
    return Kinds(torch.cat([pairs[:, 0].long(), labels]), torch.cat([pairs[:, 1], weights.repeat(len(other))]))


class _Explained(NamedTuple):
    """Rows that explain a part of the gap."""

    u: Tensor  # (j, d)
    kinds: Kinds  # (j,)
    corner: Tensor  # (j,) it was not found by its equations
    doubled: bool = False  # others explain the same

    def beside(self, more: _Explained) -> _Explained:
        kinds = Kinds(*(torch.cat(pair) for pair in zip(self.kinds, more.kinds, strict=True)))
        u, corner = torch.cat([self.u, more.u]), torch.cat([self.corner, more.corner])
        return _Explained(u, kinds, corner, self.doubled or more.doubled)


@dataclass(frozen=True)
class _Game:
    """What the known rows leave of the equations in one game."""

    terms: Terms
    gap: Tensor  # (C, d + 1)
    noise: float  # rounding error of a number in it
    weight: Tensor  # (k,) of the missing rows
    kinds: Kinds | None  # None: labels are targets
    known: Records  # u, in units of their spread
    rng: np.random.Generator

    @classmethod
    def of(cls, fitted: Fitted, rows: Tensor, rng: np.random.Generator) -> _Game:
        is_known = torch.ones(len(fitted.table), dtype=torch.bool)
        is_known[rows] = False
        known, weight = fitted.table[is_known], fitted.weight[is_known]
        mean, spread = known.x.mean(0), known.x.std(0, correction=0)
        terms = _terms(fitted, mean, torch.where(spread > 0, spread, 1.0))
        gap, noises = terms.gaps(known, weight)
        noise = float(noises.square().mean().sqrt())
        kinds = _kinds(fitted, is_known, fitted.weight[rows])
        units = Records((known.x - terms.centre) / terms.unit, known.y)
        return cls(terms, gap, noise, fitted.weight[rows], kinds, units, rng)

    @cached_property
    def prior(self) -> Prior:
        return Prior.of(self.known)

    @cached_property
    def limits(self) -> Limits:
        return Limits.of(self.known.x)

    @cached_property
    def dimensions(self) -> int:
        assert self.kinds is not None
        return _independent(self.terms, self.kinds)

    def records(self) -> RebuiltRows:
        """The answer, with features as they are in the table."""
        rows = self.answer()
        return rows._replace(u=self.terms.records(rows.u))

    def answer(self) -> RebuiltRows:
        """The missing rows; those that are not determined by their posterior means."""
        k = len(self.weight)
        if self.kinds is None:
            return self._with_target() if k == 1 and self.terms.affine else self._expected(self.gap, k)
        alone, by_class = self._alone_in_class(), any(sums.by_label for sums in self.terms.sums)
        if 0 < len(alone.u) <= k:
            fewer = replace(self, gap=self._left(alone), weight=self.weight[len(alone.u) :])
            predicted = self.noise * (1 + alone.u.square().mean(1)).sqrt() / alone.kinds.weight
            certain = torch.ones(len(alone.u), dtype=torch.bool)
            return RebuiltRows.joined([RebuiltRows(alone.u, alone.kinds.y, certain, predicted), fewer.answer()])
        if not k or k > self.dimensions or (self.terms.model is None and by_class):
            return self._expected(self.gap, k)
        explained = self._search(k)
        if not len(explained.u):
            return self._expected(self.gap, k)
        certified, predicted, holds = self._judged(explained)
        left = self._expected(self._left(explained), k - len(explained.u))
        u = explained.u if holds else torch.where((predicted < 1)[:, None], explained.u, self.known.x.mean(0))
        return RebuiltRows.joined([RebuiltRows(u, explained.kinds.y, certified, predicted), left])

    def _expected(self, gap: Tensor, k: int) -> RebuiltRows:
        """Posterior means of k rows that leave this gap; the rows themselves where columns have two values."""
        if not k:
            return middle(self.known, k)
        bits = two_valued(self.terms, gap, self.noise, self.known, self.kinds, self.weight[-k:])
        if bits is not None:
            return bits
        if self.kinds is None:
            standing_out = with_target(self.terms, gap, self.known, self.weight, k)
            if float(standing_out.predicted[0]) < 1:
                return standing_out
        if self.terms.sums:
            return from_sums(self.terms, gap, self.known, k)
        if self.kinds is None or self.terms.model is None:
            return middle(self.known, k)
        return Crowd.of(self.terms, self.known, self.kinds, self.prior).expected(gap, k)

    def _with_target(self) -> RebuiltRows:
        """One row whose label is a number: any target explains any residual."""
        model, outputs = self.terms.model, 0 if self.terms.model is None else len(self.terms.model.weight)
        leading = self.gap[outputs:] if self.terms.sums else self.gap  # sums hold to rounding
        r = leading[:, -1]
        size = r.norm().clamp_min(LEAST)
        u = r @ leading[:, :-1] / size.square()
        y = self.known.y.mean(0, keepdim=True)
        if model is not None:
            y = model.loss.label(self.terms.outputs(u[None]), self.gap[None, :outputs, -1] / self.weight[:, None])
        misfit = self.gap - self.gap[:, -1:] * self.terms.with_ones(u)
        predicted = self.noise / size * (1 + u.square().mean()).sqrt()
        tested = model is None or len(self.gap) > 1
        holds = tested and bool(misfit.abs().max() < AGREES * self.noise * (1 + u.abs().max()))
        return RebuiltRows(u[None], y, ((predicted < CERTAIN) & holds)[None], predicted.clamp_max(1.0)[None])

    def _left(self, explained: _Explained) -> Tensor:
        r = self.terms.residuals(self.terms.outputs(explained.u), explained.kinds)
        return self.gap - r.mT @ self.terms.with_ones(explained.u)

    def _search(self, missing: int) -> _Explained:
        """Rows one section after the other, each of what is left by those before."""
        assert self.kinds is not None
        none = torch.zeros(0, dtype=torch.long)
        explained = _Explained(self.gap.new_zeros(0, len(self.terms.unit)), self.kinds.at(none), none.bool())
        while (left := missing - len(explained.u)) > 0:
            gap = self._left(explained)
            sizes = torch.linalg.svdvals(gap)
            rank = min(left, int((sizes > self._hidden_size).sum()))
            if not rank:
                break
            section = Section.of(gap, rank, affine=self.terms.affine)
            # what the solver left shows where residuals have more dimensions than rows
            seen = float(sizes[rank]) / len(gap) ** 0.5 if rank < min(self.dimensions, len(sizes)) else 0.0
            rows = self._rows(section, max(self.noise, seen) / float(section.sizes[-1]))
            if rows is None:
                break
            explained = explained.beside(rows)
        return explained

    @property
    def _hidden_size(self) -> float:
        """A singular value that rounding may have."""
        return 3 * self.noise * math.sqrt(len(self.gap))

    def _alone_in_class(self) -> _Explained:
        """Rows whose class has a sum of its own, and no other missing row."""
        assert self.kinds is not None
        rows, places, start = list[Tensor](), list[int](), len(self.gap)
        for sums in reversed(self.terms.sums):
            start -= len(sums.counts)
            if not sums.by_label or rows:
                continue
            for place, (y, weight) in enumerate(zip(*self.kinds, strict=True)):
                gap = self.gap[start + int(y)]
                if abs(float(gap[-1]) - (float(weight) if sums.weighted else 1.0)) < 1e-6:
                    rows.append(gap[:-1] / gap[-1])
                    places.append(place)
        u = torch.stack(rows) if rows else self.gap.new_zeros(0, len(self.terms.unit))
        return _Explained(
            u, self.kinds.at(torch.tensor(places, dtype=torch.long)), torch.ones(len(u), dtype=torch.bool)
        )

    def _rows(self, section: Section, hidden: float) -> _Explained | None:
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
        if self.terms.model is None:
            return
        if self.dimensions - rank + 1 >= free:
            c, labels = self.prior.draw(section, STARTS * rank, self.rng)
            c, value = descend(section, self.terms, c[:, None], self._of_labels(labels[:, None]))
            yield c[value < enough, 0], False
        yield corners(normals, bounds, WALKS[1], self.rng), True
        for _ in range(ROUNDS):
            c, labels = self.prior.draw_sets(section, ROUND, self.rng)
            kinds = self._of_labels(labels)
            c, value = descend(section, self.terms, c, kinds, FIRST_STEPS)
            if not value.min() < HOPELESS:
                return
            best = value.argsort()[: ROUND // 4]
            c, value = descend(section, self.terms, c[best], kinds.at(best))
            if value.min() < enough:
                yield c[value.argmin()], False

    def _of_labels(self, places: Tensor) -> Kinds:
        """A kind for each label of the prior, one of several by chance."""
        assert self.kinds is not None
        fits = (self.prior.labels[places].unsqueeze(-1) == self.kinds.y).double()  # (..., l)
        lots = torch.from_numpy(self.rng.random(fits.shape))
        return self.kinds.at((fits * (1 + lots)).argmax(-1))

    def _chosen(self, section: Section, c: Tensor, enough: float, corner: bool) -> _Explained | None:
        """The candidates that are rows, each by its own equations and all of them together."""
        assert self.kinds is not None
        if self.terms.model is None and not any(sums.by_label for sums in self.terms.sums):
            kinds = Kinds(*(part[:1] for part in self._of_labels(self.prior.shares.argmax()[None])))  # none is told
        else:
            kinds = self.kinds
        places = torch.arange(len(kinds.y)).repeat(len(c))
        each = c.repeat_interleave(len(kinds.y), 0)[:, None]
        values = misfits(section, self.terms, each, kinds.at(places[:, None]), slopes=False).values.norm(dim=1)
        values = values.view(len(c), -1).nan_to_num(torch.inf)
        best, place = values.min(1)
        if not section.free:  # nothing else is left
            return _Explained(section.rows(c), kinds.at(place), torch.ones(1, dtype=torch.bool))
        doubled, nodes = False, list[int]()
        order = best.argsort()
        order = order[best[order] < enough]
        while len(order) and len(nodes) < MOST_TRIED:
            first, order = int(order[0]), order[1:]
            nodes.append(first)
            order = order[(c[order] - c[first]).norm(dim=1) > 1e-4 * (1 + c[first].norm())]
        if not nodes:
            return None
        at, chosen = c[nodes], kinds.at(place[nodes])
        agree = agreement(section, self.terms, at, chosen) < 10 * enough
        rank, free = len(section.sizes), section.free
        if corner or self.dimensions - rank + 1 > free:  # each by itself
            some = list[int]()
            for node in range(len(nodes)):
                if bool(agree[node, some].all()):
                    some.append(node)
                else:
                    doubled = True
            doubled |= bool(((values[nodes] < enough).sum(1) > 1).any())
        else:
            groups = largest_groups(agree)
            some, doubled = groups[0], len(groups) > 1
            if self.dimensions - rank + len(some) <= free:
                return None
        at, chosen = at[some], chosen.at(torch.tensor(some))
        if self.dimensions - rank + len(some) >= free:
            at = descend(section, self.terms, at[None], chosen.as_one, POLISH)[0][0]
        return _Explained(section.rows(at), chosen, torch.full((len(some),), corner), doubled)

    def _judged(self, explained: _Explained) -> tuple[Tensor, Tensor, bool]:
        """Polish rows in place; which are certified, their predicted errors, and whether they explain the gap."""
        section = self._section(explained)
        j, free, kinds = len(explained.u), section.free, explained.kinds
        surplus = self.dimensions - len(section.sizes) + j - free  # equations of a row beyond its numbers
        c = section.coordinates(explained.u)
        if surplus >= 0 and free and self.terms.model is not None:
            c = descend(section, self.terms, c[None], kinds.as_one, POLISH)[0][0]
            explained.u[:] = section.rows(c)
        outputs = self.terms.outputs(explained.u)
        r = self.terms.residuals(outputs, kinds)
        by_row = (r @ (section.left / section.sizes) / section.sizes).norm(dim=1)  # (j,) |S^-1 a|
        by_dual = ((section.foot + c @ section.turn.mT) / section.sizes).norm(dim=1)  # (j,) |S^-1 b|
        length = r.norm(dim=1).clamp_min(LEAST)
        rounded = EPS * (1 + outputs.abs().amax(1)) * kinds.weight if outputs.shape[1] else torch.zeros_like(length)
        outside = (self.noise * by_row + rounded) / length
        pairs = (self.noise * by_row + rounded)[:, None] * by_dual
        noise = torch.cat([outside.repeat_interleave(section.beyond.shape[1]), pairs.flatten()]).clamp_min(1e-14)
        misfit, jacobian = misfits(section, self.terms, c[None], kinds.as_one)
        assert jacobian is not None
        values, slopes = misfit[0] / noise, jacobian[0] / noise[:, None]
        if surplus < 1:  # the limits that a corner is at are equations too
            slopes = torch.cat([slopes, self._at_limits(section, c, explained.corner)])
        if not slopes.isfinite().all():  # rows that add nothing to the equations
            return torch.zeros(j, dtype=torch.bool), torch.ones_like(length), False
        size = slopes.norm(dim=0).clamp_min(LEAST)
        _, sizes, right = torch.linalg.svd(slopes / size, full_matrices=False)
        full = len(slopes) >= j * free and (not free or bool(sizes[-1] > 1e-12 * sizes[0]))
        # rounding is bounded by its worst case; how large it is shows in the equations beyond those that are needed
        tests = max(1, surplus * j)
        scale = float(values.square().sum().div(tests).sqrt())
        scale = min(max(1.0, scale), SAFETY * scale) if tests >= MANY_TESTS else max(1.0, scale)
        inside = ((right / sizes[:, None].clamp_min(LEAST)).square().sum(0) / size.square()).view(j, free).sum(1)
        predicted = scale * (inside / len(self.terms.unit) + (self.noise * by_dual).square()).sqrt()
        predicted = torch.where(predicted.isfinite() & full, predicted, 1.0).clamp_max(1.0)
        # of all that is tried, some may pass by chance where rounding leaves much room, and few equations are left over
        tests = max(tests, self.dimensions - len(section.sizes) + 1)
        by_chance = free > 0 and tests * float(noise.log().mean()) > math.log(CHANCE)
        holds = scale < AGREES
        certain = (predicted < CERTAIN) & (explained.corner | (surplus >= 1))
        return certain & (holds and not explained.doubled and not by_chance), predicted, holds

    def _section(self, explained: _Explained) -> Section:
        """Where all missing rows are that can be seen."""
        rank = int((torch.linalg.svdvals(self.gap) > self._hidden_size).sum())
        return Section.of(self.gap, max(1, min(len(self.weight), rank)), affine=self.terms.affine)

    def _at_limits(self, section: Section, c: Tensor, corner: Tensor) -> Tensor:
        """The slopes of cells that are at a limit, for rows that are corners, (e, j q)."""
        normals, bounds = self.limits.within(section, FLAT)
        parts = []
        for row in corner.nonzero().flatten().tolist():
            at = (bounds - c[row] @ normals.mT).abs() < 1e-6
            part = normals.new_zeros(int(at.sum()), *c.shape)
            part[:, row] = normals[at] / AT_LIMIT
            parts.append(part.flatten(1))
        return torch.cat(parts) if parts else c.new_zeros(0, c.numel())
