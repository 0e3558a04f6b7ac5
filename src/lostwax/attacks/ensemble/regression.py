"""Ridge regression from models to the records they were trained on, selected by leave-one-out error.

There are more features than members, so it is solved in the dual, on the members' (s, s) Gram matrix.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.learning.kernel_regression import Kernel, Sight

RIDGES = tuple(10.0**power for power in range(-6, 2))  # shares of the mean squared length of a member's features


class Prediction(NamedTuple):
    """The record of a model, as predicted."""

    coordinates: Tensor  # (q,)
    novelty: float  # expected squared error as a multiple of the members' left-out errors


class LocalRegression(NamedTuple):
    """A regression fitted to s simulated models.

    Its features are the weights, which are better in a small cloud, or their direction from the mean and its length,
    which are better for records far apart (`learning/kernel_regression.py`).

    With K the Gram matrix of the features, r the ridge and an unpenalised intercept, the members' dual weights are
    C Z,  where C inverts K + r I on vectors of zero sum: K 1 = 0, as features have mean zero, and so
    C = (K + r I)^-1 - 1 1^T / (s r).
    """

    view: Sight
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
        """Regress coordinates (s, q) on models (s, features), with the kernel and ridge of the least left-out error.

        Equal models (of a ReLU net with no active units) predict the mean.
        """
        view, fitted = Sight.of(seen, dtype=torch.float64, still=True), []
        for by_direction in (False, True):
            kernel = Kernel(by_direction, None)
            rows = view(seen, kernel)
            centre = rows.mean(0)
            features = rows - centre
            gram = features @ features.T  # (s, s)
            scale = float(gram.diagonal().mean()) or 1.0
            fits = (_Fit.of(gram, coordinates, share * scale, scale) for share in RIDGES)
            best = min(fits, key=lambda fit: fit.error)
            fitted.append(cls(view, kernel, centre, features, coordinates.mean(0), *best[:-1]))
        return min(fitted, key=lambda one: one.error)

    @property
    def error(self) -> float:
        """Mean squared error of a coordinate when its member is left out."""
        return float(self.left_out.square().mean())

    def place(self, seen: Tensor) -> Tensor:
        """(m, features) -> (m, row), from the centre of the members."""
        return self.view(seen, self.kernel) - self.centre

    def __call__(self, seen: Tensor) -> Prediction:
        """The record of one model, (1, features).

        As a Gaussian process the regression expects a squared error of  r + k(f, f) - k(f)^T C k(f) + r / s  in units
        of the noise, and of  1 / C_ii  for a member left out. Their ratio is the novelty: about 1 among the members,
        less in their middle, much more outside.
        """
        features = self.place(seen)  # (1, row)
        near = self.features @ features[0]  # (s,) k(f)
        apart = float(features.square().sum() - near @ self.inverse @ near)
        novelty = (self.ridge * (1 + 1 / len(near)) + max(apart, 0.0)) / float((1 / self.inverse.diagonal()).mean())
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
