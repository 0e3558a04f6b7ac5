"""Is what an answer leaves unexplained noise alone, or the trace of another record?"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Records
from lostwax.learning.coordinates import flat
from lostwax.seeds import generator

MODELS = 64  # trained on records near an answer, to test it
CLOSEST, FARTHEST = 0.15, 0.45  # of the way from the answer to other records: where they lie
LEVEL = 0.01  # share of right answers that fail the test, about


class OtherRecords(NamedTuple):
    """Records that an answer could be mistaken for: some of the known and prior ones of each class."""

    z: Tensor  # (n, u) numbers of each, float64
    label: Tensor  # (n,) 0 where labels are numbers, which are in z

    @classmethod
    def of(cls, available: Records, seed: int) -> OtherRecords:
        """At most MODELS of each class."""
        y = available.y
        label = torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y
        order = torch.from_numpy(generator(seed, "adversary", "others").permutation(len(y))).to(y.device)
        rows = torch.cat([order[label[order] == one][:MODELS] for one in torch.unique(label)])
        return cls(flat(available[rows]), label[rows])

    def near(self, z: Tensor, label: Tensor) -> Tensor:
        """(MODELS, k u) records part of the way from an answer's (k u,) to others of its classes (k,)."""
        share = torch.linspace(CLOSEST, FARTHEST, MODELS, dtype=z.dtype, device=z.device).unsqueeze(1)
        number = torch.arange(MODELS, device=z.device)
        pools = [self.z[self.label == one] for one in label]
        towards = [pool[(number + place) % len(pool)] for place, pool in enumerate(pools)]  # two of a class differ
        return z + share * (torch.cat(towards, 1) - z)


def is_noise(residual: Tensor, jacobian: Tensor, gaps: Tensor, noise: Tensor) -> bool:
    """True if the residual (p,) of an answer looks like simulated noise (s, p).

    At a wrong local optimum it is noise plus a gap, A(answer) - A(record), which is lost in the norm of thousands of
    weights. But a gap lies in few directions: those in which models of other records, less that of the answer, `gaps`
    (s, p), leave the tangent space of the answer (p, r). Along these, and in norm, the residual should be as large as
    noise is; in the tangent space the answer is fitted to both.
    """
    if not (gaps.isfinite().all() and noise.isfinite().all()) or jacobian.shape[0] <= jacobian.shape[1]:
        return False  # training diverged nearby, or any residual could be fitted
    tangent = torch.linalg.qr(jacobian.double()).Q  # (p, r)
    residual, gaps, noise = (part - (part @ tangent) @ tangent.mT for part in (residual[None], gaps, noise))
    along = telling(gaps, float(noise.square().mean())).mT  # (p, s)
    pairs = ((residual @ along, noise @ along), (residual, noise))
    return all(usual(float(ours.square().sum()), drawn.square().sum(1), LEVEL / len(pairs)) for ours, drawn in pairs)


def telling(gaps: Tensor, noise: float) -> Tensor:
    """(s, p) rows w_i u_i such that  sum_i (w_i u_i^T x)^2  tells best whether x (p,) is noise or noise plus a gap.

    Up to constants it is the log likelihood ratio of a Gaussian gap, with the second moments of `gaps` (s, p), to none:
    S_i along u_i gives  w_i^2 = S_i / (S_i + n),  where n is the variance of the noise on a weight.
    """
    _, sizes, directions = torch.linalg.svd(gaps, full_matrices=False)  # (s,), (s, p)
    variance = sizes.square() / len(gaps)
    weight = torch.where(variance > 0, variance / (variance + noise), 0.0)
    weighted: Tensor = weight.sqrt().unsqueeze(1) * directions
    return weighted


def usual(value: float, draws: Tensor, level: float) -> bool:
    """True if the value is below the upper quantile of a gamma distribution with mean and variance of draws (s,).

    A weighted sum of squares of Gaussian numbers has nearly that distribution.
    """
    from scipy.stats import gamma  # slow to import

    mean, variance = float(draws.mean()), float(draws.var())
    if variance == 0:
        return value <= mean
    return value <= float(gamma.isf(level, mean**2 / variance, scale=variance / mean))
