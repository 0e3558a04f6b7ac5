"""How a guess is judged, alike in both kinds of audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.metrics import MSE, SpreadRMSE

BLOCK_NUMBERS = 8_000_000
LABEL_AGREES = 1e-3  # a real-valued label is right within this many of its standard deviations


@dataclass(frozen=True)
class Scoring:
    """The metrics of an audit: one decides what counts as rebuilt, one is the headline."""

    criterion: SpreadRMSE
    headline: MSE | SpreadRMSE
    threshold: float

    @classmethod
    def of(cls, population: Tensor, threshold: float) -> Scoring:
        """Tables are scored in deviations of each feature, images (and other shapes) per pixel."""
        criterion = SpreadRMSE(_deviation(population.flatten(1)))
        return cls(criterion, criterion if population.ndim == 2 else MSE(), threshold)

    def errors(self, guess: Tensor, truth: Tensor) -> dict[str, NDArray[np.float64]]:
        """Every metric of every game: in deviations, and raw. A guess that is no number is infinitely wrong."""
        return {
            metric.name: metric(guess, truth).nan_to_num(nan=torch.inf, posinf=torch.inf).numpy()
            for metric in (self.criterion, MSE())
        }

    def rebuilt(self, errors: Mapping[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
        """(games,) within the threshold?"""
        return errors[self.criterion.name] <= self.threshold

    def nearest(self, truth: Tensor, pool: Tensor, not_row: Tensor | None = None) -> Tensor:
        """For each game the row of the pool nearest the truth by the headline metric; `not_row` is out of the game.

        An oracle rather than an attack: it is told which row comes nearest. An attack that does worse has rebuilt
        nothing that the adversary did not have already (S1 section V-B).
        """
        varies = self.criterion.deviation > 0
        unit = (
            self.criterion.deviation if self.headline is self.criterion else torch.ones_like(self.criterion.deviation)
        )
        rows, targets = ((part.flatten(1)[:, varies] / unit[varies]) for part in (pool, truth))
        nearest = torch.empty(len(truth), dtype=torch.long)
        size = max(1, BLOCK_NUMBERS // len(pool))
        for start in range(0, len(truth), size):
            distance = torch.cdist(targets[start : start + size], rows)  # (block, n)
            if not_row is not None:
                distance[torch.arange(len(distance)), not_row[start : start + size]] = torch.inf
            nearest[start : start + size] = distance.argmin(1)
        return pool[nearest]


def labels_right(guess: Tensor, truth: Tensor, population: Tensor) -> NDArray[np.bool_]:
    """(games,) the same class, or a number within a small part of its deviation."""
    if not truth.is_floating_point():
        return np.asarray(guess == truth)
    scale = population.std(0, correction=0).clamp_min(1e-300)
    right = ((guess - truth).abs() <= LABEL_AGREES * scale).reshape(len(truth), -1).all(1)
    return np.asarray(right)


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of each column, exactly zero for a constant one."""
    return torch.where(x.amax(0) > x.amin(0), x.std(0, correction=0), 0.0)
