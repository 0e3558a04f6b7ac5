"""The gradient of a secret's loss along the training of its model (Balle et al. 2022, Figs. 21 and 22)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort
from lostwax.trainers.descent import Descent, own_slopes


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
