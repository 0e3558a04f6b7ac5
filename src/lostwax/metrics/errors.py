"""Errors of a record, (games, ...) twice -> (games,): of its numbers, of the tokens of a sentence, or of an image.

And the nearest-neighbour oracle: the error of the best record that the adversary already has.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, max_pool2d

from lostwax.fields import above, at_least, check_fields, expect
from lostwax.files import read_tensors
from lostwax.games import MetricFacts, Records
from lostwax.seeds import generator

Better = Literal["lower", "higher"]
BLOCK_NUMBERS = 500_000  # of guesses, scored together: 4 MB in float64, which stay in the cache


class _Checked:
    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class MSE(_Checked):
    """Mean over a record's numbers of the squared difference: for images, per pixel."""

    better: Better = "lower"
    name: str = "mean squared error"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        return (guess - truth).square().flatten(1).mean(1)


@dataclass(frozen=True)
class MAE(_Checked):
    """Mean over a record's numbers of the absolute difference."""

    better: Better = "lower"
    name: str = "mean absolute error"

    def facts(self) -> MetricFacts:
        return MetricFacts(of_parts=True)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        return (guess - truth).abs().flatten(1).mean(1)


@dataclass(frozen=True)
class PSNR(_Checked):
    """The mean squared error in decibels below the square of the range of a pixel; infinite for a perfect guess."""

    peak: float = 1.0  # the range of a pixel: 1 for images in [0, 1]
    better: Better = "higher"
    name: str = "peak signal-to-noise ratio (dB)"

    def __post_init__(self) -> None:
        check_fields(self, peak=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        return -10 * (MSE()(guess, truth) / self.peak**2).log10()  # 10 log10(peak^2 / MSE)


@dataclass(frozen=True)
class NearPixels(_Checked):
    """The share of a record's numbers within `tolerance` of the truth (Hayes et al. 2023, appendix I).

    A guess is a success if the share is at least rho. The log success of a blind guess at unknown pixels is
    `bounds.log_kappa_pixels(d, tolerance, rho)`.
    """

    tolerance: float = 32 / 255
    better: Better = "higher"
    name: str = "share of pixels nearly right"

    def __post_init__(self) -> None:
        check_fields(self, tolerance=above(0))

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        return ((guess - truth).abs() < self.tolerance).flatten(1).double().mean(1)


@dataclass(frozen=True, eq=False)
class SpreadRMSE(_Checked):
    """Root mean square over features of (guess - truth) / standard deviation of the feature.

    Constant features are left out, but must be right to `exact` (relative to their size), or the error is infinite.
    """

    deviation: Tensor  # (d,)
    exact: float = 1e-6
    better: Better = "lower"
    name: str = "RMSE in feature standard deviations"

    def __post_init__(self) -> None:
        check_fields(self, exact=at_least(0, infinite=True))

    def facts(self) -> MetricFacts:
        return MetricFacts(deviation=self.deviation)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        guess, truth = guess.flatten(1), truth.flatten(1)
        some = max(1, BLOCK_NUMBERS // max(1, guess.shape[1]))
        parts = zip(torch.split(guess, some), torch.split(truth, some), strict=True)
        return torch.cat([self._errors(*part) for part in parts])

    def _errors(self, guess: Tensor, truth: Tensor) -> Tensor:
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
class LargestError(_Checked):
    """The largest over features of |guess - truth| / standard deviation of the feature; constant ones are left out."""

    deviation: Tensor  # (d,)
    better: Better = "lower"
    name: str = "largest error of a feature in standard deviations"

    def facts(self) -> MetricFacts:
        return MetricFacts(deviation=self.deviation)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        varies = self.deviation > 0
        if not varies.any():
            return torch.zeros(len(guess), dtype=guess.dtype)
        return ((guess - truth).flatten(1)[:, varies] / self.deviation[varies]).abs().amax(1)


@dataclass(frozen=True)
class TokensWrong(_Checked):
    """The share of positions with a wrong token; 0 for an exact sentence."""

    better: Better = "lower"
    name: str = "share of tokens wrong"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        return (guess != truth).flatten(1).double().mean(1)


@dataclass(frozen=True)
class BagRight(_Checked):
    """The share of a sentence's tokens that are right in any order, repeated ones counted as often as they occur."""

    better: Better = "higher"
    name: str = "share of tokens right in any order"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        sentences = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        shares = [(Counter(tokens) & Counter(right)).total() / len(right) for tokens, right in sentences]
        return torch.tensor(shares, dtype=torch.float64, device=truth.device)


@dataclass(frozen=True)
class EditDistance(_Checked):
    """How many tokens must be inserted, removed or replaced to get the sentence (Levenshtein)."""

    better: Better = "lower"
    name: str = "edit distance in tokens"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        pairs = zip(guess.flatten(1).tolist(), truth.flatten(1).tolist(), strict=True)
        return torch.tensor([_edits(*pair) for pair in pairs], dtype=torch.float64, device=truth.device)


def _edits(guess: list[float], truth: list[float]) -> int:
    row = list(range(len(truth) + 1))
    for i, ours in enumerate(guess, 1):
        above, row = row, [i]
        for j, theirs in enumerate(truth, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (ours != theirs)))
    return row[-1]


def _as_images(source: str, guess: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Both as (games, channels, height, width); (games, height, width) counts as grey."""
    if guess.shape != truth.shape:
        wanted, got = tuple(truth.shape), tuple(guess.shape)
        raise ValueError(f"{source}: expected guesses of the truth's shape {wanted}, got {got}.")
    if truth.ndim == 3:
        return guess.unsqueeze(1), truth.unsqueeze(1)
    if truth.ndim != 4 or truth.shape[1] not in (1, 3):
        raise ValueError(
            f"{source} compares images: expected shape (games, 1 or 3, height, width) or (games, height, width), "
            f"got {tuple(truth.shape)}. Reshape flattened images; for tables use MSE or SpreadRMSE."
        )
    return guess, truth


@dataclass(frozen=True)
class SSIM(_Checked):
    """Agreement of local brightness, contrast and structure, 1 for a perfect guess (Wang et al. 2004, Eq. 13).

    Weighted by a Gaussian window; the mean is over all positions where the whole window lies in the image, and over
    channels (scikit-image's `gaussian_weights=True, use_sample_covariance=False`). The window is cut to the largest odd
    size that fits: 7 in an image of 8 x 8. Images are in [0, peak].
    """

    window: int = 11
    sigma: float = 1.5
    peak: float = 1.0
    better: Better = "higher"
    name: str = "structural similarity"

    def __post_init__(self) -> None:
        check_fields(self, window=at_least(1), sigma=above(0), peak=above(0))
        expect(self, "window", "to be odd", self.window % 2 == 1)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        x, y = (images.double() for images in _as_images("SSIM", guess, truth))  # variances cancel digits
        weights = self._weights(min(x.shape[-2:])).to(x)

        def local(image: Tensor) -> Tensor:
            """Weighted mean in every window, (games, channels, rows, columns)."""
            flat = image.flatten(0, 1).unsqueeze(1)  # each channel by itself
            mean = conv2d(conv2d(flat, weights.reshape(1, 1, -1, 1)), weights.reshape(1, 1, 1, -1))
            return mean.reshape(*image.shape[:2], *mean.shape[-2:])

        mean_x, mean_y = local(x), local(y)
        variances = local(x * x) - mean_x**2 + local(y * y) - mean_y**2
        covariance = local(x * y) - mean_x * mean_y
        c1, c2 = (0.01 * self.peak) ** 2, (0.03 * self.peak) ** 2
        scale = (mean_x**2 + mean_y**2 + c1) * (variances + c2)
        similarity = ((2 * mean_x * mean_y + c1) * (2 * covariance + c2)) / scale
        return similarity.flatten(1).mean(1).to(guess.dtype)

    def _weights(self, side: int) -> Tensor:
        """The Gaussian along one axis, adding up to 1, no wider than the image."""
        window = min(self.window, side - (side + 1) % 2)  # the largest odd number <= side
        offset = torch.arange(window, dtype=torch.float64) - window // 2
        weights = (-(offset**2) / (2 * self.sigma**2)).exp()
        return weights / weights.sum()


ARCHIVE = "lpips_alex.safetensors"
MIN_SIDE = 32  # pixels: the smallest that AlexNet's poolings allow
GAMES_AT_A_TIME = 256
# (number in torchvision's AlexNet, stride, padding, pooled first?) of each convolution
LAYERS = ((0, 4, 2, False), (3, 1, 2, True), (6, 1, 1, True), (8, 1, 1, False), (10, 1, 1, False))
CHANNELS = (3, 64, 192, 384, 256, 256)
KERNELS = (11, 5, 3, 3, 3)
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # ImageNet's mean and deviation for inputs in [-1, 1]


@dataclass(frozen=True)
class LPIPS(_Checked):
    """Distance of two images in AlexNet's features, weighted as people judge (Zhang et al. 2018, Eq. 1; v0.1).

    Images are in [0, 1]. Those with a side under 32 pixels are enlarged bilinearly to 32, so values are comparable only
    among images of one size. The weights are read from `weights`, or from lpips_alex.safetensors in LOSTWAX_DATA;
    nothing is downloaded. Differentiable in both images, so it can be a loss.
    """

    weights: str | PathLike[str] | None = None
    better: Better = "lower"
    name: str = "LPIPS (AlexNet)"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        parameters = _read(_find(self.weights), str(truth.device))
        images = _as_images("LPIPS", guess, truth)
        parts = zip(*(torch.split(part, GAMES_AT_A_TIME) for part in images), strict=True)
        return torch.cat([_distance(parameters, *part) for part in parts]).to(guess.dtype)


def _distance(parameters: Mapping[str, Tensor], guess: Tensor, truth: Tensor) -> Tensor:
    distance = torch.zeros(len(truth), device=truth.device)
    features = zip(_features(parameters, guess), _features(parameters, truth), strict=True)
    for layer, (ours, theirs) in enumerate(features):
        difference = (_unit(ours) - _unit(theirs)).square()  # (games, channels, rows, columns)
        importance = parameters[f"lin{layer}.weight"]  # (channels,)
        distance = distance + torch.einsum("gchw,c->ghw", difference, importance).mean((1, 2))
    return distance


def _features(parameters: Mapping[str, Tensor], images: Tensor) -> Iterator[Tensor]:
    """The images' features after each of AlexNet's five rectified convolutions."""
    signal = 2 * images.float() - 1  # [0, 1] -> [-1, 1]
    if (side := min(signal.shape[-2:])) < MIN_SIDE:
        size = [math.ceil(length * MIN_SIDE / side) for length in signal.shape[-2:]]
        signal = interpolate(signal, size=size, mode="bilinear", align_corners=False)
    signal = signal.expand(-1, 3, -1, -1)  # grey -> three equal channels
    shift, scale = (signal.new_tensor(numbers).reshape(3, 1, 1) for numbers in (SHIFT, SCALE))
    signal = (signal - shift) / scale
    for number, stride, padding, pooled in LAYERS:
        if pooled:
            signal = max_pool2d(signal, kernel_size=3, stride=2)
        weight, bias = parameters[f"features.{number}.weight"], parameters[f"features.{number}.bias"]
        signal = conv2d(signal, weight, bias, stride=stride, padding=padding).relu()
        yield signal


def _unit(features: Tensor) -> Tensor:
    """Each position's channels, scaled to length 1 (0 where all are 0, with a gradient of 0)."""
    length: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return features / (length + 1e-10)


def _find(weights: str | PathLike[str] | None) -> Path:
    place = os.environ.get("LOSTWAX_DATA")
    if weights is None and not place:
        raise FileNotFoundError(
            "LPIPS has no path to its weights: set the environment variable LOSTWAX_DATA to the directory that holds "
            f"{ARCHIVE}, or pass the path of such a file as weights=. Nothing is downloaded."
        )
    path = (Path(place or "") / ARCHIVE if weights is None else Path(weights)).expanduser()
    if not path.is_file():
        raise FileNotFoundError(
            f"LPIPS finds no file {path}: set the environment variable LOSTWAX_DATA to the directory that holds "
            f"{ARCHIVE}, or pass the path of such a file as weights=."
        )
    return path


@lru_cache(maxsize=4)
def _read(path: Path, device: str) -> Mapping[str, Tensor]:
    tensors = read_tensors("LPIPS", path, device)
    for name, shape in _shapes().items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            got = f"shape {tuple(tensors[name].shape)}" if name in tensors else "nothing of that name"
            raise ValueError(
                f"LPIPS: expected {path} to hold AlexNet v0.1 with {name} of shape {shape}, got {got}. "
                "Names are torchvision's (features.0.weight, ...), with the heads lin0.weight to lin4.weight."
            )
    return {name: tensors[name].float() for name in _shapes()}


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    numbers = [number for number, *_ in LAYERS]
    for layer, (before, after) in enumerate(pairwise(CHANNELS)):
        shapes[f"features.{numbers[layer]}.weight"] = (after, before, KERNELS[layer], KERNELS[layer])
        shapes[f"features.{numbers[layer]}.bias"] = (after,)
        shapes[f"lin{layer}.weight"] = (after,)
    return shapes


BLOCK_DISTANCES = 8_000_000  # distances held at a time: 64 MB in float64
POOL_ROWS = 16_384  # rows of the pool that a product copies at a time
SAMPLED_ROWS = 1_000  # rows that stand for a large table
MAX_WORK = 1e11  # multiplications for which a table is compared whole
FIXED_PAIR_COST = 20  # of a pair, in multiplications


class Oracle(NamedTuple):
    """Mean squared errors between targets and the records of a pool (Balle et al. 2022, section V-B)."""

    mean: float  # over targets, of the error of the nearest record: a threshold for success
    percentiles: dict[float, float]  # over the pool, mean over targets: {1: ..., 10: ..., 50: ...}
    errors: NDArray[np.float64]  # (targets,) of the nearest record
    nearest: NDArray[np.int64]  # (targets,) its row in the pool
    pool: int  # records in the pool


def nearest_neighbour(
    targets: Tensor,
    pool: Tensor,
    percentiles: Sequence[float] = (1, 10, 50),
    *,
    not_row: Tensor | None = None,
    of_tokens: bool = False,
) -> Oracle:
    """The error of the best record of the pool for each target.

    An attack with a larger error has rebuilt nothing new. Percentiles are taken per target over the pool, then averaged
    over targets: that, not the percentile of all pairs, gives the 0.05 of Balle et al. 2022 on CIFAR-10. `not_row`
    (targets,) is a row of the pool to exclude for each target, as the target itself. Memory is bounded. The error of
    sentences `of_tokens` is the share of tokens that differ.
    """
    _check_pool(targets, pool, percentiles)
    rows, wanted = pool.flatten(1), targets.flatten(1)  # (n, d), (games, d)
    errors: list[Tensor] = []
    nearest: list[Tensor] = []
    orders: list[NDArray[np.float64]] = []
    size = max(1, BLOCK_DISTANCES // len(pool))
    for start, block in zip(range(0, len(wanted), size), torch.split(wanted, size), strict=True):
        power = 0.0 if of_tokens else 2.0
        distance = torch.cat(
            [torch.cdist(block, part, power) for part in torch.split(rows, POOL_ROWS)], 1
        )  # (block, n)
        if not_row is not None:
            distance[torch.arange(len(block)), not_row[start : start + size]] = torch.inf
        best = distance.argmin(1)
        nearest.append(best)
        # exactly: cdist loses the digits of small distances
        difference = (block - rows[best]).double()
        errors.append((difference.sign() if of_tokens else difference).square().mean(1))
        if not percentiles:
            continue
        squared = ((distance if of_tokens else distance.square_()) / rows.shape[1]).cpu().numpy()  # |difference|^2 / d
        orders.append(np.percentile(squared, percentiles, axis=1, overwrite_input=True))  # (percentiles, block)
    nearest_errors = torch.cat(errors).cpu().numpy()
    means = dict(zip(percentiles, np.concatenate(orders, 1).mean(1).tolist(), strict=True)) if orders else {}
    return Oracle(float(nearest_errors.mean()), means, nearest_errors, torch.cat(nearest).cpu().numpy(), len(pool))


class NearestKnown(NamedTuple):
    """For each row its nearest other row, of all others or of a sample of them."""

    rows: NDArray[np.int64]  # (games,)
    compared: int  # rows of the table that each was compared with; equal rows are found in any case
    whole: bool  # these are all of them


def nearest_known(table: Tensor, games: Tensor, unit: Tensor | float = 1.0, *, of_tokens: bool = False) -> NearestKnown:
    """The nearest other row of the table (n, ...), in units of each column, for each row of `games`.

    Large games are compared with `SAMPLED_ROWS` random rows, the same for all, and with the rows equal to their own:
    work that grows with the square of the table is not done.
    """
    rows = table.flatten(1)
    n, d = rows.shape
    if len(games) * n * (d + FIXED_PAIR_COST) <= MAX_WORK:
        neighbours = nearest_neighbour(rows[games] / unit, rows / unit, (), not_row=games, of_tokens=of_tokens).nearest
        return NearestKnown(neighbours, n - 1, whole=True)
    drawn = torch.from_numpy(generator(0, "nearest known").permutation(n)[: SAMPLED_ROWS + 1]).sort().values
    place = torch.searchsorted(drawn, games).clamp_max(len(drawn) - 1)
    # a row of the sample is not compared with itself, all others not with the last one: SAMPLED_ROWS rows for each
    not_row = torch.where(drawn[place] == games, place, len(drawn) - 1)
    near = nearest_neighbour(rows[games] / unit, rows[drawn] / unit, (), not_row=not_row, of_tokens=of_tokens).nearest
    nearest, twin = drawn[torch.from_numpy(near)], _equal_row(rows, games)
    return NearestKnown(torch.where(twin >= 0, twin, nearest).numpy(), SAMPLED_ROWS, whole=False)


def _equal_row(rows: Tensor, games: Tensor) -> Tensor:
    """(games,) another row that is equal to the row of the game; -1 where there is none."""
    table = Records(rows, torch.zeros(len(rows)))
    first = table.matches(table)  # (n,) the row itself, unless an earlier one is equal
    later = torch.full_like(first, -1)
    repeated = (first != torch.arange(len(first))).nonzero()[:, 0]
    later[first[repeated]] = repeated
    return torch.where(first[games] != games, first[games], later[games])


def _check_pool(targets: Tensor, pool: Tensor, percentiles: Sequence[float]) -> None:
    if len(targets) == 0 or len(pool) == 0:
        got = f"{len(targets)} and {len(pool)}"
        raise ValueError(f"nearest_neighbour: expected at least one target and one record in the pool, got {got}.")
    if targets.shape[1:] != pool.shape[1:] or targets.dtype != pool.dtype or not pool.is_floating_point():
        raise ValueError(
            "nearest_neighbour: expected targets and pool of one shape and one floating dtype, got "
            f"{tuple(targets.shape[1:])} {targets.dtype} and {tuple(pool.shape[1:])} {pool.dtype}."
        )
    if not all(0 <= number <= 100 for number in percentiles):
        raise ValueError(f"nearest_neighbour: expected percentiles in 0..100, got {tuple(percentiles)}.")
