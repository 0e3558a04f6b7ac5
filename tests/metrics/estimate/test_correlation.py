from importlib import import_module

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from lostwax.metrics import correlation


def test_agrees_with_scipy():
    random = np.random.default_rng(0)
    first = random.integers(0, 20, 80).astype(float)  # with ties
    second = first**2 + 40 * random.standard_normal(80)
    found = correlation(first, second, resamples=200)
    assert found.pearson.value == pytest.approx(pearsonr(first, second).statistic)
    assert found.spearman.value == pytest.approx(spearmanr(first, second).statistic)
    assert found.pearson.low < found.pearson.value < found.pearson.high
    assert found.pearson.games == 80


def test_one_order_on_no_straight_line():
    first = np.linspace(0, 8, 50)
    found = correlation(first, np.exp(first), resamples=200)
    assert found.spearman.value == pytest.approx(1)
    assert found.pearson.value < 0.9


def test_the_interval_covers_and_is_a_function_of_the_seed(monkeypatch):
    true, covered, rounds = 0.6, 0, 200
    random = np.random.default_rng(1)
    for seed in range(rounds):
        first = random.standard_normal(100)
        second = true * first + np.sqrt(1 - true**2) * random.standard_normal(100)
        found = correlation(first, second, resamples=200, seed=seed).pearson
        covered += found.low <= true <= found.high
    assert covered / rounds > 0.95 - 3 * np.sqrt(0.95 * 0.05 / rounds) - 0.01  # 200 resamples cost a little
    same = correlation(first, second, resamples=200, seed=seed)
    monkeypatch.setattr(
        import_module("lostwax.metrics.estimate"), "RESAMPLED_NUMBERS", 1000
    )  # the block changes nothing
    assert same == correlation(first, second, resamples=200, seed=seed)


def test_bad_input():
    errors = np.arange(10.0)
    with pytest.raises(ValueError, match="the same games twice"):
        correlation(errors, errors[1:])
    with pytest.raises(ValueError, match="second are the same in every game"):
        correlation(errors, np.ones(10))
    with pytest.raises(ValueError, match="infinite in some games"):
        correlation(np.where(errors > 3, np.inf, errors), errors)
    with pytest.raises(ValueError, match="holds 6 NaN"):
        correlation(np.where(errors > 3, np.nan, errors), errors)
    with pytest.raises(ValueError, match="100 resamples or more"):
        correlation(errors, errors, resamples=10)
    with pytest.raises(ValueError, match="confidence between 0 and 1"):
        correlation(errors, errors, confidence=95)
