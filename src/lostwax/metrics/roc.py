"""How often an attack succeeds, and how often it would seem to succeed with no release at all."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincinv
from torch import Tensor

from lostwax.metrics.estimate import Estimate, as_scores, check_confidence, clopper_pearson
from lostwax.types import Metric

Better = Literal["lower", "higher"]


class Null(StrEnum):
    """Where false positives are counted: what the scores of an attack that learnt nothing are."""

    OTHER_SECRETS = "guesses scored against another game's secrets"  # the stricter: the guess is a likely record
    GAUSSIAN_WEIGHTS = "guesses from Gaussian weights with the shadows' covariance"  # S2, Algorithms 2 and 3


def interval_words(low: float, high: float, confidence: float) -> str:
    """The interval of a rate, or that there is none."""
    sure = f"{100 * confidence:g} %"
    if (low, high) == (0.0, 1.0):
        return f"too few to bound the true rate with {sure} confidence"
    return f"{sure} CI {low:.3f}-{high:.3f}"


class TruePositives(NamedTuple):
    """The share of games won at a threshold that lets through a fixed share of the null."""

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
    """The whole ROC: both rates at every threshold, from none let through to all."""

    fpr: NDArray[np.float64]  # (thresholds,) from 0 to 1
    tpr: NDArray[np.float64]  # (thresholds,) from 0 to 1
    thresholds: NDArray[np.float64]  # (thresholds,) in the units of the scores
    null: Null

    @property
    def area(self) -> float:
        """The chance that a game's score beats a null score, ties counted half."""
        return float(np.trapezoid(self.tpr, self.fpr))


def success_rate(
    errors: ArrayLike, threshold: ArrayLike, *, confidence: float = 0.95, victims: int | None = None
) -> Estimate:
    """The share of games with an error of at most the threshold, with its Clopper-Pearson interval.

    One threshold (S1: the oracle's mean error; S2: tau), or one a game (each target's own nearest neighbour). Guesses
    from one release are not independent: where several are, `victims` says how many releases there were.
    """
    check_confidence("success_rate", confidence)
    numbers = as_scores("success_rate", "errors", errors)
    limits = np.asarray(threshold, dtype=np.float64)
    if limits.shape not in ((), numbers.shape) or np.isnan(limits).any():
        raise ValueError(
            f"success_rate: expected one threshold, or one a game ({len(numbers)}), got shape {limits.shape}."
        )
    won = int((numbers <= limits).sum())
    independent = victims or len(numbers)
    low, high = clopper_pearson(won / len(numbers) * independent, independent, confidence)
    return Estimate(won / len(numbers), low, high, len(numbers), confidence)


def other_secrets(metric: Metric, guess: Tensor, truth: Tensor, shift: int = 1) -> Tensor:
    """Null scores, one a game: the guess of game i against the truth of game i + shift, (games,)."""
    others = truth.roll(-shift, 0)
    same = (others == truth).flatten(1).all(1)
    if same.any():
        raise ValueError(
            f"other_secrets: in {int(same.sum())} of {len(truth)} games (first: {int(same.int().argmax())}) the other "
            f"game, {shift} further, has the same secret, so it says nothing of chance. Choose another shift, or "
            "play games with different secrets."
        )
    return metric(guess, others)


def true_positives(
    scores: ArrayLike,
    null_scores: ArrayLike,
    *,
    null: Null,
    fpr: float = 0.01,
    better: Better = "lower",
    confidence: float = 0.95,
) -> TruePositives:
    """The true positive rate at a fixed false positive rate, with an interval that knows the threshold is estimated.

    The rate is taken at the largest null score X_(k) with at most k = floor(fpr (N + 1)) of the N null scores up to
    it: a new null score is let through with probability k / (N + 1) <= fpr. Ties count against the attack.

    What is estimated is G(q): G the distribution of the scores, q the fpr-quantile of the null. Order statistics
    enclose q, X_(a) <= q <= X_(b), but for a chance of alpha / 4 on each side, and so G(q) lies between the
    Clopper-Pearson limits of the counts up to X_(a) and up to X_(b), each again but for alpha / 4. By the union
    bound the interval holds for all distributions and every number of games, even where the two samples depend
    on each other; within each sample the games must be independent.

    With OTHER_SECRETS the null scores are not: each shares a secret with the next. Every other one is, though, and if
    at most a of all lie up to q, then at most a / 2 do in one of the two halves: six statements, of alpha / 6 each.

    The interval is conservative, and mostly as wide as the null is small: at 1,000 null scores and an fpr of 1 % ten
    of them set the threshold, and an interval that took it for exact can miss the truth half the time (tested). Below
    636 null scores (954 with OTHER_SECRETS) the lower limit at an fpr of 1 % is 0. More null scores are the cure.
    """
    check_confidence("true_positives", confidence)
    won, chance = _lower_is_better("true_positives", scores, null_scores, better)
    games, nulls = len(won), len(chance)
    if not 0 < fpr < 1:
        raise ValueError(f"true_positives: expected a false positive rate between 0 and 1, got fpr={fpr}.")
    kept = math.floor(fpr * (nulls + 1) * (1 + 1e-12))
    if kept < 1:
        raise ValueError(
            f"true_positives: a false positive rate of {fpr:g} cannot be told from {nulls} null scores: expected "
            f"{math.ceil(1 / fpr) - 1} or more. Play more games, or ask for a larger fpr."
        )
    threshold = _threshold(chance, kept)
    parts = 2 if null == Null.OTHER_SECRETS else 1  # of independent null scores each
    tail = (1 - confidence) / (2 + 2 * parts)
    below, above = _around_quantile(nulls, fpr, tail, parts)
    fewest = int((won <= _threshold(chance, below)).sum()) if below >= 0 else 0
    most = int((won <= chance[above - 1]).sum()) if above <= nulls else games
    return TruePositives(
        rate=float((won <= threshold).mean()),
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
    won, chance = _lower_is_better("roc", scores, null_scores, better)
    thresholds = np.concatenate([[-np.inf], np.unique(np.concatenate([won, chance]))])
    fpr, tpr = (np.searchsorted(np.sort(part), thresholds, side="right") / len(part) for part in (chance, won))
    fpr[0] = tpr[0] = 0.0  # nothing is let through, not even a score of -infinity
    return Curve(fpr, tpr, thresholds if better == "lower" else -thresholds, null)


def _lower_is_better(
    source: str, scores: ArrayLike, null_scores: ArrayLike, better: Better
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both samples turned so that lower is better, the null sorted."""
    sign = 1.0 if better == "lower" else -1.0
    return sign * as_scores(source, "scores", scores), np.sort(sign * as_scores(source, "null_scores", null_scores))


def _threshold(chance: NDArray[np.float64], kept: int) -> float:
    """The largest null score with at most `kept` null scores up to it; nan, which lets nothing through, if none is."""
    fit = chance if kept >= len(chance) else chance[chance < chance[kept]]  # ties with the next one are out
    return float(fit[-1]) if fit.size else math.nan


def _around_quantile(nulls: int, fpr: float, tail: float, parts: int) -> tuple[int, int]:
    """Ranks a, b of null scores with X_(a) <= q <= X_(b), each but for a chance of `tail` in each of the parts.

    a < 0 or b > nulls: there is no such score. Where the scores are not independent, those of each part are, of
    `nulls // parts` scores; a score that is left over may lie on either side.
    """
    each, left = divmod(nulls, parts)
    let_through = bdtr(np.arange(each + 1), each, fpr)  # P[at most 0, 1, ... of a part lie up to q]
    # a threshold with at most a null scores up to it lies beyond q only if at most a lie up to q, and so at most
    # a // parts of some part: the largest a ...
    below = int(np.searchsorted(let_through, tail, side="right")) - 1  # ... for which that has chance <= tail
    # X_(b) lies below q only if b null scores or more do, and so (b - left) / parts or more of some part, of chance
    # 1 - P[at most one less]: the least b likewise
    above = int(np.searchsorted(let_through, 1 - tail, side="left")) + 1
    return parts * (below + 1) - 1, parts * (above - 1) + 1 + left
