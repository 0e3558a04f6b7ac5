"""Steps before a model: the affine map of a scaler, and what a step publishes about the rows it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import Tensor

from lostwax.adapters.sklearn.inputs import published
from lostwax.games import Extremes, Noted, Stationary, Sums
from lostwax.games.notes import extreme_values, total_of_all_rows

CENTRED = (PCA, IncrementalPCA)  # they publish the mean of their inputs
AGREES = 1e-9  # relative to a column's spread: the scaler was fitted on this table
SINGLE = 1e-6  # ... in single precision
NEARLY = 0.05  # relative to the difference of another sample of the same size: fitted on almost this table


@dataclass(frozen=True)
class Scaling:
    """f(x) = (x - shift) / scale, and what the scalers publish, in the units of the table."""

    shift: Tensor  # (d,)
    scale: Tensor  # (d,)
    sums: tuple[Sums, ...] = ()
    extremes: tuple[Extremes, ...] = ()
    notes: tuple[Noted, ...] = ()

    def then(self, centre: Tensor, spread: Tensor) -> Scaling:
        """(f - centre) / spread."""
        return replace(self, shift=self.shift + centre * self.scale, scale=self.scale * spread)

    def behind(self, model: Stationary) -> Stationary:
        """The model as one of the original rows."""
        both = self.then(model.shift, model.scale)
        return replace(model, shift=both.shift, scale=both.scale)

    def unscaled(self, sums: Sums) -> Sums:
        """Sums of scaled rows as sums of the original rows: x = shift + scale f(x)."""
        return replace(sums, totals=sums.totals * self.scale + sums.counts[:, None] * self.shift)


def read_scalers(steps: list[Any], x: Tensor, weight: Tensor) -> tuple[Scaling, list[Any]]:
    """Compose the leading scalers; returns them and the remaining steps.

    A scaler that was not fitted on this table is public knowledge. If the first other step publishes the mean of its
    inputs, that is read too.
    """
    scaling = Scaling(torch.zeros_like(x[0]), torch.ones_like(x[0]))
    for index, step in enumerate(steps):
        if isinstance(step, StandardScaler):
            scaling = _standard(step, scaling, x, weight)
        elif isinstance(step, MinMaxScaler):
            scaling = _min_max(step, scaling, x)
        else:
            if isinstance(step, CENTRED):
                scaling = _with_mean(step, scaling, x, weight)
            return scaling, steps[index:]
    return scaling, []


def _standard(scaler: Any, before: Scaling, x: Tensor, weight: Tensor) -> Scaling:
    if scaler.mean_ is not None:
        before = _with_mean(scaler, before, x, weight)
    centre = torch.from_numpy(scaler.mean_) if scaler.with_mean else torch.zeros_like(x[0])
    spread = torch.from_numpy(published(scaler, "scale_")) if scaler.with_std else torch.ones_like(x[0])
    return before.then(centre, spread)


def _with_mean(step: Any, before: Scaling, x: Tensor, weight: Tensor) -> Scaling:
    """The scaling so far, with what the step's `mean_` tells."""
    name = type(step).__name__
    mean = torch.from_numpy(published(step, "mean_"))
    seen = getattr(step, "n_samples_seen_", getattr(step, "n_samples_", len(x)))
    single = step.mean_.dtype.itemsize < mean.element_size()
    tolerance = SINGLE if single else AGREES
    fitted_with = _weights_of(name, mean, float(torch.as_tensor(seen).max()), before, x, weight, tolerance)
    if fitted_with is None:
        public = f"{name} was not fitted on this table and is assumed public."
        return replace(before, notes=(*before.notes, public))
    count = fitted_with.sum()[None]
    weighted = not bool((fitted_with == 1).all())
    own = Sums(f"{name}'s mean", mean[None] * count, count, by_label=False, weighted=weighted)
    by_itself = "includes the secret row and reveals it by itself (n * mean - sum of the known rows)"
    note = total_of_all_rows(f"{name}'s mean", by_itself)
    return replace(before, sums=(*before.sums, before.unscaled(own)), notes=(*before.notes, note))


def _weights_of(
    name: str, mean: Tensor, count: float, before: Scaling, x: Tensor, weight: Tensor, tolerance: float
) -> Tensor | None:
    """The weights under which the step's mean is this table's mean: ones, the sample weights, or None."""
    rows = (x - before.shift) / before.scale
    spread = rows.std(0, correction=0) + 1e-6 * rows.abs().amax(0) + 1e-300
    for candidate in (torch.ones_like(weight), weight):
        gap = ((candidate @ rows / candidate.sum() - mean).abs() / spread).max()
        if gap <= tolerance * len(x) ** 0.5:
            return candidate
        if count == len(x) and gap < NEARLY * (2 / len(x)) ** 0.5:
            raise ValueError(
                f"audit: {name} was fitted on almost this data (X), but some rows differ. "
                "Pass exactly the rows and the sample_weight it was fitted on."
            )
    return None


def _min_max(scaler: Any, before: Scaling, x: Tensor) -> Scaling:
    extremes, notes = before.extremes, before.notes
    first = bool((before.shift == 0).all() and (before.scale == 1).all())
    low, high = (torch.from_numpy(published(scaler, name)) for name in ("data_min_", "data_max_"))
    if first and torch.equal(low, x.amin(0)) and torch.equal(high, x.amax(0)):
        extremes = (*extremes, Extremes("MinMaxScaler's range", low, high))
        reveals = "reveals every value of a row that no other row reaches"
        notes = (*notes, extreme_values("MinMaxScaler's range", reveals))
    elif first:
        notes = (*notes, "MinMaxScaler was not fitted on this table and is assumed public.")
    spread = 1 / torch.from_numpy(published(scaler, "scale_"))
    centre = -torch.from_numpy(published(scaler, "min_")) * spread
    return replace(before, extremes=extremes, notes=notes).then(centre, spread)
