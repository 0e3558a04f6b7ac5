"""Errors of a record: of its numbers, or of the tokens of a sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lostwax.fields import above, at_least, check_fields
from lostwax.games import MetricFacts

BLOCK_NUMBERS = 500_000  # of guesses, scored together: 4 MB in float64, which stay in the cache


@dataclass(frozen=True)
class MSE:
    """Mean over a record's numbers of the squared difference: for images, per pixel."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "mean squared error"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return (guess - truth).square().flatten(1).mean(1)


@dataclass(frozen=True)
class MAE:
    """Mean over a record's numbers of the absolute difference."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "mean absolute error"

    def __post_init__(self) -> None:
        check_fields(self)

    def facts(self) -> MetricFacts:
        """Parts of a record can be scored."""
        return MetricFacts(of_parts=True)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return (guess - truth).abs().flatten(1).mean(1)


@dataclass(frozen=True)
class PSNR:
    """The mean squared error in decibels below the square of the range of a pixel; infinite for a perfect guess."""

    peak: float = 1.0  # the range of a pixel: 1 for images in [0, 1]
    better: Literal["lower", "higher"] = "higher"
    name: str = "peak signal-to-noise ratio (dB)"

    def __post_init__(self) -> None:
        check_fields(self, peak=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return -10 * (MSE()(guess, truth) / self.peak**2).log10()  # 10 log10(peak^2 / MSE)


@dataclass(frozen=True)
class NearPixels:
    """The share of a record's numbers within `tolerance` of the truth (Hayes et al. 2023, appendix I).

    A guess is a success if the share is at least rho. The log success of a blind guess at unknown pixels is
    `bounds.log_kappa_pixels(d, tolerance, rho)`.
    """

    tolerance: float = 32 / 255
    better: Literal["lower", "higher"] = "higher"
    name: str = "share of pixels nearly right"

    def __post_init__(self) -> None:
        check_fields(self, tolerance=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        return ((guess - truth).abs() < self.tolerance).flatten(1).double().mean(1)


@dataclass(frozen=True, eq=False)
class SpreadRMSE:
    """Root mean square over features of (guess - truth) / standard deviation of the feature.

    Constant features are left out, but must be right to `exact` (relative to their size), or the error is infinite.
    """

    deviation: Tensor  # (d,)
    exact: float = 1e-6
    better: Literal["lower", "higher"] = "lower"
    name: str = "RMSE in feature standard deviations"

    def __post_init__(self) -> None:
        check_fields(self, exact=at_least(0, infinite=True))

    def facts(self) -> MetricFacts:
        """It measures in deviations."""
        return MetricFacts(deviation=self.deviation)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, d) twice -> (games,)."""
        guess, truth = guess.flatten(1), truth.flatten(1)
        size = max(1, BLOCK_NUMBERS // max(1, guess.shape[1]))
        pairs = zip(torch.split(guess, size), torch.split(truth, size), strict=True)
        return torch.cat([self._errors(guesses, theirs) for guesses, theirs in pairs])

    def _errors(self, guess: Tensor, truth: Tensor) -> Tensor:
        """Of some games."""
        varies = self.deviation > 0
        if varies.all():
            return ((guess - truth) / self.deviation).square().mean(1).sqrt()
        error = ((guess - truth)[:, varies] / self.deviation[varies]).square().mean(1).sqrt()
        if not varies.any():
            error = torch.zeros(len(guess), dtype=guess.dtype)
        constant = truth[:, ~varies]
        right = (guess[:, ~varies] - constant).abs() <= self.exact * constant.abs().clamp_min(1)  # NaN is not
        return torch.where(right.all(1), error, torch.inf)


@dataclass(frozen=True, eq=False)
class LargestError:
    """The largest over features of |guess - truth| / standard deviation of the feature; constant ones are left out."""

    deviation: Tensor  # (d,)
    better: Literal["lower", "higher"] = "lower"
    name: str = "largest error of a feature in standard deviations"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, d) twice -> (games,)."""
        varies = self.deviation > 0
        if not varies.any():
            return torch.zeros(len(guess), dtype=guess.dtype)
        return ((guess - truth).flatten(1)[:, varies] / self.deviation[varies]).abs().amax(1)


@dataclass(frozen=True)
class TokensRight:
    """The share of positions with the right token; 1 for an exact sentence."""

    better: Literal["lower", "higher"] = "higher"
    name: str = "share of tokens right"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        return (guess == truth).flatten(1).double().mean(1)


@dataclass(frozen=True)
class BagRight:
    """The share of a sentence's tokens that are right in any order, repeated ones counted as often as they occur."""

    better: Literal["lower", "higher"] = "higher"
    name: str = "share of tokens right in any order"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        pairs = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        common = [
            sum((Counter(tokens) & Counter(true_tokens)).values()) / len(true_tokens) for tokens, true_tokens in pairs
        ]
        return torch.tensor(common, dtype=torch.float64, device=truth.device)


@dataclass(frozen=True)
class EditDistance:
    """How many tokens must be inserted, removed or replaced to get the sentence (Levenshtein)."""

    better: Literal["lower", "higher"] = "lower"
    name: str = "edit distance in tokens"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, length) twice -> (games,)."""
        pairs = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        return torch.tensor([_edits(*pair) for pair in pairs], dtype=torch.float64, device=truth.device)


def _edits(guess: list[float], truth: list[float]) -> int:
    row = list(range(len(truth) + 1))
    for i, ours in enumerate(guess, 1):
        above, row = row, [i]
        for j, theirs in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (ours != theirs)))
    return row[-1]
