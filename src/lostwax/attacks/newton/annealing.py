"""The likeliest record by response, with large noise first.

A response that follows every weight has an error of its own, of second order in what a record changes, and trained
models measure it. So the answer is the minimum of

    (A(a) - theta)^T C^(-1) (A(a) - theta) + (a - m)^T P^(-1) (a - m),      C = scale^2 size^4 E,

with size = |theta - theta_0|, E the covariance of the errors in units of size^2, and m, P the mean and covariance of
the records of a class. E is small along most directions, where the release says most. But along a few others (a
record's pre-activations) the weights move many times as far, and training is curved along these, so that from far away
no step lowers this sum. With noise added to C, less at each stage, they come right first. At last the scale is chosen
by the evidence (MacKay 1992): records differ in how well the response predicts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.bank import Bank
from lostwax.attacks.newton.solver import Linearised, Point, Problem

NOISE = 0.03  # of what a record changes: that of the first stage
ROUNDING = 1e-6  # of what a record changes: that of float32, the least noise in any direction
STAGE = 10**-0.5  # by which the noise is lowered
STEPS = 3  # at each stage
SCALES = 6  # stages at last that choose the scale
SETTLED = 0.1  # of the scale: it is chosen if it changes by less
DAMPINGS = (0.0, 0.1, 1.0, 10.0, 100.0, 1_000.0)  # of the prior's precision, all tried at once
LENGTHS = (0.5, 0.25, 0.1, 0.03)  # of the undamped step, tried beside them
SLOW = 1e-3  # of the sum: a step that lowers it by less is the last of its stage
MISFIT = 3  # times the error of the response on trained models: an answer with more is none
STARTS = 2  # of each class that is likely


class ErrorModel(NamedTuple):
    """The covariance of a response's errors, in units of the square of what a record changes: low rank and a floor."""

    basis: Tensor  # (r, r) orthonormal columns
    variance: Tensor  # (r,) along them

    @classmethod
    def of(cls, errors: Tensor) -> ErrorModel:
        """From those of some models (c, r): the floor is what half of them do not span, if they span less than all."""
        errors = errors.double()
        ours, others = errors[::2], errors[1::2]
        span = torch.linalg.svd(ours, full_matrices=False).Vh
        left = (others - others @ span.mT @ span).square().sum() / max(1, errors.shape[1] - len(span)) / len(others)
        variance, basis = torch.linalg.eigh(errors.mT @ errors / len(errors))
        return cls(basis, variance.clamp_min(0) + left.clamp_min(torch.finfo(torch.float32).tiny))

    def noises(self, size: float) -> list[float]:
        """That of each stage, as a share of what a record changes, down to the smallest error."""
        noises = [NOISE]
        while noises[-1] > max(ROUNDING, float(self.variance[0].sqrt()) * size):
            noises.append(noises[-1] * STAGE)
        return noises

    def whitening(self, size: float, noise: float = 0.0, scale: float = 1.0) -> Tensor:
        """(r, r) W with  W^T W  the precision of the errors for a record that changes the weights by `size`."""
        noise = max(noise, ROUNDING)
        return (self.basis / (scale**2 * size**4 * self.variance + (noise * size) ** 2).sqrt()).mT


class ClassPrior(NamedTuple):
    """The unknowns of a class's records as a Gaussian:  a = mean + factor u  with u standard normal."""

    mean: Tensor  # (r,)
    factor: Tensor  # (r, r) lower triangular

    @classmethod
    def each(cls, a: Tensor, classes: Tensor) -> dict[int, ClassPrior]:
        """Of records (n, r) of each of the classes (n,), drawn to the covariance of all by r records' worth."""
        every, r = a - a.mean(0), a.shape[1]
        of_all = every.mT @ every / len(a)
        found = {}
        for label in torch.unique(classes).tolist():
            own = a[classes == label]
            far = own - own.mean(0)
            covariance = (far.mT @ far + r * of_all) / (len(own) + r)
            least = torch.finfo(a.dtype).eps * float(covariance.diagonal().max())
            found[label] = cls(own.mean(0), torch.linalg.cholesky(covariance + least * torch.eye(r).to(a)))
        return found


class Standing(NamedTuple):
    """Where one game's search is, and the errors that it counts with."""

    point: Point
    linear: Linearised  # at the point
    whitening: Tensor  # (p, p)
    jacobians: int = 1  # computed


class Annealed(NamedTuple):
    """Where a search ended."""

    point: Point
    linear: Linearised  # at the point
    scale: float  # of the response's error, by the evidence
    error: float  # norm of that error as trained models have it
    variance: Tensor  # (r,) predicted squared error of the unknowns
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights
    jacobians: int

    @property
    def explained(self) -> bool:
        """Whether the error of the response explains what the answer leaves of the residual."""
        return self.scale <= MISFIT


class Annealing(NamedTuple):
    """The search, for games of any class."""

    problem: Problem  # models by response
    errors: ErrorModel
    priors: dict[int, ClassPrior]

    def __call__(self, released: Tensor, classes: Sequence[Sequence[int]], bank: Bank) -> list[Annealed]:
        """Of each game (g, p): the best of its likeliest classes, tried in turn until one explains the release."""
        return [self._of_game(*each, bank) for each in zip(released, classes, strict=True)]

    def _of_game(self, released: Tensor, classes: Sequence[int], bank: Bank) -> Annealed:
        found: list[Annealed] = []
        starts = [self._starts(released, label, bank) for label in classes]
        for start in (each[turn] for turn in range(STARTS) for each in starts if turn < len(each)):
            found.append(self._searched(start, released))
            if found[-1].explained:
                break
        best = min(found, key=lambda one: one.scale)
        return best._replace(jacobians=sum(one.jacobians for one in found))

    def _starts(self, released: Tensor, label: int, bank: Bank) -> list[Point]:
        """The bank's records of this class that explain the release best, under some noise."""
        rows = (bank.label[:, 0] == label).nonzero()[:, 0]
        residuals = bank.weights[rows].double() - released
        whitening = self.errors.whitening(float(released.norm()), NOISE * STAGE)
        nearest = (residuals @ whitening.mT).norm(dim=1).nan_to_num(torch.inf).argsort()[:STARTS].tolist()
        return [Point(bank.a[rows[one]], bank.label[rows[one]], residuals[one]) for one in nearest]

    def _searched(self, start: Point, released: Tensor) -> Annealed:
        """From one point of a game (p,)."""
        size = float(released.norm())
        search = Standing(start, self.problem.linears([start])[0], torch.zeros_like(self.errors.basis))
        if not 0 < size < math.inf:  # training diverged, or the record changed nothing
            return self._likeliest(search, math.inf, error=0.0)
        for noise in self.errors.noises(size):
            search = self._descended(search._replace(whitening=self.errors.whitening(size, noise)), released)
        scale = 1.0
        for _ in range(SCALES):
            search = self._descended(search._replace(whitening=self.errors.whitening(size, scale=scale)), released)
            before, scale = scale, scale * self._misfit(search)
            if abs(scale - before) <= SETTLED * before:
                break
        search = search._replace(whitening=self.errors.whitening(size, scale=scale))
        return self._likeliest(search, scale, size**2 * float(self.errors.variance.sum().sqrt()))

    def _descended(self, search: Standing, released: Tensor) -> Standing:
        """A few steps."""
        for _ in range(STEPS):
            point, before = search.point, float(self._sum(search.point.a[None], search, search.point.residual[None]))
            tried = self._tried(search)
            models = self.problem.exact(self.problem.coordinates(tried), point.label.expand(len(tried), -1)).double()
            residuals = models - released
            sums = self._sum(tried, search, residuals).nan_to_num(torch.inf)
            least = int(sums.argmin())
            if not float(sums[least]) < before:
                break
            moved = Point(tried[least], point.label, residuals[least])
            linear = self.problem.linears([moved])[0]
            search = search._replace(point=moved, linear=linear, jacobians=search.jacobians + 1)
            if float(sums[least]) > (1 - SLOW) * before:
                break
        return search

    def _sum(self, a: Tensor, search: Standing, residuals: Tensor) -> Tensor:
        """(f,) what is minimised, of unknowns (f, r) with residuals (f, p)."""
        prior = self.priors[int(search.point.label[0])]
        u = torch.linalg.solve_triangular(prior.factor, (a - prior.mean).mT, upper=False)  # (r, f)
        total: Tensor = (residuals @ search.whitening.mT).square().sum(1) + u.square().sum(0)
        return total

    def _tried(self, search: Standing) -> Tensor:
        """(f, r) the minima of the linearised sum, for each damping, and points on the way to the first.

        In deviations u of the prior the sum is  |W (residual + J F s)|^2 + |u + s|^2,  and J' = W J F.
        """
        curvature, along, slope, factor = self._turned(search)
        steps = torch.stack([-(along @ (slope / (curvature + 1 + damping))) for damping in DAMPINGS])  # (f, r) in u
        steps = torch.cat([steps, torch.tensor(LENGTHS).to(steps)[:, None] * steps[:1]])
        return search.point.a + steps @ factor.mT

    def _turned(self, search: Standing) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eigenvalues (r,) and columns of  J'^T J',  half the slope of the sum along these, and the prior's factor."""
        point, linear, whitening, _ = search
        prior = self.priors[int(point.label[0])]
        jacobian = whitening @ linear.jacobian.double() @ prior.factor  # (p, r)
        u = torch.linalg.solve_triangular(prior.factor, (point.a - prior.mean)[:, None], upper=False)[:, 0]
        curvature, along = torch.linalg.eigh(jacobian.mT @ jacobian)
        slope = along.mT @ (jacobian.mT @ (whitening @ point.residual) + u)
        return curvature.clamp_min(0), along, slope, prior.factor

    def _misfit(self, search: Standing) -> float:
        """Deviation of the whitened residual: the scale of the error in units of the present one.

        Its square is summed over as many numbers as the fit leaves free:  p - sum of curvature / (curvature + 1).
        """
        curvature, *_ = self._turned(search)
        free = len(search.whitening) - float((curvature / (curvature + 1)).sum())
        return float((search.whitening @ search.point.residual).norm()) / math.sqrt(max(1.0, free))

    def _likeliest(self, search: Standing, scale: float, error: float) -> Annealed:
        curvature, along, _, factor = self._turned(search)
        variance = ((factor @ along).square() / (curvature + 1)).sum(1)
        seen = torch.linalg.eigvalsh(factor.mT @ search.linear.normal @ factor).clamp_min(0).sqrt()
        return Annealed(search.point, search.linear, scale, error, variance, seen.flip(0), search.jacobians)
