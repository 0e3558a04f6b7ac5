"""A second opinion on the class of a model's record."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lostwax.attacks.kernel_ridge.kernels import Kernel, Solved, median_distance, products, solve_from
from lostwax.attacks.kernel_ridge.regression import Regression
from lostwax.attacks.kernel_ridge.sight import Sight

KERNEL, RIDGE = Kernel(by_direction=True, width=4.0), 1e-2
WEIGHTS = (10.0, 3.0, 30.0, 1.0, 0.0)  # of its word, in units of a logarithm of doubt; of two that err alike the first
MODELS = {"cpu": 2_000, "cuda": 16_000}  # shadow models that are asked, at most: about a second
JUDGED = 1_000  # of these, at most, decide on the weight


class Witness(NamedTuple):
    """Classes regressed on models, all in one: which class do the models most like this one have?

    A class's own regression is in little doubt where its shadow models explain a model, and in a net with very few
    neurons those of several classes do. This one was taught to tell them apart. Together they err least: the class is
    that of the least  log doubt - weight x score.

    Where doubts are sharp, a witness who saw fewer models would spoil them. So the weight is the one that errs least on
    shadow models left out, of their class's regression and of the witness's. Both need no other regression: with
    B = (K + ridge I)^-1 of its class, a model's doubt there is 1 / B_ii; its score is as `scores_left_out` has it.
    """

    sight: Sight
    rows: Tensor  # (s, row)
    median: float  # of their squared distances
    weights: Tensor  # (s, classes)
    shares: Tensor  # (classes,) of all shadow models
    weight: float  # of its score

    @classmethod
    def taught(cls, regression: Regression, seen: Tensor, groups: Tensor) -> Witness:
        """By the shadow models (s, features) that the regression was fitted on, in groups with these numbers (s,)."""
        most = MODELS["cpu" if seen.device.type == "cpu" else "cuda"]
        asked = torch.arange(len(seen), device=seen.device)[:: -(-len(seen) // most)]
        rows, truth = regression.sight(seen[asked], KERNEL), one_hot(groups[asked], len(regression.groups)).double()
        alike, shares = products(rows, rows), truth.mean(0)
        median, own = median_distance(alike), alike.diagonal()
        solved, _ = solve_from(KERNEL.likeness(alike, own, own, median), truth - shares, RIDGE)
        some = slice(None, None, -(-len(asked) // JUDGED))
        judged, scores = asked[some], scores_left_out(solved, truth)[:, some]
        weight = least_wrong(doubts_left_out(regression, seen, groups, judged), scores, groups[judged])
        return cls(regression.sight, rows, median, solved.weights, shares, weight)

    def __call__(self, seen: Tensor) -> Tensor:
        """(groups, m) of models (m, features): about one for the group that a model seems to be of, else about zero."""
        alike = KERNEL.between(self.sight(seen, KERNEL), self.rows, self.median)  # (m, s)
        return (self.shares + alike @ self.weights).mT

    def verdict(self, seen: Tensor, doubts: Tensor) -> Tensor:
        """(m,) the number of the group, by both; doubts (groups, m) are those of the groups' own regressions."""
        return self.weighed(seen, doubts).argmin(0)

    def weighed(self, seen: Tensor, doubts: Tensor) -> Tensor:
        """(groups, m) log doubt - weight x score, the less the likelier."""
        return _weighed(doubts, self(seen), self.weight)


def scores_left_out(solved: Solved, truth: Tensor) -> Tensor:
    """(groups, s) a witness's word on each of its own models, of the groups that are one in truth (s, groups).

    Without model i it would be  truth_i - (weights_i + (truth_i - shares) (B 1)_i / (s - 1)) / B_ii,  as in `solve`.
    """
    sums = torch.cholesky_solve(torch.ones_like(truth[:, :1]), solved.factor)  # (s, 1) B 1
    wrong = (solved.weights + (truth - truth.mean(0)) * sums / (len(truth) - 1)) * solved.doubt.unsqueeze(1)
    return (truth - wrong).mT


def doubts_left_out(regression: Regression, seen: Tensor, groups: Tensor, judged: Tensor) -> Tensor:
    """(groups, j) doubts about those judged (j,) of the models that the regression was fitted on, less each itself."""
    rows = regression.sight(seen[judged], regression.kernel)
    doubts = torch.stack([group(regression.kernel, rows)[1] for group in regression.groups])
    return doubts.scatter(0, groups[judged].unsqueeze(0), regression.left_out[judged].unsqueeze(0))


def least_wrong(doubts: Tensor, scores: Tensor, groups: Tensor) -> float:
    """The weight by which the fewest models are put, by doubts and scores (groups, j), in another than theirs (j,)."""
    return min(WEIGHTS, key=lambda weight: int((_weighed(doubts, scores, weight).argmin(0) != groups).sum()))


def _weighed(doubts: Tensor, scores: Tensor, weight: float) -> Tensor:
    return doubts.clamp_min(torch.finfo(doubts.dtype).tiny).log() - weight * scores
