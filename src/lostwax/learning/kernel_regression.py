"""Kernel ridge regression of records on models, in closed form, class by class."""

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
from lostwax.progress import counted

SIZE = 0.1  # the weight of a model's distance from the mean, relative to its direction
COLUMNS = 4_096  # columns that are copied to float64 at a time


class Scale(NamedTuple):
    """Mean and deviation of log |f|, the distance of models f from their mean."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, features: Tensor) -> Scale:
        deviation, mean = torch.std_mean(log_size(features), correction=0)
        return cls(float(mean), max(float(deviation), torch.finfo(torch.float32).eps))

    def __call__(self, features: Tensor) -> Tensor:
        """(m, 1) in deviations from the mean."""
        return ((log_size(features) - self.mean) / self.deviation).unsqueeze(1)


class Kernel(NamedTuple):
    """The similarity of two models, each represented by a row.

    k(a, b) = <a, b>, or with a width  width exp(-|a - b|^2 / (width median)), which tends to the same as it grows. By
    direction: a record moves the weights by its residual times its features, and residuals vary a hundredfold.
    """

    by_direction: bool
    width: float | None

    def rows(self, features: Tensor, given: int, scale: Scale) -> Tensor:
        """(m, features) -> (m, row), with products of about one of a row with itself.

        The last `given` features are numbers of the record, and weigh as much as the model.
        """
        model, beside = torch.split(features, [features.shape[1] - given, given], 1)
        if not self.by_direction:
            parts = [model / math.sqrt(model.shape[1])]
        else:
            norm = model.norm(dim=1, keepdim=True).clamp_min(torch.finfo(model.dtype).tiny)
            parts = [model / norm, math.sqrt(SIZE) * scale(model).to(model)]
        if given:
            parts.append(beside / math.sqrt(given))
        return torch.cat(parts, 1)

    def own(self, squares: Tensor) -> Tensor:
        """k(a, a), (a,), of rows with these squares (a,)."""
        return squares if self.width is None else torch.full_like(squares, self.width)

    def similarity(self, products: Tensor, left: Tensor, right: Tensor, median: float) -> Tensor:
        """k of rows whose products (a, b) and own squares (a,) and (b,) are given."""
        if self.width is None:
            return products
        distance = (left.unsqueeze(1) + right - 2 * products).clamp_min(0)  # |a - b|^2
        return self.width * (-distance / (self.width * median)).exp()

    def between(self, left: Tensor, right: Tensor, median: float) -> Tensor:
        """k of rows (a, row) and (b, row), (a, b)."""
        return self.similarity(products(left, right), squares(left), squares(right), median)


def products(left: Tensor, right: Tensor) -> Tensor:
    """<a, b> of rows (a, row) and (b, row) in float64: float32 is too coarse for small ridges."""
    total = left.new_zeros(len(left), len(right), dtype=torch.float64)
    for a, b in zip(torch.split(left, COLUMNS, 1), torch.split(right, COLUMNS, 1), strict=True):
        total.addmm_(a.double(), b.double().mT)
    return total


def squares(rows: Tensor) -> Tensor:
    """<a, a> of rows (a, row), (a,) in float64."""
    total = rows.new_zeros(len(rows), dtype=torch.float64)
    for part in torch.split(rows, COLUMNS, 1):
        total += part.double().square().sum(1)
    return total


def median_distance(products: Tensor) -> float:
    """The median of |a - b|^2 over pairs of different rows with these products (s, s)."""
    square_norms, number = products.diagonal(), torch.arange(len(products), device=products.device)
    sample = slice(None, None, max(1, len(square_norms) // 256))  # a median of many is slow
    distance = square_norms.unsqueeze(1) + square_norms[sample] - 2 * products[:, sample]
    off_diagonal = distance[number.unsqueeze(1) != number[sample]]
    least = 1e-6 * float(square_norms.mean())  # for equal rows, or a single one
    return max(float(off_diagonal.median()), least) if len(off_diagonal) else least


def log_size(features: Tensor) -> Tensor:
    """(m,) log |f| of rows (m, features)."""
    return squares(features).clamp_min(1e-60).log() / 2


class Solved(NamedTuple):
    """Ridge regression of records on similarities:  weights = (K + ridge I)^-1 records."""

    weights: Tensor  # (s, d)
    factor: Tensor  # (s, s) Cholesky factor of K + ridge I
    left_out: Tensor  # (s,) leave-one-out squared error of each record, mean over its numbers; nan if s = 1
    variance: Tensor  # (s,) its leave-one-out predictive variance, see Group


def solve(gram: Tensor, records: Tensor, ridge: float) -> Solved | None:
    """For centred records (s, d); None if the ridge is too small for float64.

    Leave-one-out errors need no further regression. With B = (K + ridge I)^-1 they would be  weights_i / B_ii  if the
    mean stayed; that of the other records is  records_i / (s - 1)  less, so the error is
    (weights_i + records_i (B 1)_i / (s - 1)) / B_ii.
    """
    lifted = gram.clone()
    lifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(lifted)
    if failed:
        return None
    inverse = torch.cholesky_inverse(factor)
    weights, variance = inverse @ records, 1 / inverse.diagonal()
    without = weights + records * inverse.sum(1, keepdim=True) / (len(records) - 1)  # (s, d)
    return Solved(weights, factor, (without * variance.unsqueeze(1)).square().mean(1), variance)


def solve_from(gram: Tensor, records: Tensor, ridge: float) -> tuple[Solved, float]:
    """Solve with this ridge, or the first of 10, 100, ... times it that is large enough; return it too."""
    while (solved := solve(gram, records, ridge)) is None:
        ridge *= 10
    return solved, ridge


class KernelFeatures(NamedTuple):
    """From what is seen of models to the rows that kernels compare, standardised over shadow models."""

    standardise: Standardise
    scale: Scale
    given: int  # how many of the kept features, the last, are given numbers of the record
    dtype: torch.dtype  # of the rows

    @classmethod
    def of(cls, seen: Tensor, given: int = 0, *, dtype: torch.dtype, still: bool = False) -> KernelFeatures:
        """Fitted to models (s, features), of which the last `given` are numbers of their records.

        Identical models raise, unless they may be `still`.
        """
        standardise = Standardise.fit(seen, given, still=still)
        kept_given = int((standardise.kept >= standardise.features - given).sum())
        features = standardise(seen, dtype)
        return cls(standardise, Scale.of(features[:, : features.shape[1] - kept_given]), kept_given, dtype)

    def __call__(self, seen: Tensor, kernel: Kernel) -> Tensor:
        """(m, features) -> (m, row)."""
        return kernel.rows(self.standardise(seen, self.dtype), self.given, self.scale)


WIDTHS = (4.0, 16.0, None)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # relative to similarities of about one
CHOSEN_BY = {"cpu": 600, "cuda": 3_000}  # models per class that choose kernel and ridge, at most: about a second


class Group(NamedTuple):
    """The regression of one class: its models, and the weights of similarities to them."""

    rows: Tensor  # (s, row)
    median: float  # of their squared distances
    weights: Tensor  # (s, d)
    mean: Tensor  # (d,) of their records
    factor: Tensor  # (s, s) Cholesky factor of their similarities K + ridge I
    ridge: float

    def __call__(self, kernel: Kernel, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Answers (m, d) and variances (m,), those of a Gaussian process up to a factor, for models with these rows.

        answer = mean + k^T weights,  variance = k(a, a) + ridge - k^T (K + ridge I)^-1 k,  k the similarities.
        """
        similar = kernel.between(rows, self.rows, self.median)  # (m, s)
        explained = torch.linalg.solve_triangular(self.factor, similar.mT, upper=False).square().sum(0)
        return self.mean + similar @ self.weights, kernel.own(squares(rows)) + self.ridge - explained


class Regression(NamedTuple):
    """One group per class, with the same kernel."""

    features: KernelFeatures
    kernel: Kernel
    groups: tuple[Group, ...]
    error: float  # mean squared error per unit of variance
    left_out: Tensor  # (s,) leave-one-out variance of each model in its own class

    @classmethod
    def fit(
        cls, seen: Tensor, answers: Tensor, classes: Sequence[Tensor], given: int = 0, dtype: torch.dtype | None = None
    ) -> Regression:
        """From models (s, features), the last `given` being numbers of their records, to answers (s, d).

        `classes` lists the rows of each class. Models are compared in `dtype`, None for that in which they are seen.
        """
        features = KernelFeatures.of(seen, given, dtype=dtype or seen.dtype)
        kernel, ridge = _choose(features, seen, answers, classes)
        every = counted(classes, "kernel regressions", len(classes))
        solved = [_group(kernel, ridge, features(seen[rows], kernel), answers[rows]) for rows in every]
        errors, variances = (torch.cat(part) for part in list(zip(*solved, strict=True))[1:])  # (s,) twice
        valid = ~errors.isnan()  # a class with one model has no leave-one-out error
        if not valid.any():  # no class has: use the difference between any two records
            errors, valid = 2 * answers.var(0).mean().expand_as(variances), ~valid
        error = float(errors[valid].mean() / variances[valid].mean())
        left_out = variances.new_full((len(seen),), torch.nan)
        left_out[torch.cat(tuple(classes))] = variances  # in the order of `seen`
        return cls(features, kernel, tuple(group for group, *_ in solved), error, left_out)

    def __call__(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Each class's answers to models (m, features), (classes, m, d), and its variances, (classes, m)."""
        rows = self.features(seen, self.kernel)
        answers, variances = zip(*(group(self.kernel, rows) for group in self.groups), strict=True)
        return torch.stack(answers), torch.stack(variances)


def _choose(features: KernelFeatures, seen: Tensor, answers: Tensor, classes: Sequence[Tensor]) -> tuple[Kernel, float]:
    """Kernel and ridge with the least leave-one-out error, summed over all classes.

    The choice with the least sum so far is tried on one more class; the first that was tried on all is the best.
    """
    most = CHOSEN_BY["cpu" if seen.device.type == "cpu" else "cuda"]
    class_rows = [rows[:most] for rows in classes if len(rows) > 1]  # a single record cannot be left out

    @cache
    def inner_products(number: int, by_direction: bool) -> tuple[Tensor, float]:
        here = features(seen[class_rows[number]], Kernel(by_direction, None))
        inner = products(here, here)
        return inner, median_distance(inner)

    def error(kernel: Kernel, ridge: float, number: int) -> float:
        inner, median = inner_products(number, kernel.by_direction)
        gram = kernel.similarity(inner, inner.diagonal(), inner.diagonal(), median)
        records = answers[class_rows[number]]
        solved = solve(gram, records - records.mean(0), ridge)
        return torch.inf if solved is None else float(solved.left_out.sum())

    kernels = [Kernel(by_direction, width) for by_direction in (True, False) for width in WIDTHS]
    totals = dict.fromkeys(product(kernels, RIDGES), 0.0)
    tried = dict.fromkeys(totals, 0)  # number of classes
    while tried[best := min(totals, key=totals.__getitem__)] < len(class_rows):
        totals[best] += error(*best, tried[best])
        tried[best] += 1
    return best


def _group(kernel: Kernel, ridge: float, rows: Tensor, answers: Tensor) -> tuple[Group, Tensor, Tensor]:
    """The regression of one class, its leave-one-out errors (s,) and variances (s,)."""
    inner, mean = products(rows, rows), answers.mean(0)
    square_norms, median = inner.diagonal(), median_distance(inner)
    gram = kernel.similarity(inner, square_norms, square_norms, median)
    solved, ridge = solve_from(gram, answers - mean, ridge)  # more models than chose the ridge
    return Group(rows, median, solved.weights, mean, solved.factor, ridge), solved.left_out, solved.variance


CLASS_KERNEL, CLASS_RIDGE = Kernel(by_direction=True, width=4.0), 1e-2
SCORE_WEIGHTS = (10.0, 3.0, 30.0, 1.0, 0.0)  # of a score, relative to a log variance; ties go to the first
CLASS_MODELS = {"cpu": 2_000, "cuda": 16_000}  # shadow models at most: about a second
JUDGED = 1_000  # of these, at most, choose the weight


class ClassRegression(NamedTuple):
    """One-hot classes regressed on models, all classes in one regression.

    In a net with very few neurons the regressions of several classes explain a model. So the class is that of the least
    log variance - weight x score,  with the weight of the fewest leave-one-out errors on shadow models.
    """

    features: KernelFeatures
    rows: Tensor  # (s, row)
    median: float  # of their squared distances
    weights: Tensor  # (s, classes)
    shares: Tensor  # (classes,) of all shadow models
    weight: float  # of its score

    @classmethod
    def fit(cls, regression: Regression, seen: Tensor, groups: Tensor) -> ClassRegression:
        """From the shadow models (s, features) that the regression was fitted on, and their groups' numbers (s,)."""
        most = CLASS_MODELS["cpu" if seen.device.type == "cpu" else "cuda"]
        used = torch.arange(len(seen), device=seen.device)[:: -(-len(seen) // most)]
        rows, truth = (
            regression.features(seen[used], CLASS_KERNEL),
            one_hot(groups[used], len(regression.groups)).double(),
        )
        inner, shares = products(rows, rows), truth.mean(0)
        median, square_norms = median_distance(inner), inner.diagonal()
        solved, _ = solve_from(
            CLASS_KERNEL.similarity(inner, square_norms, square_norms, median), truth - shares, CLASS_RIDGE
        )
        sample = slice(None, None, -(-len(used) // JUDGED))
        judged, scores = used[sample], scores_left_out(solved, truth)[:, sample]
        weight = best_weight(variances_left_out(regression, seen, groups, judged), scores, groups[judged])
        return cls(regression.features, rows, median, solved.weights, shares, weight)

    def __call__(self, seen: Tensor) -> Tensor:
        """(groups, m) scores of models (m, features): about one for a model's own group, about zero for others."""
        similar = CLASS_KERNEL.between(self.features(seen, CLASS_KERNEL), self.rows, self.median)  # (m, s)
        return (self.shares + similar @ self.weights).mT

    def predict(self, seen: Tensor, variances: Tensor) -> Tensor:
        """(m,) the likeliest group, given the variances (groups, m) of the groups' own regressions."""
        return self.combined(seen, variances).argmin(0)

    def combined(self, seen: Tensor, variances: Tensor) -> Tensor:
        """(groups, m) log variance - weight x score; lower is likelier."""
        return _combined(variances, self(seen), self.weight)


def scores_left_out(solved: Solved, truth: Tensor) -> Tensor:
    """(groups, s) leave-one-out scores; truth (s, groups) is one-hot.

    Without model i the score is  truth_i - (weights_i + (truth_i - shares) (B 1)_i / (s - 1)) / B_ii,  as in `solve`.
    """
    sums = torch.cholesky_solve(torch.ones_like(truth[:, :1]), solved.factor)  # (s, 1) B 1
    wrong = (solved.weights + (truth - truth.mean(0)) * sums / (len(truth) - 1)) * solved.variance.unsqueeze(1)
    return (truth - wrong).mT


def variances_left_out(regression: Regression, seen: Tensor, groups: Tensor, judged: Tensor) -> Tensor:
    """(groups, j) variances of some models (j,) of the regression, each left out of its own group."""
    rows = regression.features(seen[judged], regression.kernel)
    variances = torch.stack([group(regression.kernel, rows)[1] for group in regression.groups])
    return variances.scatter(0, groups[judged].unsqueeze(0), regression.left_out[judged].unsqueeze(0))


def best_weight(variances: Tensor, scores: Tensor, groups: Tensor) -> float:
    """The weight that misclassifies the fewest models, from variances and scores (groups, j) and true groups (j,)."""
    return min(SCORE_WEIGHTS, key=lambda weight: int((_combined(variances, scores, weight).argmin(0) != groups).sum()))


def _combined(variances: Tensor, scores: Tensor, weight: float) -> Tensor:
    return variances.clamp_min(torch.finfo(variances.dtype).tiny).log() - weight * scores


LOCAL_RIDGES = tuple(10.0**power for power in range(-6, 2))  # shares of the mean squared length of a member's features


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
        view, s, mean = KernelFeatures.of(seen, dtype=torch.float64, still=True), len(seen), coordinates.mean(0)
        error = torch.inf
        for kernel in (Kernel(by_direction, None) for by_direction in (False, True)):
            rows = view(seen, kernel)
            features = rows - rows.mean(0)
            gram = features @ features.T  # (s, s)
            scale = float(gram.diagonal().mean()) or 1.0
            sizes, axes = torch.linalg.eigh(gram + scale)  # K + scale 1 1^T: one axis is 1, along which K is zero
            turned = axes.mT @ (coordinates - mean)
            for ridge in (share * scale for share in LOCAL_RIDGES):
                weights, along_one = 1 / (sizes + ridge), 1 / (s * (ridge + s * scale))
                dual, diagonal = (
                    axes @ (weights[:, None] * turned),
                    axes.square() @ weights - along_one,
                )  # C Z, (s,) C_ii
                left_out = dual / diagonal[:, None]  # z_i - prediction without i = (C Z)_i / C_ii
                if not (reached := float(left_out.square().mean())) >= error:
                    error, best = reached, (kernel, rows.mean(0), features, mean, dual)
                    inverted, best_ridge, best_left_out = (axes, weights, along_one), ridge, left_out
        axes, weights, along_one = inverted
        return cls(view, *best, (axes * weights) @ axes.mT - along_one, best_ridge, best_left_out)

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
