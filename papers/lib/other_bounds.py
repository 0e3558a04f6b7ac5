"""Other bounds on the success of attacks, to compare with `lw.bound`: sampled, of given candidates, looser ones."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np
from scipy.special import entr, logsumexp

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Array, Ceiling
from lostwax.bounds.closed_forms import bisect, closed_above
from lostwax.bounds.step_law import StepLaw


def monte_carlo(
    log_baseline: float,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    *,
    samples: int = 1_000_000,
    confidence: float = 0.95,
    repaired: bool = True,
    seed: int = 0,
) -> Ceiling:
    """Estimate gamma of Poisson sampling from sampled likelihood ratios R = dmu/dnu under nu; not certified.

    Hayes et al. 2023, Algorithm 1, sums the top kappa N of N ratios, which is erratic: R has a heavy tail. Since
    E_nu[R] = 1, the `repaired` form takes 1 minus the mean of the bottom (1 - kappa) N, which are bounded. Both limits
    hold together with the given confidence, for either estimate.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    rate, count = checks.sample_rate(sample_rate), checks.steps(steps)
    number = checks.whole("samples", samples, "It is the number of sampled runs, like 1,000,000.", lowest=1000)
    confidence = checks.probability("confidence", confidence, "It is the chance that both limits hold.")
    kappa = math.exp(log_kappa)
    if kappa * number < 10:
        raise ValueError(
            f"Expected at least 10 / baseline samples, got {number} for a baseline of {kappa:.3g}. "
            "Sampling cannot see events this rare: use lostwax.bound, which is exact."
        )
    generator = np.random.default_rng(seed)
    if rate == 1:
        distance = math.sqrt(count) / noise
        losses = distance * generator.standard_normal(number) - distance**2 / 2
    else:
        step = StepLaw(noise, rate)
        losses = np.asarray(sum(step.loss(generator.standard_normal(number)) for _ in range(count)))
    ratios = np.exp(np.minimum(losses, 700.0))
    low, high = limits(ratios, kappa, (1 - confidence) / 3)
    ordered = np.sort(ratios)
    top = round(kappa * number)
    value = 1 - ordered[:-top].sum() / number if repaired else ordered[-top:].sum() / number
    method = f"Monte Carlo, {'bottom' if repaired else 'top'} ratios of {number}, limits at {confidence:g}"
    estimate = min(1.0, max(kappa, float(value)))
    return Ceiling(math.log(max(low, kappa)), math.log(min(high, 1.0)), log_kappa, method, False, estimate)


def limits(ratios: Array, kappa: float, failure: float) -> tuple[float, float]:
    """Limits of gamma, each of three statements wrong with chance `failure`.

    The first half of the ratios selects a level t, the second evaluates it, so that t does not depend on the second.
    Upper: gamma <= E[(R - t)_+] + t kappa = 1 - E[min(R, t)] + t kappa.
    Lower: the test R > t has power 1 - E[R; R <= t], and is diluted where its null probability exceeds kappa.
    """
    half = ratios.size // 2
    level = max(float(np.quantile(ratios[:half], 1 - kappa)), sys.float_info.min)  # all may underflow
    held_out = ratios[half:]
    high = 1 - level * _mean_limit(np.minimum(held_out, level) / level, failure, -1) + level * kappa
    size = _mean_limit((held_out > level).astype(float), failure, +1)
    power = 1 - level * _mean_limit(np.where(held_out <= level, held_out, 0.0) / level, failure, +1)
    return power * min(1.0, kappa / size), high


def _mean_limit(values: Array, failure: float, side: int) -> float:
    """One-sided limit of the mean of values in [0, 1]: empirical Bernstein (Maurer and Pontil 2009, Theorem 4)."""
    n, log_term = values.size, math.log(2 / failure)
    spread = math.sqrt(2 * float(values.var(ddof=1)) * log_term / n) + 7 * log_term / (3 * (n - 1))
    return min(1.0, max(0.0, float(values.mean()) + side * spread))


def best_success(gram: Array, *, draws: int = 400, seed: int = 0) -> float:
    """Success of the optimal attack among equally likely candidates, for full batches: a Monte Carlo mean over games.

    `gram` (games, c, c) holds K_ij = sum_t <g_i, g_j> / (C sigma)^2 of the candidates' clipped gradients. The products
    of the release with each candidate, y = K e_z + N(0, K), are a sufficient statistic for the secret z, and the
    likeliest has the largest y_i - K_ii / 2. A ceiling (`bound`) only uses K_ii <= T / sigma^2, and is higher.
    """
    kernel = np.asarray(gram, float)
    if kernel.ndim != 3 or kernel.shape[1] != kernel.shape[2] or kernel.shape[1] < 2:
        raise ValueError(
            f"Expected gram to hold a matrix (c, c) of two candidates or more for every game, got shape {kernel.shape}."
        )
    games, c = kernel.shape[:2]
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(values.clip(min=0))[:, None]  # (games, c, c)  K = root root^T
    z = random.integers(c, size=(games, draws))
    noise = np.einsum("gij,gdj->gdi", root, random.standard_normal((games, draws, c)))
    y = kernel[np.arange(games)[:, None], z] + noise  # (games, draws, c)
    best = (y - np.einsum("gii->gi", kernel)[:, None] / 2).argmax(2)
    return float((best == z).mean())


def fano_advantage(prior: Sequence[float], noise_multiplier: float, squared_distance: float = 2.0) -> float:
    """Upper limit of (success - max p) / (1 - max p) for one Gaussian step and a discrete prior, by Fano's inequality.

    Guo et al.'s ceiling, as in Hayes et al. 2023, appendix H. `squared_distance` is that between any two candidates'
    clipped gradients in units of the clipping norm: 2 for orthonormal ones (their Table 2), 4 in the worst case.
    """
    p = np.asarray(prior, float)
    if p.ndim != 1 or p.size < 2 or not (p > 0).all() or not math.isclose(float(p.sum()), 1.0, rel_tol=1e-9):
        raise ValueError(
            f"Expected prior to hold two or more positive probabilities that add up to 1, got {prior!r}. "
            "For n equally likely candidates pass [1 / n] * n."
        )
    noise = checks.noise_multiplier(noise_multiplier)
    remedy = "It is the squared distance between two candidates' clipped gradients."
    distance = checks.not_negative("squared_distance", squared_distance, remedy)
    alike = math.exp(-distance / (2 * noise**2))
    information = float(-(p * np.log(p + (1 - p) * alike)).sum())  # >= I(candidate; release)
    # Fano: the error t obeys h(t) + t log(n - 1) >= H(prior) - I, and the left side rises up to t = 1 - 1/n.
    missing = float(entr(p).sum()) - information
    log_others, best = math.log(p.size - 1), float(p.max())
    error = bisect(0.0, 1 - 1 / p.size, lambda t: bool(entr(t) + entr(1 - t) + t * log_others < missing), 100).low
    return min(1.0, max(0.0, (1 - error - best) / (1 - best)))


def exact_reconstruction(candidates: int, epsilon: float) -> Ceiling:
    """Ceiling for naming one of M equally likely candidates under epsilon-DP, substitution.

    By Bayes every answer is right with probability at most exp(epsilon) / (M - 1 + exp(epsilon)). M times this, printed
    in Balle et al. 2022, section VII-F, is the leakage, gamma / kappa.
    """
    remedy = "It is the number of equally likely records, at least 2."
    m = checks.whole("candidates", candidates, remedy, lowest=2, highest=checks.MAX_COUNT)
    epsilon, _ = checks.privacy(epsilon)
    log_gamma = -math.log1p((m - 1) * math.exp(-epsilon))
    return closed_above(log_gamma, -math.log(m), "epsilon-DP, exact reconstruction, substitution", epsilon)


def delta_from_success(success: float, epsilon: float) -> float:
    """The delta implied by robustness to exact reconstruction: (e^eps + 1) gamma - e^eps, or 0.

    `success` must hold for every pair of records under the prior weighted (1, exp(epsilon)) / (1 + exp(epsilon))
    (Balle et al. 2022, Theorem 5).
    """
    success = checks.probability("success", success, "It is the highest success over all pairs of records.")
    epsilon, _ = checks.privacy(epsilon)
    # (e^eps + 1) gamma - e^eps = gamma - e^eps (1 - gamma)
    log_loss = epsilon + math.log1p(-success)
    return max(0.0, success - math.exp(log_loss)) if log_loss < 0 else 0.0


def from_rdp(log_baseline: float, orders: Sequence[float], epsilons: Sequence[float]) -> Ceiling:
    """Ceiling under (order, epsilon)-RDP, the least over several orders (Balle et al. 2022, Theorem 2).

    Pass real orders from 1.05 up: the best is often between 2 and 8. An infinite epsilon drops its order.
    """
    log_kappa = checks.log_baseline(log_baseline)
    a, eps = np.asarray(orders, float), np.asarray(epsilons, float)
    if a.ndim != 1 or a.shape != eps.shape or a.size == 0:
        raise ValueError(
            f"Expected orders and epsilons of one length, got shapes {a.shape} and {eps.shape}. "
            "Give one epsilon for each order."
        )
    if not (a > 1).all():
        raise ValueError(f"Expected orders above 1, got {a[~(a > 1)][0]}. Leave that order out.")
    if not (eps >= 0).all():
        raise ValueError(f"Expected epsilons of 0 or more, got {eps[~(eps >= 0)][0]}. Leave that order out.")
    shrink = -np.expm1(-np.log(a))  # 1 - 1 / a, to the last digit also where a is near 1
    logs = shrink * (log_kappa + eps)  # (kappa e^eps)^((a - 1) / a)
    best = int(np.argmin(logs))
    if logs[best] >= 0:
        return Ceiling(log_kappa, 0.0, log_kappa, "Renyi DP")
    return closed_above(float(logs[best]), log_kappa, "Renyi DP", float(eps[best]))


def renyi_epsilons(noise_multiplier: float, sample_rate: float, steps: int, orders: Sequence[float]) -> list[float]:
    """Renyi epsilons of T Poisson-sampled Gaussian steps, remove direction: T log E_nu[R^a] / (a - 1)."""
    noise, rate = checks.noise_multiplier(noise_multiplier), checks.sample_rate(sample_rate)
    count = checks.steps(steps)
    if rate == 1:
        return [order * count / (2 * noise**2) for order in orders]
    z = np.linspace(-12.0, 12 + max(orders) / noise, max(4001, int(max(orders) / noise * 40)))
    log_null = math.log(z[1] - z[0]) - z**2 / 2 - 0.5 * math.log(2 * math.pi)
    loss = StepLaw(noise, rate).loss(z)
    return [count * max(0.0, float(logsumexp(log_null + order * loss))) / (order - 1) for order in orders]


def from_zcdp(log_baseline: float, rho: float) -> Ceiling:
    """Ceiling under rho-zCDP: exp(-(sqrt(log 1/kappa) - sqrt(rho))^2), and 1 from rho = log 1/kappa on.

    Balle et al. 2022, Corollary 4, whose formula falls again beyond that point, where its best order is below 1.
    """
    log_kappa = checks.log_baseline(log_baseline)
    rho = checks.not_negative("rho", rho, "It is the zCDP parameter, T / (2 s^2) for T full-batch Gaussian steps.")
    gap = max(0.0, math.sqrt(-log_kappa) - math.sqrt(rho))
    return closed_above(-(gap**2), log_kappa, "zero-concentrated DP", rho)
