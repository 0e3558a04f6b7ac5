"""Models trained on candidates by the victim's trainer, and regressions on them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Hints, Knowledge, Records
from lostwax.games.threats import InOrder
from lostwax.learning.coordinates import Coordinates, as_records, classes_of, flat
from lostwax.learning.kernel_regression import Kernel, KernelFeatures
from lostwax.seeds import generator
from lostwax.shadows import Local


class Frame(NamedTuple):
    """Coordinates of a record: one per number, and one for its label if that is a number; a class is none."""

    unknowns: Coordinates
    like: Records  # one record, for shapes and dtypes

    @classmethod
    def of(cls, prior: Records) -> Frame:
        """The frame of records like the prior's."""
        return cls(Coordinates.of(prior, constants=True), prior[:1])

    def records(self, coordinates: Tensor, classes: Tensor) -> Records:
        """(n, q) and (n,) -> records in the prior's dtype; where labels are numbers, the classes are not used."""
        return as_records(self.unknowns(coordinates), classes, self.like)

    def within(self, coordinates: Tensor, known: Tensor) -> Tensor:
        """(n, q) clamped to the prior's range, with the `known` coordinates (q,) filled in where they are not NaN."""
        return torch.where(known.isnan(), self.unknowns.clamped(coordinates), known)

    def known(self, hints: Hints | None, game: int) -> Tensor:
        """(q,) the coordinates of a game's secret that the hints give, NaN for the others."""
        x, y = (part.new_full(part.shape, torch.nan, dtype=torch.float64) for part in (self.like.x, self.like.y))
        if hints is not None and hints.parts is not None:
            x = hints.parts[game].to(x)  # (1, ...), k = 1
        if hints is not None and hints.labels is not None:
            y = hints.labels[game].to(y)
        z = flat(Records(x, y if self.like.y.is_floating_point() else self.like.y))[0]  # (q,)
        numbers = self.unknowns.of_records(torch.where(z.isnan(), self.unknowns.origin, z))
        return torch.where(z.isnan(), torch.nan, numbers)


class Cloud(NamedTuple):
    """A Gaussian cloud of candidates with covariance  deviations^T deviations / s."""

    centre: Tensor  # (q,)
    deviations: Tensor  # (s, q)

    @property
    def variance(self) -> float:
        """Of a coordinate, on average."""
        return float(self.deviations.square().mean())

    def no_wider_than(self, variance: float) -> Cloud:
        """Shrunk if needed: undetermined coordinates would otherwise grow from round to round."""
        if self.variance <= variance:
            return self
        return self._replace(deviations=self.deviations * math.sqrt(variance / self.variance))

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """(count, q) random sums of deviations: no covariance matrix is formed."""
        s = len(self.deviations)
        weights = torch.from_numpy(random.standard_normal((count, s))).to(self.deviations)
        return self.centre + weights @ self.deviations / math.sqrt(s)


def inflation(novelty: float, margin: float) -> float:
    """Factor on the covariance of left-out errors for the next cloud.

    The release's novelty gives a larger cloud after one that missed the record (`benchmarks/ensemble_inflation.py`).
    """
    return margin * novelty


def like_the_prior(members: Tensor, pooled: Tensor, count: int, random: np.random.Generator) -> Tensor:
    """(count, q) of one class: its members (n, q), then draws with the covariance of `pooled` deviations (s, q)."""
    chosen, scattered = (
        part[torch.from_numpy(random.permutation(len(part))[:count]).to(part.device)] for part in (members, pooled)
    )
    return torch.cat([chosen, Cloud(members.mean(0), scattered).draw(count - len(chosen), random)])


RIDGES = tuple(10.0**power for power in range(-6, 2))  # shares of the mean squared length of a member's features


class Prediction(NamedTuple):
    """The record of a model, as predicted."""

    coordinates: Tensor  # (q,)
    novelty: float  # expected squared error as a multiple of the members' left-out errors


class LocalRegression(NamedTuple):
    """Ridge regression from s simulated models to their records, by weights or direction (`Kernel`).

    With K the Gram matrix of the features, r the ridge and an unpenalised intercept, the members' dual weights are
    C Z,  where C inverts K + r I on vectors of zero sum: K 1 = 0, as features have mean zero, and so
    C = (K + r I)^-1 - 1 1^T / (s r).
    """

    view: KernelFeatures
    kernel: Kernel
    centre: Tensor  # (row,) the mean of the members
    features: Tensor  # (s, row) of the members, from there
    mean: Tensor  # (q,) the intercept
    dual: Tensor  # (s, q) C Z
    inverse: Tensor  # (s, s) C
    ridge: float
    left_out: Tensor  # (s, q) truth minus prediction of each member, by the regression on all the others

    @classmethod
    def fit(cls, seen: Tensor, coordinates: Tensor) -> LocalRegression:
        """Regress coordinates (s, q) on models (s, features), with the kernel and ridge of the least left-out error."""
        view, fitted = KernelFeatures.of(seen, dtype=torch.float64, still=True), []
        for by_direction in (False, True):
            kernel = Kernel(by_direction, None)
            rows = view(seen, kernel)
            centre = rows.mean(0)
            features = rows - centre
            gram = features @ features.T  # (s, s)
            scale = float(gram.diagonal().mean()) or 1.0
            ridges = [share * scale for share in RIDGES]
            if features.shape[1] < len(features):  # then their errors cost less than one fit
                ridges = [min(ridges, key=lambda ridge: _left_out_error(features, coordinates, ridge))]
            best = min((_Fit.of(gram, coordinates, ridge, scale) for ridge in ridges), key=lambda fit: fit.error)
            fitted.append(cls(view, kernel, centre, features, coordinates.mean(0), *best[:-1]))
        return min(fitted, key=lambda regression: regression.error)

    @property
    def error(self) -> float:
        """Mean squared error of a coordinate when its member is left out."""
        return float(self.left_out.square().mean())

    def place(self, seen: Tensor) -> Tensor:
        """(m, features) -> (m, row), from the centre of the members."""
        return self.view(seen, self.kernel) - self.centre

    def __call__(self, seen: Tensor) -> Prediction:
        """The record of one model, (1, features).

        A Gaussian process expects a squared error of  r + k(f, f) - k(f)^T C k(f) + r / s,  and of  1 / C_ii  for a
        member left out. Their ratio is the novelty: about 1 among the members, much more outside.
        """
        features = self.place(seen)  # (1, row)
        near = self.features @ features[0]  # (s,) k(f)
        beyond = float(features.square().sum() - near @ self.inverse @ near)
        novelty = (self.ridge * (1 + 1 / len(near)) + max(beyond, 0.0)) / float((1 / self.inverse.diagonal()).mean())
        return Prediction(self.mean + near @ self.dual, novelty)


class _Fit(NamedTuple):
    dual: Tensor
    inverse: Tensor
    ridge: float
    left_out: Tensor
    error: float

    @classmethod
    def of(cls, gram: Tensor, coordinates: Tensor, ridge: float, scale: float) -> _Fit:
        s = len(gram)
        lifted = gram + scale  # K + scale 1 1^T: well conditioned along 1, where K is zero
        lifted.diagonal().add_(ridge)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(lifted)) - 1 / (s * (ridge + s * scale))
        dual = inverse @ coordinates
        left_out = dual / inverse.diagonal().unsqueeze(1)  # z_i - prediction without i = (C Z)_i / C_ii
        return cls(dual, inverse, ridge, left_out, float(left_out.square().mean()))


def _left_out_error(features: Tensor, coordinates: Tensor, ridge: float) -> float:
    """`_Fit.error` by features (s, row) of mean zero:  r C = I - 1 1^T / s - H,  with H = F (F^T F + r I)^-1 F^T."""
    s, row = features.shape
    moments = features.T @ features + ridge * torch.eye(row, dtype=features.dtype, device=features.device)
    root = torch.linalg.cholesky(moments)  # (row, row)
    away = coordinates - coordinates.mean(0)  # (s, q)
    unexplained = away - features @ torch.cholesky_solve(features.T @ away, root)  # r C Z
    leverage = torch.linalg.solve_triangular(root, features.T, upper=False).square().sum(0)  # (s,) H_ii
    denominators = (1 - 1 / s - leverage).clamp_min(torch.finfo(features.dtype).eps)  # r C_ii
    return float((unexplained / denominators.unsqueeze(1)).square().mean())


class First(NamedTuple):
    """The regression of the first round, over records like the prior's of one class."""

    regression: LocalRegression
    seen: Tensor  # (s, features) of its models
    members: Tensor  # (s, q) their records

    @property
    def variance(self) -> float:
        """Of a coordinate of its members, on average."""
        return float(self.members.var(0).mean())


class Simulator(NamedTuple):
    """The adversary's trainings. Their seed is never the game's, so they repeat none of the victim's private draws."""

    knowledge: Knowledge
    known: Records
    frame: Frame
    members: int
    seed: int

    def first(self, label: int, *, attempt: int) -> First:
        """The first ensemble of a class, shared by all games; each attempt has its own."""
        z, y = self.frame.unknowns.of_records(flat(self.knowledge.prior)), classes_of(self.knowledge.prior.y)  # (n, q)
        classes, group = torch.unique(y, return_inverse=True)
        means = torch.stack([z[group == number].mean(0) for number in range(len(classes))])  # (classes, q)
        random = generator(self.seed, "adversary", "prior", label, attempt)
        drawn = like_the_prior(z[y == label], z - means[group], self.members, random)
        members = self.frame.within(drawn, torch.full_like(z[0], torch.nan))
        return self.regressed(members, label, "first", attempt)

    def regressed(self, members: Tensor, label: int, *purpose: int | str) -> First:
        """The regression over models trained on each of the members (s, q), without those that diverged."""
        seen = self.seen(members, torch.full((len(members),), label), *purpose)
        finite = seen.isfinite().all(1)  # (s,)
        if 2 * int(finite.sum()) < len(seen):
            raise ValueError(
                f"Ensemble: {int((~finite).sum())} of {len(seen)} simulated models hold NaN or infinite numbers: the "
                "victim's training diverges. Lower its learning rate."
            )
        seen, members = seen[finite], members[finite]
        return First(LocalRegression.fit(seen, members), seen, members)

    def seen(self, members: Tensor, labels: Tensor, *purpose: int | str) -> Tensor:
        """(s, features) what the adversary would see if the secret were each of the members (s, q)."""
        net, trainer, access = self.knowledge.net, self.knowledge.trainer, self.knowledge.access
        candidates = self.frame.records(members, labels)
        draws = int(generator(self.seed, "adversary", *purpose).integers(2**63))
        chunks = Local()(trainer, net, InOrder(self.known), candidates, models=len(candidates), seed=draws)
        return torch.cat([access(net, release) for _, release in chunks]).to(members.device)
