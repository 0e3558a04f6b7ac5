"""Numbers with their uncertainty: rates, medians, correlations, and rates at a false-positive rate of a null."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincinv, betaln
from scipy.stats import rankdata

from lostwax.metrics.errors import Better
from lostwax.seeds import generator

Array = NDArray[np.float64]

ROUNDING = 1e-9  # of a number of trials
LEAST_SPREAD = 1e-4  # that changes an interval


class Estimate(NamedTuple):
    """A mean over games with its confidence interval."""

    value: float
    low: float
    high: float
    games: int
    confidence: float = 0.95

    def __str__(self) -> str:
        interval = f"{100 * self.confidence:g} % CI {self.low:.3f}-{self.high:.3f}"
        return f"{self.value:.3f} ({self.games:,} games, {interval})"


def clopper_pearson(won: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate, with at least this confidence for every rate and sample size.

    Counts need not be whole: 40 of 100 guesses from 20 independent releases are 8 of 20.
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(won, trials - won + 1, tail)) if won > 0 else 0.0
    high = float(betaincinv(won + 1, trials - won, 1 - tail)) if won < trials else 1.0
    return low, high


def spread_interval(won: float, trials: int, spread: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate from trials that share one draw of it, as games that share one split of a table do.

    The rate of a draw has the mean p, which is estimated, and the standard deviation `spread` in log-odds, which is
    spread p (1 - p) in the rate; it is beta distributed, and the number of trials that are won beta-binomial.
    """
    if spread < LEAST_SPREAD:
        return clopper_pearson(won, trials, confidence)
    tail = (1 - confidence) / 2
    fewest, most = math.floor(won + ROUNDING), math.ceil(won - ROUNDING)
    low = _bisected(lambda p: 1 - _at_most(fewest - 1, trials, p, spread) < tail, 0.0, won / trials) if fewest else 0.0
    high = 1.0 if most >= trials else _bisected(lambda p: _at_most(most, trials, p, spread) > tail, won / trials, 1.0)
    return low, high


def _at_most(won: int, trials: int, mean: float, spread: float) -> float:
    """P[at most as many are won]: beta-binomial, with variance (spread p (1 - p))^2 of the rate."""
    size = 1 / (spread**2 * mean * (1 - mean)) - 1  # a + b of the beta distribution
    k = np.arange(won + 1)
    ways = -np.log1p(trials) - betaln(k + 1, trials - k + 1)  # log of the binomial coefficients
    a, b = mean * size, (1 - mean) * size
    return float(np.exp(ways + betaln(a + k, b + trials - k) - betaln(a, b)).sum())


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that holds at the low end ceases to."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def median_interval(scores: Array, confidence: float = 0.95, spread: float = 0.0) -> tuple[float, float] | None:
    """A distribution-free interval of the median between two of the scores; None for too few (at 95 %, below 6).

    Scores may be infinite: only their order counts. `spread`: of the share below the median, as in `spread_interval`.
    """
    from scipy.stats import quantile_test

    if spread >= LEAST_SPREAD:
        ends = [k for k in range(len(scores) // 2) if _at_most(k, len(scores), 0.5, spread) <= (1 - confidence) / 2]
        ordered = np.sort(scores)
        return (float(ordered[ends[-1]]), float(ordered[-1 - ends[-1]])) if ends else None

    ranks = quantile_test(np.arange(len(scores)), p=0.5).confidence_interval(confidence)
    if math.isnan(ranks.low) or math.isnan(ranks.high):
        return None
    ordered = np.sort(scores)
    return float(ordered[int(ranks.low)]), float(ordered[int(ranks.high)])


def check_confidence(source: str, confidence: float) -> None:
    """Raise a ValueError unless it is between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"{source}: expected a confidence between 0 and 1, like 0.95, got {confidence}.")


def as_scores(source: str, name: str, scores: ArrayLike) -> Array:
    """One number per game; infinity is allowed, NaN is not."""
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{source}: expected {name} to hold one number per game, got shape {numbers.shape}.")
    if (missing := np.isnan(numbers)).any():
        raise ValueError(
            f"{source}: {name} holds {int(missing.sum())} NaN, first in game {int(missing.argmax())}. Count a failed "
            "guess as infinitely wrong."
        )
    return numbers


MIN_CORRELATED_GAMES = 4
RESAMPLED_NUMBERS = 2_000_000  # at a time


class Correlation(NamedTuple):
    """Correlations of two metrics' errors over games."""

    pearson: Estimate  # of the errors
    spearman: Estimate  # of their ranks


def correlation(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Correlation:
    """Both correlations of two metrics' errors, (games,) each, with percentile bootstrap intervals over games."""
    check_confidence("correlation", confidence)
    first_errors, second_errors = as_scores("correlation", "first", first), as_scores("correlation", "second", second)
    if len(first_errors) != len(second_errors) or len(first_errors) < MIN_CORRELATED_GAMES:
        wanted = f"the errors of the same games twice, {MIN_CORRELATED_GAMES} games or more"
        raise ValueError(f"correlation: expected {wanted}, got {len(first_errors)} and {len(second_errors)}.")
    for name, errors in (("first", first_errors), ("second", second_errors)):
        if not np.isfinite(errors).all() or np.ptp(errors) == 0:
            wrong = "the same in every game" if np.isfinite(errors).all() else "infinite in some games"
            raise ValueError(f"correlation: the errors of {name} are {wrong}, so there is no correlation.")
    if resamples < 100:
        raise ValueError(f"correlation: expected 100 resamples or more for an interval, got {resamples}.")
    games, random = len(first_errors), generator(seed, "correlation")
    resampled: dict[Callable[[Array, Array], Array], list[Array]] = {pearson: [], spearman: []}
    for start in range(0, resamples, some := max(1, RESAMPLED_NUMBERS // games)):
        rows = random.integers(games, size=(min(some, resamples - start), games))  # (resamples, games)
        for correlated, values in resampled.items():
            values.append(correlated(first_errors[rows], second_errors[rows]))
    estimates = []
    for correlated, values in resampled.items():
        # resamples of equal errors have no correlation (NaN) and are left out
        low, high = np.nanquantile(np.concatenate(values), [(1 - confidence) / 2, (1 + confidence) / 2])
        value = float(correlated(first_errors, second_errors))
        estimates.append(Estimate(value, float(low), float(high), games, confidence))
    return Correlation(*estimates)


def pearson(first: Array, second: Array) -> Array:
    """Pearson's correlation, (..., games) twice -> (...); NaN where one is constant."""
    first_deviations, second_deviations = (errors - errors.mean(-1, keepdims=True) for errors in (first, second))
    size = np.sqrt((first_deviations**2).sum(-1) * (second_deviations**2).sum(-1))
    with np.errstate(invalid="ignore"):
        cosine: Array = np.clip((first_deviations * second_deviations).sum(-1) / size, -1, 1)
    return cosine


def spearman(first: Array, second: Array) -> Array:
    """Pearson's correlation of the ranks, ties sharing their mean rank."""
    return pearson(rankdata(first, axis=-1), rankdata(second, axis=-1))


# Success rates of an attack, at a threshold or at a fixed false-positive rate of a null.


class Null(StrEnum):
    """Where false positives are counted: the scores of an attack that learned nothing."""

    OTHER_SECRETS = "guesses scored against another game's secrets"  # stricter: the guess is a likely record
    GAUSSIAN_WEIGHTS = "guesses from Gaussian weights with the shadows' covariance"  # Maciazek and Allison 2025


def interval_words(low: float, high: float, confidence: float) -> str:
    """The interval of a rate in words, or that there is none."""
    limits, sure = f"{low:.3f}-{high:.3f}", f"{100 * confidence:g} %"
    if limits == "0.000-1.000":
        return f"too few to bound the true rate with {sure} confidence"
    return f"{sure} CI {limits}"


class TruePositives(NamedTuple):
    """The true-positive rate at a fixed false-positive rate of the null."""

    rate: float
    low: float
    high: float
    fpr: float
    null: Null
    games: int
    null_games: int
    threshold: float
    confidence: float

    def __str__(self) -> str:
        interval = interval_words(self.low, self.high, self.confidence)
        return (
            f"TPR {self.rate:.3f} at FPR {100 * self.fpr:g} % ({self.games:,} games, {interval}; "
            f"null: {self.null_games:,} {self.null})"
        )


class Curve(NamedTuple):
    """The whole ROC: both rates at every threshold, from (0, 0) to (1, 1)."""

    fpr: Array  # (thresholds,) from 0 to 1
    tpr: Array  # (thresholds,) from 0 to 1
    thresholds: Array  # (thresholds,) in the units of the scores
    null: Null

    @property
    def area(self) -> float:
        """The probability that a game's score is better than a null score, ties counted half."""
        return float(np.trapezoid(self.tpr, self.fpr))


def success_rate(
    errors: ArrayLike,
    threshold: ArrayLike,
    *,
    confidence: float = 0.95,
    victims: int | None = None,
    spread: float = 0.0,
) -> Estimate:
    """The share of games with an error of at most the threshold, with its Clopper-Pearson interval.

    One threshold, or one per game (the error of each target's nearest neighbour). Guesses from one release are not
    independent: pass the number of releases as `victims`. Games that share a draw have a `spread` (`spread_interval`).
    """
    check_confidence("success_rate", confidence)
    numbers = as_scores("success_rate", "errors", errors)
    limits = np.asarray(threshold, dtype=np.float64)
    if limits.shape not in ((), numbers.shape) or np.isnan(limits).any():
        wanted = f"one threshold, or one per game ({len(numbers)})"
        raise ValueError(f"success_rate: expected {wanted}, got shape {limits.shape}.")
    won = int((numbers <= limits).sum())
    independent = victims or len(numbers)
    low, high = spread_interval(won / len(numbers) * independent, independent, spread, confidence)
    return Estimate(won / len(numbers), low, high, len(numbers), confidence)


def true_positives(
    scores: ArrayLike,
    null_scores: ArrayLike,
    *,
    null: Null,
    fpr: float = 0.01,
    better: Better = "lower",
    confidence: float = 0.95,
) -> TruePositives:
    """The true-positive rate at a fixed false-positive rate, with an interval that accounts for the threshold's error.

    The threshold is the largest null score X_(k) with at most k = floor(fpr (N + 1)) of the N null scores up to it: a
    new null score passes with probability k / (N + 1) <= fpr. Ties count against the attack.

    The estimand is G(q): G the distribution of the scores, q the fpr-quantile of the null. Order statistics enclose q,
    X_(a) <= q <= X_(b), except with probability alpha / 4 on each side, and G(q) lies between the Clopper-Pearson
    limits of the counts up to X_(a) and X_(b), each again except with probability alpha / 4. By the union bound the
    interval holds for all distributions and sample sizes, even if the two samples depend on each other; within each
    sample the games must be independent.

    With OTHER_SECRETS null scores are not: each shares a secret with the next. Every second one is independent, and if
    at most a of all lie up to q, then at most a / 2 do in one of the two halves: six statements, of alpha / 6 each.

    The interval is conservative. Below 636 null scores (954 with OTHER_SECRETS) the lower limit at an fpr of 1 % is 0.
    """
    check_confidence("true_positives", confidence)
    attack_scores, null_sorted = _lower_is_better("true_positives", scores, null_scores, better)
    games, nulls = len(attack_scores), len(null_sorted)
    if not 0 < fpr < 1:
        raise ValueError(f"true_positives: expected a false-positive rate between 0 and 1, got fpr={fpr}.")
    null_passes = math.floor(fpr * (nulls + 1) * (1 + 1e-12))
    if null_passes < 1:
        raise ValueError(
            f"true_positives: a false-positive rate of {fpr:g} cannot be estimated from {nulls} null scores: expected "
            f"{math.ceil(1 / fpr) - 1} or more. Use more games, or a larger fpr."
        )
    threshold = _threshold(null_sorted, null_passes)
    parts = 2 if null == Null.OTHER_SECRETS else 1  # of independent null scores each
    tail = (1 - confidence) / (2 + 2 * parts)
    below, above = _around_quantile(nulls, fpr, tail, parts)
    fewest = int((attack_scores <= _threshold(null_sorted, below)).sum()) if below >= 0 else 0
    most = int((attack_scores <= null_sorted[above - 1]).sum()) if above <= nulls else games
    return TruePositives(
        rate=float((attack_scores <= threshold).mean()),
        low=float(betaincinv(fewest, games - fewest + 1, tail)) if fewest else 0.0,
        high=float(betaincinv(most + 1, games - most, 1 - tail)) if most < games else 1.0,
        fpr=fpr,
        null=null,
        games=games,
        null_games=nulls,
        threshold=threshold if better == "lower" else -threshold,
        confidence=confidence,
    )


def roc(scores: ArrayLike, null_scores: ArrayLike, *, null: Null, better: Better = "lower") -> Curve:
    """Both rates at every threshold that changes one of them."""
    attack_scores, null_sorted = _lower_is_better("roc", scores, null_scores, better)
    thresholds = np.concatenate([[-np.inf], np.unique(np.concatenate([attack_scores, null_sorted]))])
    fpr, tpr = (
        np.searchsorted(np.sort(part), thresholds, side="right") / len(part) for part in (null_sorted, attack_scores)
    )
    fpr[0] = tpr[0] = 0.0  # nothing passes, not even a score of -infinity
    return Curve(fpr, tpr, thresholds if better == "lower" else -thresholds, null)


def _lower_is_better(source: str, scores: ArrayLike, null_scores: ArrayLike, better: Better) -> tuple[Array, Array]:
    """Both samples with lower as better, the null sorted."""
    sign = 1.0 if better == "lower" else -1.0
    return sign * as_scores(source, "scores", scores), np.sort(sign * as_scores(source, "null_scores", null_scores))


def _threshold(null_sorted: Array, count: int) -> float:
    """The largest null score with at most `count` null scores up to it; NaN, which nothing passes, if there is none."""
    # ties with the next one are out
    fit = null_sorted if count >= len(null_sorted) else null_sorted[null_sorted < null_sorted[count]]
    return float(fit[-1]) if fit.size else math.nan


def _around_quantile(nulls: int, fpr: float, tail: float, parts: int) -> tuple[int, int]:
    """Ranks a, b of null scores with X_(a) <= q <= X_(b), each except with probability `tail` in each of the parts.

    a < 0 or b > nulls: there is no such score. Scores are independent within each part of `nulls // parts` scores; a
    score left over may lie on either side.
    """
    per_part, left = divmod(nulls, parts)
    cdf = bdtr(np.arange(per_part + 1), per_part, fpr)  # P[at most 0, 1, ... of a part lie up to q]
    # a threshold with at most a null scores up to it lies beyond q only if at most a lie up to q, and so at most
    # a // parts of some part: the largest a ...
    below = int(np.searchsorted(cdf, tail, side="right")) - 1  # ... for which that has probability <= tail
    # X_(b) lies below q only if b null scores or more do, and so (b - left) / parts or more of some part, with
    # probability 1 - P[at most one less]: the least b likewise
    above = int(np.searchsorted(cdf, 1 - tail, side="left")) + 1
    return parts * (below + 1) - 1, parts * (above - 1) + 1 + left


class ByClass(NamedTuple):
    """The true-positive rate with a threshold per class, at the same false-positive rate in each."""

    rate: float
    low: float
    high: float
    fpr: float
    null: Null
    games: int
    confidence: float
    classes: Mapping[int, TruePositives]

    def __str__(self) -> str:
        interval = interval_words(self.low, self.high, self.confidence)
        return (
            f"TPR {self.rate:.3f} at FPR {100 * self.fpr:g} % in each of {len(self.classes)} classes ({self.games:,} "
            f"games, {interval}; null: {self.null})"
        )


def true_positives_by_class(
    scores: ArrayLike,
    null_scores: ArrayLike,
    classes: ArrayLike,
    *,
    null: Null,
    fpr: float = 0.01,
    better: Better = "lower",
    confidence: float = 0.95,
) -> ByClass:
    """`true_positives` class by class, and their mean over games; game i and null score i are of `classes[i]`.

    With one threshold, most false positives of MNIST are ones, which then set the threshold for an eight. The interval
    of each class has confidence 1 - (1 - confidence) / classes, so that all hold together: their mean's is wide.
    """
    check_confidence("true_positives_by_class", confidence)
    source = "true_positives_by_class"
    attack_scores, nulls = as_scores(source, "scores", scores), as_scores(source, "null_scores", null_scores)
    labels = np.asarray(classes)
    if not labels.shape == attack_scores.shape == nulls.shape:
        got = f"{attack_scores.shape}, {nulls.shape} and {labels.shape}"
        raise ValueError(f"{source}: expected a score, a null score and a class for every game, got {got}.")
    present = np.unique(labels).tolist()
    sure = 1 - (1 - confidence) / len(present)
    by_class = {}
    for label in present:
        scored = attack_scores[labels == label], nulls[labels == label]
        by_class[label] = true_positives(*scored, null=null, fpr=fpr, better=better, confidence=sure)
    parts = by_class.values()

    def mean(numbers: Iterable[float]) -> float:
        total = sum(number * part.games for number, part in zip(numbers, parts, strict=True))
        return float(total / len(attack_scores))

    rate, low, high = mean(p.rate for p in parts), mean(p.low for p in parts), mean(p.high for p in parts)
    return ByClass(rate, low, high, fpr, null, len(attack_scores), confidence, by_class)
