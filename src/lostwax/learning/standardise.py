"""What is seen of a model, brought to one scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import neurons, row_layers
from lostwax.games import Access, Release
from lostwax.games.facts import access_facts
from lostwax.inits import trainable

STILL = 1e-3  # a coordinate that moves less than this share of the median one does not move
COLUMNS = 1024  # float64 copies are made of so many columns at a time


@dataclass(frozen=True, eq=False)
class Standardise:
    """Zero mean and unit deviation over the shadow models, in the coordinates that move (S1 section V-A c).

    Pixels that are black in all known records leave first-layer weights that differ between models by rounding alone.
    Divided by their tiny deviation they would feed an attack noise of any size, so they are dropped. For a like reason
    nothing counts as further from the mean than `reach`: of s numbers none lies beyond sqrt(s) of their deviations, so
    that who learnt from s shadows has seen nothing there. (A pixel lit in no shadow's record, but in the victim's.)
    """

    kept: Tensor  # (kept,) whole numbers below `features`
    mean: Tensor  # (kept,) float64
    deviation: Tensor  # (kept,) float64
    features: int
    reach: float  # deviations

    @classmethod
    def fit(cls, seen: Tensor, beside: int = 0, *, still: bool = False) -> Standardise:
        """The statistics of (m, features), in float64: float32 would lose small moves of large weights.

        The last `beside` features are no part of the models, and move at a scale of their own. Models that all look the
        same are refused, unless they may be `still`: then each coordinate is read as its mean, as in `refit`.
        """
        mean, deviation = _moments(seen)  # (features,) twice
        if still and not deviation.any():
            deviation = torch.full_like(deviation, torch.inf)
        if not deviation.any():
            raise ValueError(
                f"Standardise: all {len(seen)} models look the same, so nothing of a record can be seen in them. "
                "Train for more than no steps, on more than one record, or give access to more of the model."
            )
        kinds = torch.split(deviation, [len(deviation) - beside, beside])
        kept = torch.cat([kind >= STILL * kind[kind > 0].median() for kind in kinds]).nonzero()[:, 0]
        return cls(kept, mean[kept], deviation[kept], seen.shape[1], math.sqrt(len(seen)))

    @staticmethod
    def moves(seen: Tensor) -> bool:
        """Does anything of models (m, features) differ by more than rounding?"""
        return bool(_moments(seen)[1].any())

    def refit(self, seen: Tensor) -> Standardise:
        """The same coordinates, at the scale of other models (m, features): those of another fixed set, say.

        A coordinate that does not move among them tells nothing: it is read as its mean, (seen - mean) / inf = 0.
        """
        self._check(seen)
        mean, deviation = _moments(seen[:, self.kept])  # (kept,) twice
        moving = torch.where(deviation > 0, deviation, torch.inf)
        return Standardise(self.kept, mean, moving, self.features, math.sqrt(len(seen)))

    def __call__(self, seen: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(m, features) -> (m, kept)."""
        self._check(seen)
        scaled = seen.new_empty(len(seen), len(self.kept), dtype=dtype)
        for start in range(0, len(self.kept), COLUMNS):
            block = slice(start, start + COLUMNS)
            far = (seen[:, self.kept[block]].double() - self.mean[block]) / self.deviation[block]
            scaled[:, block] = far.clamp_(-self.reach, self.reach)
        return scaled

    def _check(self, seen: Tensor) -> None:
        if seen.shape[1] != self.features:
            raise ValueError(
                f"Standardise: expected {self.features} numbers a model, as the shadow models have, "
                f"got {seen.shape[1]}. Is it another net, another access, or a game that tells more or less?"
            )


def _moments(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column in float64; a deviation that is mere rounding is zero."""
    parts = [torch.std_mean(columns.double(), dim=0, correction=0) for columns in torch.split(seen, COLUMNS, dim=1)]
    deviation, mean = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, torch.where(deviation > torch.finfo(seen.dtype).eps * mean.abs(), deviation, 0.0)


# Which row each number lies in that is seen of a model.


NOWHERE = -1


class SeenLayer(NamedTuple):
    """The rows of one layer among standardised features, as far as they are seen."""

    place: Tensor  # (rows, columns) which feature it is, -1 for none: a weight that never moves is dropped
    unit: Tensor  # (rows, columns) its deviation, in that of the whole row; 0 where there is none
    biased: bool  # is the last column a bias?


class SeenRows(NamedTuple):
    """All rows, layer by layer, and the features that lie in no row."""

    layers: tuple[SeenLayer, ...]
    others: Tensor  # (others,) features: of other layers, or told

    @classmethod
    def of(cls, net: nn.Module, access: Access, standardise: Standardise) -> SeenRows:
        """Found out by showing the access a model whose every weight is its row's number, and its column's."""
        row, column = (access(net, Release(marks))[0].long() for marks in _marks(net))  # (seen,) each
        told = row.new_full((standardise.features - len(row),), NOWHERE)
        row, column = (torch.cat([marks, told])[standardise.kept.cpu()] for marks in (row, column))  # (kept,)
        deviation = standardise.deviation.cpu()
        layers, start = [], 0
        for layer, width in zip(row_layers(net).values(), _widths(net), strict=True):
            mine = ((row >= start) & (row < start + layer.neurons)).nonzero()[:, 0]
            place = torch.full((layer.neurons, width), NOWHERE)
            unit = torch.zeros(layer.neurons, width, dtype=torch.float64)
            place[row[mine] - start, column[mine]] = mine
            unit[row[mine] - start, column[mine]] = deviation[mine]
            moves = unit.norm(dim=1) > 0
            if moves.any():
                whole = unit[moves].norm(dim=1, keepdim=True)
                biased = len(layer.params) > 1
                layers.append(SeenLayer(place[moves], unit[moves] / whole, biased))
            start += layer.neurons
        return cls(tuple(layers), (row == NOWHERE).nonzero()[:, 0])


def rows_objection(net: nn.Module, access: Access) -> str | None:
    """Why no rows are seen, as a sentence."""
    if not access_facts(access).rows:
        return f"its decoder reads weights row by row, but the adversary sees {access!r}. Use access=Weights()."
    if not neurons(net):
        return "its decoder reads rows, and the net trains no linear or convolutional layer. Use MLPDecoder."
    return None


def _widths(net: nn.Module) -> list[int]:
    """The columns of each layer's rows: incoming weights, then the bias."""
    trained = trainable(net)
    return [sum(trained[name][0].numel() for name in layer.params) for layer in row_layers(net).values()]


def _marks(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One model of row numbers and one of columns, (1, ...) a parameter; -1 for what lies in no row."""
    trained = trainable(net)
    rows = {name: torch.full((1, *value.shape), float(NOWHERE), dtype=torch.float64) for name, value in trained.items()}
    columns = {name: value.clone() for name, value in rows.items()}
    start = 0
    for layer in row_layers(net).values():
        numbers, before = torch.arange(layer.neurons, dtype=torch.float64), 0
        for name in layer.params:
            flat = rows[name][0].reshape(layer.neurons, -1)  # (neurons, columns), a view
            flat[:] = (start + numbers).unsqueeze(1)
            columns[name][0].reshape(layer.neurons, -1)[:] = before + torch.arange(flat.shape[1], dtype=torch.float64)
            before += flat.shape[1]
        start += layer.neurons
    return rows, columns
