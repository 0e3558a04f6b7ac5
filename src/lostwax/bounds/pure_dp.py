"""From (epsilon, delta)-DP to a ceiling, and back (S1 section VII-B, C)."""

from __future__ import annotations

import math

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.gaussian import closed_above
from lostwax.bounds.logs import log, log_add

REMEDY = "It is the epsilon of the privacy guarantee."


def from_dp(log_baseline: float, epsilon: float, delta: float = 0.0) -> Ceiling:
    """Ceiling under (epsilon, delta)-DP (S1 Corollary 3 for delta = 0).

    The null is the mechanism run on a data set that does not hold the record: another one in its place (substitution,
    as in S1) or none (add or remove, as in S3). An event of null probability kappa has probability at most
    exp(epsilon) kappa + delta; its complement, by the same inequality turned round, at least
    exp(-epsilon) (1 - kappa - delta).
    """
    log_kappa = checks.log_baseline(log_baseline)
    epsilon = checks.not_negative("epsilon", epsilon, REMEDY)
    delta = checks.not_negative("delta", delta, "It is the delta of the privacy guarantee, at least 0.")
    if delta >= 1:
        raise ValueError(
            f"Expected delta={delta!r} to lie in [0, 1). It is the chance that the guarantee of epsilon fails, for "
            "instance 1e-5; from 1 on nothing is guaranteed."
        )
    log_event = log_add(log_kappa + epsilon, log(delta))
    log_complement = log_add(log(-math.expm1(-epsilon)), log_add(log_kappa, log(delta)) - epsilon)
    # 1 - e^-eps (1 - kappa - delta) = (1 - e^-eps) + e^-eps (kappa + delta): positive terms
    return closed_above(min(0.0, log_event, log_complement), log_kappa, "(epsilon, delta)-DP", epsilon)


def exact_reconstruction(candidates: int, epsilon: float) -> Ceiling:
    """Ceiling for naming one of M equally likely candidates under epsilon-DP, substitution.

    By Bayes every answer is right with probability at most exp(epsilon) / (M - 1 + exp(epsilon)). The value
    M exp(epsilon) / (M + exp(epsilon) - 1) printed in S1 section VII-F is the leakage, that is gamma / kappa.
    """
    remedy = "It is the number of equally likely records, at least 2."
    m = checks.whole("candidates", candidates, remedy, lowest=2, highest=2**53)
    epsilon = checks.not_negative("epsilon", epsilon, REMEDY)
    log_gamma = -math.log1p((m - 1) * math.exp(-epsilon))
    return closed_above(log_gamma, -math.log(m), "epsilon-DP, exact reconstruction, substitution", epsilon)


def delta_from_success(success: float, epsilon: float) -> float:
    """The delta that robustness to exact reconstruction proves (S1 Theorem 5): (e^eps + 1) gamma - e^eps, or 0.

    `success` must hold for every pair of records under the prior weighted (1, exp(epsilon)) / (1 + exp(epsilon)).
    """
    success = checks.probability("success", success, "It is the highest success over all pairs of records.")
    epsilon = checks.not_negative("epsilon", epsilon, REMEDY)
    # (e^eps + 1) gamma - e^eps = gamma - e^eps (1 - gamma)
    log_loss = epsilon + math.log1p(-success)
    return max(0.0, success - math.exp(log_loss)) if log_loss < 0 else 0.0
