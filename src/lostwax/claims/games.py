"""What a training function makes of a training set, as an adversary sees it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from lostwax.adapters.net_state import unwrapped, without_prefix
from lostwax.adapters.own_training import HELD_OUT, generators_kept, is_released, seed_all
from lostwax.claims.pairs import CanaryPair
from lostwax.claims.slopes import Slopes, trainable
from lostwax.exits import exits_refused
from lostwax.games import Records
from lostwax.seeds import generator

Function = Callable[[nn.Module, Tensor, Tensor, int], Any]
REPEATS = 8  # runs of each kind at a place, where random numbers cannot be seeded
COLLINEAR = 1e-4  # of a gradient, to each side of another one


class Run(NamedTuple):
    """What one training shows, along the difference of the canaries' unit gradients at every step."""

    along: Tensor  # (t, 1 + 2 layers)  each step in all layers, in each, and in each across the others' gradient
    others: Tensor  # (t, 3)  the others' unit gradient along it, their gradient's length, the length of the difference
    moved: dict[str, Tensor]  # how far the last weights and buffers are from the start
    steps: int | None  # of torch's optimisers, or weights returned; None: only the last weights are seen
    finite: bool = True  # the last weights; others count as zeros


@dataclass(frozen=True)
class Player:
    """Trains on one of two training sets, and looks at the result as an adversary does who knows both.

    The adversary sees the weights after every step, because what privacy accounting promises holds for them too. They
    are what the function returns, or are read from those steps of torch's optimisers that lead to what it returns.
    Others may be steps on copies, or from before noise is added, and are not part of the claim.
    """

    net: nn.Module
    train: Function
    slopes: Slopes
    seed: int
    reads_steps: bool = True  # of torch's optimisers
    place: int | None = None  # of the canary among the records; None: after them

    def where_it_tells(self, pair: CanaryPair) -> Player:
        """With the canary first or in the middle if it changes the weights far less when it comes last.

        A function that holds out the last records for validation would never train on it, and every claim would hold.
        Random numbers that cannot be seeded hide the effect of a canary on one run; then many runs are compared.
        """
        last = len(pair.others)
        players = {place: replace(self, place=place) for place in (last, 0, last // 2)}
        effects = {place: player._apart(pair, 0, 1) for place, player in players.items()}
        best = max(effects, key=effects.__getitem__)
        if players[best]._apart(pair, 0, 0) > HELD_OUT * effects[best]:
            means = {place: player._mean_effect(pair) for place, player in players.items()}
            return players[max(means, key=means.__getitem__)]
        return self if effects[last] >= HELD_OUT * effects[best] else players[best]

    def _apart(self, pair: CanaryPair, *worlds: int) -> float:
        """How far apart two runs with the same seed end."""
        first, second = (self(pair, which, "place").moved for which in worlds)
        return math.hypot(*(float((value - second[name]).norm()) for name, value in first.items()))

    def _mean_effect(self, pair: CanaryPair) -> float:
        """How much farther runs go along the difference of the canaries with one than with the other."""
        along = [
            [float(self(pair, which, "place", number).along[:, 0].sum()) for number in range(REPEATS)]
            for which in (0, 1)
        ]
        return abs(sum(along[0]) - sum(along[1])) / REPEATS

    def __call__(self, pair: CanaryPair, which: int, *purpose: int | str) -> Run:
        """Train with the first or the second canary, with a seed that derives from the purpose."""
        place = len(pair.others) if self.place is None else self.place
        data = Records.together([pair.others[:place], pair.canaries[which : which + 1], pair.others[place:]])
        last, path, steps = self.trained(data, int(generator(self.seed, "check_dp", *purpose).integers(2**31)))
        moved = {name: _finite(value).double() - self._start[name].double() for name, value in last.items()}
        finite = all(bool(value.isfinite().all()) for value in last.values())
        return Run(*self._along(path, pair), moved, steps, finite)

    def trained(self, data: Records, own_seed: int) -> tuple[dict[str, Tensor], list[Tensor], int | None]:
        """The last weights and buffers, flat weights after every step that is seen, and how many those are.

        None if only the last weights are seen.
        """
        net = deepcopy(self.net)
        with generators_kept(), exits_refused("check_dp: the function"), _recorded(net) as seen:
            seed_all(own_seed)
            returned = self.train(net, data.x, data.y, own_seed)
        last, path = self._weights(returned)
        flat = torch.cat([last[name].flatten() for name in trainable(self.net)])
        read = _leading_to(flat, seen, self.slopes.start) if self.reads_steps and not path else []
        path = [_finite(weights) for weights in path or read or [flat]]
        return last, path, len(path) if len(path) > 1 or read else None

    @property
    def _start(self) -> dict[str, Tensor]:
        return {name: value for name, value in self.net.state_dict().items() if is_released(value)}

    def _weights(self, returned: Any) -> tuple[dict[str, Tensor], list[Tensor]]:
        """The last weights and buffers, and flat weights after every step if the function returned a list of them."""
        several = isinstance(returned, list | tuple)
        states = [self._state(part) for part in (returned if several else [returned])]
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
        return {name: state[name].detach().clone() for name in wanted}

    def _along(self, path: list[Tensor], pair: CanaryPair) -> tuple[Tensor, Tensor]:
        """The first two fields of a run."""
        weights = torch.stack([self.slopes.start, *path])  # (t + 1, p)
        seen = Records.together([pair.canaries, pair.others[:1]])
        slopes = self.slopes(weights[:-1], seen, pair.others)[1].double()  # (t, 3, p)
        lengths = slopes.norm(dim=2)
        units = torch.nan_to_num(slopes / lengths.unsqueeze(2).clamp_min(1e-30), 0, 0, 0)
        toward = units[:, 0] - units[:, 1]  # a step is against the gradient
        of_others = units[:, 2] if _alike(pair.others) else torch.zeros_like(toward)
        sizes, steps = self.slopes.sizes, weights.diff(dim=0).double()
        within, across = [], []
        for step, mine, theirs in zip(
            *(torch.split(value, sizes, 1) for value in (steps, toward, of_others)), strict=True
        ):
            size = theirs.square().sum(1, keepdim=True).clamp_min(1e-30)
            alone = mine - (mine * theirs).sum(1, keepdim=True) / size * theirs
            alone = torch.where(alone.norm(dim=1, keepdim=True) > COLLINEAR * mine.norm(dim=1, keepdim=True), alone, 0)
            within.append((step * mine).sum(1) / mine.norm(dim=1).clamp_min(1e-30))
            across.append((step * alone).sum(1) / alone.norm(dim=1).clamp_min(1e-30))
        along = torch.stack([(steps * toward).sum(1), *within, *across], 1)
        others = torch.stack([(of_others * toward).sum(1), lengths[:, 2], toward.norm(dim=1)], 1)
        return torch.nan_to_num(along, 0, 0, 0), torch.nan_to_num(others, 0, 0, 0)


def _finite(values: Tensor) -> Tensor:
    """Zeros for what is not."""
    return torch.nan_to_num(values, 0, 0, 0)


def _same(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and torch.equal(_finite(one), _finite(other))


def _alike(records: Records) -> bool:
    """True if they are copies of one."""
    return all(bool((value == value[:1]).all()) for value in (records.x, records.y))


class _Step(NamedTuple):
    """A step of an optimiser."""

    parameters: list[Tensor]  # that it moves
    before: Tensor  # their values, flat
    after: Tensor


def _leading_to(last: Tensor, steps: list[_Step], start: Tensor) -> list[Tensor]:
    """The weights after each step that leads from the start to the last ones; none if no step gives these.

    The step before one is that which gave the weights it began with, on these parameters or on others that they were
    copied from; or else, if they were changed in between, the one before on these. A twin that is never copied leads
    nowhere.
    """
    earlier, path = list(steps), [last]
    parameters: list[Tensor] = []
    while earlier and (len(path) == 1 or not _same(path[-1], start)):
        places = range(len(earlier) - 1, -1, -1)
        gave = next((i for i in places if _same(earlier[i].after, path[-1])), None)
        moved = next((i for i in places if _are(earlier[i].parameters, parameters)), None) if gave is None else gave
        if moved is None:
            break
        parameters = earlier[moved].parameters
        path.append(earlier[moved].before)
        del earlier[moved:]
    return path[-2::-1]


def _are(one: list[Tensor], other: list[Tensor]) -> bool:
    """True if they are the same objects."""
    return [id(value) for value in one] == [id(value) for value in other]


@contextmanager
def _recorded(net: nn.Module) -> Iterator[list[_Step]]:
    """Every step of an optimiser of torch that holds all weights of a net, or a copy of them."""
    shapes = [value.shape for value in trainable(net).values()]
    steps: list[_Step] = []
    begun: dict[int, Tensor] = {}

    def weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
        return [value for group in optimizer.param_groups for value in group["params"]]

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if [value.shape for value in weights(optimizer)] == shapes:
            begun[id(optimizer)] = parameters_to_vector(weights(optimizer)).detach().clone()

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if id(optimizer) in begun:
            moved = parameters_to_vector(weights(optimizer)).detach().clone()
            steps.append(_Step(weights(optimizer), begun.pop(id(optimizer)), moved))

    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        yield steps
    finally:
        for hook in hooks:
            hook.remove()
