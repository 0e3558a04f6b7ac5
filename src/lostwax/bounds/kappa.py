"""The baseline kappa, the success of the best blind guess (Balle et al. 2022, section VII-D)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv, gammainc, gammaln

from lostwax.bounds import checks
from lostwax.bounds.closed_forms import log_binomial

DIMENSION = "It is the number of coordinates of a record."
RADIUS = "It is the distance up to which a guess counts as a success."


def log_kappa_ball(eta: float, dimension: int) -> float:
    """Log baseline of a record uniform in the unit ball, rebuilt to a Euclidean distance of eta: eta^d."""
    eta = checks.positive("eta", eta, RADIUS)
    d = checks.whole("dimension", dimension, DIMENSION)
    if eta >= 1:
        raise ValueError(
            f"Expected eta={eta!r} to be below 1, the radius of the ball: every record is within 1 of the centre, so a "
            "blind guess always succeeds. Choose a smaller eta."
        )
    return d * math.log(eta)


def log_kappa_gaussian(eta: float, sigma: float, dimension: int) -> float:
    """Log baseline of a record N(w, sigma^2 I), rebuilt to a distance of eta: P[chi2_d <= eta^2 / sigma^2]."""
    eta = checks.positive("eta", eta, RADIUS)
    sigma = checks.positive("sigma", sigma, "It is the standard deviation of the prior in each coordinate.")
    shape = checks.whole("dimension", dimension, DIMENSION) / 2
    x = (eta / sigma) ** 2 / 2
    if x > shape:  # in the bulk or beyond: nothing underflows
        return min(0.0, math.log(float(gammainc(shape, x))))
    # P(a, x) = x^a exp(-x) / Gamma(a + 1) * (1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ...), positive terms
    term, series, n = 1.0, 1.0, 0
    while term > 1e-17 * series:
        n += 1
        term *= x / (shape + n)
        series += term
    return shape * math.log(x) - x - float(gammaln(shape + 1)) + math.log(series)


def kappa_from_samples(
    samples: np.ndarray, metric: Callable[[np.ndarray, np.ndarray], np.ndarray], eta: float, confidence: float = 0.95
) -> float:
    """Upper limit of the baseline from N independent records of the prior (sharper than Hayes et al. 2023, app. J).

    The best guess is a fixed point, and the number of records near it is binomial: its Clopper-Pearson limit bounds
    kappa. That point is unknown, but records within eta of it are within 2 eta of each other, so the largest count
    around a *sample* at radius 2 eta is at least as large. `metric(samples, centre)` returns N distances and must
    satisfy the triangle inequality (the root of the mean squared error does, the mean squared error does not).
    """
    eta = checks.not_negative("eta", eta, RADIUS)
    confidence = checks.probability("confidence", confidence, "It is the chance that the limit holds, like 0.95.")
    number = len(samples)
    if number < 2:
        raise ValueError(f"Expected two or more samples, got {number}. Draw more records from the prior.")
    most = 0
    for centre in samples:
        distances = np.asarray(metric(samples, centre))
        if distances.shape != (number,) or not (distances >= 0).all():
            raise ValueError(
                f"Expected metric(samples, centre) to return {number} distances of 0 or more, got shape "
                f"{distances.shape}. Compare every sample with the one centre."
            )
        most = max(most, int((distances <= 2 * eta).sum()))
    return 1.0 if most == number else float(betaincinv(most + 1, number - most, confidence))


def log_kappa_pixels(dimension: int, tolerance: float, fraction: float) -> float:
    """Log baseline for a share `fraction` of d pixels, uniform in [0, 1], within `tolerance`.

    A guess of 1/2 hits each pixel independently with p = 2 tolerance, so the baseline is the binomial tail
    P[Binomial(d, p) >= fraction d]; p^(d fraction) in Hayes et al. 2023, appendix I, leaves out the choice of pixels.
    """
    d = checks.whole("dimension", dimension, DIMENSION)
    tolerance = checks.positive("tolerance", tolerance, "It is the distance allowed in each pixel, like 32 / 255.")
    share = checks.positive("fraction", fraction, "It is the share of pixels that must be close, in (0, 1].")
    if share > 1:
        raise ValueError(f"Expected fraction={fraction!r} to lie in (0, 1]. It is a share, not a count of pixels.")
    if (p := 2 * tolerance) >= 1:
        raise ValueError(
            f"Expected tolerance={tolerance!r} to be below 1/2: every pixel is within 1/2 of mid-grey, so a blind "
            f"guess always succeeds. It is in units of [0, 1]: 32 of 255 grey levels are 32/255 = {32 / 255:.4f}."
        )
    return min(0.0, float(np.logaddexp.reduce(log_binomial(d, p)[math.ceil(share * d - 1e-9) :])))
