"""From zero-concentrated DP to a ceiling (S1 Corollary 4)."""

from __future__ import annotations

import math

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.gaussian import closed_above


def from_zcdp(log_baseline: float, rho: float) -> Ceiling:
    """Ceiling under rho-zCDP: exp(-(sqrt(log 1/kappa) - sqrt(rho))^2), and 1 from rho = log 1/kappa on.

    The printed formula falls again beyond that point, where its best order would be below 1.
    """
    log_kappa = checks.log_baseline(log_baseline)
    rho = checks.not_negative("rho", rho, "It is the zCDP parameter, T / (2 s^2) for T full-batch Gaussian steps.")
    gap = max(0.0, math.sqrt(-log_kappa) - math.sqrt(rho))
    return closed_above(-(gap**2), log_kappa, "zero-concentrated DP", rho)
