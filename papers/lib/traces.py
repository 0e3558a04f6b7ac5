"""The gradient of a secret's loss along the training of its model (Balle et al. 2022, Figs. 21 and 22).

And which rows of a net it is stored in, step by step (Shamsabadi et al. 2023, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lostwax.access import Neuron, neurons, row_layers
from lostwax.attacks.mnemonist import Explanation
from lostwax.games import Cohort
from lostwax.metrics import Correlation, correlation
from lostwax.metrics.estimate import spearman
from lostwax.trainers.descent import Descent
from lostwax.trainers.stacked import Architecture, Batch, Params, gradient


def own_slopes(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Params]:
    """d loss(secret) / d parameters before every step, (m, ...); with several secrets, of their mean loss."""
    secret_records = cohort.own.to(trainer.computes_in(net))
    ours = Architecture.of(net, secret_records.inputs.device, trainer.computes_in(net))
    secrets = Batch(shared=(), own=((secret_records.inputs, secret_records.y),))  # (m, k, ...)
    for step in trainer.transcript(net, cohort, seed=seed):
        yield gradient(ours, trainer.loss, dict(step.params), secrets)


class OwnGradients(NamedTuple):
    """The gradient of the secret's loss before every training step of its model (Balle et al. 2022)."""

    norm: Tensor  # (m, t) over all parameters; its sum over steps is the abscissa of Fig. 21
    zeros: dict[str, Tensor]  # by parameter tensor, (m, t): the fraction of entries that are exactly 0 (Fig. 22)


def own_gradients(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> OwnGradients:
    """Norms and zero fractions of the secrets' gradients along the training of their models."""
    norms: list[Tensor] = []
    zeros: dict[str, list[Tensor]] = {}
    for slopes in own_slopes(trainer, net, cohort, seed=seed):
        lengths = [torch.linalg.vector_norm(slope.flatten(1), dim=1) for slope in slopes.values()]  # (m,) each
        norms.append(torch.linalg.vector_norm(torch.stack(lengths), dim=0))  # (m,)
        for name, slope in slopes.items():
            zeros.setdefault(name, []).append((slope == 0).flatten(1).to(slope.dtype).mean(1))  # (m,)
    return OwnGradients(torch.stack(norms, 1), {name: torch.stack(shares, 1) for name, shares in zeros.items()})


class Scales(NamedTuple):
    """A step adds to each row the layer's input times `scale` (Shamsabadi et al. 2023, Eq. 2 and section 4)."""

    rows: tuple[Neuron, ...]
    scale: Tensor  # (m, t, rows)

    @property
    def stored(self) -> Tensor:
        """(m, t, rows) whether the step stores anything: the B-scale of Eq. 4, whose sum over rows is Fig. 5."""
        return self.scale != 0

    def of(self, module: str) -> Scales:
        places = [place for place, row in enumerate(self.rows) if row.module == module]
        if not places:
            there = ", ".join(dict.fromkeys(row.module for row in self.rows))
            raise ValueError(f"Scales.of: no row lies in module '{module}'. There are rows in {there}.")
        return Scales(tuple(self.rows[place] for place in places), self.scale[..., places])


def row_scales(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> Scales:
    """The scale of every row, step and secret:  d loss(secret) / d bias  (Shamsabadi et al. 2023, Eq. 3)."""
    biases = [layer.params[-1] for layer in row_layers(net).values()]
    for name in biases:
        if name.rpartition(".")[2] != "bias":
            raise ValueError(
                f"row_scales: expected a bias in every layer that is trained, but {name} has none beside it. Scales "
                "are read off biases: give the layer one (bias=True), or freeze it."
            )
    steps = [torch.cat([slopes[name] for name in biases], 1) for slopes in own_slopes(trainer, net, cohort, seed=seed)]
    return Scales(neurons(net), torch.stack(steps, 1))


def agreement(explanation: Explanation, scales: Scales, *, seed: int = 0) -> Correlation:
    """Correlation of coefficients and mean absolute scales of rows (Shamsabadi et al. 2023, Fig. 7); -1 is best.

    The paper uses the first layer, which stores the record itself: `agreement(explanation, scales.of("1"))`.
    """
    sizes = scales.scale.double().abs().mean((0, 1))  # (rows,)
    coefficients = explanation.overall().coefficients[0, _places(explanation, scales)]
    return correlation(coefficients.cpu().numpy(), sizes.cpu().numpy(), seed=seed)


def agreements(explanation: Explanation, scales: Scales) -> NDArray[np.float64]:
    """(m,) Spearman's correlation of each model's own coefficients and absolute scales; nan if one is constant."""
    if len(scales.scale) != len(explanation.coefficients):
        raise ValueError(
            f"agreements: expected scales of the {len(explanation.coefficients)} explained models, got those of "
            f"{len(scales.scale)}. Compute row_scales of the same cohort."
        )
    sizes = scales.scale.double().abs().mean(1)  # (m, rows)
    return spearman(explanation.coefficients[:, _places(explanation, scales)].cpu().numpy(), sizes.cpu().numpy())


def _places(explanation: Explanation, scales: Scales) -> list[int]:
    return [explanation.rows.index(row) for row in scales.rows]
