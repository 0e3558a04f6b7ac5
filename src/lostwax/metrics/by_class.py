"""True positives where every class has a threshold of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lostwax.metrics.estimate import as_scores, check_confidence
from lostwax.metrics.roc import Better, Null, TruePositives, interval_words, true_positives


class ByClass(NamedTuple):
    """The share of games won where the same share of the null is let through in every class."""

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

    Records of some classes are near each other whatever anybody guesses: with one threshold for all, most false
    positives of MNIST are ones, and the ones decide how near a guess of an eight must come. An adversary knows the
    class it asks for, and would choose a threshold for it. The interval of each class holds with a confidence of
    1 - (1 - confidence) / classes, so that all hold together and so does their mean: it is wide.
    """
    check_confidence("true_positives_by_class", confidence)
    source = "true_positives_by_class"
    own, chance = as_scores(source, "scores", scores), as_scores(source, "null_scores", null_scores)
    labels = np.asarray(classes)
    if not labels.shape == own.shape == chance.shape:
        raise ValueError(
            f"{source}: expected a score, a null score and a class for every game, got {own.shape}, {chance.shape} and "
            f"{labels.shape}."
        )
    found = np.unique(labels).tolist()
    sure = 1 - (1 - confidence) / len(found)
    each = {
        label: true_positives(
            own[labels == label], chance[labels == label], null=null, fpr=fpr, better=better, confidence=sure
        )
        for label in found
    }
    rate, low, high = (
        float(sum(getattr(one, name) * one.games for one in each.values()) / len(own))
        for name in ("rate", "low", "high")
    )
    return ByClass(rate, low, high, fpr, null, len(own), confidence, each)
