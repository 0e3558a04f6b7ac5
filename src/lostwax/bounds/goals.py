"""What is at risk: the values of `lw.bound(goal=...)`, each with its theorem and what that assumes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy.special import bdtrc

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Array, Ceiling, Floor, discrete_floor, gaussian_floor
from lostwax.bounds.closed_forms import from_dp, log, log_binomial
from lostwax.bounds.curve import CeilingCurve, at_least, best_of_several, log_most_informed, widest_gap
from lostwax.bounds.sampling import Curve, Sampling

INDEPENDENT = "No other record depends on the secret one. (Copies and relatives belong into a group: Records(k).)"
WHOLE = "The baseline is the success of the best guess from all that the adversary knows besides the release."


class Leak(NamedTuple):
    """What bounds the influence of a record on the release, as far as goals need it.

    The release has one distribution with the record, and one for each way to train without it (`Sampling.curves`).
    """

    ceiling: Callable[[float, float, int], Ceiling]  # of a log baseline and a tolerance, for a group of records
    curves: Callable[[float], list[CeilingCurve]]  # of a tolerance, for one record
    information: Callable[[], float]  # nats that the release can say about a record, at most
    assumptions: tuple[str, ...]  # what must be true of the training, in words
    adjacency: str  # what training without the record means
    independent: bool = False  # several records can be tested independently of each other
    in_groups: bool = False  # groups of records have a separate ceiling, as fast as that of one
    release: str = Sampling.release  # what the adversary sees, in words


def noise_leak(noise: float, steps: int, sampling: Sampling) -> Leak:
    """T noisy sums of clipped gradients."""

    def enclosed(curve: Curve, tolerance: float) -> CeilingCurve:
        return CeilingCurve(lambda log_kappa: curve(log_kappa, noise, steps, tolerance))

    sums = "the sum" if steps == 1 else f"each of {steps:,} sums"
    added = f"Gaussian noise of {noise:g} times the clipping norm is added to {sums}"
    return Leak(
        ceiling=lambda log_kappa, tolerance, records: sampling.ceiling(log_kappa, noise, steps, tolerance, records),
        curves=lambda tolerance: [enclosed(curve, tolerance) for curve in sampling.curves],
        information=lambda: sampling.information(noise, steps),
        assumptions=(
            f"{added} of clipped gradients, one gradient per record.",
            sampling.assumption,
            *sampling.conditions,
        ),
        adjacency=sampling.adjacency,
        independent=sampling.independent,
        in_groups=sampling.in_groups,
        release=sampling.release,
    )


def guarantee_leak(epsilon: float, delta: float) -> Leak:
    """(epsilon, delta)-differential privacy of the whole training."""
    epsilon, delta = checks.privacy(epsilon, delta)

    def ceiling(log_kappa: float, tolerance: float, records: int = 1) -> Ceiling:
        if records > 1:
            raise ValueError(
                f"Expected a noise_multiplier for goal=Records({records}): epsilon is that of one record, and what "
                "follows for a group is hardly a limit. Pass noise_multiplier, steps and sampling instead of epsilon."
            )
        return from_dp(log_kappa, epsilon, delta)

    def information() -> float:
        """KL <= epsilon tanh(epsilon / 2): randomised response is the worst case of pure differential privacy.

        With a delta, the release may contain the record as it is.
        """
        return math.inf if delta > 0 else epsilon * math.tanh(epsilon / 2)

    privacy = f"epsilon = {epsilon:g}" + (f" and delta = {delta:g}" if delta else "")
    return Leak(
        ceiling=ceiling,
        curves=lambda tolerance: [CeilingCurve(lambda log_kappa: ceiling(log_kappa, tolerance))],
        information=information,
        assumptions=(f"The whole training is differentially private with {privacy}, for one record.",),
        adjacency="that of the privacy guarantee",
    )


class Goal(ABC):
    """What the adversary wants."""

    needs_baseline = False  # no annotation, so not a field
    is_one_record = False

    @abstractmethod
    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        """What must be true of the records and of the adversary, in words."""

    @abstractmethod
    def answer(self, leak: Leak, log_kappa: float | None, tolerance: float) -> Ceiling | Floor:
        """What no attack on this leak can do better."""

    def checked(self, log_kappa: float | None) -> float:
        """The log baseline of the call: given if and only if this goal does not state its own."""
        name = type(self).__name__
        if self.needs_baseline and log_kappa is None:
            return checks.baseline(None, None)
        if not self.needs_baseline and log_kappa is not None:
            raise ValueError(
                f"Expected no baseline beside goal={name}(...), which states its own. Leave out baseline and "
                "log_baseline."
            )
        return math.nan if log_kappa is None else log_kappa


class Success(Goal):
    """A goal that is reached or not: its answer is a `Ceiling`."""

    @abstractmethod
    def _ceiling(self, leak: Leak, log_kappa: float, tolerance: float) -> Ceiling:
        """The ceiling, without assumptions."""

    def answer(self, leak: Leak, log_kappa: float | None, tolerance: float) -> Ceiling:
        ceiling = self._ceiling(leak, self.checked(log_kappa), tolerance)
        return replace(ceiling, assumptions=(*leak.assumptions, *self.assumptions(leak), leak.release))


@final
@dataclass(frozen=True)
class Record(Success):
    """One record is rebuilt, where a blind guess succeeds with probability `baseline`."""

    needs_baseline = True
    is_one_record = True

    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        return INDEPENDENT, WHOLE

    def _ceiling(self, leak: Leak, log_kappa: float, tolerance: float) -> Ceiling:
        return leak.ceiling(log_kappa, tolerance, 1)


@final
@dataclass(frozen=True)
class Records(Success):
    """Several records of one training set.

    `Records(k)`: k records are rebuilt together; they may depend on each other, as copies do. The baseline is that of
    the whole group.

    `Records(k, of=n)`: at least k of n independent records are rebuilt, each with a separate guess. The baseline is
    that of each record (`counting.at_least`).
    """

    k: int
    of: int | None = None

    needs_baseline = True

    def __post_init__(self) -> None:
        checks.records(self.k, "k")
        if self.of is not None:
            checks.records(self.of, "of")
            if self.k > self.of:
                raise ValueError(f"Expected k={self.k} of at most of={self.of} records. Records(k, of=n) needs k <= n.")

    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        if self.of is None:
            return f"All records that depend on the secret are among the {self.k}.", WHOLE
        return (
            f"The {self.of} records are independent of each other and of all others.",
            "The baseline is, for each record, the success of the best guess from all that the adversary knows besides "
            "the release.",
        )

    def _ceiling(self, leak: Leak, log_kappa: float, tolerance: float) -> Ceiling:
        if self.of is None:
            return leak.ceiling(log_kappa, tolerance, self.k)
        k, n = self.k, self.of
        single = leak.ceiling(log_kappa, tolerance, 1)
        if n == 1:
            return single
        log_blind = min(_log_tail(k, n, log_kappa), -SMALLEST)
        method = f"{single.method}; at least {k} of {n}"
        if log_blind >= -1e-9:
            return Ceiling(log_blind, 0.0, log_blind, method)
        curves = leak.curves(tolerance)
        log_upper = log(min(at_least(curve, math.exp(log_kappa), k, n) for curve in curves))
        log_upper = min(log_upper, log_most_informed(log_blind, n * leak.information()))
        if leak.in_groups:
            log_upper = min(log_upper, leak.ceiling(log_blind, tolerance, n).log_upper)
        log_upper = max(log_upper, log_blind)
        # Records whose gradients are orthogonal can be tested one by one.
        low = log(float(bdtrc(k - 1, n, single.lower)) * (1 - 1e-9)) if leak.independent else -math.inf
        return Ceiling(max(log_blind, min(low, log_upper, -SMALLEST)), log_upper, log_blind, method)


@final
@dataclass(frozen=True)
class Attribute(Success):
    """The value of one column is named; the adversary knows the rest of the record, and this prior of the column.

    `prior` maps values to probabilities, or lists probabilities. If the guess names value a with probability q_a where
    training leaves the record out, it is right with probability sum_a p_a gamma(q_a) at most: the largest over q.
    """

    prior: Mapping[Hashable, float] | Sequence[float]

    def __post_init__(self) -> None:
        _keep_tuple(self, self.prior)
        p = self._probabilities
        if p.ndim != 1 or p.size < 2 or not (p >= 0).all() or not math.isclose(float(p.sum()), 1.0, rel_tol=1e-9):
            raise ValueError(
                f"Expected prior to hold two or more probabilities that add up to 1, got {self.prior!r}. Divide counts "
                "by their sum."
            )
        if p.max() == 1:
            raise ValueError("Expected prior to leave something to guess: one value has probability 1.")

    @property
    def _probabilities(self) -> Array:
        values = self.prior.values() if isinstance(self.prior, Mapping) else self.prior
        return np.array([*values], float)

    def __hash__(self) -> int:
        """By the probabilities: a mapping has none."""
        return hash(tuple(self._probabilities.tolist()))

    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        return INDEPENDENT, "The prior is all that the adversary knows about the column besides the release."

    def _ceiling(self, leak: Leak, log_kappa: float, tolerance: float) -> Ceiling:
        p = self._probabilities
        p = p / p.sum()
        curves = [curve.with_points(float(p.max())) for curve in leak.curves(tolerance)]
        answers = [(*best_of_several(curve, p, tolerance), curve.known[0].method) for curve in curves]
        low, high, method = min(answers, key=lambda answer: answer[1])
        log_blind = math.log(float(p.max()))
        log_upper = max(log_blind, log(high))
        log_lower = min(log_upper, max(log_blind, log(low)))
        return Ceiling(log_lower, log_upper, log_blind, f"{method}; over all tests, with the prior's probabilities")


@final
@dataclass(frozen=True)
class Membership(Success):
    """Whether a known record was in the training set.

    With `fpr`: the true-positive rate at this false-positive rate. Without: the accuracy where it was in every second
    training set; `.advantage` is then the largest difference of both rates.
    """

    fpr: float | None = None

    def __post_init__(self) -> None:
        if self.fpr is not None:
            checks.probability("fpr", self.fpr, "It is a false-positive rate, for instance 0.01.")

    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        other = f"It is compared with training without the record, in the sense of: {leak.adjacency}."
        return "The other records do not depend on whether this one is among them.", other

    def _ceiling(self, leak: Leak, log_kappa: float, tolerance: float) -> Ceiling:
        curve = leak.curves(tolerance)[0]  # false positives are those of training without the record
        if self.fpr is not None:
            quantity = f"true-positive rate at a false-positive rate of {self.fpr:g}"
            return replace(curve.at(math.log(self.fpr)), quantity=quantity)
        half = math.log(0.5)
        method = curve.at(half).method
        low, high = widest_gap(curve, tolerance)
        log_upper = min(0.0, half + math.log1p(high) + 1e-15)
        log_lower = max(half, min(half + math.log1p(max(0.0, low)) - 1e-15, log_upper))
        return Ceiling(log_lower, log_upper, half, f"{method}; the best threshold", quantity="accuracy")


@final
@dataclass(frozen=True)
class MeanSquaredError(Goal):
    """Numbers of a record are estimated: its answer is a `Floor` under the mean squared error of any attack.

    `prior` maps the values of one column to probabilities, or lists the standard deviations of independent Gaussian
    numbers, one for each. The release says at most I nats about the record, and no estimate that rests on I nats has a
    smaller error than the rate-distortion function D(I) of the prior.
    """

    prior: Mapping[float, float] | Sequence[float]

    def __post_init__(self) -> None:
        _keep_tuple(self, self.prior)
        if isinstance(self.prior, Mapping):
            values, p = np.array([*self.prior], float), np.array([*self.prior.values()], float)
            fine = np.isfinite(values).all() and (p >= 0).all() and math.isclose(float(p.sum()), 1.0, rel_tol=1e-9)
            if not fine or np.unique(values[p > 0]).size < 2 or not (np.ptp(values[p > 0]) / 2) ** 2 > 0:
                raise ValueError(
                    f"Expected prior to map two or more numbers to probabilities that add up to 1, got {self.prior!r}."
                )
            return
        deviations = np.array([*self.prior], float)
        if deviations.ndim != 1 or deviations.size == 0 or not (np.isfinite(deviations) & (deviations > 0)).all():
            raise ValueError(
                f"Expected prior to list one positive standard deviation per number, got {self.prior!r}. For one "
                "column with known values pass {value: probability, ...}."
            )

    def __hash__(self) -> int:
        """By the numbers: a mapping has none."""
        return hash(tuple(self.prior.items() if isinstance(self.prior, Mapping) else self.prior))

    def assumptions(self, leak: Leak) -> tuple[str, ...]:
        kind = "" if isinstance(self.prior, Mapping) else " (independent Gaussian numbers)"
        return INDEPENDENT, f"The prior{kind} is all that the adversary knows about the numbers besides the release."

    def answer(self, leak: Leak, log_kappa: float | None, tolerance: float) -> Floor:
        self.checked(log_kappa)
        information = leak.information() * (1 + 1e-12)
        if math.isinf(information):
            raise ValueError(
                "Expected a noise_multiplier for goal=MeanSquaredError(...): with a delta, a release may contain a "
                "record as it is, and no error is certain. Pass noise_multiplier, steps and sampling."
            )
        if isinstance(self.prior, Mapping):
            values, p = np.array([*self.prior], float), np.array([*self.prior.values()], float)
            values, p = values[p > 0], p[p > 0] / p.sum()
            blind = float(p @ (values - p @ values) ** 2)
            error = discrete_floor(values, p, information)
        else:
            deviations = np.array([*self.prior], float)
            blind, error = float(np.mean(deviations**2)), gaussian_floor(deviations, information)
        return Floor(error, blind, information, assumptions=(*leak.assumptions, *self.assumptions(leak), leak.release))


def _keep_tuple(goal: Goal, prior: Mapping[Any, float] | Sequence[float]) -> None:
    """An array or a list is kept as a tuple, so that goals can be compared."""
    if not isinstance(prior, Mapping):
        object.__setattr__(goal, "prior", tuple(prior))


def _log_tail(k: int, n: int, log_kappa: float) -> float:
    """log P[Binomial(n, kappa) >= k]: what a blind guess reaches; 0 from k = 0 on."""
    kappa = math.exp(log_kappa)
    if kappa < 1e-290:
        terms = [
            math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_kappa for i in range(k, n + 1)
        ]
        return min(0.0, float(np.logaddexp.reduce(terms)))
    return min(0.0, float(np.logaddexp.reduce(log_binomial(n, kappa)[k:])))


def wanted(goal: Goal | None) -> Goal:
    """The goal that this argument means."""
    if goal is None:
        return Record()
    if not isinstance(goal, Goal):
        raise TypeError(
            f"Expected goal to be a value like lw.bounds.Record() or lw.bounds.Membership(fpr=0.01), got "
            f"{goal.__name__ if isinstance(goal, type) else type(goal).__name__}."
        )
    return goal


def wanted_success(goal: Goal | None) -> Success:
    """The goal of `calibrate`."""
    aim = wanted(goal)
    if not isinstance(aim, Success):
        raise TypeError(f"Expected goal={type(aim).__name__}(...) to be a success. An error has no max_success.")
    return aim
