"""The features that S2's heads hold, estimated in closed form: what a reader of heads need not learn.

A linear head trained on m records of each of c classes is  W = s W_0 + A F  (docs/weak.md). To first order in a
record's difference from the mean of its class, F are the class means in the training set, (c, d), and A is (c, c). The
estimate has three parts, all fitted on heads that were trained on the adversary's records:

1. A. It follows from inner products of features, and these from those of the rows of W: a linear regression on W W^T,
   the logarithms of its diagonal, and the bias.
2. F given A, with normal features of a common covariance within classes, and a start of known variance v:
   in each of its eigenvectors, of variance l,  E[F | W] = M + l A^T (l A A^T + v)^-1 (W - A M),  M the prior's means.
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
SHIFTS, FARTHEST = 15, 3.0  # grid of a feature's shift, in deviations of the mean of n records
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
        """All classes have as many records (`FeatureReader.objection`)."""
        net, trainer = knowledge.net, knowledge.trainer
        cohort = knowledge.threat.deal(knowledge.prior, HEADS, seed=seed)
        release = trainer(net, cohort, seed=seed)
        weight = release.params["weight"]  # (m, c, d)
        own = class_means(cohort.own.inputs, cohort.own.y, weight.shape[1])  # (m, c, d)
        start = trainer.init(net, list(range(64)), seed=seed)["weight"]  # type: ignore[attr-defined]
        means = own.mean(0)
        off = (own - means).flatten(0, 1).double()
        variances, vectors = torch.linalg.eigh(off.mT @ off / len(off))
        lowest, highest = own.flatten(0, 1).amin(0), own.flatten(0, 1).amax(0)
        width = ((highest - lowest) / (BINS - 2 * MARGIN)).clamp_min(1e-6)
        lowest = lowest - MARGIN * width
        return cls(
            Regression.fit(summary(release), coefficients_of(release, own)),
            means,
            variances.clamp_min(0).to(own),
            vectors.to(own),
            start.to(own).var(),
            lowest,
            width,
            log_densities(own, lowest, width),
            FARTHEST * (off.square().mean(0) / len(means)).sqrt().to(own),
        )

    def on(self, device: torch.device) -> Estimate:
        """There."""
        regression, *rest = self
        return Estimate(Regression(*(part.to(device) for part in regression)), *(part.to(device) for part in rest))

    def __call__(self, release: Release) -> Tensor:
        """(m, c, d) mean features of each class in the training set."""
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
        places = (features - self.lowest) / self.width  # (m, n, d)
        places = places.permute(1, 2, 0).contiguous()  # (n, d, m): the look-ups of one density side by side
        steps = lost.mT.unsqueeze(1) * (self.reach / self.width).unsqueeze(1)  # (n, d, m) of the farthest shift
        scores = torch.stack([self._likelihood(places + share * steps) for share in grid], -1)  # (d, m, shifts)
        shift = (scores.softmax(-1) @ grid).mT * self.reach  # (m, d)
        moved = features + lost.unsqueeze(-1) * shift.unsqueeze(1)
        return torch.maximum(moved, self.lowest + MARGIN * self.width)  # the least of the prior

    def _likelihood(self, places: Tensor) -> Tensor:
        """(d, m) log density of all classes' features at these places, in bins (n, d, m)."""
        return self.log_density.gather(2, places.long().clamp_(0, BINS - 1)).sum(0)


@dataclass(frozen=True)
class FeatureReader(SetReader):
    """A SetReader of estimated features, beside the rows of weights."""

    estimate: Estimate | None = field(default=None, repr=False, compare=False)

    @classmethod
    def fitted(cls, knowledge: Knowledge, seed: int, **sizes: int) -> FeatureReader:
        """From what the adversary has."""
        return cls(estimate=Estimate.of(knowledge, seed=seed), **sizes)

    def objection(self, knowledge: Knowledge) -> str | None:
        """It needs a linear head on as many records of each class."""
        labels = knowledge.threat.deal(knowledge.prior, 1, seed=0).own.y[0]
        net = knowledge.net
        if not isinstance(net, nn.Linear) or len(set(torch.bincount(labels, minlength=net.out_features).tolist())) > 1:
            return "FeatureReader reads linear heads that were trained on as many records of each class"
        return super().objection(knowledge)

    def see(self, net: nn.Module, access: Access, release: Release) -> Tensor:
        """(m, c, numbers)."""
        rows = super().see(net, access, release)
        return rows if self.estimate is None else torch.cat([self.estimate.on(rows.device)(release), rows], -1)

    def build(self, net: nn.Module, tokens: int, numbers: int, classes: tuple[int, ...]) -> nn.Module:
        """SetReader's."""
        return SetReader(self.width, self.layers, self.heads).build(net, tokens, numbers, classes)


def coefficients_of(release: Release, own: Tensor) -> Tensor:
    """(m, c, c) A with  A F = W  in the span of the class means F = own (m, c, d)."""
    rows, means = release.params["weight"].double(), own.double()
    return torch.linalg.solve(means @ means.mT, means @ rows.mT).mT.to(own)


def summary(release: Release) -> Tensor:
    """(m, inputs) inner products of rows, log lengths, biases."""
    weight = release.params["weight"]
    products = weight @ weight.mT  # (m, c, c)
    lengths = products.diagonal(dim1=1, dim2=2).log()
    return torch.cat([products.flatten(1), lengths, release.params["bias"]], 1)


def class_means(features: Tensor, y: Tensor, classes: int) -> Tensor:
    """(m, n, d) and (m, n) -> (m, c, d)."""
    members = functional.one_hot(y, classes).to(features)  # (m, n, c)
    return (members / members.sum(1, keepdim=True)).mT @ features


def log_densities(features: Tensor, lowest: Tensor, width: Tensor) -> Tensor:
    """(m, c, d) -> (c, d, bins) of every feature in every class, smoothed histograms."""
    offsets = torch.arange(-3 * SMOOTH, 3 * SMOOTH + 1).to(features)
    kernel = torch.exp(-0.5 * (offsets / SMOOTH).square())
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    places = ((features - lowest) / width).long().clamp(0, BINS - 1).permute(1, 2, 0)  # (c, d, m)
    counts = torch.zeros(*places.shape[:2], BINS).to(features)
    counts = counts.scatter_add_(2, places, torch.ones_like(places).to(features))
    padded = functional.pad(counts.flatten(0, 1).unsqueeze(1), [3 * SMOOTH] * 2)
    smooth = functional.conv1d(padded, kernel).view(counts.shape) + ALONE
    return (smooth / smooth.sum(2, keepdim=True)).log()


def left_over(estimate: Estimate, release: Release, own: Records) -> Tensor:
    """(m,) squared error of estimated features, over that of the prior's class means."""
    truth = class_means(own.inputs, own.y, len(estimate.means))
    wrong, blind = (seen - truth for seen in (estimate(release), estimate.means))
    return wrong.square().sum((1, 2)) / blind.square().sum((1, 2)).mean()


def _extended(inputs: Tensor) -> Tensor:
    """With a constant."""
    return torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
