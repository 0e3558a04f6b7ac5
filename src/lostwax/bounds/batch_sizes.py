"""Batches of one size, or of at most one: values of `lw.bound(sampling=...)`."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import gaussian, log, log_add
from lostwax.bounds.inequalities import epsilon_of
from lostwax.bounds.poisson import subsampled
from lostwax.bounds.sampling import Poisson, Sampling

if TYPE_CHECKING:
    from lostwax.trainers.batches import Law


@final
@dataclass(frozen=True)
class FixedSize(Sampling):
    """Each step draws `b` of the `n` records without replacement, independently of other steps.

    Compared with training on the other records alone, a batch with the record has it in the place of another one, which
    moves the sum by 2 at most: Poisson sampling at rate b / n with half the noise dominates, and other gradients that
    point against the record's attain it. A second theorem is that of full batches; the lower ceiling holds.
    """

    n: int
    b: int

    tight = False
    independent = False
    words = "each step draws its batch uniformly among all of that size, independently, and the draws stay secret"

    def __post_init__(self) -> None:
        checks.whole("n", self.n, "It is the number of records.", highest=checks.MANY)
        checks.whole("b", self.b, "It is the number of records in a batch, at most n.", highest=self.n)

    def share(self, steps: int) -> float:
        """b / n."""
        return self.b / self.n

    def law(self, steps: int) -> Law:
        """b of n."""
        from lostwax.trainers.batches import WithoutReplacement

        return WithoutReplacement(self.n, self.b, steps)

    def _without(self, left: int) -> FixedSize:
        """As many are drawn from fewer."""
        return replace(self, n=max(self.b, self.n - left))

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        full = gaussian(log_kappa, noise, steps)
        if self.b == self.n:
            return full
        rate = self.share(steps) * (1 + 1e-15)
        replaced = subsampled(log_kappa, noise / 2, rate, steps, tolerance)
        if replaced.log_upper <= full.log_upper:
            return replace(replaced, method=f"{replaced.method} at half the noise, for batches of a fixed size")
        method = "fixed-size batches: at most full batches, at least Poisson sampling (the other gradients are zero)"
        low = min(subsampled(log_kappa, noise, rate * (1 - 4e-15), steps, tolerance).log_lower, full.log_upper)
        return replace(full, log_lower=low, method=method)

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        """As for Poisson sampling."""
        return Poisson(self.share(steps)).log_limit(log_kappa, steps) if records == 1 else 0.0

    def information(self, noise: float, steps: int) -> float:
        """Also at most that of Poisson sampling with half the noise."""
        return min(super().information(noise, steps), Poisson(self.share(steps)).information(noise / 2, steps))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """By dp-accounting, at half the noise."""
        return epsilon_of(noise / 2 if self.b < self.n else noise, self.share(steps), steps, delta)


@final
@dataclass(frozen=True)
class TruncatedPoisson(Sampling):
    """Poisson sampling of `n` records; a batch of more than `largest` is cut to that size at random (JAX Privacy).

    Unless a batch is cut, this is Poisson sampling: the probability of a cut, in any step, is added to that ceiling.
    """

    rate: float
    n: int
    largest: int

    precision = 2e-5
    tight = False
    independent = False
    words = f"{Poisson.words}; batches that are too large are cut at random"

    def __post_init__(self) -> None:
        checks.sample_rate(self.rate, "rate")
        checks.whole("n", self.n, "It is the number of records.", highest=checks.MANY)
        checks.whole("largest", self.largest, "It is the size of the largest batch.", highest=checks.MANY)

    def share(self, steps: int) -> float:
        """The rate before the cut."""
        return self.rate

    def law(self, steps: int) -> Law:
        """Independent draws, cut."""
        from lostwax.trainers.batches import IndependentUpTo

        return IndependentUpTo(self.rate, self.n, self.largest, steps)

    def _log_cut(self, steps: int) -> float:
        """Log of the probability that any batch is cut, at most."""
        return min(0.0, log(steps * self._exceeds(self.n, self.largest)))

    def _exceeds(self, trials: int, count: int) -> float:
        """P[Binomial(trials, rate) > count], rounded up."""
        from scipy.special import bdtrc

        return 0.0 if count >= trials else min(1.0, float(bdtrc(count, trials, self.rate)) * (1 + 1e-9) + 1e-300)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        whole = subsampled(log_kappa, noise, self.rate, steps, tolerance)
        full = gaussian(log_kappa, noise, steps)
        log_upper = log_add(whole.log_upper, self._log_cut(steps)) + 1e-15
        log_slope = full.log_slope if full.log_upper < log_upper else whole.log_slope
        log_upper = min(full.log_upper, log_upper)
        # The other gradients may be zero; a record that is drawn is kept at least if fewer than `largest` others are.
        kept = 1 - self._exceeds(self.n - 1, self.largest - 1)
        low = log_kappa
        if kept > 0:
            low = (
                subsampled(log_kappa, noise, self.rate * kept, steps, tolerance).log_lower
                if kept < 1
                else whole.log_lower
            )
        method = f"{whole.method}, batches cut to {self.largest}"
        return Ceiling(min(low, log_upper), log_upper, log_kappa, method, log_slope=log_slope)

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        """As for Poisson sampling, and a cut."""
        if records > 1:
            return 0.0
        return min(0.0, log_add(Poisson(self.rate).log_limit(log_kappa, steps), self._log_cut(steps)))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """Poisson sampling's at half of delta if a cut costs at most the other half; else that of full batches."""
        poisson = epsilon_of(noise, self.rate, steps, delta / 2)
        cost = (1 + math.exp(min(poisson, 700.0))) * math.exp(self._log_cut(steps))
        return poisson if cost <= delta / 2 else epsilon_of(noise, 1.0, steps, delta)
