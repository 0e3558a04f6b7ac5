"""Batches of one size, or of at most one: values of `lw.bound(sampling=...)`."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import ADJACENCY, epsilon_of, gaussian, log, log_add
from lostwax.bounds.random_batches import subsampled
from lostwax.bounds.sampling import ZERO_OUT, BallsInBins, Curve, Draws, FullBatch, Poisson, Sampling

if TYPE_CHECKING:
    from lostwax.trainers.batches import Law


@dataclass(frozen=True)
class _InPlace(Sampling):
    """A drawn record may take the place of another: one theorem if it is left out, one if it is set to zero."""

    tight = False
    independent = False

    @property
    def curves(self) -> tuple[Curve, ...]:
        return self._left_out, self._set_to_zero

    def draws(self, steps: int) -> Draws:
        """Left out: it takes the place of another one."""
        rate = self.share(steps)
        return Draws(rate * (1 + 1e-15), 2.0) if rate < 1 else Draws(1.0)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        left_out = self._left_out(log_kappa, noise, steps, tolerance)
        is_lowest = left_out.log_upper <= gaussian(log_kappa, noise, steps).log_upper
        return left_out if is_lowest else self._set_to_zero(log_kappa, noise, steps, tolerance)

    @abstractmethod
    def _left_out(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling: ...

    @abstractmethod
    def _set_to_zero(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling: ...

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        return Poisson(self.share(steps)).log_limit(log_kappa, steps) if records == 1 else 0.0


@final
@dataclass(frozen=True)
class FixedSize(_InPlace):
    """Each step draws `b` of the `n` records without replacement, independently of other steps.

    Two theorems, each against another way to train without the record. *Left out*: as many are drawn from the other
    n - 1. Batches without the record have the same law, and one with it has it in the place of another record, which
    moves the sum by 2 at most. So each step is a mixture, over batches of the others, of pairs that N(0, s^2) against
    (1 - b/n) N(0, s^2) + b/n N(2, s^2) dominates: Poisson sampling at rate b / n with half the noise. Other gradients
    that point against the record's attain it. *Set to zero*: the record keeps its place, and given the batches it moves
    each sum by 1 at most, as in full batches.
    """

    n: int
    b: int

    adjacency = f"{ADJACENCY}, batches as large without it"
    words = "each step draws its batch uniformly among all of that size, independently, and the draws stay secret"

    def __post_init__(self) -> None:
        checks.whole("n", self.n, "It is the number of records.", highest=checks.MAX_COUNT)
        checks.whole("b", self.b, "It is the number of records in a batch, at most n.", highest=self.n)

    def share(self, steps: int) -> float:
        return self.b / self.n

    def law(self, steps: int) -> Law:
        from lostwax.trainers.batches import WithoutReplacement

        return WithoutReplacement(self.n, self.b, steps)

    def _without(self, left: int) -> FixedSize:
        """As many are drawn from fewer."""
        return replace(self, n=max(self.b, self.n - left))

    @property
    def curves(self) -> tuple[Curve, ...]:
        """Full batches if every record is in every batch."""
        return (FullBatch().ceiling,) if self.b == self.n else super().curves

    def _left_out(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        if self.b == self.n:
            return gaussian(log_kappa, noise, steps)
        replaced = subsampled(log_kappa, noise / 2, self.share(steps) * (1 + 1e-15), steps, tolerance)
        return replace(replaced, method=f"{replaced.method} at half the noise, for batches of a fixed size")

    def _set_to_zero(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        full = gaussian(log_kappa, noise, steps)
        method = "fixed-size batches: at most full batches, at least Poisson sampling (the other gradients are zero)"
        low = subsampled(log_kappa, noise, self.share(steps) * (1 - 4e-15), steps, tolerance).log_lower
        return replace(full, log_lower=min(low, full.log_upper), method=method)

    def information(self, noise: float, steps: int) -> float:
        """Also at most that of Poisson sampling with half the noise: either is against one way to train without."""
        return min(super().information(noise, steps), Poisson(self.share(steps)).information(noise / 2, steps))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """By dp-accounting, at half the noise."""
        return epsilon_of(noise / 2 if self.b < self.n else noise, self.share(steps), steps, delta)


@final
@dataclass(frozen=True)
class TruncatedPoisson(_InPlace):
    """Poisson sampling of `n` records; a batch of more than `largest` is cut to that size at random (JAX Privacy).

    Three theorems. *Left out*: a drawn record joins fewer than `largest` others, and the sum moves by 1, or it takes
    the place of one of them, and the sum moves by 2. Either all are taken to move it by 2: Poisson sampling with half
    the noise. Or training that ignores the record where `largest` others are drawn is taken first: against the same
    training without the record, it is at most Poisson sampling; and it differs from this one only if the record is
    drawn in such a step. That probability is added. *Set to zero*: the record keeps its place, as in full batches.
    """

    rate: float
    n: int
    largest: int

    precision = 2e-5
    words = f"{Poisson.words}; batches that are too large are cut at random"

    def __post_init__(self) -> None:
        checks.sample_rate(self.rate, "rate")
        checks.whole("n", self.n, "It is the number of records.", highest=checks.MAX_COUNT)
        checks.whole("largest", self.largest, "It is the size of the largest batch.", highest=checks.MAX_COUNT)

    def share(self, steps: int) -> float:
        """The rate before the cut."""
        return self.rate

    def law(self, steps: int) -> Law:
        from lostwax.trainers.batches import IndependentUpTo

        return IndependentUpTo(self.rate, self.n, self.largest, steps)

    def _log_displaced(self, steps: int) -> float:
        """Log of the probability that the record is drawn beside `largest` others, in any step, at most."""
        return min(0.0, log(steps * self.rate * self._exceeds(self.n - 1, self.largest - 1)))

    def _exceeds(self, trials: int, count: int) -> float:
        """P[Binomial(trials, rate) > count], rounded up."""
        from scipy.special import bdtrc

        return 0.0 if count >= trials else min(1.0, float(bdtrc(count, trials, self.rate)) * (1 + 1e-9) + 1e-300)

    def _set_to_zero(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        """With the upper end of full batches; a test that needs no other gradients has the same lower end."""
        left_out, full = self._left_out(log_kappa, noise, steps, tolerance), gaussian(log_kappa, noise, steps)
        return replace(full, log_lower=min(left_out.log_lower, full.log_upper), method=left_out.method)

    def _left_out(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        uncut = subsampled(log_kappa, noise, self.rate, steps, tolerance)
        log_upper, log_slope = log_add(uncut.log_upper, self._log_displaced(steps)) + 1e-15, uncut.log_slope
        if log_upper > uncut.log_upper + tolerance:
            half = subsampled(log_kappa, noise / 2, self.rate, steps, tolerance)
            log_upper, log_slope = min((log_upper, log_slope), (half.log_upper, half.log_slope), key=lambda end: end[0])
        # The other gradients may be zero; a record that is drawn is kept at least if fewer than `largest` others are.
        joins = 1 - self._exceeds(self.n - 1, self.largest - 1)
        low = uncut.log_lower if joins == 1 else log_kappa
        if 0 < joins < 1:
            low = subsampled(log_kappa, noise, self.rate * joins, steps, tolerance).log_lower
        method = f"{uncut.method}, batches cut to {self.largest}"
        return Ceiling(min(low, log_upper), min(0.0, log_upper), log_kappa, method, log_slope=log_slope)

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """That of Poisson sampling, at half of delta, if a record in another's place costs the other half at most.

        Ignoring the record there changes no probability by more than that of such a place. Else, with half the noise.
        """
        poisson = epsilon_of(noise, self.rate, steps, delta / 2)
        cost = (1 + math.exp(min(poisson, 700.0))) * math.exp(self._log_displaced(steps))
        return poisson if cost <= delta / 2 else epsilon_of(noise / 2, self.rate, steps, delta)


@final
@dataclass(frozen=True)
class Allocation(Sampling):
    """Each record is in `visits_per_record` of the T steps, all such choices being equally likely and independent.

    Such a choice is made by a random partition of the steps into as many blocks, and a random step of each. Whoever is
    told the partition sees as many epochs of balls-in-bins as there are blocks, of floor(T / k) steps or more each: the
    upper end (compare Feldman and Shenfeld 2025, arXiv 2502.08202), exact for one step. The lower end is the test by
    the sum of all steps.
    """

    visits_per_record: int

    adjacency = ZERO_OUT
    tight = False
    words = "each record is in that many steps, drawn uniformly and independently, and the draws stay secret"
    epsilon_words = BallsInBins.epsilon_words

    def __post_init__(self) -> None:
        checks.whole("visits_per_record", self.visits_per_record, "It is the number of steps that a record is in.")

    def visits(self, steps: int) -> int:
        if self.visits_per_record > steps:
            raise ValueError(
                f"Expected at most steps={steps} visits_per_record, got {self.visits_per_record}: no step has a record "
                "twice."
            )
        return self.visits_per_record

    def _in_blocks(self, steps: int) -> tuple[BallsInBins, int]:
        """As many blocks of the fewest steps."""
        visits = self.visits(steps)
        return BallsInBins(visits), visits * (steps // visits)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        blocks, fewer = self._in_blocks(steps)
        upper = blocks.ceiling(log_kappa, noise, fewer, tolerance)
        if self.visits_per_record in (1, steps):
            return upper
        by_sum = gaussian(log_kappa, noise * math.sqrt(steps) / self.visits_per_record)
        method = f"{upper.method}, {self.visits_per_record} of {steps:,} steps"
        return replace(upper, log_lower=min(by_sum.log_lower, upper.log_upper), method=method)

    def information(self, noise: float, steps: int) -> float:
        blocks, fewer = self._in_blocks(steps)
        return min(super().information(noise, steps), blocks.information(noise, fewer))
