"""The ROC of errors whose logit is normal (S2, Appendix A.1)."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logit, ndtr, ndtri

from lostwax.metrics.estimate import as_scores
from lostwax.metrics.roc import Null

ALIKE = 1e-6  # standard deviations that differ by less, in parts, are one: the second root is out of sight


class GaussianROC(NamedTuple):
    """Two normal laws of the logit of an error: of the attack's guesses (S2's H_0), and of a null's (H_1).

    A guess is believed where its error is small: that is the cumulative ROC, `tpr`, in closed form. No test beats that
    of the likelihood ratio (Neyman and Pearson), `best_tpr`. S2's Theorem 1 takes the two for the same, by an identity
    (its Eq. 13) that it leaves unproved; they are where the standard deviations are, and near where the means are far
    apart. Otherwise a likelihood ratio of two widths is large on both sides of a value, or between two, and `best_tpr`
    is larger.
    """

    mean: float
    std: float
    null_mean: float
    null_std: float
    null: Null

    def tpr(self, fpr: float) -> float:
        """S2, Eq. 6, written with the normal distribution: Phi((mu_1 - mu_0 + sigma_1 Phi^-1(FPR)) / sigma_0)."""
        _check_rate("tpr", fpr)
        threshold = self.null_mean + self.null_std * ndtri(fpr)
        return float(ndtr((threshold - self.mean) / self.std))

    def best_tpr(self, fpr: float) -> float:
        """Of the likelihood-ratio test, which is believed beyond or between two roots r_0 -+ delta (S2, Eq. 12)."""
        _check_rate("best_tpr", fpr)
        if abs(self.std - self.null_std) <= ALIKE * self.null_std:
            return float(ndtr(abs(self.null_mean - self.mean) / self.std + ndtri(fpr)))  # one root is left
        variance, null_variance = self.std**2, self.null_std**2
        r0 = (self.null_mean * variance - self.mean * null_variance) / (variance - null_variance)
        beyond = self.std > self.null_std  # the wider law has the larger density in both tails

        def believed(root: float, mean: float, std: float) -> float:
            """How often a normal number lies beyond, or else between, the root and its mirror image in r_0."""
            one, other = (float(ndtr((end - mean) / std)) for end in (root, 2 * r0 - root))
            return one + 1 - other if beyond else one - other

        # so far from r_0 each tail holds less than fpr / 2 of the null, and what is between more than fpr
        quantile = float(ndtri(1 - fpr / 2 if beyond else (1 + fpr) / 2))
        reach = abs(r0 - self.null_mean) + self.null_std * (quantile + 1)
        root = brentq(
            lambda root: believed(root, self.null_mean, self.null_std) - fpr,
            *((r0 - reach, r0) if beyond else (r0, r0 + reach)),
            xtol=1e-13,
        )
        return believed(root, self.mean, self.std)


def gaussian_roc(errors: ArrayLike, null_errors: ArrayLike, *, null: Null, largest: float) -> GaussianROC:
    """Normal laws fitted, by maximum likelihood, to phi = log(error / (largest - error)).

    `largest` is the largest error there can be: 4 for the mean squared error of pixels in [-1, 1], as in S2.
    """
    mean, std = _fitted("errors", errors, largest)
    null_mean, null_std = _fitted("null_errors", null_errors, largest)
    return GaussianROC(mean, std, null_mean, null_std, null)


def _fitted(name: str, errors: ArrayLike, largest: float) -> tuple[float, float]:
    """The mean and the standard deviation of the logit."""
    numbers = as_scores("gaussian_roc", name, errors)
    outside = int(((numbers <= 0) | (numbers >= largest)).sum())
    if outside:
        raise ValueError(
            f"gaussian_roc: expected {name} between 0 and largest={largest:g}, both excluded, and {outside} of "
            f"{len(numbers)} are not: they have no logit. Use roc, which fits nothing."
        )
    phi = logit(numbers / largest)
    if not phi.std() > 0:
        raise ValueError(f"gaussian_roc: all {len(numbers)} {name} are the same: no normal law fits them. Use roc.")
    return float(phi.mean()), float(phi.std())


def _check_rate(name: str, fpr: float) -> None:
    if not 0 < fpr < 1:
        raise ValueError(f"GaussianROC.{name}: expected a false positive rate between 0 and 1, got fpr={fpr}.")
