"""What bounds the influence of a record on the release: noise in training, or a privacy guarantee."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.inequalities import from_dp
from lostwax.bounds.sampling import Curve, Sampling


class Leak(ABC):
    """The two distributions of a release, with and without a record, as far as goals need them."""

    @abstractmethod
    def ceiling(self, log_kappa: float, tolerance: float, records: int = 1) -> Ceiling:
        """The success of the best test of this blind success, for a group of records."""

    def curves(self, tolerance: float) -> tuple[Callable[[float], Ceiling], ...]:
        """The ceiling of a log baseline, against each way to train without the record (`Sampling.curves`)."""
        return (lambda log_kappa: self.ceiling(log_kappa, tolerance),)

    @property
    @abstractmethod
    def information(self) -> float:
        """Nats that the release can say about a record, at most."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the training, in words."""

    @property
    @abstractmethod
    def adjacency(self) -> str:
        """What training without the record means."""

    @property
    def independent(self) -> bool:
        """True if several records can be tested independently of each other."""
        return False

    @property
    def in_groups(self) -> bool:
        """True if groups of records have a separate ceiling, as fast as that of one."""
        return False


@final
@dataclass(frozen=True)
class Noise(Leak):
    """T noisy sums of clipped gradients."""

    multiplier: float
    steps: int
    sampling: Sampling

    def ceiling(self, log_kappa: float, tolerance: float, records: int = 1) -> Ceiling:
        """That of the sampling."""
        return self.sampling.ceiling(log_kappa, self.multiplier, self.steps, tolerance, records)

    def curves(self, tolerance: float) -> tuple[Callable[[float], Ceiling], ...]:
        """Those of the sampling."""

        def of(curve: Curve) -> Callable[[float], Ceiling]:
            return lambda log_kappa: curve(log_kappa, self.multiplier, self.steps, tolerance)

        return tuple(of(curve) for curve in self.sampling.curves)

    @property
    def information(self) -> float:
        """That of the sampling."""
        return self.sampling.information(self.multiplier, self.steps)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Noise and sampling."""
        sums = "the sum" if self.steps == 1 else f"each of {self.steps:,} sums"
        noise = f"Gaussian noise of {self.multiplier:g} times the clipping norm is added to {sums}"
        return f"{noise} of clipped gradients, one gradient per record.", self.sampling.assumption

    @property
    def adjacency(self) -> str:
        """That of the sampling."""
        return self.sampling.adjacency

    @property
    def independent(self) -> bool:
        """If the sampling is."""
        return self.sampling.independent

    @property
    def in_groups(self) -> bool:
        """Poisson sampling and what comes down to full batches."""
        return self.sampling.in_groups


@final
@dataclass(frozen=True)
class Guarantee(Leak):
    """(epsilon, delta)-differential privacy of the whole training."""

    epsilon: float
    delta: float

    def ceiling(self, log_kappa: float, tolerance: float, records: int = 1) -> Ceiling:
        """A closed form, for one record."""
        if records > 1:
            raise ValueError(
                f"Expected a noise_multiplier for goal=Records({records}): epsilon is that of one record, and what "
                "follows for a group is hardly a limit. Pass noise_multiplier, steps and sampling instead of epsilon."
            )
        return from_dp(log_kappa, self.epsilon, self.delta)

    @property
    def information(self) -> float:
        """KL <= epsilon tanh(epsilon / 2): randomised response is the worst case of pure differential privacy.

        With a delta, the release may contain the record as it is.
        """
        if self.delta > 0:
            return math.inf
        epsilon = checks.not_negative("epsilon", self.epsilon, "It is the epsilon of the privacy guarantee.")
        return epsilon * math.tanh(epsilon / 2)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The guarantee."""
        given = f"epsilon = {self.epsilon:g}" + (f" and delta = {self.delta:g}" if self.delta else "")
        return (f"The whole training is differentially private with {given}, for one record.",)

    @property
    def adjacency(self) -> str:
        """That of the guarantee."""
        return "that of the privacy guarantee"
