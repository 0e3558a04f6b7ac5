"""Losses with their derivatives: trainers minimise them, the closed form solves their residual for the record."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lostwax.fields import above, at_least, check_fields
from lostwax.games import LossFacts

__all__ = ["BinaryCrossEntropy", "CrossEntropy", "Huber", "ModifiedHuber", "SquaredEpsilonInsensitive", "SquaredError"]
__all__ += ["MultiLabel", "ProbitLoss", "SquaredHinge", "SquaredSignError", "Tweedie"]


def indicators(y: Tensor, outputs: Tensor) -> Tensor:
    """One-hot labels, one column per output (a comparison works under vmap); with a single output, y itself."""
    if outputs.shape[-1] == 1:
        return y.unsqueeze(-1).to(outputs.dtype)  # (..., n, 1)
    classes = torch.arange(outputs.shape[-1], device=y.device).unsqueeze(-1)  # (c, 1)
    onehot = (classes == y.unsqueeze(-2)).to(outputs.dtype)  # (..., c, n) records last in memory, as in stacked outputs
    return onehot.mT  # (..., n, c)


def signs(y: Tensor, outputs: Tensor) -> Tensor:
    """+1 for the record's class, else -1, one column per output."""
    return 2 * indicators(y, outputs) - 1


def differences(outputs: Tensor, y: Tensor) -> Tensor:
    """out - y, with one target per output, (..., n, c)."""
    return outputs - (y.unsqueeze(-1) if y.ndim < outputs.ndim else y).to(outputs.dtype)


def one_or_all(y: Tensor) -> Tensor:
    """Targets without their last axis if there is one per record."""
    return y[..., 0] if y.shape[-1] == 1 else y


class _OfTargets:
    """A loss with one target per output."""

    _facts: ClassVar[LossFacts] = LossFacts()

    def facts(self, outputs: int) -> LossFacts:
        return self._facts


class _OneVsRest:
    """A loss with two classes of one output, or one output per class; t = 1 for the record's class, else 0."""

    _attained: ClassVar[bool] = False

    def facts(self, outputs: int) -> LossFacts:
        return LossFacts(classes=max(outputs, 2), attained=self._attained)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """The residual is negative in the record's class."""
        return (residual[..., 0] < 0).long() if outputs.shape[-1] == 1 else residual.argmin(-1)


class _Margin(_OneVsRest, ABC):
    """A loss that is zero beyond a margin: a record may be beyond the margin of its own class only."""

    _attained = True

    @abstractmethod
    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """d loss / d outputs."""

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """The class with the closest residual; of two classes, the second pulls its output up."""
        if outputs.shape[-1] == 1:
            return (residual[..., 0] < 0).long()
        labels = torch.arange(outputs.shape[-1], device=outputs.device)
        residuals = torch.stack([self.residual(outputs, label.expand(outputs.shape[:-1])) for label in labels], -1)
        return (residuals - residual.unsqueeze(-1)).square().sum(-2).argmin(-1)


@dataclass(frozen=True)
class CrossEntropy:
    """log sum_c exp(out_c) - out_y, labels as class numbers."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return outputs.logsumexp(-1) - (outputs * indicators(y, outputs)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """softmax(out) - onehot(y)."""
        p = outputs.mT.softmax(-2).mT  # (..., n, c); over the last axis but one: stacked trainers keep records last
        return p - indicators(y, outputs)

    def facts(self, outputs: int) -> LossFacts:
        """One output per class."""
        return LossFacts(classes=outputs, fewest_outputs=2, attained=False)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """p - onehot(y) is negative only in the true class."""
        return residual.argmin(-1)


@dataclass(frozen=True)
class BinaryCrossEntropy(_OneVsRest):
    """a t log(1 + exp(-out)) + (1 - t) log(1 + exp(out)), with t in {0, 1} and a the `positive_weight`.

    With one output, t is the label; with c outputs, t is one-hot: c one-vs-rest problems.
    """

    positive_weight: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, positive_weight=above(0))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        t = indicators(y, outputs)
        return (self.positive_weight * t * softplus(-outputs) + (1 - t) * softplus(outputs)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(1 - t) p - a t (1 - p), which is p - t for a = 1."""
        t = indicators(y, outputs)
        return (1 - t) * outputs.sigmoid() - self.positive_weight * t * (-outputs).sigmoid()  # (..., n, c)


@dataclass(frozen=True)
class MultiLabel(_OfTargets):
    """log(1 + exp(out)) - t out, summed over outputs; t in [0, 1], one target per output: several labels per record.

    torch's BCEWithLogitsLoss is its mean over records, divided by the number of outputs.
    """

    _facts = LossFacts(attained=False)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return (softplus(outputs) - self._targets(outputs, y) * outputs).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """p - t."""
        return outputs.sigmoid() - self._targets(outputs, y)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """t = p - residual."""
        return one_or_all(outputs.sigmoid() - residual)

    def _targets(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (y.unsqueeze(-1) if y.ndim < outputs.ndim else y).to(outputs.dtype)


@dataclass(frozen=True)
class SquaredError(_OfTargets):
    """|out - y|^2 / 2, summed over outputs (torch's MSELoss is twice its mean over records and outputs)."""

    _facts = LossFacts(quadratic=True)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return self.residual(outputs, y).square().sum(-1) / 2  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """out - y."""
        return differences(outputs, y)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = out - residual."""
        return one_or_all(outputs - residual)


@dataclass(frozen=True)
class Huber(_OfTargets):
    """d^2 / 2 for |d| = |out - y| up to the threshold t, t |d| - t^2 / 2 beyond it, summed over outputs.

    scikit-learn's HuberRegressor has twice this over its scale_, with t = epsilon scale_.
    """

    threshold: float

    def __post_init__(self) -> None:
        check_fields(self, threshold=above(0))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        distance = differences(outputs, y).abs()
        within = distance.clamp_max(self.threshold)
        return (within * (distance - within / 2)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """out - y, clipped at the threshold."""
        return differences(outputs, y).clamp(-self.threshold, self.threshold)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = out - residual; of an outlier only that y is at least as far away."""
        return one_or_all(outputs - residual)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(_OfTargets):
    """max(0, |out - y| - epsilon)^2, summed over outputs: as LinearSVR."""

    epsilon: float

    def __post_init__(self) -> None:
        check_fields(self, epsilon=at_least(0))

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return (differences(outputs, y).abs() - self.epsilon).clamp_min(0).square().sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """2 (out - y) shrunk by epsilon: zero for a record within the tube."""
        difference = differences(outputs, y)
        return 2 * (difference - difference.clamp(-self.epsilon, self.epsilon))  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = out - residual / 2, further away by epsilon."""
        return one_or_all(outputs - residual / 2 - self.epsilon * residual.sign())


@dataclass(frozen=True)
class SquaredSignError(_OneVsRest):
    """(out - s)^2 / 2 with s = +1 for the record's class, else -1, summed over outputs: as RidgeClassifier."""

    _attained = True

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return self.residual(outputs, y).square().sum(-1) / 2  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """out - s."""
        return outputs - signs(y, outputs)  # (..., n, c)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """s = out - residual is largest in the record's class."""
        s = outputs - residual
        return (s[..., 0] > 0).long() if outputs.shape[-1] == 1 else s.argmax(-1)


@dataclass(frozen=True)
class ModifiedHuber(_Margin):
    """max(0, 1 - z)^2 with z = s out, linear (-4 z) below z = -1, summed over outputs; s = +1 or -1 by class."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        slack = (1 - signs(y, outputs) * outputs).clamp_min(0)
        within = slack.clamp_max(2)
        return (within * (2 * slack - within)).sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-2 s max(0, 1 - z), at most 4 in size."""
        s = signs(y, outputs)
        return -2 * s * (1 - s * outputs).clamp(0, 2)  # (..., n, c)


@dataclass(frozen=True)
class SquaredHinge(_Margin):
    """max(0, 1 - s out)^2 with s = +1 for the record's class, else -1, summed over outputs: as LinearSVC."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        return self._slack(outputs, y).square().sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-2 s max(0, 1 - s out): zero for a record beyond the margin."""
        return -2 * signs(y, outputs) * self._slack(outputs, y)  # (..., n, c)

    def _slack(self, outputs: Tensor, y: Tensor) -> Tensor:
        return (1 - signs(y, outputs) * outputs).clamp_min(0)


@dataclass(frozen=True)
class ProbitLoss(_OneVsRest):
    """-log Phi(s out) with s = +1 for the second class, else -1; Phi is the normal distribution function."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        losses: Tensor = -torch.special.log_ndtr(signs(y, outputs) * outputs)
        return losses.sum(-1)  # (..., n)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """-s phi(out) / Phi(s out)."""
        s = signs(y, outputs)
        log_density = -outputs.square() / 2 - math.log(2 * math.pi) / 2
        ratio: Tensor = (log_density - torch.special.log_ndtr(s * outputs)).exp()
        return -s * ratio  # (..., n, c)


@dataclass(frozen=True)
class Tweedie(_OfTargets):
    """Half the Tweedie deviance with variance mu^power, up to terms of y alone.

    Poisson, Gamma and inverse Gaussian are powers 1, 2 and 3. The log link is canonical only for power 1 (the case of
    Theorem 1 of Balle et al. 2022); in general d loss / d out = (mu - y) mu'(out) / mu^power.
    """

    _facts = LossFacts(up_to_constant=True)
    power: float
    link: Literal["log", "identity", "inverse"] = "log"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record: the integral of (mu - y) / mu^power over mu."""
        mu, p, y = self._mean(outputs), self.power, y.unsqueeze(-1)
        if p == 1:
            return (mu - y * mu.log()).sum(-1)
        if p == 2:
            return (mu.log() + y / mu).sum(-1)
        return (mu ** (2 - p) / (2 - p) - y * mu ** (1 - p) / (1 - p)).sum(-1)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """(mu - y) h(mu), h = mu'(out) / mu^power: mu' is mu under the log link, 1 or -mu^2 under the others."""
        mu = self._mean(outputs)
        return (mu - y.unsqueeze(-1)) * self._slope(mu)  # (..., n, 1)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """y = mu - residual / h(mu)."""
        mu = self._mean(outputs)
        return (mu - residual / self._slope(mu))[..., 0]

    def _mean(self, outputs: Tensor) -> Tensor:
        return {"log": outputs.exp, "identity": outputs.clone, "inverse": outputs.reciprocal}[self.link]()

    def _slope(self, mu: Tensor) -> Tensor:
        factor, degree = {"log": (1, 1), "identity": (1, 0), "inverse": (-1, 2)}[self.link]
        return factor * mu ** (degree - self.power)
