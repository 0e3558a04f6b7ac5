"""How a guess is scored, in both kinds of audit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.audits.audit import Finding
from lostwax.audits.luck import Scores
from lostwax.games import Columns, Guess, Metric, MetricFacts, Records
from lostwax.games.facts import stated
from lostwax.metrics import (
    LPIPS,
    MAE,
    MSE,
    PSNR,
    SSIM,
    BagRight,
    EditDistance,
    LargestError,
    NearestKnown,
    Oracle,
    SpreadRMSE,
    TokensWrong,
    nearest_known,
    nearest_neighbour,
)
from lostwax.seeds import generator

MOST_AXES = 64  # of a column of categories
ROUNDING = 1e-6  # of a range, by which a pixel may lie outside


class PixelRange(NamedTuple):
    """From black to white."""

    low: float
    high: float

    def holds(self, x: Tensor) -> bool:
        """Do all pixels lie within?"""
        slack = ROUNDING * (self.high - self.low)
        return bool(x.min() >= self.low - slack) and bool(x.max() <= self.high + slack)

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]"


RANGES = (PixelRange(0, 1), PixelRange(-1, 1), PixelRange(0, 255))  # the customary ones, narrowest first


def pixel_range(x: Tensor) -> PixelRange | None:
    """The narrowest customary range that holds the images; None where none does, or where these are no images."""
    is_image = x.ndim == 4 and x.shape[1] in (1, 3)  # (n, 1 or 3, height, width)
    return next((limits for limits in RANGES if limits.holds(x)), None) if is_image else None


def pixel_metrics(x: Tensor) -> tuple[Metric, ...]:
    """What images like x are judged by besides their mean errors; nothing where x has no customary range."""
    limits = pixel_range(x)
    if limits is None:
        return ()
    metrics: tuple[Metric, ...] = (PSNR(), SSIM(), *_lpips())
    return tuple(_InUnitRange(metric, limits) for metric in metrics)


@dataclass(frozen=True)
class _InUnitRange:
    """A metric of images in [0, 1], for images in another range."""

    metric: Metric
    limits: PixelRange

    @property
    def name(self) -> str:
        return self.metric.name

    @property
    def better(self) -> Literal["lower", "higher"]:
        return self.metric.better

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        low, high = self.limits
        return self.metric((guess - low) / (high - low), (truth - low) / (high - low))


def _lpips() -> tuple[LPIPS, ...]:
    """LPIPS if its weights are available; silent otherwise."""
    metric, grey = LPIPS(), torch.zeros(1, 1, 32, 32)
    try:
        metric(grey, grey)
    except FileNotFoundError:
        return ()
    return (metric,)


@dataclass(frozen=True)
class CellView:
    """Cells as numbers whose distance is the mean over columns: categories are corners that are one apart.

    So are a value and a missing one, which stands at the mean.
    """

    columns: Columns
    centre: Tensor  # (d,) the mean of each column of numbers
    missing: Tensor  # (d,) which columns of numbers have missing values
    deviation: Tensor  # (D,) of each axis, such that a mean over axes is one over columns; 0 where all are the same
    spread: Tensor  # (D,) of each axis by itself

    @classmethod
    def of(cls, x: Tensor, columns: Columns) -> CellView:
        """The view of a table."""
        view = cls(columns, x.nanmean(0).nan_to_num(), x.isnan().any(0), x.new_zeros(0), x.new_zeros(0))
        axes, varies = [], 0
        for column, values in enumerate(columns.categories):
            cells = x[:, column]
            differs = bool((cells.isnan().any() & ~cells.isnan().all()) or (cells != cells[0]).any())
            varies += differs
            if values:
                axes.append(x.new_full((_corners(len(values) + 1).shape[1],), float(differs)))
                continue
            spread = (cells - view.centre[column]).square().nanmean().sqrt()
            axes.append(spread.reshape(1) if differs else x.new_zeros(1))
            if view.missing[column]:
                axes.append(x.new_ones(1))
        deviation = torch.cat(axes).nan_to_num()
        share = max(1, varies) / max(1, int((deviation > 0).sum()))
        return replace(view, deviation=deviation * share**0.5, spread=deviation)

    def __call__(self, x: Tensor) -> Tensor:
        """(n, d) -> (n, D)."""
        axes = []
        for column, values in enumerate(self.columns.categories):
            cells = x[..., column].double()
            absent = cells.isnan()
            if values:
                codes = torch.where(absent, len(values), cells.nan_to_num()).long().clamp(0, len(values))
                axes.append(_corners(len(values) + 1)[codes])
                continue
            if self.missing[column]:
                axes += [torch.where(absent, self.centre[column], cells)[..., None], absent.double()[..., None]]
            else:
                axes.append(cells[..., None])
        return torch.cat(axes, -1)


@cache
def _corners(count: int) -> Tensor:
    """(count, axes) points of which any two are one apart; about one, where they are many: corners of a cube."""
    points: Tensor = torch.eye(count, dtype=torch.float64) * 0.5**0.5
    if count > MOST_AXES:
        signs = generator(0, "corners", count).integers(0, 2, (count, MOST_AXES)) * 2.0 - 1.0
        points = torch.from_numpy(signs) / (2 * MOST_AXES) ** 0.5
    return points


LABEL_AGREES = 1e-3  # a real-valued label is right within this many of its standard deviations


@dataclass(frozen=True)
class Scoring:
    """The metrics of an audit: one decides what counts as rebuilt, one is the headline, and there may be more."""

    criterion: SpreadRMSE | LargestError | TokensWrong
    headline: MSE | SpreadRMSE | TokensWrong
    threshold: float
    more: tuple[Metric, ...] = ()
    unknown: Tensor | None = None  # (d,) the numbers of a record that the adversary is not given; None: all of them
    cells: CellView | None = None  # how categories and missing values are compared; None: all are numbers
    of_tokens: bool = False  # records are sentences of token numbers, which are equal or not

    @classmethod
    def of_sentences(cls, more: tuple[Metric, ...] = ()) -> Scoring:
        """A sentence is rebuilt if all its tokens are right, each at its place."""
        return cls(TokensWrong(), TokensWrong(), 0.0, more, of_tokens=True)

    @classmethod
    def of_cells(cls, x: Tensor, columns: Columns, threshold: float) -> Scoring:
        """Of a table with categories or missing values: a wrong one counts as much as a deviation of a number."""
        if not any(columns.categories) and not x.isnan().any():
            return cls.of(x, threshold, with_secrets=True)
        view = CellView.of(x, columns)
        criterion = SpreadRMSE(view.deviation, exact=math.inf)
        return cls(criterion, criterion, threshold, cells=view)

    @classmethod
    def of(
        cls,
        population: Tensor,
        threshold: float,
        more: tuple[Metric, ...] = (),
        *,
        with_secrets: bool = False,
        unknown: Tensor | None = None,
        secrets: Tensor | None = None,
    ) -> Scoring:
        """Tables are scored in deviations of each feature, images (and other shapes) per pixel.

        A population `with_secrets` in it, or `secrets` beside it, tell which features are the same for all: a guess
        that is off there hides nothing. A feature that only secrets vary in has the spread that they give it. Numbers
        that are given count in no error. A threshold of 0 asks for the very record, in constant features too.
        """
        exact = 0.0 if threshold == 0 else math.inf if with_secrets or secrets is not None else SpreadRMSE.exact
        mask = None if unknown is None else unknown.flatten()
        deviation = _deviation(population.flatten(1))
        if secrets is not None:
            all_records = torch.cat([population.flatten(1), secrets.flatten(1)])
            deviation = torch.where(deviation > 0, deviation, _deviation(all_records))
        criterion = SpreadRMSE(deviation if mask is None else deviation[mask], exact=exact)
        return cls(criterion, criterion if population.ndim == 2 else MSE(), threshold, more, mask)

    def finding(
        self, name: str, guess: Guess, truth: Records, *, labels: Tensor, seconds: float, **more: Any
    ) -> Finding:
        """A line of the audit: guesses (games, 1, ...) beside the truth; `labels` are a population's, for their scale.

        `more` are other fields of the finding.
        """
        x, y = guess.records.x[:, 0].double().cpu().reshape(truth.x.shape), guess.records.y[:, 0].cpu()
        errors, labels = self.errors(x, truth.x), labels.cpu()
        right, off = np.asarray(targets_right(y, truth.y, labels).all(1)), label_errors(y, truth.y, labels)
        return Finding(name, guess, errors, self.rebuilt(errors), right, seconds, label_errors=off, **more)

    def errors(self, guess: Tensor, truth: Tensor) -> dict[str, NDArray[np.float64]]:
        """Every metric of every game, by name."""
        ours, theirs = self._unknown_part(guess), self._unknown_part(truth)
        numbers = self.cells is None and not self.of_tokens  # codes have no squares
        several = (self.criterion, self.headline, *((MSE(),) if numbers else ()))
        errors = {metric.name: _numbers(metric, metric(ours, theirs)) for metric in dict.fromkeys(several)}
        for metric in self.more:
            pair = (ours, theirs) if stated(metric, MetricFacts()).of_parts else (guess, truth)
            errors[metric.name] = _numbers(metric, metric(*pair))
        return errors

    def by_cell(self) -> Scoring:
        """The same, where a row counts as rebuilt if every cell of it is: by the largest error, not by the mean."""
        spread = stated(self.criterion, MetricFacts()).deviation if self.cells is None else self.cells.spread
        return self if spread is None else replace(self, criterion=LargestError(spread))

    def scores(self, guess: Tensor, truth: Tensor) -> Scores:
        """The two errors that decide, of pairs (n, ...)."""
        ours, theirs = self._unknown_part(guess), self._unknown_part(truth)
        criterion = _numbers(self.criterion, self.criterion(ours, theirs))
        if self.headline is self.criterion:
            return Scores(criterion, criterion)
        return Scores(_numbers(self.headline, self.headline(ours, theirs)), criterion)

    def viewed(self) -> Scoring:
        """The scoring of what `view` gives."""
        return replace(self, cells=None)

    def view(self, x: Tensor) -> Tensor:
        """Records as numbers that can be compared: themselves, or cells in a view."""
        return x if self.cells is None else self.cells(x)

    def _unknown_part(self, x: Tensor) -> Tensor:
        """(n, ...) -> what the adversary is not given, as numbers that can be compared."""
        if self.cells is not None:
            return self.cells(x)
        return x if self.unknown is None else x.flatten(1)[:, self.unknown]

    def oracle(self, truth: Tensor, pool: Tensor) -> Oracle:
        """The records of the pool as guesses, in units of the headline: per pixel, or in deviations of a feature."""
        truth, pool, unit = self._unknown_part(truth), self._unknown_part(pool), self._unit
        return nearest_neighbour(truth / unit, pool / unit, of_tokens=self.of_tokens)

    def nearest_known(self, table: Tensor, games: Tensor) -> NearestKnown:
        """The nearest other record of a table (n, ...) for each game, in units of the headline."""
        return nearest_known(self._unknown_part(table), games, self._unit, of_tokens=self.of_tokens)

    def features(self, x: Tensor) -> Tensor:
        """(n, ...) -> (n, D) numbers in units of the headline; tokens as corners, two of which are one apart."""
        if self.of_tokens:
            return _corners(int(x.max()) + 1)[x.long()].flatten(1)
        return (self._unknown_part(x) / self._unit).flatten(1)

    def typical(self, x: Tensor) -> Tensor:
        """(n, ...) -> (...) the mean record, or the most frequent token at each place."""
        return x.mode(0).values if self.of_tokens else x.mean(0)

    def typical_others(self, x: Tensor, rows: Tensor) -> Tensor:
        """(m, ...) the same of all records but one, for each of these rows (m,)."""
        if not self.of_tokens:
            return (x.sum(0) - x[rows]) / (len(x) - 1)
        return torch.stack([self.typical(x[torch.arange(len(x)) != row]) for row in rows])

    @property
    def _unit(self) -> Tensor | float:
        """Of each number, in the headline."""
        deviation = stated(self.headline, MetricFacts()).deviation
        return 1.0 if deviation is None else torch.where(deviation > 0, deviation, 1.0)

    def rebuilt(self, errors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """(games,) within the threshold?"""
        return errors[self.criterion.name] <= self.threshold


def all_metrics(
    prior: Tensor, asked: Sequence[Metric], *, whole: bool = True, of_tokens: bool = False
) -> tuple[Metric, ...]:
    """The cheap metrics that suit the records, and those the user asked for, each tried on a record of the prior.

    Where a part of each picture is given (not `whole`), only the latter look at whole pictures.
    """
    record = prior[:1].cpu().double()
    for metric in asked:
        metric(record, record)
    names = [metric.name for metric in asked]
    for name in names:
        if names.count(name) > 1 or name in (MSE().name, SpreadRMSE.name):
            raise ValueError(
                f'audit: metrics holds one called "{name}", and there is another of that name. Rename yours: '
                'dataclasses.replace(metric, name="...").'
            )
    ours: tuple[Metric, ...] = (MAE(), *(pixel_metrics(prior) if whole else ()))
    ours = (BagRight(), EditDistance()) if of_tokens else ours
    return (*(metric for metric in ours if metric.name not in names), *asked)


def label_errors(guess: Tensor, truth: Tensor, population: Tensor) -> NDArray[np.float64] | None:
    """(games,) how far a real-valued label is off, in its standard deviations; None for classes."""
    if not truth.is_floating_point():
        return None
    scale = population.double().std(0, correction=0).clamp_min(1e-300)
    off = ((guess.double() - truth.double()).abs() / scale).reshape(len(truth), -1).mean(1)
    return off.nan_to_num(nan=torch.inf, posinf=torch.inf).numpy()


def targets_right(guess: Tensor, truth: Tensor, population: Tensor) -> NDArray[np.bool_]:
    """(games, targets) the same class, or a number within a small part of its deviation."""
    right = guess == truth
    if truth.is_floating_point():
        scale = population.std(0, correction=0).clamp_min(1e-300)
        right = (guess - truth).abs() <= LABEL_AGREES * scale
    return np.asarray(right.reshape(len(truth), -1))


def _numbers(metric: Metric, scores: Tensor) -> NDArray[np.float64]:
    """A guess that is no number is infinitely wrong."""
    worst = torch.inf if metric.better == "lower" else -torch.inf
    return scores.double().nan_to_num(nan=worst, posinf=torch.inf, neginf=-torch.inf).numpy()


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of each column, exactly zero for a constant one."""
    return torch.where(x.amax(0) > x.amin(0), x.std(0, correction=0), 0.0)
