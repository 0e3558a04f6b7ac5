"""A ROC from normal laws of the logit of an error (Maciazek and Allison 2025, appendix A)."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logit, ndtr, ndtri

from lostwax.metrics import Null
from lostwax.metrics.estimate import as_scores

ALIKE = 1e-6  # relative difference below which two standard deviations are equal


class GaussianROC(NamedTuple):
    """Normal laws of the logit of an error, for the attack's guesses and a null (Maciazek and Allison 2025, app. A).

    `tpr` accepts guesses of small error, in closed form. `best_tpr` is that of the likelihood-ratio test, which is
    optimal (Neyman and Pearson). Their Theorem 1 equates the two by an unproved identity (Eq. 13); it holds for equal
    standard deviations, and nearly so if the means are far apart. Otherwise the ratio is large on both sides of a
    value, or between two, and `best_tpr` is larger.
    """

    mean: float
    std: float
    null_mean: float
    null_std: float
    null: Null

    def tpr(self, fpr: float) -> float:
        """Phi((mu_1 - mu_0 + sigma_1 Phi^-1(FPR)) / sigma_0), with 1 for the null (Eq. 6)."""
        _check_rate("tpr", fpr)
        threshold = self.null_mean + self.null_std * ndtri(fpr)
        return float(ndtr((threshold - self.mean) / self.std))

    def best_tpr(self, fpr: float) -> float:
        """Of the likelihood-ratio test, which accepts beyond or between two roots r_0 -+ delta (Eq. 12)."""
        _check_rate("best_tpr", fpr)
        if abs(self.std - self.null_std) <= ALIKE * self.null_std:
            return float(ndtr(abs(self.null_mean - self.mean) / self.std + ndtri(fpr)))  # one root is left
        variance, null_variance = self.std**2, self.null_std**2
        r0 = (self.null_mean * variance - self.mean * null_variance) / (variance - null_variance)
        beyond = self.std > self.null_std  # the wider law has the larger density in both tails

        def accepted(root: float, mean: float, std: float) -> float:
            """Probability of a normal number beyond, or else between, the root and its mirror image in r_0."""
            one, other = (float(ndtr((end - mean) / std)) for end in (root, 2 * r0 - root))
            return one + 1 - other if beyond else one - other

        # at this distance from r_0 each tail holds less than fpr / 2 of the null, and the interval more than fpr
        quantile = float(ndtri(1 - fpr / 2 if beyond else (1 + fpr) / 2))
        reach = abs(r0 - self.null_mean) + self.null_std * (quantile + 1)
        low, high = (r0 - reach, r0) if beyond else (r0, r0 + reach)
        root = brentq(lambda end: accepted(end, self.null_mean, self.null_std) - fpr, low, high, xtol=1e-13)
        return accepted(root, self.mean, self.std)


def gaussian_roc(errors: ArrayLike, null_errors: ArrayLike, *, null: Null, largest: float) -> GaussianROC:
    """Normal laws fitted, by maximum likelihood, to phi = log(error / (largest - error)).

    `largest` is the largest possible error: 4 for the mean squared error of pixels in [-1, 1].
    """
    return GaussianROC(*_fitted("errors", errors, largest), *_fitted("null_errors", null_errors, largest), null)


def _fitted(name: str, errors: ArrayLike, largest: float) -> tuple[float, float]:
    """The mean and the standard deviation of the logit."""
    numbers = as_scores("gaussian_roc", name, errors)
    outside = int(((numbers <= 0) | (numbers >= largest)).sum())
    if outside:
        raise ValueError(
            f"gaussian_roc: expected {name} between 0 and largest={largest:g}, both excluded, but {outside} of "
            f"{len(numbers)} are not: they have no logit. Use roc, which fits nothing."
        )
    phi = logit(numbers / largest)
    if not phi.std() > 0:
        raise ValueError(f"gaussian_roc: all {len(numbers)} {name} are equal, so no normal law fits them. Use roc.")
    return float(phi.mean()), float(phi.std())


def _check_rate(name: str, fpr: float) -> None:
    if not 0 < fpr < 1:
        raise ValueError(f"GaussianROC.{name}: expected a false-positive rate between 0 and 1, got fpr={fpr}.")
