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
RIDGE = 1e-6  # of the mean variance: in directions with less noise the difference alone counts


class Claimed(NamedTuple):
    """What rules use of a claim; a wrong claim makes a rule worse, never a test invalid."""

    noise: float
    rate: float  # the share of the steps that a record is in
    steps: int


class Reduction(Protocol):
    """One number for every run of t steps (m, t)."""

    def __call__(self, along: Tensor, claimed: Claimed) -> Tensor:
        """A high value speaks for the second training set, or a low one: this is learned."""


def _spread(values: Tensor) -> Tensor:
    """(..., 1) the standard deviation of most of them (..., t), by the median distance from the median."""
    centred = values - values.median(-1, keepdim=True).values
    return (1.4826 * centred.abs().median(-1, keepdim=True).values).clamp_min(1e-30)


def total(along: Tensor, claimed: Claimed) -> Tensor:
    """The sum over steps."""
    return along.sum(-1)


def _epochs(along: Tensor, claimed: Claimed) -> tuple[Tensor, ...]:
    """The steps of each epoch."""
    steps = along.shape[-1]
    return torch.tensor_split(along, min(steps, max(1, round(claimed.rate * steps))), -1)


def largest(along: Tensor, claimed: Claimed) -> Tensor:
    """The largest step of each epoch."""
    return torch.stack([part.amax(-1) for part in _epochs(along, claimed)]).sum(0)


def smallest(along: Tensor, claimed: Claimed) -> Tensor:
    """The smallest step of each epoch."""
    return torch.stack([part.amin(-1) for part in _epochs(along, claimed)]).sum(0)


def extremes(along: Tensor, claimed: Claimed) -> Tensor:
    """The largest and the smallest step of each epoch, from the median: noise that repeats in every step is gone."""
    centred = along - along.median(-1, keepdim=True).values
    return largest(centred, claimed) + smallest(centred, claimed)


def likelihood(along: Tensor, claimed: Claimed) -> Tensor:
    """The log-likelihood ratio of the claimed noise, for independent sampling (Hayes et al. 2023, app. G).

    The unit, what one canary adds to a step, follows from the spread of steps and the claimed noise.
    """
    x = along / _spread(along) * claimed.noise  # (m, t) in units of the clipping norm
    q, variance = min(claimed.rate, 1 - 1e-9), max(claimed.noise, 1e-3) ** 2

    def evidence(side: float) -> Tensor:
        gain = (side * x - 0.5) / variance + math.log(q)
        return torch.logaddexp(gain, torch.full_like(gain, math.log1p(-q))).sum(-1)

    return evidence(1.0) - evidence(-1.0)


REDUCTIONS: dict[str, Reduction] = {
    "sum": total,
    "likelihood ratio": likelihood,
    "largest against smallest of each epoch": extremes,
    "largest of each epoch": largest,
    "smallest of each epoch": smallest,
}


def _stacked(runs: Sequence[Run]) -> bool:
    return len({len(run.along) for run in runs}) == 1


@dataclass(frozen=True)
class Summary:
    """The steps of one layer, or of all, along the difference of the canaries' gradients."""

    reduction: str
    column: int
    layer: str | None  # None: all
    claimed: Claimed
    usual: Tensor | None = None  # (t,) the mean of each step, over runs of both worlds
    across: bool = False  # the others' gradient

    @property
    def quiet_layer(self) -> str | None:
        """The layer, if a direction is looked at in which others do not move it."""
        return self.layer if self.across else None

    @property
    def doubt(self) -> float:
        """Standard errors by which it must be better than the steps of all layers."""
        return 0.0 if self.layer is None else 0.5

    def fit(self, runs: Sequence[Run], worlds: Array) -> Summary:
        """What other records do on the way is much the same in every run."""
        if not _stacked(runs) or self.across:
            return self
        return replace(self, usual=torch.stack([run.along[:, self.column] for run in runs]).mean(0))

    def __call__(self, runs: Sequence[Run]) -> Array:
        """A score for every run."""
        if not _stacked(runs):
            return np.concatenate([self([run]) for run in runs])
        along = torch.stack([run.along[:, self.column] for run in runs])  # (m, t)
        if self.usual is not None and len(self.usual) == along.shape[1]:
            along = along - self.usual
        return REDUCTIONS[self.reduction](along, self.claimed).numpy()

    def __str__(self) -> str:
        where = "all layers" if self.layer is None else self.layer
        side = ", where other records do not move it" if self.across else ""
        return f"steps of {where} along the canaries' gradients{side}, {self.reduction}"


@dataclass(frozen=True)
class OneStep:
    """One step of every epoch is larger, as in shuffled batches where all other records are copies: which, if any?

    Steps without the canary are k f, the sum of the others' gradients: k is learned for each step from runs of the
    first training set, f follows from the weights and from a clipping norm that is learned too. A step with the other
    canary is off by the distance of both gradients, which are of unit length, so that with z = (step - k f) / spread,
    and d the distance over the claimed noise, the likelihood ratio of an epoch is the mean of exp(d z - d^2 / 2).
    """

    claimed: Claimed
    clip: float = math.inf
    factors: Tensor | None = None  # (t,) k
    spread: float = 1.0

    doubt = 0.0
    layer = None
    quiet_layer = None

    def fit(self, runs: Sequence[Run], worlds: Array) -> OneStep:
        """The clipping norm that leaves least of the steps."""
        first = [run for run, world in zip(runs, worlds, strict=True) if world == 0]
        if not _stacked(runs) or not first:
            return self
        norms = torch.stack([run.others[:, 1] for run in first]).flatten()
        tried = [0.0, *norms.quantile(torch.linspace(0.1, 0.9, 5).to(norms)).tolist(), math.inf]
        return min((self._fitted(first, clip) for clip in tried), key=lambda one: one.spread)

    def _fitted(self, runs: Sequence[Run], clip: float) -> OneStep:
        others = self._others(runs, clip)
        steps = torch.stack([run.along[:, 0] for run in runs])
        factors = (steps * others).sum(0) / others.square().sum(0).clamp_min(1e-30)
        fitted = replace(self, clip=clip, factors=factors)
        return replace(fitted, spread=float(_spread(fitted._left(runs).flatten())))

    @staticmethod
    def _others(runs: Sequence[Run], clip: float) -> Tensor:
        """(m, t) f: what each of the others adds to a step."""
        others = torch.stack([run.others for run in runs])
        length = others[..., 1].clamp_min(1e-30)
        share = torch.ones_like(length) if clip == 0 else length.clamp_max(clip)  # up to the factors that are fitted
        return others[..., 0] * share

    def _left(self, runs: Sequence[Run]) -> Tensor:
        """(m, t) what the others do not explain, in units of the noise along the canaries' gradients."""
        steps = torch.stack([run.along[:, 0] for run in runs])
        if self.factors is not None and len(self.factors) == steps.shape[1]:
            steps = steps - self.factors * self._others(runs, self.clip)
        return steps / torch.stack([run.others[:, 2] for run in runs]).clamp_min(1e-3)

    def __call__(self, runs: Sequence[Run]) -> Array:
        """A score for every run."""
        if not _stacked(runs):
            return np.concatenate([self([run]) for run in runs])
        z = self._left(runs) / self.spread
        d = torch.stack([run.others[:, 2] for run in runs]) / max(self.claimed.noise, 1e-3)
        parts = _epochs(d * z - d.square() / 2, self.claimed)
        return torch.stack([part.logsumexp(-1) - math.log(part.shape[-1]) for part in parts]).sum(0).numpy()

    def __str__(self) -> str:
        return "steps of all layers along the canaries' gradients, one of each epoch"


@dataclass(frozen=True)
class Discriminant:
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

    def fit(self, runs: Sequence[Run], worlds: Array) -> Discriminant:
        """Fisher's discriminant with a ridge, by the products of runs: there are more weights than runs."""
        table = torch.stack([self._flat(run) for run in runs])  # (m, p)
        second = torch.from_numpy(worlds == 1)
        means = [table[~second].mean(0), table[second].mean(0)]
        centred = table - torch.stack([means[int(world)] for world in worlds])
        gap = means[1] - means[0]
        gram = centred @ centred.mT
        weight = self.ridge * gram.trace() / len(table) + 1e-300
        inner = torch.linalg.lstsq(gram + weight * torch.eye(len(table)).to(gram), centred @ gap).solution
        return Discriminant(self.names, self.layer, self.ridge, gap - centred.mT @ inner)

    def __call__(self, runs: Sequence[Run]) -> Array:
        """A score for every run."""
        if self.direction is None:
            return np.zeros(len(runs))
        return (torch.stack([self._flat(run) for run in runs]) @ self.direction).numpy()

    def _flat(self, run: Run) -> Tensor:
        return torch.cat([run.moved[name].flatten() for name in self.names])

    def __str__(self) -> str:
        how = "the mean difference" if self.ridge > 1 else "a difference with little noise"
        return f"last weights of {'all layers' if self.layer is None else self.layer} along {how}"


Rule = Summary | OneStep | Discriminant


class Cut(NamedTuple):
    """A score on one side of a threshold is taken for the second training set."""

    score: Rule
    threshold: float
    above: bool

    @classmethod
    def fit(cls, score: Rule, runs: Sequence[Run], worlds: Array) -> Cut:
        """The threshold that is right most often on these runs."""
        score = score.fit(runs, worlds)
        values = score(runs)
        order = np.argsort(values, kind="stable")
        ordered, second = values[order], worlds[order] == 1
        # Right if those after place i are taken for the second set: firsts up to i and seconds after it.
        right = np.concatenate([[0], np.cumsum(~second)]) + second.sum() - np.concatenate([[0], np.cumsum(second)])
        places = np.concatenate([[0], np.flatnonzero(np.diff(ordered) > 0) + 1])
        right = right[places] / len(values)
        middles = np.where(places > 0, (ordered[places - 1] + ordered[places]) / 2, ordered[0] - 1)
        above = bool(right.max() >= 1 - right.min())
        best = np.flatnonzero(right == (right.max() if above else right.min()))
        return cls(score, float(middles[best[len(best) // 2]]), above)

    def __call__(self, runs: Sequence[Run]) -> Array:
        """0 or 1 for each run: which training set it was."""
        says_second: Array = ((self.score(runs) > self.threshold) == self.above).astype(float)
        return says_second


def rules(run: Run, layers: Sequence[str], claimed: Claimed) -> list[Rule]:
    """Every rule, the plainest first."""
    reductions = list(REDUCTIONS) if len(run.along) > 1 else ["sum"]
    columns = [(0, None), *((number + 1, name) for number, name in enumerate(layers))]
    every: list[Rule] = [
        Summary(reduction, column, layer, claimed) for column, layer in columns for reduction in reductions
    ]
    every += [Summary("sum", 1 + len(layers) + k, name, claimed, across=True) for k, name in enumerate(layers)]
    if len(run.along) > 1:
        every.append(OneStep(claimed))
    parts = [(tuple(run.moved), None), *(((name,), name) for name in run.moved)]
    return every + [Discriminant(names, layer, ridge) for ridge in (1e6, RIDGE) for names, layer in parts]


def held_out(rule: Rule, runs: Sequence[Run], worlds: Array) -> float:
    """The share of right answers on half of the runs, with the threshold and direction of the other half."""
    half = (np.arange(len(runs)) // 2) % 2 == 1
    right = 0.0
    for fitted, asked in ((half, ~half), (~half, half)):
        cut = Cut.fit(rule, [run for run, taken in zip(runs, fitted, strict=True) if taken], worlds[fitted])
        answers = cut([run for run, taken in zip(runs, asked, strict=True) if taken])
        right += float((answers == worlds[asked]).sum())
    return right / len(runs)
