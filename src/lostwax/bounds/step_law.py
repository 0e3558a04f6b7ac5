"""One noisy step: a Gaussian against the mixture of Gaussians that a sampled record makes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from lostwax.bounds.gaussian import log_binomial

Array = np.ndarray


@dataclass(frozen=True)
class StepLaw:
    """The pair (mu, nu) of one step, in the coordinate z = x / s that is standard normal under nu.

    With k records in the group, each sampled with probability q, the clipped sum moves by a vector of length at
    most i when i of them are drawn. Kahane's inequality (for centred Gaussian families, larger covariances raise
    every convex function of the sum of exp(X - var / 2)) makes the aligned vectors the worst case, so
    nu = N(0, s^2) against mu = sum over i of b_i N(i, s^2), b = Binomial(k, q), dominates the step
    (Ganesh, arXiv 2401.10294). k = 1 is the pair of S3. Its ratio
        R(z) = b_0 + excess(z),   excess(z) = sum over i >= 1 of b_i exp(i z / s - i^2 / (2 s^2)),
    grows with z from b_0 to infinity. Draws so rare that they cannot matter are cut off into `escaped`.
    """

    noise: float
    rate: float
    records: int = 1
    log_negligible: float = -math.inf  # log of the weight that may be cut off from the binomial's upper end

    @cached_property
    def log_weights(self) -> Array:
        """log b_i for i = 0..I."""
        weights = log_binomial(self.records, self.rate)
        tails = np.logaddexp.accumulate(weights[::-1])[::-1]  # log P[Binomial >= i]
        kept = max(2, int((tails > self.log_negligible).sum()))
        return weights[:kept]

    @cached_property
    def escaped(self) -> float:
        """The weight of the draws that were cut off."""
        cut = log_binomial(self.records, self.rate)[self.log_weights.size :]
        return float(np.exp(cut).sum())

    @property
    def log_least(self) -> float:
        """log b_0: the infimum of the loss log R."""
        return self.records * math.log1p(-self.rate)

    @cached_property
    def _shifts(self) -> Array:
        return np.arange(1, self.log_weights.size)[:, None]  # (I, 1)

    @cached_property
    def _offsets(self) -> Array:
        return self.log_weights[1:, None] - self._shifts**2 / (2 * self.noise**2)  # (I, 1)

    def _log_terms(self, z: Array) -> Array:
        terms: Array = self._offsets + self._shifts * (z / self.noise)  # (I, n)
        return terms

    def log_excess(self, z: Array) -> Array:
        """log(R(z) - b_0)."""
        terms = self._log_terms(z)
        excess: Array = terms[0] if len(terms) == 1 else np.logaddexp.reduce(terms)
        return excess

    def loss(self, z: Array) -> Array:
        """The privacy loss log R(z)."""
        loss: Array = np.logaddexp(self.log_least, self.log_excess(z))
        return loss

    def shares(self, z: Array) -> Array:
        """Each draw's share of the excess at z: (I, n), columns that add up to 1."""
        terms = self._log_terms(z)
        shares: Array = np.exp(terms - self.log_excess(z))
        return shares

    def solve(self, log_excess: Array) -> Array:
        """The z at which log(R - b_0) takes these values.

        The log of the excess is convex and increasing, and never below any of its terms: the least root of a
        single term lies to the right of the root, and Newton's method descends from there.
        """
        z: Array = (self.noise * (log_excess - self._offsets) / self._shifts).min(0)
        if len(self._shifts) == 1:
            return z
        for _ in range(60):
            slope = (self.shares(z) * self._shifts).sum(0) / self.noise
            move = (self.log_excess(z) - log_excess) / slope
            z = z - move
            if float(np.abs(move).max()) < 1e-15 * (1 + float(np.abs(z).max())):
                break
        return z

    def solve_growth(self, shares: Array, log_growth: Array) -> Array:
        """The step d > 0 with log excess(z + d) - log excess(z) = log_growth, to full relative precision.

        The left side is log1p(sum over i of share_i expm1(i d / s)): no large numbers are subtracted.
        """
        if len(shares) == 1:
            return self.noise * log_growth
        step: Array = self.noise * log_growth / (shares * self._shifts).sum(0)  # right of the root, by convexity
        for _ in range(60):
            grown = (shares * np.expm1(self._shifts * step / self.noise)).sum(0)
            slope = (shares * self._shifts * np.exp(self._shifts * step / self.noise)).sum(0) / self.noise
            move = (np.log1p(grown) - log_growth) * (1 + grown) / slope
            step = step - move
            if float(np.abs(move / step).max()) < 4e-16:
                break
        return step

    def log_excess_below(self, z: float) -> float:
        """Log of the mu-mass of drawn steps below z: sum over i >= 1 of b_i Phi(z - i / s)."""
        reach = log_ndtr(z - self._shifts[:, 0] / self.noise)
        return float(np.logaddexp.reduce(self.log_weights[1:] + reach))

    def log_mass_above(self, z: float) -> float:
        """Log of the mu-mass above z."""
        shifts = np.arange(self.log_weights.size)
        return float(np.logaddexp.reduce(self.log_weights + log_ndtr(shifts / self.noise - z)))
