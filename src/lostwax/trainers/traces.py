"""What a secret does to its model while the model is trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.trainers.descent import Descent
from lostwax.trainers.stacked import Architecture, Batch, Params, gradient
from lostwax.types import Cohort


class OwnGradients(NamedTuple):
    """The gradient of the secret's own loss before every step of its model's training."""

    norm: Tensor  # (m, t) over all parameters; its sum over steps is the abscissa of S1 Fig. 21
    zeros: dict[str, Tensor]  # by parameter tensor, (m, t): the share of its entries that are exactly 0 (S1 Fig. 22)


def own_gradients(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> OwnGradients:
    """How much each secret pulls at its own model, along the training of that model."""
    norms: list[Tensor] = []
    zeros: dict[str, list[Tensor]] = {}
    for slopes in own_slopes(trainer, net, cohort, seed=seed):
        lengths = [torch.linalg.vector_norm(slope.flatten(1), dim=1) for slope in slopes.values()]  # (m,) each
        norms.append(torch.linalg.vector_norm(torch.stack(lengths), dim=0))  # (m,)
        for name, slope in slopes.items():
            still = (slope == 0).flatten(1).to(slope.dtype).mean(1)  # (m,)
            zeros.setdefault(name, []).append(still)
    return OwnGradients(torch.stack(norms, 1), {name: torch.stack(shares, 1) for name, shares in zeros.items()})


def own_slopes(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Params]:
    """d loss(secret) / d parameters before every step, (m, ...) each.

    A step sees the mean over all its records; this is the secret's share of it, whether or not the step's batch
    holds the secret. With several secrets a model, it is the gradient of their mean loss.
    """
    own = cohort.own.to(trainer.computes_in(net))
    ours = Architecture.of(net, own.inputs.device, trainer.computes_in(net))
    secrets = Batch(shared=(), own=((own.inputs, own.y),))  # (m, k, ...)
    for step in trainer.transcript(net, cohort, seed=seed):
        yield gradient(ours, trainer.loss, dict(step.params), secrets)
