"""The ROC in closed form against the ROC of samples, and against the best test there is."""

import numpy as np
import pytest
from scipy.special import erf, erfinv, expit
from scipy.stats import norm

from lostwax.metrics import Null, roc

NULL = Null.GAUSSIAN_WEIGHTS
LAWS = [  # mean, std, null mean, null std of the logit
    (-4.0, 0.6, -3.0, 0.4),  # as S2's CelebA: the attack's errors spread wider
    (-4.0, 0.4, -3.0, 0.6),
    (-3.2, 0.5, -3.0, 0.5),
    (-3.0, 1.0, -3.0, 0.5),  # no better on average
    (-2.5, 0.5, -3.0, 0.4),  # worse on average
]
RATES = [0.001, 0.01, 0.2, 0.9]


@pytest.fixture(scope="module")
def laws(paper_module):
    return paper_module("lib.gaussian_roc")


@pytest.mark.parametrize("law", LAWS)
def test_it_is_the_papers_equation(laws, law):
    mean, std, null_mean, null_std = law
    for fpr in RATES:  # S2, Eq. 6, as printed
        printed = 0.5 - 0.5 * erf((mean - null_mean) / (2**0.5 * std) + null_std / std * erfinv(1 - 2 * fpr))
        assert laws.GaussianROC(*law, NULL).tpr(fpr) == pytest.approx(printed, abs=1e-12)


@pytest.mark.parametrize("law", LAWS)
def test_it_is_the_roc_of_such_errors(laws, law):
    random = np.random.default_rng(0)
    errors, null_errors = (4 * expit(random.normal(law[i], law[i + 1], 200_000)) for i in (0, 2))
    fitted, curve = laws.gaussian_roc(errors, null_errors, null=NULL, largest=4.0), roc(errors, null_errors, null=NULL)
    assert fitted[:4] == pytest.approx(law, abs=0.01)
    for fpr in RATES:
        counted = curve.tpr[np.searchsorted(curve.fpr, fpr, side="right") - 1]
        assert fitted.tpr(fpr) == pytest.approx(counted, abs=0.01)


@pytest.mark.parametrize("law", LAWS)
def test_no_test_beats_the_likelihood_ratio(laws, law):
    """The reference integrates both densities over the cells of a grid, the largest ratios first."""
    mean, std, null_mean, null_std = law
    grid = np.linspace(-12, 6, 400_001)
    ours, nulls = norm.pdf(grid, mean, std), norm.pdf(grid, null_mean, null_std)
    order = np.argsort(norm.logpdf(grid, null_mean, null_std) - norm.logpdf(grid, mean, std))
    step = grid[1] - grid[0]
    tpr, fpr = np.cumsum(ours[order]) * step, np.cumsum(nulls[order]) * step
    for rate in RATES:
        best = laws.GaussianROC(*law, NULL).best_tpr(rate)
        assert best == pytest.approx(np.interp(rate, fpr, tpr), abs=1e-3)
        assert best >= laws.GaussianROC(*law, NULL).tpr(rate) - 1e-12


def test_small_errors_are_the_best_test_only_where_both_spread_alike(laws):
    """S2's Theorem 1 says always: its Eq. 13 is no identity."""
    alike, apart, unlike = ((-3.4, 0.5, -3.0, 0.5), (-4.0, 0.6, -3.0, 0.4), (-3.4, 0.3, -3.0, 0.5))
    rates = [
        (curve.tpr(0.01), curve.best_tpr(0.01))
        for curve in (laws.GaussianROC(*law, NULL) for law in (alike, apart, unlike))
    ]
    assert rates[0][1] == pytest.approx(rates[0][0], abs=1e-12)
    assert rates[1][1] == pytest.approx(rates[1][0], abs=1e-8)  # means far apart, as in S2's experiments
    assert rates[2][1] > 4 * rates[2][0]


def test_spreads_that_are_nearly_alike_have_no_jump(laws):
    one, other = (laws.GaussianROC(-3.4, 0.5 * (1 + tiny), -3.0, 0.5, NULL).best_tpr(0.01) for tiny in (0.9e-6, 1.1e-6))
    assert one == pytest.approx(other, abs=1e-6)


def test_errors_without_a_logit_are_refused(laws):
    with pytest.raises(ValueError, match=r"errors between 0 and largest=4, both excluded, but 1 of 2 are not"):
        laws.gaussian_roc([0.0, 1.0], [1.0, 2.0], null=NULL, largest=4.0)
    with pytest.raises(ValueError, match=r"all 2 null_errors are equal"):
        laws.gaussian_roc([0.5, 1.0], [1.0, 1.0], null=NULL, largest=4.0)
    with pytest.raises(ValueError, match=r"best_tpr: expected a false-positive rate between 0 and 1, got fpr=0"):
        laws.GaussianROC(*LAWS[0], NULL).best_tpr(0)
