import math

import mpmath
import numpy as np
import pytest

from lostwax.bounds import kappa_from_samples, log_kappa_ball, log_kappa_gaussian, log_kappa_pixels


def euclidean(samples, centre):
    return np.linalg.norm(samples - centre, axis=1)


def test_ball_is_a_ratio_of_volumes():
    assert log_kappa_ball(0.5, 3) == pytest.approx(math.log(1 / 8))
    assert log_kappa_ball(0.1, 100_000) == pytest.approx(-100_000 * math.log(10))
    assert log_kappa_ball(1 - 1e-9, 1) == pytest.approx(-1e-9)


@pytest.mark.parametrize(
    ("always", "words"),
    [
        (lambda: log_kappa_ball(2.0, 5), "eta=2.0 to be below 1, the radius .* a blind guess always succeeds"),
        (lambda: log_kappa_ball(1.0, 5), "eta=1.0 to be below 1"),
        (
            lambda: log_kappa_pixels(10, 32.0, 0.3),
            r"blind guess always succeeds.* in units of \[0, 1\]: .* 32/255 = 0.1255",
        ),
        (lambda: log_kappa_pixels(10, 0.5, 0.3), "tolerance=0.5 to be below 1/2"),
    ],
)
def test_a_blind_guess_that_always_succeeds_is_no_baseline(always, words):
    with pytest.raises(ValueError, match=words):
        always()


@pytest.mark.parametrize(
    ("eta", "sigma", "dimension"), [(1, 1, 1), (0.5, 2, 10), (3, 0.2, 784), (1, 1, 3072), (9, 1, 40)]
)
def test_gaussian_prior_agrees_with_thirty_digits(eta, sigma, dimension):
    with mpmath.workdps(30):
        shape, x = mpmath.mpf(dimension) / 2, (mpmath.mpf(eta) / sigma) ** 2 / 2
        exact = mpmath.log(mpmath.gammainc(shape, 0, x, regularized=True))
    assert log_kappa_gaussian(eta, sigma, dimension) == pytest.approx(float(exact), rel=1e-11, abs=1e-13)


def test_pixels_count_the_choices():
    exact = sum(math.comb(20, k) * 0.25**k * 0.75 ** (20 - k) for k in range(12, 21))
    assert math.exp(log_kappa_pixels(20, 0.125, 0.6)) == pytest.approx(exact, rel=1e-12)
    assert log_kappa_pixels(784, 0.125, 1.0) == pytest.approx(784 * math.log(0.25))
    printed = 784 * 0.6 * math.log(0.25)  # S3 appendix I: the choice of pixels is missing
    assert printed / math.log(10) == pytest.approx(-283, abs=1)
    assert log_kappa_pixels(784, 32 / 255, 0.6) / math.log(10) == pytest.approx(-94.5, abs=1)


def test_a_share_that_is_a_whole_number_of_pixels_is_not_rounded_up():
    assert log_kappa_pixels(10, 0.125, 0.3) == pytest.approx(log_kappa_pixels(10, 0.125, 0.21))


def test_sampled_limit_covers_the_truth():
    eta, dimension, misses = 1.0, 2, 0
    truth = math.exp(log_kappa_gaussian(eta, 1.0, dimension))
    for seed in range(40):
        samples = np.random.default_rng(seed).standard_normal((200, dimension))
        misses += kappa_from_samples(samples, euclidean, eta, 0.9) < truth
    assert misses == 0  # the radius of 2 eta leaves room beyond the 10 % that could miss


def test_sampled_limit_of_a_discrete_prior_is_clopper_pearson():
    generator = np.random.default_rng(0)
    misses = 0
    for _ in range(200):
        samples = generator.choice(4, size=(100, 1), p=[0.4, 0.3, 0.2, 0.1])
        misses += kappa_from_samples(samples, euclidean, 0.0, 0.9) < 0.4
    assert misses <= 200 * 0.1 + 3 * math.sqrt(200 * 0.09)
    assert kappa_from_samples(np.zeros((5, 1)), euclidean, 0.0, 0.9) == 1.0
