import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, mannwhitneyu, norm

from lostwax.metrics import MSE, Null, roc, success_rate, true_positives


def test_success_rate_has_an_exact_interval():
    errors = np.array([0.1] * 7 + [0.3] * 12 + [math.inf])
    found = success_rate(errors, 0.1)
    exact = binomtest(7, 20).proportion_ci(method="exact")
    assert (found.value, found.games) == (0.35, 20)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-6)
    assert str(found) == "0.350 (20 games, 95 % CI 0.154-0.592)"
    narrow = success_rate(errors, 0.1, confidence=0.5)
    assert found.low < narrow.low < narrow.high < found.high
    assert success_rate(errors, 0.0).low == 0.0
    assert success_rate(errors, math.inf).high == 1.0


def test_each_game_may_have_its_own_threshold():
    assert success_rate([1.0, 2.0, 3.0], [1.5, 1.5, 3.0]).value == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="one threshold, or one per game"):
        success_rate([1.0, 2.0, 3.0], [1.5, 1.5])


def test_the_threshold_lets_through_no_more_than_the_rate():
    null = np.arange(1, 1000.0)  # 999 scores: the tenth smallest has a mean false-positive rate of 1 %
    found = true_positives([0.5, 10.0, 10.5, 2000.0], null, null=Null.OTHER_SECRETS)
    assert (found.rate, found.threshold, found.games, found.null_games) == (0.5, 10.0, 4, 999)
    turned = true_positives([-0.5, -10.0, -10.5, -2000.0], -null, null=Null.OTHER_SECRETS, better="higher")
    assert turned == found._replace(threshold=-10.0)
    assert "null: 999 guesses scored against another game's secrets" in str(found)


def test_ties_count_against_the_attack():
    constant = np.zeros(200)  # a score that says nothing must win nothing
    found = true_positives(constant, constant, null=Null.GAUSSIAN_WEIGHTS, fpr=0.05)
    assert found.rate == found.low == 0
    perfect = np.full(200, np.inf)  # so must infinite ones
    assert true_positives(perfect, perfect, null=Null.GAUSSIAN_WEIGHTS, better="higher").rate == 0


def test_a_null_model_has_equal_rates():
    """No attack at all: TPR = FPR within the interval."""
    random = np.random.default_rng(0)
    for fpr in (0.01, 0.1, 0.5):
        found = true_positives(*random.standard_normal((2, 5000)), null=Null.GAUSSIAN_WEIGHTS, fpr=fpr)
        assert found.low <= fpr <= found.high
        assert abs(found.rate - fpr) < 5 * math.sqrt(2 * fpr / 5000)


@pytest.mark.parametrize(
    ("games", "nulls", "fpr", "gain"), [(300, 1000, 0.01, 0), (1000, 1000, 0.01, 2), (50, 99, 0.1, 1)]
)
def test_the_interval_covers_the_true_rate(games, nulls, fpr, gain):
    """Scores N(-gain, 1) against N(0, 1): the true rate at the true threshold is Phi(Phi^-1(fpr) + gain)."""
    true, random, rounds = norm.cdf(norm.ppf(fpr) + gain), np.random.default_rng(2), 300
    covered, plain = 0, 0
    for _ in range(rounds):
        scores, null = random.standard_normal(games) - gain, random.standard_normal(nulls)
        found = true_positives(scores, null, null=Null.GAUSSIAN_WEIGHTS, fpr=fpr)
        assert found.low <= found.rate <= found.high
        covered += found.low <= true <= found.high
        binomial = binomtest(round(found.rate * games), games).proportion_ci()
        plain += binomial.low <= true <= binomial.high
    assert covered / rounds >= 0.95
    assert covered >= plain  # an interval that takes the threshold for exact covers less ...
    assert gain < 2 or plain / rounds < 0.6  # ... much less where the curve is steep


def test_the_interval_covers_where_both_samples_share_the_guesses():
    """Other games' secrets: the same guesses are scored twice, and each truth too."""
    truth, noise = torch.randn(2, 90_000, 3, generator=torch.Generator().manual_seed(0))
    guess = 0.5 * truth + noise
    threshold = torch.quantile(MSE()(guess, truth.roll(-1, 0)), 0.05)
    true = (MSE()(guess, truth) <= threshold).float().mean().item()
    covered = 0
    for games in torch.arange(90_000).reshape(300, 300):
        own, others = MSE()(guess[games], truth[games]), MSE()(guess[games], truth[games].roll(-1, 0))
        found = true_positives(own, others, null=Null.OTHER_SECRETS, fpr=0.05)
        covered += found.low <= true <= found.high
    assert covered / 300 >= 0.95


def test_the_interval_covers_where_null_scores_share_a_secret():
    """A secret that is near everything brings both of its null scores through: they come in pairs."""
    random, games, fpr, rounds, missed = np.random.default_rng(0), 1000, 0.1, 300, 0
    for _ in range(rounds):
        near_all = random.random(games) < 1 - math.sqrt(1 - fpr)
        through = near_all | np.roll(near_all, -1)
        null = np.where(through, random.random(games), 1 + random.random(games))  # the fpr-quantile is 1
        own = 1 + 1e-9 * random.uniform(-1, 1, games)  # half of them up to it
        found = true_positives(own, null, null=Null.OTHER_SECRETS, fpr=fpr)
        missed += not found.low <= 0.5 <= found.high
    assert missed / rounds <= 0.05


def test_null_scores_in_pairs_are_worth_less():
    scores, null = np.arange(1000) / 1000, np.arange(5, 1005) / 1000
    alone, paired = (true_positives(scores, null, null=which) for which in (Null.GAUSSIAN_WEIGHTS, Null.OTHER_SECRETS))
    assert paired.rate == alone.rate
    assert 0 < paired.low < alone.low < alone.high < paired.high < 1


@pytest.mark.parametrize(("nulls", "null"), [(636, Null.GAUSSIAN_WEIGHTS), (954, Null.OTHER_SECRETS)])
def test_so_many_null_scores_give_a_lower_limit(nulls, null):
    for number in (nulls, nulls + 1):
        assert true_positives(np.zeros(50), np.arange(number), null=null).low > 0.8
    assert true_positives(np.zeros(50), np.arange(nulls - 1), null=null).low == 0


def test_too_few_nulls_are_refused():
    with pytest.raises(ValueError, match="cannot be estimated from 98 null scores: expected 99 or more"):
        true_positives(np.zeros(5), np.zeros(98), null=Null.OTHER_SECRETS)
    true_positives(np.zeros(5), np.arange(99.0), null=Null.OTHER_SECRETS)
    with pytest.raises(ValueError, match="false-positive rate between 0 and 1"):
        true_positives(np.zeros(5), np.zeros(98), null=Null.OTHER_SECRETS, fpr=1.0)
    with pytest.raises(ValueError, match="holds 1 NaN"):
        true_positives([math.nan], np.arange(99.0), null=Null.OTHER_SECRETS)
    with pytest.raises(ValueError, match="one number per game"):
        true_positives(np.zeros((5, 2)), np.arange(99.0), null=Null.OTHER_SECRETS)


def test_an_interval_that_says_nothing_says_so():
    vague, sure = (true_positives(np.zeros(20), np.arange(n), null=Null.OTHER_SECRETS) for n in (99.0, 2_000.0))
    assert (vague.low, vague.high) == (0.0, 1.0)
    assert "TPR 1.000 at FPR 1 % (20 games, too few to bound the true rate with 95 % confidence; null: 99" in str(vague)
    assert "(20 games, 95 % CI 0.787-1.000" in str(sure)


def test_the_curve_rises_from_nothing_to_all_and_its_area_is_mann_whitneys():
    random = np.random.default_rng(3)
    scores, null = random.integers(0, 30, 200) - 5.0, random.integers(0, 30, 300).astype(float)
    curve = roc(scores, null, null=Null.OTHER_SECRETS)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    assert curve.area == pytest.approx(mannwhitneyu(null, scores).statistic / (200 * 300))
    turned = roc(-scores, -null, null=Null.OTHER_SECRETS, better="higher")
    assert turned.area == pytest.approx(curve.area)
    for threshold, fpr, tpr in zip(curve.thresholds, curve.fpr, curve.tpr, strict=True):
        assert (fpr, tpr) == ((null <= threshold).mean(), (scores <= threshold).mean())
