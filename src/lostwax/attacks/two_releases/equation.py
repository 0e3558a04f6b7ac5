"""The row that was removed, from the weights of a linear model before and after: the two optimality conditions.

At its optimum the gradient of a model's objective vanishes. With the residual r_i(theta) of row i and x~ = (x, 1),

    sum over n rows      r_i(theta)  x~_i  =  T          (known: minus the penalty's gradient at theta)
    sum over n - 1 rows  r_i(theta') x~_i  =  T'

so that the removed row z satisfies  r_z(theta) x~_z = T - T' - sum over the others (r_i(theta) - r_i(theta')) x~_i.
The last sum is small, and a public sample estimates it: no Hessian is expanded, so nothing is left out at second order.
What the estimate misses has a covariance, which the sample shows too. Generalised least squares with it and with the
sample's own mean and covariance of x gives the row (Gauss-Newton) for each label, and error bars by cross-validation.

Bertran et al. (NeurIPS 2024) take one Newton step with the Hessian of a public sample, H (theta' - theta), for the
gradient: `first_order` here, for comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.two_releases.one_output import NormalRow, OutputLine, ScaledEquation, posterior
from lostwax.games import Records, Stationary
from lostwax.games.facts import loss_facts
from lostwax.games.fitted import curvature_times
from lostwax.trainers.minimum import curvatures

MAX_NUMBERS = 4_000  # of an equation, and so of each side of its covariance
SHRINKAGE = 0.1  # of a covariance towards a simpler one
FOLDS = 5
PSEUDO = 5.0  # rows at the mean of all, that each class has beside its own
STEPS = 50  # of Gauss-Newton
CONVERGED = 1e-7  # relative change of the objective
LABELS = 3  # that are solved for, the likeliest ones
FEWEST_PUBLIC = 10
UNLIKE = 100.0  # times the typical range of a column: pixels differ less
TINY = 1e-24  # where no public row moves at all
SURE = 1e-10  # of a cell's variance is left where it is known
JITTER = 1e-5  # of the mean variance: what a few public rows never show may still occur


def _shrunken(away: Tensor, outputs: int = 1) -> Tensor:
    """(D, D) the covariance of rows that are off their mean, shrunk towards its diagonal.

    With several outputs (m, c D): towards a Kronecker product, as if outputs and inputs varied independently.
    """
    covariance = away.mT @ away / len(away)
    simpler = covariance.diagonal().diag()
    if outputs > 1:
        parts = away.reshape(len(away), outputs, -1)  # (m, c, D)
        by_output, by_input = (_shrunken(part.flatten(0, 1)) for part in (parts.mT, parts))
        simpler = torch.kron(by_output, by_input) / away.square().mean().clamp_min(TINY)
    return (1 - SHRINKAGE) * covariance + SHRINKAGE * simpler


def _inflation(away: Tensor) -> float:
    """How much larger than that covariance rows are that it was not fitted to, over all directions; at least 1."""
    fold, sizes = torch.arange(len(away)) % FOLDS, []
    floor = JITTER * away.square().mean() + TINY
    for number in range(FOLDS):
        covariance = _shrunken(away[fold != number])
        covariance.diagonal().add_(floor)
        unseen = away[fold == number]
        sizes.append((torch.linalg.solve(covariance, unseen.mT).mT * unseen).mean(1))
    return max(1.0, float(torch.cat(sizes).mean()))


class PublicSample(NamedTuple):
    """A public sample, as each release sees it: the inputs of its model, in the encoding of the first where it can."""

    first: Tensor  # (m, d) as the first model sees them
    second: Tensor  # (m, e) as the second does
    y: Tensor  # (m,) class numbers or targets


class ChangedRow(NamedTuple):
    """The removed row, in the units of the first model's inputs."""

    x: Tensor  # (d,)
    deviation: Tensor  # (d,) predicted standard deviation of its error
    label: Tensor  # () class number or target
    size: float  # |r|: what the row was divided by


class _Noisy(NamedTuple):
    """r x~ of the removed row with an error, and the terms (m, c D) of the public rows in that error."""

    value: Tensor  # (c, D)
    sure: Tensor  # (c, D) the part of it that does not come from public rows
    step: Tensor  # (c, D) of the parameters, in the units of the first model's inputs
    terms: Tensor  # (m, c D) one for each public row
    rows: float  # the variance of the error, in units of that of one term

    def covariance(self, terms: Tensor, extra: Tensor) -> Tensor:
        """The error's, from some of the terms."""
        covariance = self.rows * _shrunken(terms - terms.mean(0), len(self.value))
        covariance.diagonal().add_(extra)
        covariance.diagonal().add_(JITTER * covariance.diagonal().mean() + TINY)
        return covariance


class _Prior(NamedTuple):
    """What is known of a row before: normal, with the mean of the public rows of its class, and a covariance."""

    chance: float  # the logarithm of the share of the class
    mean: Tensor  # (d,)
    covariance: Tensor  # (d, d)
    precision: Tensor  # (d, d)
    low: Tensor  # (d,)
    high: Tensor  # (d,)

    @classmethod
    def of(cls, public: PublicSample, classes: int | None, known: Tensor | None = None) -> list[_Prior]:
        """That of each class, with one covariance, given the cells that are known; a single one for targets."""
        x, group = public.first, torch.zeros(len(public.y), dtype=torch.long) if classes is None else public.y.long()
        counts = group.bincount(minlength=classes or 1).to(x)
        sums = torch.zeros(len(counts), x.shape[1]).to(x).index_add(0, group, x)
        means = (sums + PSEUDO * x.mean(0)) / (counts + PSEUDO)[:, None]
        away = x - means[group]
        covariance = _shrunken(away)
        diagonal = covariance.diagonal()
        covariance.diagonal().add_(1e-4 * diagonal[diagonal > 0].mean().nan_to_num(1.0))
        chances, ends = ((counts + 1) / (counts + 1).sum()).log(), (x.amin(0), x.amax(0))
        if known is not None:
            seen = ~known.isnan()
            gain = torch.linalg.solve(covariance[seen][:, seen], covariance[seen]).mT  # (d, s)
            off = (known - means)[:, seen]  # (classes, s)
            chances -= (torch.linalg.solve(covariance[seen][:, seen], off.mT).mT * off).sum(1) / 2
            means, left = means + off @ gain.mT, SURE * covariance.diagonal()
            covariance = covariance - gain @ covariance[seen]
            covariance[seen] = covariance[:, seen] = 0.0
            covariance.diagonal()[seen] = left[seen]
        precision = torch.linalg.inv(covariance)
        return [
            cls(chance, mean, covariance, precision, *ends)
            for chance, mean in zip(chances.tolist(), means, strict=True)
        ]


def solve_changed_row(
    first: Stationary,
    second: Stationary,
    public: PublicSample,
    rows: int,
    offset: tuple[Tensor, Tensor],
    *,
    known: Tensor | None = None,
    noise: Tensor | None = None,
) -> ChangedRow:
    """The row that `first` was fitted on, with `rows` in all, and `second` was not.

    `offset` (slope, shift) is the second model's encoding as a function of the first's: second = slope first + shift.
    `known` (d,) are cells known from elsewhere; NaN elsewhere. `noise` (c, D) is the variance that solvers leave.
    """
    span = public.first.amax(0) - public.first.amin(0)
    unit, typical = torch.ones_like(span), span[span > 0].median().nan_to_num(1.0)
    if float(span.max()) > UNLIKE * float(typical):  # columns have units of their own
        unit = torch.where(span > 0, span, typical)
    first = replace(first, shift=first.shift / unit, scale=first.scale / unit)
    public, offset = public._replace(first=public.first / unit), (offset[0] * unit, offset[1])
    noisy = _subtracted_equations(first, second, public, rows, offset, _pulled_back(first, public, rows))
    facts, extra = loss_facts(first.loss, len(first.weight)), torch.zeros_like(noisy.terms[0])
    known = torch.full_like(unit, torch.nan) if known is None else known / unit
    priors = _Prior.of(public, None if facts is None else facts.classes, None if known.isnan().all() else known)
    extra = extra if noise is None else (noise / _with_one(unit).square()).flatten()
    if len(first.weight) == 1:
        solved = _by_one_output(first, noisy, priors, extra, public)
    else:
        problem = _Problem(first, noisy, priors, torch.linalg.inv(noisy.covariance(noisy.terms, extra)), public)
        best = min(problem.solutions(), key=lambda solved: solved.objective)
        solved = ChangedRow(best.x, problem.deviations(best, extra), best.label, float(best.r.norm()))
    x = solved.x.clamp(priors[0].low, priors[0].high).where(known.isnan(), known)
    return solved._replace(x=x * unit, deviation=solved.deviation.where(known.isnan(), 0.0) * unit)


def _by_one_output(
    model: Stationary, noisy: _Noisy, priors: Sequence[_Prior], extra: Tensor, public: PublicSample
) -> ChangedRow:
    """The mean of the posterior, over both labels; deviations as `_Problem.deviations` widens them."""
    away = noisy.terms - noisy.terms.mean(0)
    noise = _inflation(away) * noisy.covariance(noisy.terms, extra)
    wider, weight = _inflation(public.first - public.first.mean(0)), (model.weight / model.scale)[0]
    equation = ScaledEquation.of(noisy.sure[0], (noisy.value - noisy.sure)[0], noise, noisy.step[0])
    bias = model.outputs(torch.zeros_like(public.first[:1]))[0, 0]

    def residual(outputs: Tensor, label: int) -> Tensor:
        return model.loss.residual(outputs[:, None], torch.full((len(outputs),), label))[:, 0]

    lines = [OutputLine(weight, bias, partial(residual, label=label)) for label in range(len(priors))]
    if len(priors) == 1:
        residuals = model.loss.residual(model.outputs(public.first), public.y)
        spread = float(residuals.square().mean().sqrt()) + TINY
        lines = [OutputLine(torch.zeros_like(weight), torch.zeros_like(bias), lambda grid: grid, spread)]
    laws = [NormalRow(prior.mean, wider * prior.covariance) for prior in priors]
    each = [posterior(equation, law, line) for law, line in zip(laws, lines, strict=True)]
    shares = torch.tensor([part.evidence + prior.chance for part, prior in zip(each, priors, strict=True)]).softmax(0)
    means, variances = (
        torch.stack(parts) for parts in zip(*((part.mean, part.variance) for part in each), strict=True)
    )
    x = shares.to(means) @ means
    variance = shares.to(means) @ (variances + (means - x).square())
    r = sum(float(share) * part.residual for share, part in zip(shares, each, strict=True))
    label = shares.argmax() if len(priors) > 1 else model.outputs(x[None])[0, 0] - r
    variance = variance * (1 + len(x) / len(public.y))
    return ChangedRow(x, variance.sqrt(), label, abs(float(r)))


def first_order(first: Stationary, second: Stationary, public: Records, rows: int) -> tuple[Tensor, Tensor]:
    """(d,) the row and its label by one Newton step with a public Hessian, after Bertran et al. (2024), section 4.

    H (theta' - theta) with H the public sample's Hessian, scaled to all rows, and the penalty's: a matrix r x~ of rank
    one, of which the intercept's column is r; a row is its least-squares fit.
    """
    step = second.parameters() - first.parameters()
    features = first.features(public.x)
    ones = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    curved = curvature_times(first.loss, first.outputs(public.x), public.y, ones @ step.mT)
    gradient = (rows - 1) / len(public) * curved.mT @ ones + first.ridges() * step
    r = gradient[:, -1]
    x = (r @ gradient[:, :-1]) / r.square().sum().clamp_min(1e-300)
    label = r.argmin() if len(r) > 1 else (r[0] < 0).long()
    return x * first.scale + first.shift, label


def _subtracted_equations(
    first: Stationary,
    second: Stationary,
    public: PublicSample,
    rows: int,
    offset: tuple[Tensor, Tensor],
    pulled_back: Tensor | None = None,
) -> _Noisy:
    """r x~ of the removed row, x~ = (x, 1) in the units of the first model's inputs."""
    slope, shift = offset
    totals = _in_units(first.total(), first.shift, first.scale)
    later = _in_units(second.total(), second.shift, second.scale)
    later = torch.cat([(later[:, :-1] - later[:, -1:] * shift) / slope, later[:, -1:]], 1)
    residuals = [
        model.loss.residual(model.outputs(x), public.y) for model, x in ((first, public.first), (second, public.second))
    ]
    inputs = torch.cat([public.first, torch.ones_like(public.first[:, :1])], 1)
    moved = residuals[0] - residuals[1]  # (m, c)
    if pulled_back is not None:
        moved = (pulled_back @ moved[:, :, None])[:, :, 0]
    terms = (moved[:, :, None] * inputs[:, None]).flatten(1)
    others, sample = rows - 1, len(inputs)
    value = totals - later - others * terms.mean(0).reshape_as(totals)
    origins = first.outputs(torch.zeros_like(shift)[None]), second.outputs(shift[None])
    step = torch.cat(
        [second.weight / second.scale * slope - first.weight / first.scale, (origins[1] - origins[0]).mT], 1
    )
    return _Noisy(value, totals - later, step, terms, others * (1 + others / sample))


def _pulled_back(model: Stationary, public: PublicSample, rows: int) -> Tensor:
    """(m, c, c) how much less a row's residual moves that the model is fitted on: (1 + W A)^-1.

    W is the curvature of its loss, and A its leverage x~ H^-1 x~ in a model without it; H from the public sample.
    """
    features, others = model.features(public.first), (rows - 1) / len(public.y)
    inputs = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    curved = curvatures(model.loss, model.outputs(public.first), public.y, torch.ones(len(inputs)).to(inputs))
    c, width = len(model.weight), inputs.shape[1]
    hessian = others * torch.einsum("mab,mi,mj->aibj", curved, inputs, inputs).reshape(c * width, c * width)
    hessian.diagonal().add_(model.ridges().flatten())
    hessian.diagonal().add_(1e-9 * hessian.diagonal().mean())
    inverse = torch.linalg.inv(hessian).reshape(c, width, c, width)
    leverage = torch.einsum("aibj,mi,mj->mab", inverse, inputs, inputs)
    identity = torch.eye(c).to(inputs)
    leverage = torch.linalg.solve(
        identity - others * curved @ leverage, leverage, left=False
    )  # in a model without the row
    pulled: Tensor = torch.linalg.inv(identity + curved @ leverage)
    return pulled


def _in_units(total: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """sum r (f, 1) with f = (x - shift) / scale as sum r (x, 1)."""
    return torch.cat([total[:, :-1] * scale + total[:, -1:] * shift, total[:, -1:]], 1)


class _Solved(NamedTuple):
    x: Tensor  # (d,)
    r: Tensor  # (c,)
    label: Tensor  # ()
    objective: float
    slope: Tensor  # (c D, u) of r x~ in the unknowns, whose first d are x


class _Problem:
    """Half the squared error in r x~, weighted by its precision, and the prior's."""

    def __init__(
        self, model: Stationary, noisy: _Noisy, priors: Sequence[_Prior], precision: Tensor, public: PublicSample
    ) -> None:
        self.model, self.noisy, self.priors, self.precision = model, noisy, priors, precision
        facts = loss_facts(model.loss, len(model.weight))
        self.classes = None if facts is None else facts.classes
        residuals = model.loss.residual(model.outputs(public.first), public.y)
        self.spread = residuals.square().mean(0).clamp_min(1e-300)  # (c,) of r, where labels are numbers

    def solutions(self) -> Iterator[_Solved]:
        """The best row for each of the likeliest labels; for targets, which are unknown numbers, one."""
        if self.classes is None:
            yield self._descend(None)
            return
        for label in self.noisy.value[:, -1].argsort()[:LABELS].tolist():
            yield self._descend(torch.tensor(label))

    def _descend(self, label: Tensor | None) -> _Solved:
        """Gauss-Newton with damping from the prior's mean."""
        prior = self.priors[0 if label is None else int(label)]
        d = len(prior.mean)
        x = prior.mean.clone()
        r = self.noisy.value[:, -1].clone() if label is None else self._residual(x, label)
        point, damping = self._at(x, r, label), 1e-3
        for _ in range(STEPS):
            error = (self.noisy.value - point.r[:, None] * _with_one(point.x)).flatten()
            pulled = point.slope.mT @ self.precision
            curvature, push = pulled @ point.slope, pulled @ error
            curvature[:d, :d] += prior.precision
            push[:d] -= prior.precision @ (point.x - prior.mean)
            if label is None:
                curvature[-len(r) :, -len(r) :] += torch.diag(1 / self.spread)
                push[-len(r) :] -= point.r / self.spread
            before = point.objective
            while damping < 1e12:
                damped = curvature + damping * torch.diag(curvature.diagonal())
                step = torch.linalg.solve(damped, push)
                if float(push @ step) <= CONVERGED * abs(before):  # what it would gain
                    return point
                x = point.x + step[:d]
                r = point.r + step[-len(r) :] if label is None else self._residual(x, label)
                candidate = self._at(x, r, label)
                if candidate.objective < before:
                    point, damping = candidate, damping / 10
                    break
                damping *= 10
            if before - point.objective <= CONVERGED * abs(before):
                break
        return point

    def _at(self, x: Tensor, r: Tensor, label: Tensor | None) -> _Solved:
        inputs, c = _with_one(x), len(r)
        error = (self.noisy.value - r[:, None] * inputs).flatten()
        prior = self.priors[0 if label is None else int(label)]
        away = x - prior.mean
        objective = error @ self.precision @ error + away @ prior.precision @ away - 2 * prior.chance
        by_row = torch.zeros(c, len(inputs), len(x), dtype=x.dtype)
        by_row[:, :-1] = r[:, None, None] * torch.eye(len(x), dtype=x.dtype)
        if label is None:
            by_r = (torch.eye(c, dtype=x.dtype)[:, None] * inputs[None, :, None]).reshape(-1, c)
            slope = torch.cat([by_row.reshape(-1, len(x)), by_r], 1)
            objective = objective + (r.square() / self.spread).sum()
            target = self.model.outputs(x[None])[0] - r
            return _Solved(x, r, target[0] if c == 1 else target, float(objective), slope)
        curvature = curvatures(self.model.loss, self.model.outputs(x[None]), label[None], torch.ones(1).to(x))[0]
        turned = curvature @ (self.model.weight / self.model.scale)  # (c, d)
        slope = by_row + turned[:, None] * inputs[None, :, None]
        return _Solved(x, r, label, float(objective), slope.reshape(-1, len(x)))

    def _residual(self, x: Tensor, label: Tensor) -> Tensor:
        return self.model.loss.residual(self.model.outputs(x[None]), label[None])[0]

    def deviations(self, solved: _Solved, extra: Tensor) -> Tensor:
        """(d,) the standard deviation of the row's error: what the terms of held-out public rows do to it.

        A covariance that is fitted to few rows is too small along the directions that it weights most; rows that it was
        not fitted to show by how much. The prior's share is exact for a normal row; its own covariance is estimated
        too, which widens by 1 + d / m.
        """
        d, terms, prior = len(solved.x), self.noisy.terms, self.priors[0]
        penalty = torch.zeros(solved.slope.shape[1], solved.slope.shape[1], dtype=solved.x.dtype)
        penalty[:d, :d] = prior.precision
        penalty.diagonal()[d:] += (1 / self.spread)[: len(penalty) - d]
        variance, folds = torch.zeros_like(solved.x), min(FOLDS, len(terms))
        fold = torch.arange(len(terms)) % folds
        for number in range(folds):
            fitted, unseen = terms[fold != number], terms[fold == number]
            pulled = torch.linalg.solve(self.noisy.covariance(fitted, extra), solved.slope).mT
            inverse = torch.linalg.inv(pulled @ solved.slope + penalty)
            reader = (inverse @ pulled)[:d]  # (d, c D)
            errors = (unseen - fitted.mean(0)) @ reader.mT
            variance += self.noisy.rows * errors.square().sum(0) / len(terms)
            pull = inverse[:d, :d] @ prior.precision  # towards the prior's mean
            variance += (reader.square() @ extra + ((pull @ prior.covariance) * pull).sum(1)) / folds
        return (variance * (1 + d / len(terms))).sqrt()


def _with_one(x: Tensor) -> Tensor:
    return torch.cat([x, x.new_ones(1)])
