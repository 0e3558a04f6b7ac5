"""The space that the records of a training set span, read off the first layer, and training within it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.games import Records, Release
from lostwax.inits import FromNet, trainable
from lostwax.learning.coordinates import Coordinates

NAMES = {"weight", "bias"}  # of a layer whose weights are not computed from others
NOISE = 100  # times the rounding of the weights: smaller singular values are none


class RecordSpan(NamedTuple):
    """The affine space of r - 1 dimensions that k records span: [x, 1] = [a, constant] rows."""

    layer: str  # prefix of the parameters
    rows: Tensor  # (r, d + 1) orthonormal; all but the last end with 0
    complete: bool  # r = k, or r = d + 1, which is all of it: no record may have been lost in rounding
    noise: float  # error of a number of a record in the space, for each unit of the length of [x, 1]

    @property
    def constant(self) -> float:
        """What the last row is multiplied with."""
        return 1 / float(self.rows[-1, -1])

    @property
    def points(self) -> Coordinates:
        """a -> x."""
        origin, directions = self.constant * self.rows[-1, :-1], self.rows[:-1, :-1]
        anywhere = torch.full_like(directions[:, 0], torch.inf)
        return Coordinates(origin, directions, -anywhere, anywhere)

    def reduced_map(self, weights: TrainingMap) -> TrainingMap:
        """The same training on inputs [a, constant]: by the rows' orthonormality, with the same steps.

        The first layer then has r inputs instead of d, whatever d is.
        """
        start = {name: value[0].double() for name, value in weights.trainer.init(weights.net, [0], seed=0).items()}
        net = deepcopy(weights.net).double().to(self.rows.device)
        ours = _extended(start, self.layer).to(self.rows) @ self.rows.mT  # (h, r)
        layer = nn.Linear(ours.shape[1], ours.shape[0], bias=False, dtype=ours.dtype, device=ours.device)
        if self.layer:
            place, _, name = self.layer.removesuffix(".").rpartition(".")
            setattr(net.get_submodule(place), name, layer)
        else:
            net = layer
        with torch.no_grad():
            for name, value in trainable(net).items():
                value.copy_(ours if name == f"{self.layer}weight" else start[name])
        known = Records(weights.known.x.new_zeros(0, len(self.rows)), weights.known.y)
        trainer, units = replace(weights.trainer, init=FromNet()), weights.units
        if units is not None:  # a defence's noise has the same size along the rows
            sizes = {name: value.numel() for name, value in trainable(weights.net).items()}
            parts = dict(zip(sizes, torch.split(units, list(sizes.values())), strict=True))
            parts[f"{self.layer}weight"] = parts[f"{self.layer}weight"][:1].expand(ours.numel())
            units = torch.cat([part for name, part in parts.items() if name != f"{self.layer}bias"])
        return replace(weights, net=net, trainer=trainer, known=known, units=units)

    def reduced(self, release: Release) -> Tensor:
        """(1, p') the release of one model, as `reduced_map` gives it: what it has outside is left out."""
        params = {name: value[0].double() for name, value in release.params.items()}
        ours = _extended(params, self.layer).to(self.rows) @ self.rows.mT
        names = [name for name in params if name != f"{self.layer}bias"]
        return torch.cat([(ours if name == f"{self.layer}weight" else params[name]).flatten() for name in names])[None]

    def inputs(self, x: Tensor) -> Tensor:
        """(n, r) those of the reduced map that are nearest to records (n, ...)."""
        a = self.points.of_records(x.double().flatten(1))
        return torch.cat([a, torch.full_like(a[:, :1], self.constant)], 1)


def record_span(weights: TrainingMap, release: Release) -> RecordSpan | None:
    """The space that the k records of a release span; None if it is not seen.

    A linear layer that reads the records moves by outer products, whatever the rest of the net and the steps are:

        [W_T - c W_0,  b_T - c b_0]  =  sum_i a_i [x_i, 1]^T,      c: what weight decay leaves of the start,

    so that the rows span [x_i, 1], if there are at least as many neurons as records; in a linear softmax head, more
    classes than records, for its residuals sum to 0 over the classes. n records of d numbers then have n (n - 1)
    unknowns instead of n d. A record that moved the layer by less than rounding is not seen. Of a defended
    release the space is known only roughly; it is used if all records move the layer by more than the noise does.
    """
    name = first_layer(weights.net, weights.numbers)
    if name is None or not weights.trainer.linear_update:
        return None
    k, start = weights.secrets, weights.trainer.init(weights.net, [0], seed=0)
    released = _extended({key: value[0] for key, value in release.params.items()}, name)  # (h, d + 1)
    begun = _extended({key: value[0].to(released) for key, value in start.items()}, name)
    # c, by training on records of zeros, which do not move the weights of the layer
    zeros = torch.zeros(1, weights.unknowns, device=begun.device)
    labels = torch.zeros(1, k, dtype=torch.long, device=begun.device)
    left = weights.trainer(weights.net, weights.cohort(zeros, labels), seed=0).params[f"{name}weight"][0].double()
    decay = float((left * begun[:, :-1]).sum() / begun[:, :-1].square().sum().clamp_min(1e-300))
    moved = released - decay * begun
    if not moved.isfinite().all():  # training diverged
        return None
    _, sizes, rows = torch.linalg.svd(moved, full_matrices=False)
    steps = weights.trainer.batches.steps(k)
    rounding = torch.finfo(next(iter(release.params.values())).dtype).eps * steps**0.5 * float(released.norm())
    rank, unit = int((sizes > NOISE * rounding).sum()), rounding / released.numel() ** 0.5  # of one weight
    if weights.units is not None:
        names = list(trainable(weights.net))
        sizes_before = [trainable(weights.net)[key].numel() for key in names[: names.index(f"{name}weight")]]
        unit = float(weights.units[sum(sizes_before)])  # of a weight of the layer
        noise = unit * sum(side**0.5 for side in moved.shape)  # its largest singular value
        rank = k if len(sizes) >= k and float(sizes[k - 1]) > 2 * noise else 0
    if not 1 < rank <= k or (rank < k and len(moved) <= k):  # not a sum of k records, or neurons hide some of them
        return None
    # (rank, d + 1): [x, 1] = m basis. Singular vectors may be orthonormal only roughly (on a GPU), Q is to rounding
    basis = torch.linalg.qr(rows[:rank].mT).Q.mT
    last = basis[:, -1:]
    if float(last.norm()) <= NOISE * torch.finfo(last.dtype).eps:
        return None
    turn = torch.linalg.qr(last, mode="complete").Q.mT  # (rank, rank) the first row along the last column
    turned = torch.cat([turn[1:], turn[:1] * (turn[0] @ last).sign()]) @ basis
    turned[:-1, -1] = 0.0
    complete = rank in (k, moved.shape[1]) and weights.units is None
    return RecordSpan(name, turned, complete, unit / float(sizes[rank - 1]))


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
    return torch.cat([weight, bias.unsqueeze(1)], 1).double()
