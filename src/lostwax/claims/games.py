"""Pairs of training sets that differ in one record, and what a training function makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import register_optimizer_step_post_hook

from lostwax.adapters.own_training import generators_kept, seed_all
from lostwax.adapters.wrappers import unwrapped, without_prefix
from lostwax.exits import exits_refused
from lostwax.games import Records
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from lostwax.seeds import generator

Function = Callable[[nn.Module, Tensor, Tensor, int], Any]
Loss = Callable[[Tensor, Tensor], Tensor]
FAR = 1000.0  # an outlier, in units of a record
CHUNK = 10_000_000  # numbers of gradients at a time
FEW = 7  # records beside a canary
LOUD = 30.0  # its gradient is clipped by most norms

NOISE = "noise that is too small, more steps or a higher rate than claimed (gradient accumulation), clipping too late"
MIXED = "layers that mix the records of a batch (batch norm), and clipping after averaging instead of before"
FIXED = "shuffled batches, or batches of a fixed size, where the claim says that records are drawn independently"


class CanaryPair(NamedTuple):
    """Two training sets: the others and one of two canaries. A training function gets one of them; which?"""

    name: str
    others: Records  # (n - 1, ...)
    canaries: Records  # (2, ...)
    look_for: str  # the usual faults, if this pair is told apart too often


def pairs(data: Records, *, bounded: bool = False) -> list[CanaryPair]:
    """Each brings out other faults. A claim of differential privacy holds for all of them, unless records are bounded.

    The last record of `data` is the canary, with its label or another one. Blank records have all features zero, so
    that only the canary's gradient moves most weights.
    """
    record, labels = data.x[-1], _two_labels(data, bounded=bounded)
    same = labels[:1].expand_as(data.y[:-1]).clone()
    blank = Records(torch.zeros_like(data.x[:-1]), data.y[:-1])
    both = Records(torch.stack([record, record]), labels)
    loud = Records(LOUD * both.x, labels)
    outlier = Records(torch.stack([0 * record, FAR * record]), labels)
    copies = Records(record.expand_as(data.x[:-1]).clone(), same)
    every = [
        CanaryPair("the canary's label is changed, other records are blank", blank, both, NOISE),
        CanaryPair("the label of a large canary is changed, other records are blank", blank, loud, NOISE),
        CanaryPair("one of many blank records is replaced by an outlier", Records(blank.x, same), outlier, MIXED),
        CanaryPair("one of many copies of a record gets another label", copies, both, FIXED),
    ]
    return [every[0], every[-1]] if bounded else every


def _two_labels(data: Records, *, bounded: bool) -> Tensor:
    """(2, ...) the label of the last record, and another one."""
    if data.y.is_floating_point() and bounded:
        return torch.stack([data.y.amin(0), data.y.amax(0)])
    if data.y.is_floating_point():
        far = 3 * data.y.std(0) + 1
        return torch.stack([data.y[-1] - far, data.y[-1] + far])
    others = data.y[data.y != data.y[-1]]
    if len(others) == 0:
        raise ValueError(f"check_dp: expected records of two classes or more, got only class {int(data.y[-1])}.")
    return torch.stack([data.y[-1], others[0]])


class Run(NamedTuple):
    """What one training shows."""

    along: Tensor  # (t, 1 + layers)  each step along the difference of the canaries' gradients: in all layers, in each
    moved: dict[str, Tensor]  # how far the last weights and buffers are from the start
    steps: int | None  # of torch's optimisers, or weights returned; None: only the last weights are seen


@dataclass(frozen=True)
class Player:
    """Trains on one of two training sets, and looks at the result as an adversary does who knows both.

    The adversary sees the weights after every step, because what privacy accounting promises holds for them too. They
    are read from torch's optimisers, or are what the function returns.
    """

    net: nn.Module
    train: Function
    loss: Loss
    seed: int
    takes_one: bool = True  # the net can be evaluated on a single record
    reads_steps: bool = True  # of torch's optimisers

    @classmethod
    def of(
        cls, net: nn.Module, train: Function, data: Records, loss: Loss | None, seed: int, *, reads_steps: bool = True
    ) -> Player:
        """With the usual loss for these labels, unless another one is given."""
        plain, takes_one = deepcopy(net).eval(), True
        with torch.no_grad():
            outputs = plain(data.x)
            try:
                plain(data.x[:1])
            except ValueError:
                takes_one = False
        if loss is None and data.y.is_floating_point():
            loss = SquaredError()
        loss = loss or (BinaryCrossEntropy() if outputs.shape[-1] == 1 else CrossEntropy())
        return cls(net, train, loss, seed, takes_one, reads_steps)

    def __call__(self, pair: CanaryPair, which: int, *purpose: int | str) -> Run:
        """Train with the first or the second canary, with a seed that derives from the purpose."""
        canary = pair.canaries[which : which + 1]
        x, y = torch.cat([pair.others.x, canary.x]), torch.cat([pair.others.y, canary.y])
        own_seed = int(generator(self.seed, "check_dp", *purpose).integers(2**31))
        net = deepcopy(self.net)
        with generators_kept(), exits_refused("check_dp: the function"), _recorded(net) as seen:
            seed_all(own_seed)
            returned = self.train(net, x, y, own_seed)
        last, path = self._weights(returned)
        seen = seen if self.reads_steps and not path else []
        path = path or seen or [torch.cat([last[name].flatten() for name in trainable(self.net)])]
        moved = {name: value.double() - self._start[name].double() for name, value in last.items()}
        return Run(self._along(path, pair), moved, len(path) if len(path) > 1 or seen else None)

    @property
    def _start(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.net.state_dict().items() if value.is_floating_point()}

    def _weights(self, returned: Any) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The last weights and buffers, and flat weights after every step if the function returned a list of them."""
        several = isinstance(returned, list | tuple)
        states = [self._state(one) for one in (returned if several else [returned])]
        if not states:
            raise TypeError("check_dp: the function returned an empty list. Return the net, or weights of every step.")
        names = trainable(self.net)
        flat = [torch.cat([state[name].flatten() for name in names]) for state in states] if several else []
        return states[-1], flat

    def _state(self, returned: Any) -> dict[str, Tensor]:
        state = unwrapped(returned).state_dict() if isinstance(returned, nn.Module) else returned
        if not isinstance(state, Mapping):
            raise TypeError(
                f"check_dp: the function returned {type(returned).__name__}. Return the trained net, its state_dict, "
                "or a list of these after every step."
            )
        wanted = self._start
        state = state if state.keys() >= wanted.keys() else without_prefix(state)
        for name, value in wanted.items():
            if name not in state or state[name].shape != value.shape:
                raise ValueError(f"check_dp: the function returned weights that do not fit the net, at {name}.")
        return {name: torch.nan_to_num(state[name].detach().clone(), 0, 0, 0) for name in wanted}

    def _along(self, path: list[Tensor], pair: CanaryPair) -> Tensor:
        """(t, 1 + layers) every step along the difference of the unit gradients of the two canaries."""
        net, names = deepcopy(self.net).eval(), list(trainable(self.net))
        start = torch.cat([value.detach().flatten() for value in trainable(self.net).values()])
        weights = torch.stack([start, *path])  # (t + 1, p)
        shapes = [value.shape for value in trainable(self.net).values()]
        sizes = [shape.numel() for shape in shapes]
        frozen = {name: value for name, value in net.state_dict().items() if name not in names}

        def loss(flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
            parts = (part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True))
            state = {**frozen, **dict(zip(names, parts, strict=True))}
            return self.loss(torch.func.functional_call(net, state, (x,)), y).sum()

        each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))
        every = torch.func.vmap(each, (0, None, None), chunk_size=max(1, CHUNK // len(start)))
        few = pair.others[: 0 if self.takes_one else FEW]  # batch norm needs other records
        x = torch.stack([torch.cat([few.x, one.unsqueeze(0)]) for one in pair.canaries.x])
        y = torch.stack([torch.cat([few.y, one.unsqueeze(0)]) for one in pair.canaries.y])
        slopes = every(weights[:-1], x, y)  # (t, 2, p)
        units = torch.nan_to_num(slopes / slopes.norm(dim=2, keepdim=True).clamp_min(1e-30), 0, 0, 0)
        toward = (units[:, 0] - units[:, 1]).double()  # a step is against the gradient
        products = toward * weights.diff(dim=0)
        layers = torch.stack([part.sum(1) for part in torch.split(products, sizes, 1)], 1)  # (t, layers)
        lengths = torch.stack([part.norm(dim=1) for part in torch.split(toward, sizes, 1)], 1)
        along = torch.cat([layers.sum(1, keepdim=True), layers / lengths.clamp_min(1e-30)], 1)
        return torch.nan_to_num(along, 0, 0, 0)


def trainable(net: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name."""
    return {name: value for name, value in net.named_parameters() if value.requires_grad}


@contextmanager
def _recorded(net: nn.Module) -> Iterator[list[Tensor]]:
    """The flat weights of a net after every step of an optimiser of torch that holds them all, or a copy of them."""
    shapes = [value.shape for value in trainable(net).values()]
    steps: list[Tensor] = []

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        held = [value for group in optimizer.param_groups for value in group["params"]]
        if [value.shape for value in held] == shapes:
            steps.append(parameters_to_vector(held).detach().clone())

    handle = register_optimizer_step_post_hook(after)
    try:
        yield steps
    finally:
        handle.remove()
