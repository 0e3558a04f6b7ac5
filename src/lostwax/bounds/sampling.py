"""How a training loop draws its batches, and the ceiling that follows: the values of `lw.bound(sampling=...)`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, final

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Ceiling
from lostwax.bounds.closed_forms import ADJACENCY, epsilon_of, gaussian, log_add, log_one_minus
from lostwax.bounds.random_batches import balls_in_bins, shuffled, subsampled
from lostwax.bounds.step_law import step_divergence

if TYPE_CHECKING:
    from lostwax.trainers.batches import Law

ZERO_OUT = "the gradient of one record set to zero"
Curve = Callable[[float, float, int, float], Ceiling]  # the ceiling of a log baseline, noise, steps and tolerance


class Draws(NamedTuple):
    """The record is in each step with this probability, whatever was drawn before, and then moves the sum so far."""

    rate: float
    jump: float = 1.0


class Turns(NamedTuple):
    """The record is in one step of each epoch, always the same one."""

    epochs: int
    per_epoch: int


@dataclass(frozen=True)
class Sampling(ABC):
    """How a record comes into the batches of T noisy steps."""

    adjacency = ADJACENCY  # of `epsilon`; no annotation, so not a field
    epsilon_words = ""  # why `epsilon` is much larger than the ceiling suggests, where it is
    precision = 2e-4  # relative step of the noise in `calibrate`
    sensitivity = 1.0  # by how much a record in a step moves what is released, in units of the clipping norm
    tight = True  # both ends for one record enclose one number, and no theorem is missing between them
    independent = True  # records are drawn independently of each other
    in_groups = False  # groups of records have a separate ceiling
    words = "the batches are drawn as stated, and the draws stay secret"
    release = "One training run on these records is released, with any of its intermediate models."
    conditions: ClassVar[tuple[str, ...]] = ()  # what else must be true of the training

    @property
    def assumption(self) -> str:
        """What must be true of the batches, in words."""
        return f"{self}: {self.words}."

    def visits(self, steps: int) -> int:
        """The number of steps that a record can be in."""
        return steps

    def share(self, steps: int) -> float:
        """The share of the steps that a record is in, on average."""
        return self.visits(steps) / steps

    def length(self, steps: int) -> float:
        """How far the record moves what is released, all steps together, if its steps are known: in clipping norms."""
        return self.sensitivity * math.sqrt(self.visits(steps))

    def draws(self, steps: int) -> Draws | None:
        """If the record is drawn in each step anew, and alike."""
        return None

    def turns(self, steps: int) -> Turns | None:
        """If the record has a place in each epoch."""
        return None

    def resolved(self, sample_rate: float, steps: int) -> Self:
        """With the `sample_rate` of the call, where this value leaves it open; else it must not contradict."""
        rate = self.share(steps)
        if sample_rate not in (1.0, rate):
            name = type(self).__name__
            raise ValueError(
                f"Expected no sample_rate={sample_rate!r} beside sampling={name}(...), whose rate is {rate:.6g}. Leave "
                "out sample_rate."
            )
        return self

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        """The ceiling of this noise, for a group of `records` that are rebuilt together.

        Of several records one after the other is left out. Each time, an event of probability p has at most gamma(p)
        with the record. The lower end is that of one record.
        """
        single = self._one(log_kappa, noise, steps, tolerance)
        if records == 1:
            return single
        together = gaussian(log_kappa, noise / self.length(steps), 1, records)
        log_upper, log_slope = log_kappa, 0.0
        for left in reversed(range(records)):
            last = self._without(left)._one(log_upper, noise, steps, tolerance)
            log_upper, log_slope = last.log_upper, log_slope + (last.log_slope or 0.0)  # the chain rule
            if log_upper >= min(-SMALLEST, together.log_upper):
                break
        if together.log_upper <= log_upper:
            log_upper, log_slope = together.log_upper, together.log_slope or 0.0
        method = f"{single.method}; {records} records, one after the other"
        return replace(single, log_upper=min(0.0, log_upper), method=method, log_slope=log_slope)

    def _without(self, left: int) -> Sampling:
        """How the remaining records are drawn once `left` of them are left out."""
        return self

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The ceiling for one record, against each way to train without it; the first is that of `adjacency`.

        Where the blind success is known whatever is trained without the record, the lowest of them holds. Where it
        is measured there (false positives), or shared out among several answers, all ceilings must be from one curve.
        """
        return (self._one,)

    @abstractmethod
    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        """The ceiling for one record: the lowest, if there are several."""

    def law(self, steps: int) -> Law:
        """How `lw.DPSGD(batches=...)` draws batches, and weighs evidence for a record."""
        from lostwax.trainers.batches import Independent

        draws = self.draws(steps)
        if draws is None:
            raise ValueError(f"DPSGD: it cannot draw batches by {type(self).__name__}. Use another value of lw.bounds.")
        return Independent(draws.rate, steps)

    def as_full_batches(self, steps: int) -> bool:
        """True if the ceiling is that of as many full-batch steps as a record is in."""
        return self.share(steps) == 1

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        """Log of the success that no attack exceeds even without noise."""
        return 0.0

    def information(self, noise: float, steps: int) -> float:
        """At most this much, in nats, is known of a record after the release: I(record; release).

        I <= E[KL(with the record || with its gradient set to zero)]. Given the batches, that is 1 / (2 s^2) for each
        step with the record; not to know them only lowers it, because KL is convex.
        """
        return self.share(steps) * steps / (2 * noise**2)

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """The epsilon at this delta, one record, rounded up."""
        return epsilon_of(noise, 1.0, self.visits(steps), delta)


@final
@dataclass(frozen=True)
class Poisson(Sampling):
    """Each record is in each step with probability `rate`, independently: the default of Opacus and of `bound`.

    Without a rate, it is the `sample_rate` of the call.
    """

    rate: float | None = None

    precision = 2e-5
    in_groups = True
    words = "each record is in each step independently with this probability, and the draws stay secret"

    def __post_init__(self) -> None:
        if self.rate is not None:
            checks.sample_rate(self.rate, "rate")

    @property
    def assumption(self) -> str:
        """At a rate of 1 nothing is drawn."""
        return FullBatch().assumption if self.rate == 1 else super().assumption

    def share(self, steps: int) -> float:
        return 1.0 if self.rate is None else self.rate

    def draws(self, steps: int) -> Draws:
        return Draws(self.share(steps))

    def resolved(self, sample_rate: float, steps: int) -> Self:
        return replace(self, rate=sample_rate) if self.rate is None else super().resolved(sample_rate, steps)

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        """Certified on both sides, for any number of records."""
        return subsampled(log_kappa, noise, self.share(steps), steps, tolerance, records)

    _one = ceiling

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        """1 - (1 - q)^(k T) (1 - kappa): a record that is never drawn leaves no trace."""
        rate = self.share(steps)
        if rate == 1:
            return 0.0
        log_untouched = steps * records * math.log1p(-rate) + log_one_minus(log_kappa)
        return log_one_minus(log_untouched) + 1e-12

    def information(self, noise: float, steps: int) -> float:
        """T times the divergence of one step, by integration."""
        return min(super().information(noise, steps), steps * step_divergence(noise, self.share(steps)))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        return epsilon_of(noise, self.share(steps), steps, delta)


@final
@dataclass(frozen=True)
class FullBatch(Sampling):
    """Every record is in every step."""

    in_groups = True
    words = "no record is in a step more than once"

    def draws(self, steps: int) -> Draws:
        return Draws(1.0)

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        return gaussian(log_kappa, noise, steps, records)

    _one = ceiling


@final
@dataclass(frozen=True)
class Cyclic(Sampling):
    """Batches in a fixed order, `DataLoader(shuffle=False)`: one known step per epoch.

    Without `epochs`, a record is in the share `sample_rate` of the steps.
    """

    epochs: int | None = None

    adjacency = ZERO_OUT
    in_groups = True
    words = "no record is in more than one step per epoch"

    def __post_init__(self) -> None:
        if self.epochs is not None:
            checks.epochs(self.epochs)

    def visits(self, steps: int) -> int:
        return steps if self.epochs is None else min(self.epochs, steps)

    def resolved(self, sample_rate: float, steps: int) -> Self:
        """With the epochs that follow from the rate of the call, rounded up."""
        if self.epochs is not None:
            return super().resolved(sample_rate, steps)
        return replace(self, epochs=max(1, math.ceil(steps * sample_rate * (1 - 1e-12))))

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        return gaussian(log_kappa, noise, self.visits(steps), records)

    _one = ceiling

    def as_full_batches(self, steps: int) -> bool:
        return True

    def turns(self, steps: int) -> Turns:
        """Epochs of equal length, or the last is longer."""
        visits = self.visits(steps)
        return Turns(visits, steps // visits)

    def law(self, steps: int) -> Law:
        from lostwax.trainers.batches import InTurns

        visits = self.visits(steps)
        return InTurns(Shuffled(visits).per_epoch(steps), visits, shuffled=False)


@dataclass(frozen=True)
class _Epochs(Sampling):
    """`epochs` passes of equally many steps, each record in one step per epoch."""

    epochs: int

    adjacency = ZERO_OUT

    def __post_init__(self) -> None:
        checks.epochs(self.epochs)

    def visits(self, steps: int) -> int:
        return self.epochs

    def per_epoch(self, steps: int) -> int:
        """The number of steps per epoch."""
        if steps % self.epochs:
            raise ValueError(
                f"Expected steps={steps} to be a multiple of epochs={self.epochs}. steps counts all noisy updates. "
                "Count a last epoch that was cut short as a whole one: of as many steps as the others."
            )
        return steps // self.epochs


@final
@dataclass(frozen=True)
class BallsInBins(_Epochs):
    """Each record is in one step per epoch, chosen uniformly, independently of other records and epochs.

    `lw.adapters.torch.BallsInBinsSampler` draws batches so. Batch sizes vary, as with Poisson sampling, but every
    record is seen once per epoch.

    With `redrawn=False` a record is in the same batch of every epoch, as in JAX Privacy's BallsInBinsSampling. dmu/dnu
    is then the mean over batches of the product over their steps of exp(<g, z> / s - |g|^2 / (2 s^2)): z is the noise
    of a step, and the gradient g may depend on earlier steps. If |g| = 1, each <g, z> is a separate normal variable,
    so that the ratio is that of one epoch with noise s / sqrt(epochs). With shorter gradients it is a conditional mean
    of that, which has a lower ceiling.
    """

    redrawn: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.redrawn, bool):
            raise TypeError(f"BallsInBins: expected redrawn to be True or False, got {self.redrawn!r}.")

    @property
    def words(self) -> str:  # type: ignore[override]
        """Each record in one step per epoch, and whether it is another one in every epoch."""
        where = "one step per epoch" if self.redrawn else "one step per epoch, the same in all epochs"
        return f"each record is in {where}, drawn uniformly and independently, and the draws stay secret"

    epsilon_words = (
        "This epsilon is valid but not tight: it leaves out that nobody knows the step that a record is in. The "
        "ceiling counts that, and is the number to decide by."
    )

    def information(self, noise: float, steps: int) -> float:
        """Also at most Renyi's divergence of order 2, log E[R^2] per epoch: R is a mean of T log-normal variables."""
        if not self.redrawn:
            return BallsInBins(1).information(noise / math.sqrt(self.epochs), self.per_epoch(steps))
        log_square, bins = 1 / noise**2, self.per_epoch(steps)
        each = (
            math.log1p(math.expm1(log_square) / bins) if log_square < 700 else log_add(log_square - math.log(bins), 0)
        )
        return min(super().information(noise, steps), self.epochs * each)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        bins = self.per_epoch(steps)
        if self.redrawn or self.epochs == 1:
            return balls_in_bins(log_kappa, noise, bins, self.epochs, tolerance)
        return balls_in_bins(log_kappa, noise / math.sqrt(self.epochs) * (1 - 1e-15), bins, 1, tolerance)

    def law(self, steps: int) -> Law:
        from lostwax.trainers.batches import InBins

        return InBins(self.per_epoch(steps), self.epochs, self.redrawn)


@final
@dataclass(frozen=True)
class Shuffled(_Epochs):
    """A new random order in every epoch, cut into batches of a fixed size: `DataLoader(shuffle=True)`.

    The ceiling is an interval between two theorems; the truth may be anywhere in between.
    """

    tight = False
    independent = False
    words = "each record is in one step per epoch"

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        return shuffled(log_kappa, noise, self.per_epoch(steps), self.epochs)

    def law(self, steps: int) -> Law:
        from lostwax.trainers.batches import InTurns

        return InTurns(self.per_epoch(steps), self.epochs)

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        """At most that of one full-batch step per epoch."""
        single = self._one(log_kappa, noise, steps, tolerance)
        together = gaussian(log_kappa, noise, self.epochs, records)
        return replace(single, log_upper=together.log_upper, log_slope=together.log_slope)

    def as_full_batches(self, steps: int) -> bool:
        """Its upper end is."""
        return True
