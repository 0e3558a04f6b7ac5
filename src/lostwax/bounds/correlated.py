"""Matrix mechanisms (DP-FTRL): noise that is correlated between steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.sampling import BallsInBins, Cyclic, FullBatch, Sampling

ONCE = Cyclic(1)
APART = 24  # distances of bins that are tried


@final
@dataclass(frozen=True)
class Correlated(Sampling):
    """Noise C^-1 Z on the sums of clipped gradients, Z independent of `noise_multiplier` times the clipping norm.

    C is lower triangular; `norm` is that of its longest column. By default, a record is in one step. Else C has `bands`
    non-zero diagonals, a record is only in steps that are `bands` apart, and `batches` says how it comes into these:
    `Cyclic(k)`: in at most k of them; `Poisson(q)`: in each with probability q; `BallsInBins(k)`: in one of each of k
    epochs. What is released is C G + Z, and a record in step t moves it by at most the length of column t.
    Columns that are `bands` apart share no row, so that these are steps of their own with noise / `norm`
    (Choquette-Choo et al. 2023, arXiv 2306.08153, for Poisson sampling; the argument is the same for the others).
    """

    norm: float
    bands: int | None = None
    batches: Sampling = ONCE

    def __post_init__(self) -> None:
        checks.positive("norm", self.norm, "It is the Euclidean length of the longest column of C.")
        if self.bands is not None:
            checks.whole("bands", self.bands, "It is the number of non-zero diagonals of C.")
        independent = getattr(self.batches, "independent", None)
        if independent is None or isinstance(self.batches, type):
            raise TypeError("Expected batches to be a value like lw.bounds.Poisson(0.01) or lw.bounds.Cyclic(epochs).")
        if isinstance(self.batches, Correlated) or not independent:
            raise ValueError(
                f"Expected batches={type(self.batches).__name__}(...) to draw records independently of each other: "
                "Cyclic, Poisson, BallsInBins or FullBatch. Nothing is proved for others."
            )
        facts: dict[str, Any] = {
            "sensitivity": self.norm,
            "adjacency": self.batches.adjacency,
            "epsilon_words": self.batches.epsilon_words,
            "precision": self.batches.precision,
        }
        facts["words"] = "each record is in one step at most"
        if self.bands is not None:
            facts["words"] = f"{self.batches.words}, among steps that are {self.bands} apart, and in no others"
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @staticmethod
    def in_bins(matrix: ArrayLike, steps: int, epochs: int = 1) -> CorrelatedBins:
        """Each record in one random step of an epoch, the same in all epochs: `CorrelatedBins`, from C as in `of`."""
        c = np.asarray(matrix, float)
        if c.ndim == 1:
            lags = np.arange(steps)[:, None] - np.arange(steps)
            c = np.where((lags >= 0) & (lags < len(c)), c[lags.clip(0, len(c) - 1)], 0.0)
        if c.shape != (steps, steps) or not np.isfinite(c).all() or np.triu(c, 1).any() or not c.any():
            raise ValueError(f"Expected a lower triangular matrix C of {steps} steps, got shape {c.shape}.")
        bins = BallsInBins(epochs).per_epoch(steps)
        moves = np.abs(c).reshape(steps, epochs, bins).sum(1)  # (steps, bins) what a record in this bin moves
        gram, away = moves.T @ moves, np.subtract.outer(np.arange(bins), np.arange(bins))
        longest, laws = float(gram.diagonal().max()), []
        for spacing in np.unique(np.round(np.geomspace(1, bins, APART))).astype(int).tolist():
            near = gram[(away % spacing == 0) & (away != 0)]
            shared = min(float(near.max(initial=0.0)) * (1 + 1e-12), longest)
            laws.append((bins // spacing, shared, longest * (1 + 1e-12) - shared))
        mean = moves.mean(1)
        least = float((mean @ moves).min() / np.linalg.norm(mean)) if (c >= 0).all() else 0.0
        return CorrelatedBins(epochs, bins, tuple(laws), least)

    @classmethod
    def of(cls, matrix: ArrayLike, batches: Sampling = ONCE) -> Self:
        """From C itself: (steps, steps), or the first column of a Toeplitz matrix."""
        c = np.asarray(matrix, float)
        if c.ndim == 1 and c.size and np.isfinite(c).all() and c[0] != 0:
            norm, bands = float(np.linalg.norm(c)), int(np.flatnonzero(c)[-1]) + 1
        elif c.ndim == 2 and c.size and c.shape[0] == c.shape[1] and np.isfinite(c).all() and not np.triu(c, 1).any():
            row, column = np.nonzero(c)
            norm, bands = float(np.linalg.norm(c, axis=0).max()), int((row - column).max(initial=0)) + 1
        else:
            raise ValueError(
                f"Expected a lower triangular matrix C, or the first column of a Toeplitz one, got shape {c.shape}."
            )
        return cls(norm * (1 + 1e-12), bands, batches)

    def resolved(self, sample_rate: float, steps: int) -> Self:
        """With the rate of the call, for the steps that a record may be in."""
        if sample_rate == 1:
            return self
        return replace(self, batches=self.batches.resolved(sample_rate, self._record_steps(steps)))

    def _record_steps(self, steps: int) -> int:
        """The number of steps that a record may be in."""
        possible = 1 if self.bands is None else math.ceil(steps / self.bands)
        epochs = getattr(self.batches, "epochs", None)
        if epochs is not None and epochs > possible:
            raise ValueError(
                f"Expected at most {possible} epochs, got {epochs}: of steps={steps}, only that many are "
                f"bands={self.bands} apart, and a record may be in no others."
            )
        return possible

    def share(self, steps: int) -> float:
        possible = self._record_steps(steps)
        return self.batches.share(possible) * possible / steps

    def visits(self, steps: int) -> int:
        return self.batches.visits(self._record_steps(steps))

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        ceiling = self.batches.ceiling(log_kappa, noise / self.norm, self._record_steps(steps), tolerance)
        return replace(ceiling, method=f"{ceiling.method}, correlated noise")

    def as_full_batches(self, steps: int) -> bool:
        """If a record is in all that it may be in, or known ones."""
        return self.batches.as_full_batches(self._record_steps(steps))

    def log_limit(self, log_kappa: float, steps: int, records: int = 1) -> float:
        return self.batches.log_limit(log_kappa, self._record_steps(steps)) if records == 1 else 0.0

    def information(self, noise: float, steps: int) -> float:
        return self.batches.information(noise / self.norm, self._record_steps(steps))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        return self.batches.epsilon(noise / self.norm, self._record_steps(steps), delta)


@final
@dataclass(frozen=True)
class CorrelatedBins(Sampling):
    """Correlated noise, each record in one random step of an epoch, the same in all: `Correlated.in_bins(C, steps)`.

    Let M_j be what a record in bin j moves at most: the sum of the absolute columns of C of its steps. Given the steps
    before, a row of C G + Z is Gaussian, and by Kahane's inequality, row by row from the last, ratios of training with
    the record to training without are spread at most like the mean over j of exp(<M_j, Z> / s^2 - |M_j|^2 / (2 s^2)),
    however gradients adapt. Only K_ij = <M_i, M_j> matters, and larger entries only spread it more. Take classes of
    bins that are some distance apart, and tell which class has the record. In it K is at most u where i != j, and
    u + v where i = j: one Gaussian step of length sqrt(u), and one epoch of balls-in-bins of length sqrt(v). `laws`
    holds (bins of a class, u, v) for several distances.
    """

    epochs: int
    bins: int
    laws: tuple[tuple[int, float, float], ...]
    least: float  # the shift of a test by the sum over bins

    adjacency = BallsInBins.adjacency
    tight = False
    independent = False
    words = "each record is in one step per epoch, the same in all, drawn uniformly, and the draws stay secret"

    def visits(self, steps: int) -> int:
        if steps != self.epochs * self.bins:
            raise ValueError(f"Expected steps={self.epochs * self.bins}, those of the matrix C, got {steps}.")
        return self.epochs

    def length(self, steps: int) -> float:
        _, shared, alone = self.laws[0]
        return math.sqrt(shared + alone)

    def _best(self, noise: float) -> tuple[int, float, float]:
        """The law with the least variance of the loss, or about that."""

        def variance(law: tuple[int, float, float]) -> float:
            bins, shared, alone = law
            spread = min(alone / noise**2, 600.0)
            return math.sqrt(shared) / noise + math.sqrt(math.log1p(math.expm1(spread) / bins))

        return min(self.laws, key=variance)

    def _one(self, log_kappa: float, noise: float, steps: int, tolerance: float) -> Ceiling:
        self.visits(steps)
        bins, shared, alone = self._best(noise)
        epoch = BallsInBins(1).ceiling(log_kappa, noise / math.sqrt(alone) * (1 - 1e-15), bins, tolerance)
        log_upper, log_slope = epoch.log_upper, epoch.log_slope or 0.0
        if shared > 0 and log_upper < 0:
            moved = gaussian(log_upper, noise / math.sqrt(shared))
            log_upper, log_slope = moved.log_upper, log_slope + (moved.log_slope or 0.0)
        full = gaussian(log_kappa, noise / self.length(steps))
        if full.log_upper <= log_upper:
            log_upper, log_slope = full.log_upper, full.log_slope or 0.0
        low = gaussian(log_kappa, noise / self.least).log_lower if self.least > 0 else log_kappa
        method = f"{epoch.method}, correlated noise"
        return Ceiling(min(low, log_upper), log_upper, log_kappa, method, log_slope=log_slope)

    def information(self, noise: float, steps: int) -> float:
        """Given the bin, that of its move; and at most that of both parts."""
        bins, shared, alone = self._best(noise)
        known = self.length(steps) ** 2 / (2 * noise**2)
        return min(known, shared / (2 * noise**2) + BallsInBins(1).information(noise / math.sqrt(alone), bins))

    def epsilon(self, noise: float, steps: int, delta: float) -> float:
        """Of the longest move, as if the bin were known."""
        return FullBatch().epsilon(noise / self.length(steps), 1, delta)
