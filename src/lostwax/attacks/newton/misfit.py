"""Is what an answer leaves unexplained noise alone? And which other records might explain the release as well?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.least_squares import GameSearch, Point
from lostwax.attacks.newton.training_map import POLISHING, Problem
from lostwax.games import Records
from lostwax.learning.coordinates import flat
from lostwax.learning.costs import DOUBLE
from lostwax.seeds import generator
from lostwax.trainers.stacked import Architecture, Batch, Params, gradient

MODELS = 64  # trained on records near an answer, to test it
CLOSEST, FARTHEST = 0.15, 0.45  # of the way from the answer to other records: where they lie
LEVEL = 0.01  # share of right answers that fail the test, about
COLUMNS, PLACES = 32, 24  # numbers of a record that are varied, at most, and values of each
RANGE = 3.0  # deviations around the prior's mean, in which these lie
SAME = 1e-3  # of a record's gradients: with a smaller difference another record may be its double
LESS = 0.2  # of the largest difference on the way: beyond it, a smaller one may lead to a double
ANOTHER = 0.2  # deviations of the prior: a record that differs by more in some number is another one
MOMENTS = 4  # of training, at which gradients are compared
COMPARED = 4  # other records with which the effect of an answer is compared
DOUBLES = 2  # records of each kind that are trained on, or searched from
TOGETHER = 1_024  # records whose gradients are computed together, at most ...
SLOPE_NUMBERS = 1 << 19  # ... and of fewer, if these have more numbers
COPIES = 4  # of these numbers in memory


def compared_bytes(parameters: int) -> float:
    """What comparing the gradients of an answer's doubles takes."""
    of_record = MOMENTS * parameters
    return float(DOUBLE * COPIES * min(COLUMNS * PLACES * of_record, max(SLOPE_NUMBERS, of_record)))


class OtherRecords(NamedTuple):
    """Records that an answer could be mistaken for: some of the known and prior ones of each class."""

    z: Tensor  # (n, u) numbers of each, float64
    label: Tensor  # (n,) 0 where labels are numbers, which are in z

    @classmethod
    def of(cls, available: Records, seed: int) -> OtherRecords:
        """At most MODELS of each class."""
        y = available.y
        label = torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y
        order = torch.from_numpy(generator(seed, "adversary", "others").permutation(len(y))).to(y.device)
        rows = torch.cat([order[label[order] == each][:MODELS] for each in torch.unique(label)])
        return cls(flat(available[rows]), label[rows])

    def near(self, z: Tensor, label: Tensor) -> Tensor:
        """(MODELS, k u) records part of the way from an answer's (k u,) to others of its classes (k,)."""
        share = torch.linspace(CLOSEST, FARTHEST, MODELS, dtype=z.dtype, device=z.device).unsqueeze(1)
        number = torch.arange(MODELS, device=z.device)
        pools = [self.z[self.label == y] for y in label]
        towards = [pool[(number + place) % len(pool)] for place, pool in enumerate(pools)]  # two of a class differ
        return z + share * (torch.cat(towards, 1) - z)


def is_noise(residual: Tensor, jacobian: Tensor, gaps: Tensor, noise: Tensor) -> bool:
    """True if the residual (p,) of an answer looks like simulated noise (s, p).

    At a wrong local optimum it is noise plus a gap, A(answer) - A(record), which is lost in the norm of thousands of
    weights. But a gap lies in few directions: those in which models of other records, less that of the answer, `gaps`
    (s, p), leave the tangent space of the answer (p, r). Along these, and in norm, the residual should be as large as
    noise is; in the tangent space the answer is fitted to both.
    """
    if not (gaps.isfinite().all() and noise.isfinite().all()) or jacobian.shape[0] <= jacobian.shape[1]:
        return False  # training diverged nearby, or any residual could be fitted
    tangent = torch.linalg.qr(jacobian.double()).Q  # (p, r)
    residual, gaps, noise = (part - (part @ tangent) @ tangent.mT for part in (residual[None], gaps, noise))
    along = telling(gaps, float(noise.square().mean())).mT  # (p, s)
    pairs = ((residual @ along, noise @ along), (residual, noise))
    return all(usual(float(ours.square().sum()), drawn.square().sum(1), LEVEL / len(pairs)) for ours, drawn in pairs)


def telling(gaps: Tensor, noise: float) -> Tensor:
    """(s, p) rows w_i u_i such that  sum_i (w_i u_i^T x)^2  tells best whether x (p,) is noise or noise plus a gap.

    Up to constants it is the log likelihood ratio of a Gaussian gap, with the second moments of `gaps` (s, p), to none:
    S_i along u_i gives  w_i^2 = S_i / (S_i + n),  where n is the variance of the noise on a weight.
    """
    _, sizes, directions = torch.linalg.svd(gaps, full_matrices=False)  # (s,), (s, p)
    variance = sizes.square() / len(gaps)
    weight = torch.where(variance > 0, variance / (variance + noise), 0.0)
    weighted: Tensor = weight.sqrt().unsqueeze(1) * directions
    return weighted


def usual(value: float, draws: Tensor, level: float) -> bool:
    """True if the value is below the upper quantile of a gamma distribution with mean and variance of draws (s,).

    A weighted sum of squares of Gaussian numbers has nearly that distribution.
    """
    from scipy.stats import gamma  # slow to import

    mean, variance = float(draws.mean()), float(draws.var())
    if variance == 0:
        return value <= mean
    return value <= float(gamma.isf(level, mean**2 / variance, scale=variance / mean))


@dataclass(frozen=True, eq=False)
class AnswerCheck:
    """An answer beside other records, before it is certified: does it change the weights, and do others explain them?

    Records with the same gradients at some moments of training are trained on alike. Gradients of one record take far
    less time than a training, so they tell which records are worth one.
    """

    problem: Problem[Any]
    others: OtherRecords
    prior_mean: Tensor  # (r,) of the unknowns
    prior_variance: Tensor  # (r,)
    left_out: Tensor  # (u,) variance that the unknowns do not span
    point: Point  # the answer
    released: Tensor  # (p,)

    def effect(self) -> float:
        """How far the answer moves the weights, by its gradients and by how far other records move them by theirs."""
        z = self.problem.coordinates(torch.cat([self.point.a[None], self._near]))
        weights = self.problem.exact(z, self.point.label.expand(len(z), -1)).double()
        pushed = self._differences(self._near)  # (COMPARED,)
        return float(self._slope.norm() * ((weights[1:] - weights[0]).norm(dim=1) / pushed).median())

    def doubles(self, jacobians: int, enough: float) -> list[Point]:
        """Other records, trained on, that may explain the release as well.

        Mirror images with the same gradients; and what Newton's steps find from where gradients return to those of the
        answer while one of its unknowns moves away.
        """
        coordinates, exact, a = self.problem.coordinates, self.problem.exact, self.point.a
        shape = tuple(exact.known.x.shape[1:])
        images = mirrored(coordinates(a), coordinates(self.prior_mean), exact.secrets, shape)
        alike = self._different(coordinates.of_records(images))
        alike = alike[self._differences(alike) <= SAME * self._slope.norm()][:DOUBLES]
        lines, which = varied(a, self.prior_mean, self.prior_variance.sqrt())
        lines = coordinates.clamped(lines)  # (columns, places, r)
        values = lines[torch.arange(len(which)), :, which]
        far = self._differences(lines.flatten(0, 1)).view_as(values)
        back = torch.where(returning(far, values, a[which]), far, torch.inf).flatten()
        starts = lines.flatten(0, 1)[back.argsort()[: min(DOUBLES, int(back.isfinite().sum()))]]
        points = self._points(starts)
        linears = self.problem.linears(points)
        searches = [GameSearch(*each, self.released, enough) for each in zip(points, linears, strict=True)]
        self.problem.descend(searches, POLISHING, jacobians)
        doubles = self._points(alike) + [search.point for search in searches]
        return [double for double in doubles if len(self._different(double.a[None]))]

    @cached_property
    def _near(self) -> Tensor:
        """(COMPARED, r) records on the way from the answer to others."""
        coordinates = self.problem.coordinates
        near = self.others.near(coordinates(self.point.a), self.point.label)
        return coordinates.of_records(near[:: MODELS // COMPARED])

    @cached_property
    def _models(self) -> list[Params]:
        """(1 + COMPARED, ...) each: models of the answer and of those, before some of their steps."""
        training, a = self.problem.exact.computed_in(torch.float64), torch.cat([self.point.a[None], self._near])
        cohort = training.cohort(self.problem.coordinates(a), self.point.label.expand(len(a), -1))
        last = training.trainer.batches.steps(cohort.records) - 1
        moments = {round(last * place / (MOMENTS - 1)) for place in range(MOMENTS)}
        steps = training.trainer.transcript(training.net, cohort, seed=0)
        return [dict(step.params) for step in steps if step.number in moments]

    @cached_property
    def _slope(self) -> Tensor:
        return next(self._slopes(self.point.a[None]))[0]

    def _slopes(self, a: Tensor) -> Iterator[Tensor]:
        """Some at a time, (b, moments p) gradients of the records with these unknowns (m, r) while the answer is in."""
        training = self.problem.exact.computed_in(torch.float64)
        net = Architecture.of(training.net, a.device, torch.float64)
        numbers = sum(value[0].numel() for params in self._models for value in params.values())
        for part in torch.split(a, max(1, min(TOGETHER, SLOPE_NUMBERS // numbers))):
            own = training.cohort(self.problem.coordinates(part), self.point.label.expand(len(part), -1)).own
            slopes: list[Tensor] = []
            for params in self._models:
                models = {name: value[:1].to(a).expand(len(part), *value.shape[1:]) for name, value in params.items()}
                slopes += gradient(net, training.trainer.loss, models, Batch((), ((own.inputs, own.y),))).values()
            yield torch.cat([slope.flatten(1) for slope in slopes], 1)

    def _differences(self, a: Tensor) -> Tensor:
        """(m,) how much the gradients of records differ from those of the answer."""
        parts = [(slopes - self._slope).norm(dim=1) for slopes in self._slopes(a)] if len(a) else []
        return torch.cat([a.new_zeros(0), *parts])

    def _points(self, a: Tensor) -> list[Point]:
        """Records (s, r) of the answer's classes, trained on."""
        return self.problem.points(a, self.point.label.expand(len(a), -1), self.released) if len(a) else []

    def _different(self, a: Tensor) -> Tensor:
        """Those of the records (s, r) that differ from the answer by more than a certificate leaves, in some number."""
        coordinates = self.problem.coordinates
        variance = coordinates.squared(self.prior_variance) + self.left_out
        off = (coordinates(a) - coordinates(self.point.a)).square()
        if self.problem.exact.known.x.ndim > 2:  # the numbers of a picture have one unit
            return a[off.mean(1) > ANOTHER**2 * variance.mean()]
        return a[(off > ANOTHER**2 * variance.clamp_min(1e-30)).any(1)]


def mirrored(z: Tensor, mean: Tensor, secrets: int, shape: tuple[int, ...]) -> Tensor:
    """(s, k u) records that a net with a symmetry cannot tell from an answer's (k u,).

    All numbers negated, or reflected at the prior's mean (k u,); shifted cyclically by one or reversed along each axis
    of a record's shape; single numbers negated, and neighbours exchanged.
    """
    records = z.view(secrets, -1)[:, : math.prod(shape)].reshape(secrets, *shape)
    axes = [axis for axis, size in enumerate(shape, 1) if size > 1]
    images = [-z, 2 * mean - z]
    for turned in (turn for axis in axes for turn in (records.roll(1, axis), records.flip(axis))):
        labelled = z.clone().view(secrets, -1)
        labelled[:, : math.prod(shape)] = turned.flatten(1)
        images.append(labelled.flatten())
    some = _some(len(z), z)
    negated, exchanged = z.repeat(len(some), 1), z.repeat(len(some), 1)
    each, beside = torch.arange(len(some), device=z.device), (some + 1) % len(z)
    negated[each, some] = -z[some]
    exchanged[each, some], exchanged[each, beside] = z[beside], z[some]
    return torch.cat([torch.stack(images), negated, exchanged])


def varied(a: Tensor, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """(columns, PLACES, r) an answer with one of its unknowns (r,) at other values, from small to large; and which."""
    some = _some(len(a), a)
    along = torch.linspace(-RANGE, RANGE, PLACES).to(a)
    lines = a.repeat(len(some), PLACES, 1)
    lines[torch.arange(len(some), device=a.device), :, some] = mean[some, None] + deviation[some, None] * along
    return lines, some


def returning(differences: Tensor, values: Tensor, here: Tensor) -> Tensor:
    """(columns, PLACES) where differences from an answer's gradients are small again, farther away from the answer.

    At values (columns, PLACES) of one number each, which the answer has at `here` (columns,). Another record that
    explains the release may be near.
    """
    above = values > here.unsqueeze(1)
    rising = torch.where(above, differences, 0.0).cummax(1).values
    falling = torch.where(above, 0.0, differences).flip(1).cummax(1).values.flip(1)
    return differences < LESS * torch.where(above, rising, falling)


def _some(numbers: int, like: Tensor) -> Tensor:
    """Which of the numbers are varied: all, or some that are spread over them."""
    return torch.linspace(0, numbers - 1, min(numbers, COLUMNS)).round().long().to(like.device)
