"""Rules to tell which of two training sets a model was trained on, chosen on some games and used on others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.claims.games import Run

Array = NDArray[np.float64]
RIDGE = 1e-6  # of the mean variance: directions with less noise are told by their difference alone


class Claimed(NamedTuple):
    """What rules use of a claim; a wrong claim makes a rule worse, never a test invalid."""

    noise: float
    rate: float  # the share of the steps that a record is in
    steps: int


class Reduction(Protocol):
    """One number for a sequence of steps (t,)."""

    def __call__(self, along: Tensor, claimed: Claimed) -> Tensor:
        """A high value speaks for the second training set, or a low one: this is learned."""


def total(along: Tensor, claimed: Claimed) -> Tensor:
    """The sum over steps."""
    return along.sum()


def _epochs(along: Tensor, claimed: Claimed) -> tuple[Tensor, ...]:
    """The steps of each epoch."""
    return torch.tensor_split(along, min(len(along), max(1, round(claimed.rate * len(along)))))


def largest(along: Tensor, claimed: Claimed) -> Tensor:
    """The largest step of each epoch."""
    return torch.stack([part.max() for part in _epochs(along, claimed)]).sum()


def smallest(along: Tensor, claimed: Claimed) -> Tensor:
    """The smallest step of each epoch."""
    return torch.stack([part.min() for part in _epochs(along, claimed)]).sum()


def extremes(along: Tensor, claimed: Claimed) -> Tensor:
    """The largest and the smallest step of each epoch, from the median: noise that repeats in every step is gone."""
    centred = along - along.median()
    return largest(centred, claimed) + smallest(centred, claimed)


def likelihood(along: Tensor, claimed: Claimed) -> Tensor:
    """The log-likelihood ratio of the claimed noise, for independent sampling (Hayes et al. 2023, app. G).

    The unit, what one canary adds to a step, follows from the spread of steps and the claimed noise.
    """
    spread = (along - along.median()).abs().median() * 1.4826
    x = along / spread.clamp_min(1e-30) * claimed.noise  # (t,) in units of the clipping norm
    q, variance = min(claimed.rate, 1 - 1e-9), max(claimed.noise, 1e-3) ** 2

    def evidence(side: float) -> Tensor:
        gain = (side * x - 0.5) / variance + math.log(q)
        return torch.logaddexp(gain, torch.full_like(gain, math.log1p(-q))).sum()

    return evidence(1.0) - evidence(-1.0)


REDUCTIONS: dict[str, Reduction] = {
    "sum": total,
    "likelihood ratio": likelihood,
    "largest against smallest of each epoch": extremes,
    "largest of each epoch": largest,
    "smallest of each epoch": smallest,
}


@dataclass(frozen=True)
class Summary:
    """The steps of one layer, or of all, along the difference of the canaries' gradients."""

    reduction: str
    column: int
    layer: str | None  # None: all
    claimed: Claimed
    usual: Tensor | None = None  # (t,) the mean of each step, over runs of both worlds

    quiet_layer = None

    @property
    def doubt(self) -> float:
        """Standard errors by which it must be better than the steps of all layers."""
        return 0.0 if self.layer is None else 0.5

    def fit(self, runs: Sequence[Run], worlds: Array) -> Summary:
        """What other records do on the way is much the same in every run."""
        if len({len(run.along) for run in runs}) > 1:
            return self
        return replace(self, usual=torch.stack([run.along[:, self.column] for run in runs]).mean(0))

    def __call__(self, run: Run) -> float:
        """A score."""
        along = run.along[:, self.column]
        if self.usual is not None and len(self.usual) == len(along):
            along = along - self.usual
        return float(REDUCTIONS[self.reduction](along, self.claimed))

    def __str__(self) -> str:
        where = "all layers" if self.layer is None else self.layer
        return f"steps of {where} along the canaries' gradients, {self.reduction}"


@dataclass(frozen=True)
class LastWeights:
    """The last weights along the difference of the mean weights of both worlds, where they vary least."""

    names: tuple[str, ...]
    layer: str | None
    ridge: float
    direction: Tensor | None = None

    doubt = 1.0

    @property
    def quiet_layer(self) -> str | None:
        """The layer, if directions with little noise are looked for in it."""
        return self.layer if self.ridge < 1 else None

    def fit(self, runs: Sequence[Run], worlds: Array) -> LastWeights:
        """Fisher's discriminant with a ridge, by the products of runs: there are more weights than runs."""
        table = torch.stack([self._flat(run) for run in runs])  # (m, p)
        second = torch.from_numpy(worlds == 1)
        means = [table[~second].mean(0), table[second].mean(0)]
        rest = table - torch.stack([means[int(one)] for one in second])
        gap = means[1] - means[0]
        gram = rest @ rest.mT
        weight = self.ridge * gram.trace() / len(table) + 1e-300
        inner = torch.linalg.lstsq(gram + weight * torch.eye(len(table)).to(gram), rest @ gap).solution
        return LastWeights(self.names, self.layer, self.ridge, gap - rest.mT @ inner)

    def __call__(self, run: Run) -> float:
        """A score."""
        return 0.0 if self.direction is None else float(self._flat(run) @ self.direction)

    def _flat(self, run: Run) -> Tensor:
        return torch.cat([run.moved[name].flatten() for name in self.names])

    def __str__(self) -> str:
        how = "the mean difference" if self.ridge > 1 else "a difference with little noise"
        return f"last weights of {'all layers' if self.layer is None else self.layer} along {how}"


class Cut(NamedTuple):
    """A score on one side of a threshold is taken for the second training set."""

    score: Summary | LastWeights
    threshold: float
    above: bool

    @classmethod
    def fit(cls, score: Summary | LastWeights, runs: Sequence[Run], worlds: Array) -> Cut:
        """The threshold that is right most often on these runs."""
        score = score.fit(runs, worlds)
        values = np.array([score(run) for run in runs])
        cuts = np.unique(values)
        middles = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2])
        says_second = values > middles[:, None]  # (cuts, m)
        right = (says_second == (worlds == 1)).mean(1)
        above = bool(right.max() >= 1 - right.min())
        best = np.flatnonzero(right == (right.max() if above else right.min()))
        return cls(score, float(middles[best[len(best) // 2]]), above)

    def __call__(self, run: Run) -> int:
        """0 or 1: which training set it was."""
        return int((self.score(run) > self.threshold) == self.above)


def rules(run: Run, layers: Sequence[str], claimed: Claimed) -> list[Summary | LastWeights]:
    """Every rule, the plainest first."""
    reductions = list(REDUCTIONS) if len(run.along) > 1 else ["sum"]
    columns = [(0, None), *((number + 1, name) for number, name in enumerate(layers))]
    found: list[Summary | LastWeights] = [
        Summary(reduction, column, layer, claimed) for column, layer in columns for reduction in reductions
    ]
    parts = [(tuple(run.moved), None), *(((name,), name) for name in run.moved)]
    return found + [LastWeights(names, layer, ridge) for ridge in (1e6, RIDGE) for names, layer in parts]


def held_out(rule: Summary | LastWeights, runs: Sequence[Run], worlds: Array) -> float:
    """The share of right answers on half of the runs, with the threshold and direction of the other half."""
    half = (np.arange(len(runs)) // 2) % 2 == 1
    right = 0
    for fitted, asked in ((half, ~half), (~half, half)):
        cut = Cut.fit(rule, [run for run, taken in zip(runs, fitted, strict=True) if taken], worlds[fitted])
        right += sum(cut(run) == world for run, world, taken in zip(runs, worlds, asked, strict=True) if taken)
    return right / len(runs)
