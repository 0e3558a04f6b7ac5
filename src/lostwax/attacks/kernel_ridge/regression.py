"""Records regressed on models, class by class, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.kernel_ridge.kernels import Kernel, median_distance, products, solve, solve_from, squares
from lostwax.attacks.kernel_ridge.sight import Sight

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
