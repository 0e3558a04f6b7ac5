"""How a guess is judged, alike in both kinds of audit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.audits.audit import Finding
from lostwax.audits.matching import best_order
from lostwax.audits.pixels import pixel_metrics
from lostwax.metrics import MAE, MSE, Null, Oracle, SpreadRMSE, nearest_neighbour, other_secrets
from lostwax.types import Guess, Metric, Records

LABEL_AGREES = 1e-3  # a real-valued label is right within this many of its standard deviations


@dataclass(frozen=True)
class Scoring:
    """The metrics of an audit: one decides what counts as rebuilt, one is the headline, and there may be more."""

    criterion: SpreadRMSE
    headline: MSE | SpreadRMSE
    threshold: float
    more: tuple[Metric, ...] = ()

    @classmethod
    def of(
        cls, population: Tensor, threshold: float, more: tuple[Metric, ...] = (), *, with_secrets: bool = False
    ) -> Scoring:
        """Tables are scored in deviations of each feature, images (and other shapes) per pixel.

        A population `with_secrets` in it tells which features are the same for all: everybody can write those down,
        and a guess that is off there hides nothing.
        """
        criterion = SpreadRMSE(_deviation(population.flatten(1)), exact=math.inf if with_secrets else SpreadRMSE.exact)
        return cls(criterion, criterion if population.ndim == 2 else MSE(), threshold, more)

    def finding(
        self, name: str, guess: Guess, truth: Records, *, labels: Tensor, seconds: float, **more: Any
    ) -> Finding:
        """A line of the audit: guesses (games, 1, ...) beside the truth; `labels` are a population's, for their scale.

        `more` are other fields of the finding.
        """
        x, y = guess.records.x[:, 0].double().cpu().reshape(truth.x.shape), guess.records.y[:, 0].cpu()
        errors, labels = self.errors(x, truth.x), labels.cpu()
        return Finding(
            name=name,
            guess=guess,
            errors=errors,
            rebuilt=self.rebuilt(errors),
            labels_right=labels_right(y, truth.y, labels),
            label_errors=label_errors(y, truth.y, labels),
            seconds=seconds,
            **more,
        )

    def errors(self, guess: Tensor, truth: Tensor) -> dict[str, NDArray[np.float64]]:
        """Every metric of every game, by name; of two with one name the later."""
        metrics: tuple[Metric, ...] = (self.criterion, MSE(), *self.more)
        return {metric.name: _numbers(metric, metric(guess, truth)) for metric in metrics}

    def null_errors(self, guess: Tensor, truth: Records, secrets: int = 1) -> dict[Null, NDArray[np.float64]]:
        """The headline error of each guess against a secret of the next game: what chance alone gives.

        One other secret a guess, not all of them: scores that share a guess or a secret would pass for more evidence
        than they are. Of games for the same secret the first counts alone. Where a game has several, its guesses are
        matched to the next game's in the order that suits them best, as they were to their own.
        """
        first = (truth.matches(truth) == torch.arange(len(truth))).reshape(-1, secrets).all(1)  # (games,)
        if int(first.sum()) < 2:
            return {}
        guesses, truths = (
            part.reshape(-1, secrets, *part.shape[1:])[first] for part in (guess, truth.x)
        )  # (games, k, ...)
        if secrets > 1:
            order = best_order(guesses, truths.roll(-1, 0))
            guesses = guesses[torch.arange(len(order)).unsqueeze(1), order]
        scores = other_secrets(self.headline, guesses.flatten(0, 1), truths.flatten(0, 1), shift=secrets)
        return {Null.OTHER_SECRETS: _numbers(self.headline, scores)}

    def chance_errors(self, pairs: Mapping[Null, tuple[Tensor, Tensor]]) -> dict[Null, NDArray[np.float64]]:
        """The headline error of guesses and secrets that owe nothing to each other, by null."""
        return {null: _numbers(self.headline, self.headline(*pair)) for null, pair in pairs.items()}

    def oracle(self, truth: Tensor, pool: Tensor, not_row: Tensor | None = None) -> Oracle:
        """The records of the pool as guesses, in units of the headline: per pixel, or in deviations of a feature."""
        percentiles = (1, 10, 50) if not_row is None else ()
        if self.headline is not self.criterion:
            return nearest_neighbour(truth, pool, percentiles, not_row=not_row)
        unit = torch.where(self.criterion.deviation > 0, self.criterion.deviation, 1.0)
        return nearest_neighbour(truth / unit, pool / unit, percentiles, not_row=not_row)

    def rebuilt(self, errors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """(games,) within the threshold?"""
        return errors[self.criterion.name] <= self.threshold


def all_metrics(prior: Tensor, asked: Sequence[Metric]) -> tuple[Metric, ...]:
    """The cheap metrics that suit the records, and those the user asked for.

    Each of these is tried on a record of the prior: one that cannot judge such records says so now, not at the end.
    """
    one = prior[:1].cpu().double()
    for metric in asked:
        metric(one, one)
    names = [metric.name for metric in asked]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f'audit: {names.count(name)} of metrics are called "{name}". Give them names of their own: '
                'dataclasses.replace(metric, name="...").'
            )
    return (MAE(), *pixel_metrics(prior), *asked)


def label_errors(guess: Tensor, truth: Tensor, population: Tensor) -> NDArray[np.float64] | None:
    """(games,) how far a real-valued label is off, in its standard deviations; None for classes."""
    if not truth.is_floating_point():
        return None
    scale = population.double().std(0, correction=0).clamp_min(1e-300)
    off = ((guess.double() - truth.double()).abs() / scale).reshape(len(truth), -1).mean(1)
    return off.nan_to_num(nan=torch.inf, posinf=torch.inf).numpy()


def labels_right(guess: Tensor, truth: Tensor, population: Tensor) -> NDArray[np.bool_]:
    """(games,) the same class, or a number within a small part of its deviation."""
    if not truth.is_floating_point():
        return np.asarray(guess == truth)
    scale = population.std(0, correction=0).clamp_min(1e-300)
    right = ((guess - truth).abs() <= LABEL_AGREES * scale).reshape(len(truth), -1).all(1)
    return np.asarray(right)


def _numbers(metric: Metric, scores: Tensor) -> NDArray[np.float64]:
    """A guess that is no number is infinitely wrong."""
    worst = torch.inf if metric.better == "lower" else -torch.inf
    return scores.double().nan_to_num(nan=worst, posinf=torch.inf, neginf=-torch.inf).numpy()


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of each column, exactly zero for a constant one."""
    return torch.where(x.amax(0) > x.amin(0), x.std(0, correction=0), 0.0)
