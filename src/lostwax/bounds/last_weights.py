"""Only the last weights are released: what noisy descent on convex losses has forgotten of its earlier steps.

Run training with a record, X, beside training without it, Y, on the same noise. A third process starts as Y and ends
as X: in step k it goes from Y's way to X's by a shift of length a_k at most, which the noise of that step hides. Let
z_k be its distance from X. A step adds what the record moves, and a contraction c shrinks what there is:

    z_k = c z_(k-1) + d_k - a_k,  z_k >= 0,  z_t = 0:  the last weights are mu-GDP with mu^2 = sum_k a_k^2 / s_k^2

(Bok, Su and Altschuler 2024, arXiv 2403.00278). Here d_k is 1 in a step with the record, else 0, s_k the noise
multiplier, and the smallest sum of squares is the number of full-batch steps, all released, that would tell as much.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple, final

import numpy as np

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Array, Ceiling
from lostwax.bounds.closed_forms import epsilon_of, gaussian
from lostwax.bounds.random_batches import subsampled
from lostwax.bounds.sampling import Draws, Poisson, Sampling
from lostwax.bounds.step_law import step_divergence
from lostwax.fields import check_fields
from lostwax.released import LastWeights

ROUNDING = 1e-13  # relative, of a number of steps
TRIED = 1_500  # numbers of steps, of which the best is taken
NEAR = (0.4, 0.63, 1.0, 1.6, 2.5)  # times the likeliest number are tried too
COARSE = 0.03  # relative width at which these are compared
SHARES = np.geomspace(1e-3, 0.5, 200)[:, None]  # of the noise's variance that hides the steps before


def _forgotten(decay: float, steps: Array) -> Array:
    """c^steps."""
    return np.exp(-decay * steps)


def _sum(decay: float, steps: Array) -> Array:
    """1 + c + ... + c^(steps - 1): how far a record in every step moves the last weights."""
    return np.asarray(np.expm1(-decay * steps) / math.expm1(-decay)) if decay > 0 else np.asarray(steps, float)


def full_batches(decay: float, steps: int, reach: float = math.inf) -> float:
    """As many full-batch steps, all released, tell as much about a record that is in each of `steps` steps.

    The least sum of squares has a_k in proportion to c^(t-k): (1 - c^t) (1 + c) / ((1 + c^t) (1 - c)), which a
    quadratic loss attains. In a set of bounded diameter, the third process may start N steps before the end, where Y
    is: it is `reach` from X there at most, and (c^N reach + 1 + ... + c^(N-1))^2 / (1 + c^2 + ... + c^(2N-2)) is left.
    """
    fewest = math.tanh(steps * decay / 2) / math.tanh(decay / 2) if 0 < decay < math.inf else float(steps)
    fewest = 1.0 if math.isinf(decay) else fewest
    if reach < math.inf:
        after = _numbers(steps)
        moved = _forgotten(decay, after) * reach + _sum(decay, after)
        fewest = min(fewest, float((moved**2 / _sum(2 * decay, after)).min()))
    return min(fewest * (1 + ROUNDING), float(steps))


def in_turns(decay: float, epochs: int, per_epoch: int) -> float:
    """The same for a record that is in one step of each epoch, always the same one.

    The worst place is the last step, after which nothing is forgotten: there a = 1. The visits before are hidden by
    all noise from the first of them on, a_k in proportion to c^(t-k).
    """
    if per_epoch == 1:
        return full_batches(decay, epochs)
    if decay == 0:
        return min(float(epochs), (1 + (epochs - 1) / per_epoch) * (1 + ROUNDING))
    if decay * per_epoch > 700:
        return 1 + ROUNDING
    left = math.exp(-(2 * per_epoch - 2) * decay) * -math.expm1(-2 * decay) / math.expm1(-per_epoch * decay) ** 2
    return min(float(epochs), (1 + left * math.tanh((epochs - 1) * per_epoch * decay / 2)) * (1 + ROUNDING))


def _numbers(steps: int) -> Array:
    """Whole numbers up to `steps`: all if they are few, else as many on a logarithmic scale."""
    return np.unique(np.round(np.geomspace(1, steps, TRIED))) if steps > TRIED else np.arange(1.0, steps + 1)


class Remembered(NamedTuple):
    """The steps that still tell something, with this noise for what they tell, and the shift that all before leave."""

    steps: int
    noise: float
    shift: float


@lru_cache(maxsize=64)
def remembered(released: LastWeights, draws: Draws, noise: float, steps: int) -> list[Remembered]:
    """Likely numbers of last steps with random batches, by an estimate the best one and others near it; none: all.

    The noise of each of the last N steps is split in two. One part hides whether the record is drawn, as if the step
    were released. The other hides the shifts from X to Y of all steps before: at their end X is z from Y at most, even
    if the record was drawn each time, and the N steps forget all but c^N z.
    """
    if steps < 2:
        return []
    decay, number = released.decay, _numbers(steps)
    last = number[number < steps]
    before = np.minimum(draws.jump * _sum(decay, steps - last), released.reach)  # z
    hidden = _forgotten(decay, last) * before / np.sqrt(_sum(2 * decay, last))
    split = noise * np.sqrt(1 - SHARES) / draws.jump  # (shares, 1)
    by_draws = np.sqrt(last * np.log1p(draws.rate**2 * np.expm1(np.minimum(1 / split**2, 600.0))))
    shift = hidden / (noise * np.sqrt(SHARES))
    total = by_draws + shift
    all_steps = math.sqrt(steps * math.log1p(draws.rate**2 * math.expm1(min((draws.jump / noise) ** 2, 600.0))))
    best = int(total.min(0).argmin())
    if not total[:, best].min() < all_steps:
        return []
    near = {int(np.abs(last - times * last[best]).argmin()) for times in NEAR}
    likely = []
    for column in sorted(near, key=lambda column: float(total[:, column].min())):
        row = int(total[:, column].argmin())
        shift_left = max(float(shift[row, column]) * (1 + ROUNDING), 1e-9)
        likely.append(Remembered(int(last[column]), float(split[row, 0]) * (1 - 1e-15), shift_left))
    return likely


@final
@dataclass(frozen=True)
class OnlyLast(Sampling):
    """These batches, of which nobody sees any weights but the last."""

    released: LastWeights
    batches: Sampling

    tight = False
    release = "One training run on these records is released: its last weights, and nothing from the way there."

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batches.draws(1) is None and self.batches.turns(1) is None:
            raise ValueError(
                f"released: nothing is proved about the last weights alone with {type(self.batches).__name__}(...). "
                "Use FullBatch, Cyclic, Poisson or FixedSize, or leave out released."
            )
        batches = self.batches
        facts = {"adjacency": batches.adjacency, "independent": batches.independent, "in_groups": batches.in_groups}
        for name, value in {**facts, "precision": batches.precision}.items():
            object.__setattr__(self, name, value)

    @property
    def assumption(self) -> str:
        return self.batches.assumption

    @property
    def conditions(self) -> tuple[str, ...]:  # type: ignore[override]
        law = self.released
        curved = f"{law.convexity:g}-strongly convex" if law.convexity else "convex"
        loss = "The loss of every batch that may be drawn, over the expected size, is "
        loss += f"{curved} and {law.smoothness:g}-smooth in the weights"
        steps = f"Each step is theta - lr (gradient + noise) with lr = {law.lr:g}: no momentum, and the same lr."
        if law.diameter < math.inf:
            steps += f" Weights are projected onto a set of diameter {law.diameter:g}."
        if self.batches.turns(1) is not None:
            steps += " A record is in the same batch of every epoch, and batches come in the same order."
        return f"{loss}, with its weight decay.", steps

    def share(self, steps: int) -> float:
        return self.batches.share(steps)

    def visits(self, steps: int) -> int:
        return self.batches.visits(steps)

    def as_full_batches(self, steps: int) -> bool:
        """If the record's steps are known."""
        return self._draws(steps) is None

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        return self.batches.log_limit(log_kappa, steps, records)

    def _without(self, left: int) -> OnlyLast:
        """Batches of a fixed size are drawn from fewer."""
        return replace(self, batches=self.batches._without(left))

    def _draws(self, steps: int) -> Draws | None:
        """Where nobody knows the record's steps."""
        draws = self.batches.draws(steps)
        return draws if draws is not None and draws.rate < 1 else None

    def length(self, steps: int) -> float:
        return math.sqrt(self._as_known(self.released.decay, self.released.reach, steps))

    def _as_known(self, decay: float, reach: float, steps: int) -> float:
        turns = self.batches.turns(steps)
        if turns is not None:
            return in_turns(decay, turns.epochs, turns.per_epoch)
        return full_batches(decay, steps, reach) * (self.batches.draws(steps) or Draws(1.0)).jump ** 2

    def _least(self, steps: int) -> float:
        """The same for a quadratic loss whose curvature is `convexity`: a shift that some losses have."""
        c, turns = 1 - self.released.lr * self.released.convexity, self.batches.turns(steps)
        if self.released.diameter < math.inf or self._draws(steps) is not None or c < 0:
            return 0.0
        visits, spacing = (turns.epochs, turns.per_epoch) if turns is not None else (steps, 1)
        if c == 1:
            return visits / spacing
        # by 1 every `spacing` steps, shrunk by c: (1 - c^t) / (1 - c^spacing), over sqrt((1 - c^2t) / (1 - c^2))
        forgotten = c ** (visits * spacing)
        return (1 - forgotten) / (1 + forgotten) * (1 - c * c) / (1 - c**spacing) ** 2

    def ceiling(self, log_kappa: float, noise: float, steps: int, tolerance: float, records: int = 1) -> Ceiling:
        """Of known steps in closed form, for any number of records; of random ones for one after the other."""
        if self._draws(steps) is not None:
            return super().ceiling(log_kappa, noise, steps, tolerance, records)
        upper = gaussian(log_kappa, noise / self.length(steps), 1, records)
        least = self._least(steps) * (1 - ROUNDING)
        log_lower = gaussian(log_kappa, noise / math.sqrt(least)).log_lower if least > 0 else log_kappa
        method = "last weights of convex losses, shifted interpolation"
        return replace(upper, log_lower=min(log_lower, upper.log_upper), method=method)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        draws = self._draws(steps)
        if draws is None:
            return self.ceiling(log_kappa, noise, steps, tolerance)

        def of_all_steps(tolerance: float) -> Ceiling:
            return replace(self.batches.curves[0](log_kappa, noise, steps, tolerance), log_lower=log_kappa)

        def of_last(last: Remembered, tolerance: float) -> Ceiling:
            drawn = subsampled(log_kappa, last.noise, draws.rate, last.steps, tolerance)
            # An event gains at most this by the draws of the last steps, and then at most that by the shifts.
            upper = gaussian(drawn.log_upper, 1 / last.shift) if drawn.log_upper < 0 else drawn
            slope = (drawn.log_slope or 0.0) + (upper.log_slope or 0.0 if upper is not drawn else 0.0)
            method = f"last weights of convex losses: the last {last.steps:,} steps, and a shift of {last.shift:.2g}"
            return Ceiling(log_kappa, upper.log_upper, log_kappa, method, log_slope=slope)

        ways: list[Callable[[float], Ceiling]] = [of_all_steps]
        ways += [partial(of_last, last) for last in remembered(self.released, draws, noise, steps)]
        ceilings = [way(max(tolerance, COARSE)) for way in ways]  # all valid; the lowest once more, finer
        lowest = min(range(len(ways)), key=lambda number: ceilings[number].log_upper)
        return min([*ceilings, ways[lowest](tolerance)], key=lambda ceiling: ceiling.log_upper)

    def information(self, noise: float, steps: int) -> float:
        """Kullback and Leibler's divergence only falls where less is seen."""
        every, draws = self.batches.information(noise, steps), self._draws(steps)
        if draws is None:
            return min(every, self.length(steps) ** 2 / (2 * noise**2))
        likely = remembered(self.released, draws, noise, steps)
        split = [last.steps * step_divergence(last.noise, draws.rate) + last.shift**2 / 2 for last in likely]
        return min([every, *split])

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """Of known steps exactly; else the sum of both parts, each at half of delta, if that is less."""
        draws = self._draws(steps)
        if draws is None:
            return epsilon_of(noise / self.length(steps), 1.0, 1, delta)
        sums = [self.batches.epsilon(noise, steps, delta)]
        for last in remembered(self.released, draws, noise, steps):
            drawn = epsilon_of(last.noise, draws.rate, last.steps, delta / 2)
            sums.append(drawn + epsilon_of(1 / last.shift, 1.0, 1, delta / 2))
        return min(sums)


def seen_batches(
    sampling: Sampling | None, sample_rate: float, steps: int, released: LastWeights | None = None
) -> Sampling:
    """The batches that these arguments of `bound` and `calibrate` mean, and what is seen of them."""
    rate = checks.sample_rate(sample_rate)
    sampling = Poisson() if sampling is None else sampling
    if not isinstance(sampling, Sampling):
        raise TypeError(
            f"Expected sampling to be a value like lw.bounds.Poisson(0.01) or lw.bounds.Shuffled(epochs=10), got "
            f"{sampling.__name__ if isinstance(sampling, type) else type(sampling).__name__}."
        )
    batches = sampling.resolved(rate, steps)
    return batches if released is None else OnlyLast(released, batches)
