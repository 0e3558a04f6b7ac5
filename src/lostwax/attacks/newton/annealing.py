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

from lostwax.attacks.newton.bank import Classes, Entry
from lostwax.attacks.newton.solver import Linearised, Point, Problem

NOISES = (0.003, 0.01, 0.03)  # of what a record changes: those of a first stage, in the order they are tried
ROUNDING = 1e-6  # of what a record changes: that of float32, the least noise in any direction
STAGE = 10**-0.5  # by which the noise is lowered
STEPS = 6  # at each stage, at most
SCALE = 0.3  # of the measured error: where the choice of the scale begins; from above it may end too early
SCALES = 6  # stages at last that choose the scale
SETTLED = 0.1  # of the scale: it is chosen if it changes by less
DAMPINGS = (0.0, 0.1, 1.0, 10.0, 100.0, 1_000.0)  # of the prior's precision, all tried at once
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
        found = {}
        for label in torch.unique(classes).tolist():
            own = a[classes == label]
            far = own - own.mean(0)
            covariance = (far.mT @ far + r * of_all) / (len(own) + r)
            least = torch.finfo(a.dtype).eps * float(covariance.diagonal().max())
            found[label] = cls(own.mean(0), torch.linalg.cholesky(covariance + least * torch.eye(r).to(a)))
        return found


class Start(NamedTuple):
    """Where a search begins."""

    entry: Entry
    noise: float  # of its first stage
    last: bool  # of the game's searches: not given up, because the sum is large at an unusual record too


@dataclass(eq=False)
class GameSearch:
    """One game's search, and the errors that it counts with."""

    point: Point
    linear: Linearised  # at the point
    prior: ClassPrior
    released: Tensor  # (p,)
    whitening: Tensor  # (p, p)
    jacobians: int = 1  # computed
    scale: float = SCALE  # of the response's error
    given_up: bool = False

    @property
    def size(self) -> float:
        """What the record changed."""
        return float(self.released.norm())

    @property
    def objective(self) -> float:
        """The sum, at the point."""
        return float(self.objectives(self.point.a[None], self.point.residual[None]))

    def objectives(self, a: Tensor, residuals: Tensor) -> Tensor:
        """(f,) the sum that is minimised, at unknowns (f, r) with residuals (f, p)."""
        u = torch.linalg.solve_triangular(self.prior.factor, (a - self.prior.mean).mT, upper=False)  # (r, f)
        total: Tensor = (residuals @ self.whitening.mT).square().sum(1) + u.square().sum(0)
        return total

    def candidates(self) -> Tensor:
        """(f, r) the minima of the linearised sum, for each damping, and points on the way to the first.

        In deviations u of the prior the sum is  |W (residual + J F s)|^2 + |u + s|^2,  and J' = W J F.
        """
        prior, jacobian = self.prior, self._jacobian()
        u = torch.linalg.solve_triangular(prior.factor, (self.point.a - prior.mean)[:, None], upper=False)  # (r, 1)
        slope = jacobian.mT @ (self.whitening @ self.point.residual)[:, None] + u
        damped = jacobian.mT @ jacobian + torch.stack([(1 + one) * torch.eye(len(u)).to(u) for one in DAMPINGS])
        factor = torch.linalg.cholesky_ex(damped).L  # (f, r, r)
        half = torch.linalg.solve_triangular(factor, -slope.expand(len(factor), -1, -1), upper=False)
        steps = torch.linalg.solve_triangular(factor.mT, half, upper=True)[..., 0]  # (f, r) in u
        steps = torch.cat([steps, torch.tensor(LENGTHS).to(steps)[:, None] * steps[:1]])
        return self.point.a + steps @ prior.factor.mT

    def misfit(self) -> float:
        """Deviation of the whitened residual: the scale of the error in units of the present one.

        Its square is summed over as many numbers as the fit leaves free:  p - r + trace of  (J'^T J' + 1)^(-1).
        """
        half = self._half_covariance()
        free = len(self.whitening) - len(half) + float(half.square().sum())
        return float((self.whitening @ self.point.residual).norm()) / math.sqrt(max(1.0, free))

    def answer(self, error: float) -> Annealed:
        """Where it is, with the error predicted."""
        factor = self.prior.factor
        variance = (self._half_covariance() @ factor.mT).square().sum(0)
        seen = torch.linalg.eigvalsh(factor.mT @ self.linear.normal @ factor).clamp_min(0).sqrt()
        scale = math.inf if self.given_up else self.scale
        return Annealed(self.point, self.linear, scale, error, variance, seen.flip(0), self.jacobians)

    def _jacobian(self) -> Tensor:
        return self.whitening @ self.linear.jacobian.double() @ self.prior.factor  # (p, r)

    def _half_covariance(self) -> Tensor:
        """(r, r) H with  H^T H = (J'^T J' + 1)^(-1),  that of u; J' is not squared, as its values may differ by 1e8."""
        jacobian = self._jacobian()
        one = torch.eye(jacobian.shape[1]).to(jacobian)
        factor = torch.linalg.qr(torch.cat([jacobian, one]), mode="r").R
        half: Tensor = torch.linalg.solve_triangular(factor.mT, one, upper=False)
        return half


class Annealed(NamedTuple):
    """Where a search ended."""

    point: Point
    linear: Linearised  # at the point
    scale: float  # of the response's error, by the evidence; infinite if the search was given up
    error: float  # norm of that error as trained models have it
    variance: Tensor  # (r,) predicted squared error of the unknowns
    directions: Tensor  # (r,) how far one deviation of the prior moves the weights
    jacobians: int  # of all the game's searches

    @property
    def explained(self) -> bool:
        """Whether the error of the response explains what the answer leaves of the residual."""
        return self.scale <= MISFIT

    def better(self, other: Annealed) -> Annealed:
        """That of the two whose error has the smaller scale."""
        best = min(self, other, key=lambda one: (one.scale, one.point.distance))
        return best._replace(jacobians=self.jacobians + other.jacobians)


class Annealing(NamedTuple):
    """The search, for games of any class."""

    problem: Problem  # models by response
    errors: ErrorModel
    priors: dict[int, ClassPrior]

    def __call__(self, released: Tensor, entries: Sequence[Sequence[Entry]]) -> list[Annealed]:
        """Of each game (g, p), the best answer from its entries: one after another, until one explains the release.

        All games take a step together, as their Jacobians cost less on a GPU.
        """
        starts = [_starts(mine) for mine in entries]
        best = self._searched([mine[0] for mine in starts], released)
        sizes = released.norm(dim=1).tolist()
        for turn in range(1, max(map(len, starts))):
            again = [
                game
                for game, mine in enumerate(starts)
                if turn < len(mine) and not best[game].explained and 0 < sizes[game] < FAR
            ]
            if not again:
                break
            found = self._searched([starts[game][turn] for game in again], released[again])
            for game, answer in zip(again, found, strict=True):
                best[game] = best[game].better(answer)
        return best

    def _searched(self, starts: Sequence[Start], released: Tensor) -> list[Annealed]:
        """From one start of each game (g, p)."""
        searches = self._begun(starts, released)
        stages = [
            [] if search.given_up else self.errors.noises(search.size, start.noise)
            for search, start in zip(searches, starts, strict=True)
        ]
        for stage in range(max(map(len, stages))):
            going = []
            for search, start, noises in zip(searches, starts, stages, strict=True):
                if stage < len(noises) and not search.given_up:
                    search.whitening = self.errors.whitening(search.size, noises[stage])
                    going.append((search, start))
            self._descend([search for search, _ in going])
            for search, start in going:
                hopeless = not search.objective <= HOPELESS * len(search.released)
                search.given_up = hopeless and not start.last
        self._scale([search for search in searches if not search.given_up])
        error = float(self.errors.variance.sum().sqrt())
        return [search.answer(search.size**2 * error if search.size < FAR else 0.0) for search in searches]

    def _begun(self, starts: Sequence[Start], released: Tensor) -> list[GameSearch]:
        """At the starts; those of games that no record can explain are given up."""
        points = [
            Point(start.entry.a, start.entry.label, start.entry.weights.double() - weights)
            for start, weights in zip(starts, released, strict=True)
        ]
        searches = [
            GameSearch(point, linear, self.priors[int(point.label[0])], weights, torch.zeros_like(self.errors.basis))
            for point, linear, weights in zip(points, self.problem.linears(points), released, strict=True)
        ]
        for search in searches:
            search.given_up = not 0 < search.size < FAR  # training diverged, or the record changed nothing
        return searches

    def _scale(self, searches: list[GameSearch]) -> None:
        """Choose the scale of the error by the evidence, a few steps for each."""
        going = searches
        for _ in range(SCALES):
            for search in going:
                search.whitening = self.errors.whitening(search.size, scale=search.scale)
            self._descend(going, SLOWER)
            before = [search.scale for search in going]
            for search in going:
                search.scale *= search.misfit()
            pairs = zip(going, before, strict=True)
            going = [search for search, last in pairs if abs(search.scale - last) > SETTLED * last]
        for search in searches:  # an answer may fit better than most records do: no smaller error is promised for it
            search.whitening = self.errors.whitening(search.size, scale=max(1.0, search.scale))

    def _descend(self, searches: list[GameSearch], slow: float = SLOW) -> None:
        """Up to a few steps of each."""
        for _ in range(STEPS):
            if not searches:
                return
            tried = [search.candidates() for search in searches]
            labels = [search.point.label.expand(len(a), -1) for search, a in zip(searches, tried, strict=True)]
            models = self.problem.exact(self.problem.coordinates(torch.cat(tried)), torch.cat(labels)).double()
            moved, going = [], []
            for search, a, weights in zip(searches, tried, torch.split(models, len(tried[0])), strict=True):
                before, residuals = search.objective, weights - search.released
                objectives = search.objectives(a, residuals).nan_to_num(torch.inf)
                least = int(objectives.argmin())
                if not float(objectives[least]) < before:
                    continue
                search.point = Point(a[least], search.point.label, residuals[least])
                moved.append(search)
                if float(objectives[least]) <= (1 - slow) * before:
                    going.append(search)
            for search, linear in zip(moved, self.problem.linears([one.point for one in moved]), strict=True):
                search.linear, search.jacobians = linear, search.jacobians + 1
            searches = going


def _starts(entries: Sequence[Entry]) -> list[Start]:
    """The best entry of each class, then again with more noise, and the second best with most."""
    of_class: dict[Classes, list[Entry]] = {}
    for entry in entries:
        of_class.setdefault(entry.classes, []).append(entry)
    *first, most = NOISES
    starts = [Start(mine[0], noise, last=False) for noise in first for mine in of_class.values()]
    return starts + [Start(mine[:2][-1], most, last=True) for mine in of_class.values()]
