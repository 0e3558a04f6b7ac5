"""The likeliest record by response, with noise that is lowered in stages.

A response that follows every weight has an error of its own, of second order in what a record changes, and trained
models measure it. So the answer is the minimum of

    (A(a) - theta)^T C^(-1) (A(a) - theta) + (a - m)^T P^(-1) (a - m),      C = scale^2 size^4 E,

with size = |theta - theta_0|, E the covariance of the errors in units of size^2, and m, P the mean and covariance of
the records of a class. E is small along most directions, where the release says most. But along a few others (a
record's pre-activations) the weights move many times as far, and training is curved along these, so that from far away
no step lowers this sum. With noise added to C, less at each stage, they come right first. With too much of it at first
the sum has other minima, and a good start is left for one of them: so a search begins with little noise, and if it
fails again with more, at last from another record. In the end the scale is chosen by the evidence (MacKay 1992):
records differ in how well the response predicts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import GameSearch, Linearised, Rule, in_turn
from lostwax.attacks.newton.bank import Classes, Entry
from lostwax.attacks.newton.training_map import Problem

NOISES = (0.003, 0.01, 0.03)  # of what a record changes: those of a first stage, in the order they are tried
ROUNDING = 1e-6  # of what a record changes: that of float32, the least noise in any direction
STAGE = 10**-0.5  # by which the noise is lowered
STEPS = 6  # at each stage, at most
SCALE = 0.3  # of the measured error: where the choice of the scale begins; from above it may end too early
SCALES = 6  # stages at last that choose the scale
SETTLED = 0.1  # of the scale: it is chosen if it changes by less
DAMPINGS = (1.0, 1.1, 2.0, 11.0, 101.0, 1_001.0)  # the prior's precision, 1, and more, all tried at once
LENGTHS = (0.5, 0.25, 0.1, 0.03)  # of the undamped step, tried beside them
SLOW = 0.02  # of the sum: a step that lowers it by less is the last of its stage
SLOWER = 1e-3  # the same where the scale is chosen: what is not fitted yet would count as error
HOPELESS = 10  # times the number of weights: a search whose sum is larger is given up, unless it is the last
MISFIT = 3  # times the error of the response on trained models: an answer with more is none
FAR = 1e30  # a release farther from the known records' model has diverged


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

    def noises(self, size: float, first: float) -> list[float]:
        """That of each stage, as a share of what a record changes, down to the smallest error."""
        noises = [first]
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
        priors = {}
        for label in torch.unique(classes).tolist():
            members = a[classes == label]
            far = members - members.mean(0)
            covariance = (far.mT @ far + r * of_all) / (len(members) + r)
            least = torch.finfo(a.dtype).eps * float(covariance.diagonal().max())
            priors[label] = cls(members.mean(0), torch.linalg.cholesky(covariance + least * torch.eye(r).to(a)))
        return priors

    def deviations(self, a: Tensor) -> Tensor:
        """(f, r) u of unknowns (f, r)."""
        u: Tensor = torch.linalg.solve_triangular(self.factor, (a - self.mean).mT, upper=False)
        return u.mT


@dataclass(eq=False, kw_only=True)
class AnnealedSearch(GameSearch[Linearised]):
    """One game's search, and the errors that it counts with."""

    prior: ClassPrior
    whitening: Tensor  # (p, p)
    jacobians: int = 1
    scale: float = SCALE  # of the response's error, by the evidence; infinite if the search was given up
    error: float = 0.0  # norm of that error as trained models have it

    @property
    def size(self) -> float:
        """What the record changed."""
        return float(self.released.norm())

    @property
    def explained(self) -> bool:
        """Whether the error of the response explains what the answer leaves of the residual."""
        return self.scale <= MISFIT

    def whitened(self) -> Tensor:
        """(p, r) J' = W J F,  in deviations u of the prior:  the sum is  |W (residual + J F s)|^2 + |u + s|^2."""
        return self.whitening @ self.linear.jacobian.double() @ self.prior.factor

    def values(self, a: Tensor, residuals: Tensor) -> Tensor:
        """(f,) the sum that is minimised, at unknowns (f, r) with residuals (f, p)."""
        total: Tensor = (residuals @ self.whitening.mT).square().sum(1) + self.prior.deviations(a).square().sum(1)
        return total

    def misfit(self) -> float:
        """Deviation of the whitened residual: the scale of the error in units of the present one.

        Its square is summed over as many numbers as the fit leaves free:  p - r + trace of  (J'^T J' + 1)^(-1).
        """
        half = self._half_covariance()
        free = len(self.whitening) - len(half) + float(half.square().sum())
        return float((self.whitening @ self.point.residual).norm()) / math.sqrt(max(1.0, free))

    def posterior(self) -> tuple[Tensor, Tensor]:
        """(r,) predicted squared error of the unknowns, and how far one deviation of the prior moves the weights."""
        factor = self.prior.factor
        seen = torch.linalg.eigvalsh(factor.mT @ self.linear.normal @ factor).clamp_min(0).sqrt()
        return (self._half_covariance() @ factor.mT).square().sum(0), seen.flip(0)

    def _half_covariance(self) -> Tensor:
        """(r, r) H with  H^T H = (J'^T J' + 1)^(-1),  that of u; J' is not squared, as its values may differ by 1e8."""
        jacobian = self.whitened()
        unit = torch.eye(jacobian.shape[1]).to(jacobian)
        factor = torch.linalg.qr(torch.cat([jacobian, unit]), mode="r").R
        half: Tensor = torch.linalg.solve_triangular(factor.mT, unit, upper=False)
        return half


class Start(NamedTuple):
    """Where a search begins."""

    entry: Entry
    noise: float  # of its first stage
    last: bool  # of the game's searches: not given up, because the sum is large at an unusual record too


@dataclass(frozen=True, eq=False)
class Annealing(Problem[AnnealedSearch]):
    """The search by response, for games of any class."""

    errors: ErrorModel
    priors: dict[int, ClassPrior]

    def __call__(self, released: Tensor, entries: Sequence[Sequence[Entry]]) -> list[AnnealedSearch]:
        """Of each game (g, p), the best answer from its entries: one after another, until one explains the release.

        All games take a step together, as their Jacobians cost less on a GPU.
        """

        def better(before: AnnealedSearch, after: AnnealedSearch) -> AnnealedSearch:
            best = min(before, after, key=lambda search: (search.scale, search.point.distance))
            best.jacobians = before.jacobians + after.jacobians
            return best

        return in_turn(
            [_starts(mine) for mine in entries],
            lambda games, starts: self._searched(starts, released[list(games)]),
            lambda _, search: search.explained or not 0 < search.size < FAR,
            better,
        )

    def _searched(self, starts: Sequence[Start], released: Tensor) -> list[AnnealedSearch]:
        """From one start of each game (g, p); those of games that no record can explain are given up."""
        points = [start.entry.point(weights) for start, weights in zip(starts, released, strict=True)]
        error, nothing = float(self.errors.variance.sum().sqrt()), torch.zeros_like(self.errors.basis)
        searches, stages = [], []
        for start, point, linear, weights in zip(starts, points, self.linears(points), released, strict=True):
            prior = self.priors[int(point.label[0])]
            search = AnnealedSearch(point, linear, weights, fresh=True, prior=prior, whitening=nothing)
            search.error = search.size**2 * error if search.size < FAR else 0.0
            if 0 < search.size < FAR:
                stages.append((search, start, self.errors.noises(search.size, start.noise)))
            else:  # training diverged, or the record changed nothing
                search.scale = math.inf
            searches.append(search)
        for stage in range(max((len(noises) for _, _, noises in stages), default=0)):
            going = [each for each in stages if stage < len(each[2]) and each[0].scale < math.inf]
            for search, _, noises in going:
                search.whitening = self.errors.whitening(search.size, noises[stage])
            self._fit([search for search, _, _ in going], SLOW)
            for search, start, _ in going:
                value = float(search.values(search.point.a[None], search.point.residual[None]))
                if not value <= HOPELESS * len(search.released) and not start.last:
                    search.scale = math.inf
        self._choose_scale([search for search in searches if search.scale < math.inf])
        return searches

    def _choose_scale(self, searches: list[AnnealedSearch]) -> None:
        """By the evidence, a few steps for each."""
        going = searches
        for _ in range(SCALES):
            for search in going:
                search.whitening = self.errors.whitening(search.size, scale=search.scale)
            self._fit(going, SLOWER)
            before = [search.scale for search in going]
            for search in going:
                search.scale *= search.misfit()
            pairs = zip(going, before, strict=True)
            going = [search for search, last in pairs if abs(search.scale - last) > SETTLED * last]
        for search in searches:  # an answer may fit better than most records do: no smaller error is promised for it
            search.whitening = self.errors.whitening(search.size, scale=max(1.0, search.scale))

    def _fit(self, searches: list[AnnealedSearch], slow: float) -> None:
        """Up to a few steps of each."""
        self.descend(searches, Rule(DAMPINGS, stalled=1 - slow), STEPS - 1)
        self.linearise([search for search in searches if not search.fresh])

    def values(self, searches: Sequence[AnnealedSearch], tried: Tensor, residuals: Tensor) -> Tensor:
        """(g, f) the sum that is minimised."""
        return torch.stack([search.values(*each) for search, *each in zip(searches, tried, residuals, strict=True)])

    def quadratic(self, search: AnnealedSearch) -> tuple[Tensor, Tensor, Tensor | float]:
        """In deviations of the prior, whose precision is added as a damping."""
        jacobian = search.whitened()
        slope = jacobian.mT @ (search.whitening @ search.point.residual)
        return jacobian.mT @ jacobian, slope + search.prior.deviations(search.point.a[None])[0], 1.0

    def candidates(self, searches: Sequence[AnnealedSearch], dampings: Tensor) -> Tensor:
        """(g, f, r) the minima of the linearised sum, for each damping, and points on the way to the first."""
        steps = self.steps(searches, dampings)  # (g, f, r) in u
        steps = torch.cat([steps, torch.tensor(LENGTHS).to(steps)[:, None] * steps[:, :1]], 1)
        return torch.stack(
            [search.point.a + each @ search.prior.factor.mT for search, each in zip(searches, steps, strict=True)]
        )


def _starts(entries: Sequence[Entry]) -> list[Start]:
    """The best entry of each class, then again with more noise, and the second best with most."""
    of_class: dict[Classes, list[Entry]] = {}
    for entry in entries:
        of_class.setdefault(entry.classes, []).append(entry)
    *first, most = NOISES
    starts = [Start(mine[0], noise, last=False) for noise in first for mine in of_class.values()]
    return starts + [Start(mine[:2][-1], most, last=True) for mine in of_class.values()]
