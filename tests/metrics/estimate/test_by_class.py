"""A threshold for every class."""

import numpy as np
import pytest

from lostwax.metrics import Null, true_positives, true_positives_by_class

RANDOM = np.random.default_rng(0)
CLASSES = np.repeat([0, 1, 2], 2_000)
NEAR = np.array([0.1, 1.0, 1.0])[CLASSES]  # records of class 0 are near each other whatever anybody guesses
CHANCE = NEAR * RANDOM.uniform(0.5, 1.5, 6_000)


def test_each_class_has_its_own_rate():
    errors = np.where(RANDOM.random(6_000) < 0.4, 0.3, 1.0) * NEAR
    found = true_positives_by_class(errors, CHANCE, CLASSES, null=Null.OTHER_SECRETS)
    for label, one in found.classes.items():
        ours = label == CLASSES
        alone = true_positives(errors[ours], CHANCE[ours], null=Null.OTHER_SECRETS, confidence=1 - 0.05 / 3)
        assert one == alone
    assert found.rate == pytest.approx(0.4, abs=0.03)
    assert found.low < 0.4 < found.high
    assert true_positives(errors, CHANCE, null=Null.OTHER_SECRETS).rate < 0.2  # class 0 alone gets through
    assert "at FPR 1 % in each of 3 classes (6,000 games, 95 % CI" in str(found)


def test_an_attack_that_knows_nothing_is_left_with_the_false_positives():
    other = NEAR * RANDOM.uniform(0.5, 1.5, 6_000)
    found = true_positives_by_class(other, CHANCE, CLASSES, null=Null.GAUSSIAN_WEIGHTS, fpr=0.05)
    assert found.low < 0.05 < found.high
    assert found.rate == pytest.approx(0.05, abs=0.02)


def test_it_is_one_threshold_for_errors_with_a_constant_added_to_each_class():
    """So that an attack could have it of itself, by a spot in a corner that adds to all errors of a class."""
    errors = NEAR * RANDOM.uniform(0.1, 1.1, 6_000)
    by_class = true_positives_by_class(errors, CHANCE, CLASSES, null=Null.OTHER_SECRETS)
    added = np.array([1.0 - one.threshold for one in by_class.classes.values()])[CLASSES]
    together = true_positives(errors + added, CHANCE + added, null=Null.OTHER_SECRETS)
    assert together.rate == pytest.approx(by_class.rate, abs=0.002)


def test_few_games_say_that_they_are_few():
    some = slice(None, None, 20)  # 100 of each class
    found = true_positives_by_class(0 * CHANCE[some], CHANCE[some], CLASSES[some], null=Null.OTHER_SECRETS)
    assert "300 games, too few to bound the true rate with 95 % confidence" in str(found)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a score, a null score and a class for every game"):
        true_positives_by_class(CHANCE, CHANCE[:-1], CLASSES, null=Null.OTHER_SECRETS)
    with pytest.raises(ValueError, match="cannot be estimated from 5 null scores"):
        true_positives_by_class(CHANCE[:5], CHANCE[:5], CLASSES[:5], null=Null.OTHER_SECRETS)
