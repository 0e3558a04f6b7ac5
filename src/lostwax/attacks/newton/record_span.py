"""The space that the records of a training set span, read off the first layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Release
from lostwax.learning.coordinates import Coordinates

NAMES = {"weight", "bias"}  # of a layer whose weights are not computed from others
NOISE = 100  # times the rounding of the weights: smaller singular values are none


class RecordSpan(NamedTuple):
    """The affine space that k records span."""

    coordinates: Coordinates  # of the records, one after the other
    complete: bool  # of k - 1 dimensions: no record may have been lost in rounding


def record_span(weights: TrainingMap, release: Release, prior: Coordinates) -> RecordSpan | None:
    """The space that the k records of a release span; None if it is not seen.

    A linear layer that reads the records moves by outer products, whatever the rest of the net and the steps are:

        [W_T - c W_0,  b_T - c b_0]  =  sum_i a_i [x_i, 1]^T,      c: what weight decay leaves of the start,

    so that the rows span [x_i, 1], if there are at least as many neurons as records. n records of d numbers then have
    n (n - 1) unknowns instead of n d. A record that moved the layer by less than rounding is not seen. `prior` has the
    unknowns of a label, where that is a number.
    """
    name = first_layer(weights.net, weights.numbers)
    if name is None or not weights.trainer.linear_update:
        return None
    k, start = weights.secrets, weights.trainer.init(weights.net, [0], seed=0)
    released = _extended(release.params, name)  # (h, d + 1)
    begun = _extended({key: value.to(released) for key, value in start.items()}, name)
    moved = released - _decay(weights, name, begun) * begun
    if not moved.isfinite().all():  # training diverged
        return None
    _, sizes, rows = torch.linalg.svd(moved, full_matrices=False)
    steps = weights.trainer.batches.steps(k)
    rounding = torch.finfo(next(iter(release.params.values())).dtype).eps * steps**0.5 * float(released.norm())
    rank = int((sizes > NOISE * rounding).sum())
    if not 1 < rank <= k or (rank < k and rank == len(sizes)):  # not a sum of k records, or more than neurons
        return None
    basis = rows[:rank]  # (rank, d + 1), orthonormal: [x, 1] = m basis
    last = basis[:, -1]
    if float(last.norm()) <= NOISE * torch.finfo(last.dtype).eps:
        return None
    origin = last @ basis[:, :-1] / last.square().sum()  # the point with 1 in the last place that is nearest to zero
    turned = torch.linalg.svd(last[None], full_matrices=True).Vh[1:]  # (rank - 1, rank): 0 in the last place
    d, unit = (
        weights.numbers,
        prior.directions[prior.directions[:, weights.numbers :].any(1)],
    )  # of a label, if a number
    directions = torch.cat([torch.nn.functional.pad(turned @ basis[:, :-1], (0, len(prior.origin) - d)), unit])
    anywhere = torch.full_like(directions[:, 0], torch.inf)
    found = Coordinates(torch.cat([origin, prior.origin[d:]]), directions, -anywhere, anywhere)
    return RecordSpan(found.times(k), complete=rank == k)


def first_layer(net: nn.Module, numbers: int) -> str | None:
    """The prefix of the parameters of a trained linear layer with a bias that reads all numbers of a record."""
    if type(net) is nn.Linear:
        parts = (net.weight, net.bias)
        trained = all(part is not None and part.requires_grad for part in parts)
        return "" if trained and net.in_features == numbers and set(dict(net.named_parameters())) == NAMES else None
    for name, layer in net.named_children() if isinstance(net, nn.Sequential) else ():
        if not isinstance(layer, nn.Flatten | nn.Identity):
            inner = first_layer(layer, numbers)
            return None if inner is None else f"{name}.{inner}"
    return None


def _extended(params: Mapping[str, Tensor], name: str) -> Tensor:
    """(h, d + 1) weights and bias of the layer of one model."""
    weight, bias = params[f"{name}weight"], params[f"{name}bias"]
    return torch.cat([weight[0], bias[0].unsqueeze(1)], 1).double()


def _decay(weights: TrainingMap, name: str, begun: Tensor) -> float:
    """c, by training on records of zeros, which do not move the weights of the layer."""
    zeros = torch.zeros(1, weights.unknowns, device=begun.device)
    labels = torch.zeros(1, weights.secrets, dtype=torch.long, device=begun.device)
    left = weights.trainer(weights.net, weights.cohort(zeros, labels), seed=0).params[f"{name}weight"][0].double()
    return float((left * begun[:, :-1]).sum() / begun[:, :-1].square().sum().clamp_min(1e-300))
