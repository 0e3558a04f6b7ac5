"""A second opinion on the class of a model's record."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lostwax.attacks.kernel_ridge.kernels import Kernel, median_distance, products, solve_from
from lostwax.attacks.kernel_ridge.sight import Sight

KERNEL, RIDGE = Kernel(by_direction=True, width=4.0), 1e-2
WEIGHT = 10.0  # of a witness's word, in units of a logarithm of doubt
MODELS = {"cpu": 2_000, "cuda": 16_000}  # shadow models that are asked, at most: about a second


class Witness(NamedTuple):
    """Classes regressed on models, all in one: which class do the models most like this one have?

    A class's own regression is in little doubt where its shadow models explain a model, and in a net with very few
    neurons those of several classes do. This one was taught to tell them apart. Together they err least: the class is
    that of the least  log doubt - WEIGHT x score.
    """

    sight: Sight
    rows: Tensor  # (s, row)
    median: float  # of their squared distances
    weights: Tensor  # (s, classes)
    shares: Tensor  # (classes,) of all shadow models

    @classmethod
    def taught(cls, sight: Sight, seen: Tensor, groups: Tensor) -> Witness:
        """By shadow models (s, features) of the groups with these numbers (s,)."""
        most = MODELS["cpu" if seen.device.type == "cpu" else "cuda"]
        some = slice(None, None, -(-len(seen) // most))
        rows, truth = sight(seen[some], KERNEL), one_hot(groups[some], int(groups.max()) + 1).double()
        alike, shares = products(rows, rows), truth.mean(0)
        median, own = median_distance(alike), alike.diagonal()
        solved, _ = solve_from(KERNEL.likeness(alike, own, own, median), truth - shares, RIDGE)
        return cls(sight, rows, median, solved.weights, shares)

    def __call__(self, seen: Tensor) -> Tensor:
        """(groups, m) of models (m, features): about one for the group that a model seems to be of, else about zero."""
        alike = KERNEL.between(self.sight(seen, KERNEL), self.rows, self.median)  # (m, s)
        return (self.shares + alike @ self.weights).mT

    def verdict(self, seen: Tensor, doubts: Tensor) -> Tensor:
        """(m,) the number of the group, by both; doubts (groups, m) are those of the groups' own regressions."""
        return (doubts.clamp_min(torch.finfo(doubts.dtype).tiny).log() - WEIGHT * self(seen)).argmin(0)
