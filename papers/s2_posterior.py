"""The features of S2's ten records, estimated from a head in closed form: what a reader of heads need not learn.

A linear head trained on one record per class is  W = s W_0 + A F  (docs/weak.md), F (n, d) the features and A (c, n).
The estimate has three parts, all fitted on the adversary's records and on heads trained on them:

1. A. It follows from inner products of features, and these from those of the rows of W: a linear regression on W W^T,
   the logarithms of its diagonal, and the bias.
2. F given A, with normal features of a common covariance within classes, and a start of known variance v:
   in each of its eigenvectors, of variance l,  E[F | W] = M + l A^T (l A A^T + v)^-1 (W - A M),  M the class means.
3. A has rank c - 1: a common shift t u^T of all features, A u = 0, is not seen. But features behind a ReLU are zero or
   positive: for every feature, the posterior mean of its shift under the distribution of that feature in each class, as
   if features were independent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lostwax.attacks.weak import SetReader
from lostwax.games import Access, Knowledge, Records, Release

HEADS = 8_192  # on which A is regressed
RIDGE = 1e-2  # of that regression, relative to standardised inputs
BINS, SMOOTH = 256, 4  # of a feature's distribution: number, and deviation of the smoothing in bins
MARGIN = 24  # bins on either side in which there is no record: estimates lie there
SHIFTS, FARTHEST = 41, 3.0  # grid of a feature's shift, in deviations of the mean of n records
ALONE = 0.1  # added to every bin's count of records


class Regression(NamedTuple):
    """Coefficients of the records, from inner products of a head's rows."""

    mean: Tensor
    deviation: Tensor
    slopes: Tensor  # (inputs + 1, c n)

    @classmethod
    def fit(cls, seen: Tensor, coefficients: Tensor) -> Regression:
        """Ridge, in float64."""
        deviation, mean = torch.std_mean(seen.double(), 0)
        inputs = _extended((seen.double() - mean) / deviation)
        wanted = coefficients.flatten(1).double()
        penalty = RIDGE * len(seen) / 100 * torch.eye(inputs.shape[1]).to(inputs)
        slopes = torch.linalg.solve(inputs.mT @ inputs + penalty, inputs.mT @ wanted)
        return cls(mean.to(seen), deviation.to(seen), slopes.to(seen))

    def __call__(self, seen: Tensor) -> Tensor:
        """(m, inputs) -> (m, c n)."""
        return _extended((seen - self.mean) / self.deviation) @ self.slopes


class Estimate(NamedTuple):
    """All that was fitted on the adversary's records."""

    coefficients: Regression
    means: Tensor  # (c, d) of features by class
    variances: Tensor  # (d,) within classes, by eigenvector
    vectors: Tensor  # (d, d) in columns
    noise: Tensor  # variance of the start
    lowest: Tensor  # (d,) of each feature
    width: Tensor  # (d,) of a bin
    log_density: Tensor  # (c, d, bins)
    reach: Tensor  # (d,) farthest shift

    @classmethod
    def of(cls, knowledge: Knowledge, *, seed: int) -> Estimate:
        """One record per class is taken for granted (`FeatureReader.objection`)."""
        prior, net, trainer = knowledge.prior, knowledge.net, knowledge.trainer
        cohort = knowledge.threat.deal(prior, HEADS, seed=seed)
        release = trainer(net, cohort, seed=seed)
        weight, own = release.params["weight"], by_class(cohort.own.inputs, cohort.own.y)  # (m, c, d), (m, n, d)
        rows, inner = (weight @ own.mT).double(), (own.double() @ own.double().mT)  # (m, c, n), (m, n, n)
        coefficients = torch.linalg.solve(inner, rows.mT).mT.to(weight)  # A F = W, in the span of F
        start = trainer.init(net, list(range(64)), seed=seed)["weight"]  # type: ignore[attr-defined]
        features, y = prior.inputs, prior.y
        means = torch.stack([features[y == label].mean(0) for label in range(weight.shape[1])])
        off = (features - means[y]).double()
        variances, vectors = torch.linalg.eigh(off.mT @ off / len(off))
        width = ((features.amax(0) - features.amin(0)) / (BINS - 2 * MARGIN)).clamp_min(1e-6)
        lowest = features.amin(0) - MARGIN * width
        return cls(
            Regression.fit(summary(release), coefficients),
            means,
            variances.clamp_min(0).to(features),
            vectors.to(features),
            start.to(features).var(),
            lowest,
            width,
            log_densities(features, y, lowest, width, len(means)),
            FARTHEST * (off.square().mean(0) / len(means)).sqrt().to(features),
        )

    def __call__(self, release: Release) -> Tensor:
        """(m, c, d) features, one record of each class."""
        weight = release.params["weight"]  # (m, c, d)
        classes = weight.shape[1]
        a = self.coefficients(summary(release)).view(-1, classes, classes)  # (m, c, n)
        a = a - a.mean(1, keepdim=True)  # softmax residuals sum to 0 over classes
        values, left = torch.linalg.eigh(a @ a.mT)  # (m, c), (m, c, c)
        off = (weight - a @ self.means) @ self.vectors  # (m, c, d)
        gain = self.variances / (self.variances * values.clamp_min(0).unsqueeze(-1) + self.noise)
        features = self.means + a.mT @ (left @ (gain * (left.mT @ off))) @ self.vectors.mT  # (m, n, d)
        lost = torch.linalg.eigh(a.mT @ a).eigenvectors[..., 0]  # (m, n): A u = 0
        return self._shifted(features, lost / lost.mean(1, keepdim=True))

    def _shifted(self, features: Tensor, lost: Tensor) -> Tensor:
        """With the posterior mean of each feature's shift along `lost` (m, n)."""
        grid = torch.linspace(-1, 1, SHIFTS).to(features)
        scores = torch.stack([self._likelihood(features, lost, share) for share in grid], -1)  # (m, d, shifts)
        shift = (scores.softmax(-1) @ grid) * self.reach  # (m, d)
        moved = features + lost.unsqueeze(-1) * shift.unsqueeze(1)
        return torch.maximum(moved, self.lowest + MARGIN * self.width)  # the least of the prior

    def _likelihood(self, features: Tensor, lost: Tensor, share: Tensor) -> Tensor:
        """(m, d) log density of all classes' features with a shift that is this share of the farthest."""
        moved = features + lost.unsqueeze(-1) * (share * self.reach)  # (m, n, d)
        places = ((moved - self.lowest) / self.width).long().clamp(0, BINS - 1)
        return self.log_density.gather(2, places.permute(1, 2, 0)).sum(0).mT  # (c, d, m) -> (m, d)


@dataclass(frozen=True)
class FeatureReader(SetReader):
    """A SetReader of estimated features in place of rows of weights."""

    estimate: Estimate | None = field(default=None, repr=False, compare=False)

    @classmethod
    def fitted(cls, knowledge: Knowledge, seed: int, **sizes: int) -> FeatureReader:
        """From what the adversary has."""
        return cls(estimate=Estimate.of(knowledge, seed=seed), **sizes)

    def objection(self, knowledge: Knowledge) -> str | None:
        """It needs a linear head on one record of each class."""
        labels = knowledge.threat.deal(knowledge.prior, 1, seed=0).own.y[0]
        net = knowledge.net
        if not isinstance(net, nn.Linear) or sorted(labels.tolist()) != list(range(net.out_features)):
            return "FeatureReader reads linear heads that were trained on one record of each class"
        return super().objection(knowledge)

    def see(self, net: nn.Module, access: Access, release: Release) -> Tensor:
        """(m, c, d)."""
        return release.params["weight"] if self.estimate is None else self.estimate(release)

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        """SetReader's."""
        return SetReader(self.width, self.layers, self.heads).build(net, tokens, numbers, classes)


def summary(release: Release) -> Tensor:
    """(m, inputs) inner products of rows, log lengths, biases."""
    weight = release.params["weight"]
    products = weight @ weight.mT  # (m, c, c)
    lengths = products.diagonal(dim1=1, dim2=2).log()
    return torch.cat([products.flatten(1), lengths, release.params["bias"]], 1)


def by_class(features: Tensor, y: Tensor) -> Tensor:
    """(m, n, d), record c of class c."""
    return features.gather(1, y.argsort(1).unsqueeze(-1).expand_as(features))


def log_densities(features: Tensor, y: Tensor, lowest: Tensor, width: Tensor, classes: int) -> Tensor:
    """(c, d, bins) of every feature in every class, smoothed histograms."""
    offsets = torch.arange(-3 * SMOOTH, 3 * SMOOTH + 1).to(features)
    kernel = torch.exp(-0.5 * (offsets / SMOOTH).square())
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    places = ((features - lowest) / width).long().clamp(0, BINS - 1).mT  # (d, records)
    parts = []
    for label in range(classes):
        own = places[:, y == label]
        counts = torch.zeros(len(own), BINS).to(features).scatter_add_(1, own, torch.ones_like(own).to(features))
        padded = functional.pad(counts.unsqueeze(1), [3 * SMOOTH] * 2)
        smooth = functional.conv1d(padded, kernel)[:, 0] + ALONE
        parts.append((smooth / smooth.sum(1, keepdim=True)).log())
    return torch.stack(parts)


def left_over(estimate: Estimate, release: Release, own: Records) -> Tensor:
    """(m,) squared error of estimated features, over that of class means."""
    truth = by_class(own.inputs, own.y)
    wrong, blind = (seen - truth for seen in (estimate(release), estimate.means))
    return wrong.square().sum((1, 2)) / blind.square().sum((1, 2)).mean()


def _extended(inputs: Tensor) -> Tensor:
    """With a constant."""
    return torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
