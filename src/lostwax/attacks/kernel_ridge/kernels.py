"""How alike two models are, and the regression that follows from it in closed form."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

SIZE = 0.1  # how much a model's distance from the mean counts, beside its direction
COLUMNS = 4_096  # float64 copies are made of so many columns at a time


class Scale(NamedTuple):
    """The distances of models from their mean, |f| of features f, in logs."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, features: Tensor) -> Scale:
        """Over shadow models (s, features)."""
        deviation, mean = torch.std_mean(_log_size(features), correction=0)
        return cls(float(mean), max(float(deviation), torch.finfo(torch.float32).eps))

    def __call__(self, features: Tensor) -> Tensor:
        """(m, 1) in deviations from the mean."""
        return ((_log_size(features) - self.mean) / self.deviation).unsqueeze(1)


class Kernel(NamedTuple):
    """The likeness k(a, b) of two models, from rows that stand for them.

    By direction: a record moves the weights by its residual times what it looks like, summed over steps. The residual
    can be a hundred times larger for an odd record than for a plain one; what is to be rebuilt is in the direction.

    width None: k = <a, b>. Else k = width exp(-|a - b|^2 / (width median)), which tends to the same as width grows.
    """

    by_direction: bool
    width: float | None

    def rows(self, features: Tensor, told: int, scale: Scale) -> Tensor:
        """(m, features) -> (m, row), of which products are likenesses of about one with oneself.

        The last `told` features are numbers of the record, known to the adversary, and count as much as the model.
        """
        model, beside = torch.split(features, [features.shape[1] - told, told], 1)
        if not self.by_direction:
            parts = [model / math.sqrt(model.shape[1])]
        else:
            norm = model.norm(dim=1, keepdim=True).clamp_min(torch.finfo(model.dtype).tiny)
            parts = [model / norm, math.sqrt(SIZE) * scale(model).to(model)]
        if told:
            parts.append(beside / math.sqrt(told))
        return torch.cat(parts, 1)

    def own(self, squares: Tensor) -> Tensor:
        """k(a, a), (a,), of rows with these squares (a,)."""
        return squares if self.width is None else torch.full_like(squares, self.width)

    def likeness(self, products: Tensor, left: Tensor, right: Tensor, median: float) -> Tensor:
        """k of rows whose products (a, b) and own squares (a,) and (b,) are given."""
        if self.width is None:
            return products
        distance = (left.unsqueeze(1) + right - 2 * products).clamp_min(0)  # |a - b|^2
        return self.width * (-distance / (self.width * median)).exp()

    def between(self, left: Tensor, right: Tensor, median: float) -> Tensor:
        """k of rows (a, row) and (b, row), (a, b)."""
        return self.likeness(products(left, right), squares(left), squares(right), median)


def products(left: Tensor, right: Tensor) -> Tensor:
    """<a, b> of rows (a, row) and (b, row) in float64: small ridges ask for more than float32 keeps."""
    total = left.new_zeros(len(left), len(right), dtype=torch.float64)
    for a, b in zip(torch.split(left, COLUMNS, 1), torch.split(right, COLUMNS, 1), strict=True):
        total.addmm_(a.double(), b.double().mT)
    return total


def squares(rows: Tensor) -> Tensor:
    """<a, a> of rows (a, row), (a,) in float64."""
    return rows.double().square().sum(1)


def median_distance(products: Tensor) -> float:
    """The median of |a - b|^2 among rows a and b, each another, with these products (s, s)."""
    own, number = products.diagonal(), torch.arange(len(products), device=products.device)
    some = slice(None, None, max(1, len(own) // 256))  # a median of many is found slowly
    distance = own.unsqueeze(1) + own[some] - 2 * products[:, some]
    apart = distance[number.unsqueeze(1) != number[some]]
    least = 1e-6 * float(own.mean())  # rows all alike have no distance, nor has a single one
    return max(float(apart.median()), least) if len(apart) else least


class Solved(NamedTuple):
    """Ridge regression of records on likenesses:  weights = (K + ridge I)^-1 records."""

    weights: Tensor  # (s, d)
    factor: Tensor  # (s, s) lower triangular: of K + ridge I
    left_out: Tensor  # (s,) squared error of each record, mean over its numbers, had it been left out; nan where s = 1
    doubt: Tensor  # (s,) what the likenesses then leave open of it, as a variance: see Group


def solve(gram: Tensor, records: Tensor, ridge: float) -> Solved | None:
    """For records (s, d) from which their mean was taken; None where the ridge is too small for the arithmetic.

    The error of a record that is left out needs no other regression. With B = (K + ridge I)^-1 it would be  weights_i /
    B_ii  if the mean stayed; but that of the others is  records_i / (s - 1)  less, and so the error is
    (weights_i + records_i (B 1)_i / (s - 1)) / B_ii.
    """
    lifted = gram.clone()
    lifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(lifted)
    if failed:
        return None
    inverse = torch.cholesky_inverse(factor)
    weights, doubt = inverse @ records, 1 / inverse.diagonal()
    without = weights + records * inverse.sum(1, keepdim=True) / (len(records) - 1)  # (s, d)
    return Solved(weights, factor, (without * doubt.unsqueeze(1)).square().mean(1), doubt)


def solve_from(gram: Tensor, records: Tensor, ridge: float) -> tuple[Solved, float]:
    """The same by this ridge, or by the first of 10, 100, ... times it that is not too small; and which that was."""
    while (solved := solve(gram, records, ridge)) is None:
        ridge *= 10
    return solved, ridge


def _log_size(features: Tensor) -> Tensor:
    return squares(features).clamp_min(1e-60).log() / 2
