"""From what is seen of a model to the record it was trained on: ridge regression, judged by leaving members out.

There are more features than members, so all is done in the dual form, on the (s, s) Gram matrix of the members.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.learning.kernel_regression import Kernel, KernelFeatures

RIDGES = tuple(10.0**power for power in range(-6, 2))  # shares of the mean squared length of a member's features


class Estimate(NamedTuple):
    """What a model says about its record."""

    coordinates: Tensor  # (q,)
    novelty: float  # expected squared error, as a multiple of the members' own when each is left out


class Reading(NamedTuple):
    """A regression fitted to s simulated models.

    It looks at their weights, or at the direction in which these lie from the mean and how far. Records far apart move
    the weights by very different amounts, and what they look like is in the direction (`kernel_ridge/kernels.py`); in a
    small cloud the weights as they are tell more.

    With K the Gram matrix of the features in sight, r the ridge and an intercept that is not penalised, the
    weights of the members are  C Z,  where C inverts K + r I on the vectors of zero sum: K 1 = 0, as features have mean
    zero, and so  C = (K + r I)^-1 - 1 1^T / (s r).
    """

    sight: KernelFeatures
    kernel: Kernel
    centre: Tensor  # (row,) the mean of the members
    features: Tensor  # (s, row) of the members, from there
    mean: Tensor  # (q,) the intercept
    dual: Tensor  # (s, q) C Z
    inverse: Tensor  # (s, s) C
    ridge: float
    left_out: Tensor  # (s, q) truth minus prediction of each member, by the regression on all the others

    @classmethod
    def fit(cls, seen: Tensor, coordinates: Tensor) -> Reading:
        """Regress coordinates (s, q) on models (s, features); kernel and ridge are those that err least on left-out.

        Models that all look the same, as those of a ReLU net do that no such record wakes up, say: the mean.
        """
        sight, readings = KernelFeatures.of(seen, dtype=torch.float64, still=True), []
        for by_direction in (False, True):
            kernel = Kernel(by_direction, None)
            rows = sight(seen, kernel)
            centre = rows.mean(0)
            features = rows - centre
            gram = features @ features.T  # (s, s)
            scale = float(gram.diagonal().mean()) or 1.0
            fits = (_Fit.of(gram, coordinates, share * scale, scale) for share in RIDGES)
            best = min(fits, key=lambda fit: fit.error)
            readings.append(cls(sight, kernel, centre, features, coordinates.mean(0), *best[:-1]))
        return min(readings, key=lambda reading: reading.error)

    @property
    def error(self) -> float:
        """Mean squared error of a coordinate when its member is left out."""
        return float(self.left_out.square().mean())

    def place(self, seen: Tensor) -> Tensor:
        """(m, features) -> (m, row), from the centre of the members."""
        return self.sight(seen, self.kernel) - self.centre

    def __call__(self, seen: Tensor) -> Estimate:
        """Read one model, (1, features).

        As a Gaussian process the regression expects a squared error of  r + k(f, f) - k(f)^T C k(f) + r / s  in units
        of the noise, and of  1 / C_ii  for a member that is left out. Their ratio says how far from the members the
        model lies: 1 for one among them, less in their middle, much more outside.
        """
        features = self.place(seen)  # (1, row)
        near = self.features @ features[0]  # (s,) k(f)
        apart = float(features.square().sum() - near @ self.inverse @ near)
        novelty = (self.ridge * (1 + 1 / len(near)) + max(apart, 0.0)) / float((1 / self.inverse.diagonal()).mean())
        return Estimate(self.mean + near @ self.dual, novelty)


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
