"""A second opinion on the class of a model's record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from lostwax.learning.standardise import Standardise

# How alike two models are, and the regression that follows from it in closed form.


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


# What is seen of models, as rows to compare them by.


class Sight(NamedTuple):
    """How models are looked at: standardised over shadow models, and then as a kernel likes it."""

    standardise: Standardise
    scale: Scale
    told: int  # how many of the kept features, the last, are numbers of the record
    dtype: torch.dtype  # of the rows

    @classmethod
    def of(cls, seen: Tensor, told: int = 0, *, dtype: torch.dtype, still: bool = False) -> Sight:
        """At the scale of models (s, features), of which the last `told` are numbers of their records.

        Models that may be `still` are not refused where they all look the same.
        """
        standardise = Standardise.fit(seen, told, still=still)
        kept = int((standardise.kept >= standardise.features - told).sum())
        features = standardise(seen, dtype)
        return cls(standardise, Scale.of(features[:, : features.shape[1] - kept]), kept, dtype)

    def __call__(self, seen: Tensor, kernel: Kernel) -> Tensor:
        """(m, features) -> (m, row), of which products are likenesses."""
        return kernel.rows(self.standardise(seen, self.dtype), self.told, self.scale)


# Records regressed on models, class by class, in closed form.


WIDTHS = (4.0, 16.0, None)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # beside likenesses of about one; with the last, little is believed
CHOSEN_BY = {"cpu": 600, "cuda": 3_000}  # models of a class, at most, decide on kernel and ridge: about a second


class Group(NamedTuple):
    """The models of one class, and what their likenesses to another weigh in its record."""

    rows: Tensor  # (s, row)
    median: float  # of their squared distances
    weights: Tensor  # (s, d)
    mean: Tensor  # (d,) of their records
    factor: Tensor  # (s, s) of their likenesses K + ridge I
    ridge: float

    def __call__(self, kernel: Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Answers (m, d) and doubts (m,), for models that these rows stand for.

        answer = mean + k^T weights,  doubt = k(a, a) + ridge - k^T (K + ridge I)^-1 k,  k the likenesses to its models.

        It is the mean and, but for a factor, the variance of a Gaussian process. A model's doubt is small in its own
        class, whose models explain it, and large in all others.
        """
        alike = kernel.between(rows, self.rows, self.median)  # (m, s)
        explained = torch.linalg.solve_triangular(self.factor, alike.mT, upper=False).square().sum(0)
        return self.mean + alike @ self.weights, kernel.own(squares(rows)) + self.ridge - explained


class Regression(NamedTuple):
    """One group a class, all by the same kernel."""

    sight: Sight
    kernel: Kernel
    groups: tuple[Group, ...]
    error: float  # squared, mean over a record's numbers, for each unit of doubt
    left_out: Tensor  # (s,) the doubt of its own class about each model it was fitted on, had that been left out

    @classmethod
    def fit(
        cls,
        seen: Tensor,
        answers: Tensor,
        classes: Sequence[Tensor],
        *,
        told: int = 0,
        dtype: torch.dtype | None = None,
    ) -> Regression:
        """From models (s, features), the last `told` being numbers of their records, to these (s, d).

        Each class is a list of rows. Kernel and ridge are those of the least error on records left out. Models are
        compared in `dtype`, None for that in which they are seen.
        """
        sight = Sight.of(seen, told, dtype=dtype or seen.dtype)
        kernel, ridge = _choose(sight, seen, answers, classes)
        solved = [_group(kernel, ridge, sight(seen[rows], kernel), answers[rows]) for rows in classes]
        errors, doubts = (torch.cat(part) for part in list(zip(*solved, strict=True))[1:])  # (s,) twice
        judged = ~errors.isnan()  # those of a class with one model are told by other classes
        if not judged.any():  # all have one: two records of a class differ by no more than two of any
            errors, judged = 2 * answers.var(0).mean().expand_as(doubts), ~judged
        error = float(errors[judged].mean() / doubts[judged].mean())
        left_out = doubts.new_full((len(seen),), torch.nan)
        left_out[torch.cat(tuple(classes))] = doubts  # in the order of `seen`
        return cls(sight, kernel, tuple(group for group, *_ in solved), error, left_out)

    def __call__(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """What each class would answer to models (m, features), (classes, m, d), and its doubts, (classes, m)."""
        rows = self.sight(seen, self.kernel)
        answers, doubts = zip(*(group(self.kernel, rows) for group in self.groups), strict=True)
        return torch.stack(answers), torch.stack(doubts)


class _Choice(NamedTuple):
    kernel: Kernel
    ridge: float


def _choose(sight: Sight, seen: Tensor, answers: Tensor, classes: Sequence[Tensor]) -> _Choice:
    """Kernel and ridge with the least error on records left out, over all classes.

    Errors only add up, so the choice with the least sum so far is always the next to be tried on one more class. The
    first that was tried on all of them is the best, and most others were given up on the way.
    """
    most = CHOSEN_BY["cpu" if seen.device.type == "cpu" else "cuda"]
    some = [rows[:most] for rows in classes if len(rows) > 1]  # one record leaves nothing to predict it by

    @cache
    def alike(number: int, by_direction: bool) -> tuple[Tensor, float]:
        here = sight(seen[some[number]], Kernel(by_direction, None))
        found = products(here, here)
        return found, median_distance(found)

    def error(choice: _Choice, number: int) -> float:
        found, median = alike(number, choice.kernel.by_direction)
        gram = choice.kernel.likeness(found, found.diagonal(), found.diagonal(), median)
        records = answers[some[number]]
        solved = solve(gram, records - records.mean(0), choice.ridge)
        return torch.inf if solved is None else float(solved.left_out.sum())

    kernels = [Kernel(by_direction, width) for by_direction in (True, False) for width in WIDTHS]
    totals = {_Choice(kernel, ridge): 0.0 for kernel, ridge in product(kernels, RIDGES)}
    tried = dict.fromkeys(totals, 0)  # on so many classes
    while tried[best := min(totals, key=totals.__getitem__)] < len(some):
        totals[best] += error(best, tried[best])
        tried[best] += 1
    return best


def _group(kernel: Kernel, ridge: float, rows: Tensor, answers: Tensor) -> tuple[Group, Tensor, Tensor]:
    """The regression of one class, and its errors and doubts about records left out, (s,) twice."""
    alike, mean = products(rows, rows), answers.mean(0)
    own, median = alike.diagonal(), median_distance(alike)
    gram = kernel.likeness(alike, own, own, median)
    solved, ridge = solve_from(gram, answers - mean, ridge)  # of more models than the ridge was chosen by
    return Group(rows, median, solved.weights, mean, solved.factor, ridge), solved.left_out, solved.doubt


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
