"""Gradient descent on many models at once: GD, SGD, Adam and AdamW."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self, final

import torch
from torch import Tensor, nn

from lostwax import philox
from lostwax.fields import Range, above, at_least, between
from lostwax.games import Cohort, Release, Step, Trainer, TrainerFacts
from lostwax.schedules import Constant
from lostwax.seeds import generator, key
from lostwax.trainers import gram
from lostwax.trainers.dropout import Masks, drops
from lostwax.trainers.fused import fused
from lostwax.trainers.gram import Dual, Head
from lostwax.trainers.stacked import Architecture, Batch, Gradient, Params, Part, gradient
from lostwax.trainers.stepwise import State, Stepwise, Trajectory, float32_products, gather, last


@dataclass(frozen=True)
class Batches:
    """Epochs over the training sets, in batches of `size` (None: full batch).

    `order_seed` is public: with an int all models use the same order; with None each draws its own, by its number. A
    model's own records stand at `place` among the shared ones; None: behind them.
    """

    epochs: int
    size: int | None = None
    order_seed: int | None = 0
    place: int | None = None

    def steps(self, records: int) -> int:
        """The number of steps of a training."""
        return self.epochs * (1 if self.size is None else -(-records // self.size))

    def records(self, cohort: Cohort) -> tuple[int, int]:
        """The number of records per model in a step, and how many of them, at most, are its own."""
        seen = min(self.size or cohort.records, cohort.records)
        in_step = self.size is None or self.order_seed is not None
        return seen, min(cohort.secrets, seen) if in_step else seen

    def __call__(self, cohort: Cohort, *, seed: int) -> Iterator[Batch]:
        """The batch of every step; the last of an epoch may be smaller."""
        if self.size is None:
            full_batch = together(cohort, slice(None), slice(None))
            for _ in range(self.epochs):
                yield full_batch
        elif self.order_seed is not None:
            yield from self._public(cohort, self.size, self.order_seed)
        else:
            yield from self._private(cohort, self.size, seed)

    def _public(self, cohort: Cohort, size: int, order_seed: int) -> Iterator[Batch]:
        common = len(cohort.shared)
        place, k = common if self.place is None else self.place, cohort.secrets
        rows = torch.cat([torch.arange(place), torch.arange(common, common + k), torch.arange(place, common)])
        for epoch in range(self.epochs):
            order = torch.from_numpy(generator(order_seed, "order", epoch).permutation(cohort.records))
            for positions in torch.split(rows[order].to(cohort.own.inputs.device), size):
                yield together(cohort, positions[positions < common], positions[positions >= common] - common)

    def _private(self, cohort: Cohort, size: int, seed: int) -> Iterator[Batch]:
        pool, models = Pool.of(cohort), cohort.index.to(cohort.own.inputs.device)
        for epoch in range(self.epochs):
            orders = philox.orders(key(seed, "order", epoch), models, cohort.records)  # (m, n)
            for positions in torch.split(orders, size, dim=1):
                yield Batch((), (pool(positions),))


def together(cohort: Cohort, shared: Tensor | slice, own: Tensor | slice) -> Batch:
    """A batch at the same positions for every model; shared records are not copied."""
    common: Part = (cohort.shared.inputs[shared], cohort.shared.y[shared])  # (b, ...)
    secret: Part = (cohort.own.inputs[:, own], cohort.own.y[:, own])  # (m, b, ...)
    return Batch((common,) if len(common[1]) else (), (secret,) if secret[1].shape[1] else ())


class Pool(NamedTuple):
    """All records of m models in one array, the shared ones once, from which per-model batches are gathered."""

    shared: int
    secrets: int  # per model
    inputs: Tensor  # (n - k + m k, ...)
    y: Tensor

    @classmethod
    def of(cls, cohort: Cohort) -> Pool:
        """Copy the records once, or not at all if none is shared."""
        common, secrets = cohort.shared, cohort.own
        sides = ((common.inputs, secrets.inputs.flatten(0, 1)), (common.y, secrets.y.flatten(0, 1)))
        inputs, y = (torch.cat(side) if len(common) else side[1] for side in sides)
        return cls(len(common), cohort.secrets, inputs, y)

    def __call__(self, positions: Tensor) -> Part:
        """The records at positions (m, b) of each model's training set, shared records first."""
        skipped = self.secrets * torch.arange(len(positions), device=positions.device).unsqueeze(1)  # (m, 1)
        rows = torch.where(positions < self.shared, positions, positions + skipped)
        return self.inputs[rows], self.y[rows]  # (m, b, ...)


@dataclass(frozen=True, kw_only=True)
class Descent(Stepwise, ABC):
    """Gradient descent on the mean loss, with the same results as torch.optim on each model separately.

    In a public order of batches the secret record stands last among the records, or at `place`.
    """

    takes_tokens: ClassVar[bool] = True
    takes_dropout: ClassVar[bool] = True
    linear_update: ClassVar[bool] = False  # whether `update` is linear in state and gradient
    place: int | None = field(default=None, metadata={"identity": "if set"})  # of the secret among the records

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """The records of each step."""

    @abstractmethod
    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """The state after step `number` (from 0); pure, and differentiable in state and gradient."""

    @final
    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """Differentiable, and deterministic unless the initial weights, the order of batches or dropout are private."""
        private_start = not self.public_start(net)
        private_order = self.batches.size is not None and self.batches.order_seed is None
        deterministic = not private_start and not private_order and not drops(net)
        return TrainerFacts(
            deterministic,
            private_start,
            differentiable=True,
            steps=self.batches.steps(n),
            loss=self.loss,
            ordered=self.batches.size is not None,
            private_order=private_order,
            takes_tokens=self.takes_tokens,
            first_rounds=self.first_rounds,
            with_tile=self.with_tile,
        )

    @final
    def differentiable(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """The same training, equal to rounding, differentiable by torch.func in forward and reverse mode."""
        ours, cohort = self._prepare(net, cohort)
        cut = self._cut(ours, cohort)
        return Release(gather([(tile, last(self._walk(ours, cohort[rows], seed, gradient))) for tile, rows in cut]))

    @final
    def step(
        self, net: Architecture, state: State, batch: Batch, number: int, steps: int, slope_of: Gradient = gradient
    ) -> tuple[State, Params]:
        """One step of m models, a pure function: the state after it, and its gradient, computed by `slope_of`."""
        with float32_products(self.tf32):
            slope = slope_of(net, self.loss, state.params, batch)
            lr = self.lr * self.schedule(number, steps)
            return self.update(state, slope, lr, number), slope

    @final
    def _trajectory(self, net: Architecture, cohort: Cohort, seed: int) -> Trajectory:
        quickest = fused(net, self.loss, cohort.own.inputs.dtype, cohort.own.inputs.device) or gradient
        return self._walk(net, cohort, seed, quickest)

    def _walk(self, net: Architecture, cohort: Cohort, seed: int, slope_of: Gradient) -> Trajectory:
        state = self._start(net, cohort, seed)
        steps, inputs = self.batches.steps(cohort.records), cohort.own.inputs
        two = inputs.new_zeros(2, *inputs.shape[2:])
        masks = Masks.of(net.net, lambda: net(net.initial(two), two), 2)
        for number, batch in enumerate(self.batches(cohort, seed=seed)):
            if masks.shapes:
                batch = _masked(batch, masks, cohort.index, next(iter(state.params.values())), seed, number)
            before = state.params
            state, slope = self.step(net, state, batch, number, steps, slope_of)
            yield Step(number, before, slope), state

    @final
    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        return self.batches.records(cohort)


def _masked(batch: Batch, masks: Masks, models: Tensor, like: Tensor, seed: int, step: int) -> Batch:
    """With what each model keeps of every record, the shared ones first."""
    drawn = masks.drawn(models, batch.size, like, seed=seed, step=step)  # (m, b, ...)
    sizes = [len(y) for _, y in batch.shared] + [y.shape[1] for _, y in batch.own]
    cut = {name: torch.split(mask, sizes, 1) for name, mask in drawn.items()}
    return batch._replace(masks=tuple({name: parts[part] for name, parts in cut.items()} for part in range(len(sizes))))


def as_descent(trainer: Trainer) -> Descent:
    """The trainer, as one that torch differentiates through; a TypeError if it only says that it is one."""
    if not isinstance(trainer, Descent):
        raise TypeError(
            f"{type(trainer).__name__}: its facts say differentiable=True, which takes a lostwax.trainers.descent."
            "Descent. Inherit from it, or state differentiable=False."
        )
    return trainer


def velocity(params: Params, momentum: float) -> tuple[Params, ...]:
    """The initial momentum buffer, v = 0; none without momentum."""
    return ({name: torch.zeros_like(value) for name, value in params.items()},) if momentum else ()


def descend(state: State, gradient: Params, lr: float, momentum: float, weight_decay: float) -> State:
    """torch.optim.SGD:  g = gradient + weight_decay theta,  v = momentum v + g,  theta = theta - lr v."""
    params, direction = state.params, gradient
    if weight_decay:
        direction = {name: torch.add(g, params[name], alpha=weight_decay) for name, g in direction.items()}
    if state.buffers:
        (v,) = state.buffers
        direction = {name: torch.add(g, v[name], alpha=momentum) for name, g in direction.items()}
    moved = {name: torch.sub(params[name], d, alpha=lr) for name, d in direction.items()}
    return State(moved, (direction,) if state.buffers else ())


@dataclass(frozen=True, kw_only=True)
class HeavyBall(Descent, ABC):
    """What GD and SGD share: torch.optim.SGD."""

    linear_update: ClassVar[bool] = True
    lr: float = 0.1
    momentum: float = 0.0

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """The velocity, with momentum."""
        return velocity(params, self.momentum)

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.SGD."""
        return descend(state, gradient, lr, self.momentum, self.weight_decay)


@final
@dataclass(frozen=True, kw_only=True)
class GD(HeavyBall):
    """Full-batch gradient descent: `GD(lr=0.2, momentum=0.9, steps=100)` is the victim of Balle et al. 2022."""

    steps: int = 100

    def _ranges(self) -> dict[str, Range]:
        return {"momentum": between(0, 1, "[)"), "steps": at_least(1)}

    def first_rounds(self, count: int) -> tuple[Self, int]:
        """Of `steps`."""
        return replace(self, steps=count, schedule=Constant()), self.steps

    @property
    def batches(self) -> Batches:
        """All records, `steps` times."""
        return Batches(epochs=self.steps)

    def _end(self, net: Architecture, cohort: Cohort, seed: int) -> Params:
        """Train heads on few records in dual coordinates (`gram.py`), on which the linear `update` acts alike."""
        head = Head.of(net, cohort)
        if head is None:
            return super()._end(net, cohort, seed)
        with float32_products(self.tf32):
            dual = head.dual(self._start(net, cohort, seed).params, cohort)
            return dual.params(self._coordinates(dual))

    def _coordinates(self, dual: Dual) -> Params:
        """The coordinates after training: by one fused kernel if possible, else step by step."""
        rates = [self.lr * self.schedule(number, self.steps) for number in range(self.steps)]
        if gram.has_kernel(dual, self.loss):
            return gram.descended(dual, rates, momentum=self.momentum, weight_decay=self.weight_decay)
        state = State(dual.origin, self.buffers(dual.origin))
        for number, rate in enumerate(rates):
            state = self.update(state, dual.gradient(self.loss, state.params), rate, number)
        return state.params


@final
@dataclass(frozen=True, kw_only=True)
class SGD(HeavyBall):
    """Mini-batch gradient descent, reshuffled every epoch, in a public order; private ones with order_seed=None."""

    batch_size: int = 64
    epochs: int = 10
    order_seed: int | None = 0

    def _ranges(self) -> dict[str, Range]:
        return {"momentum": between(0, 1, "[)"), "batch_size": at_least(1), "epochs": at_least(1)}

    def first_rounds(self, count: int) -> tuple[Self, int]:
        """Of `epochs`."""
        return replace(self, epochs=count, schedule=Constant()), self.epochs

    @property
    def batches(self) -> Batches:
        """Batches of `batch_size`; the last of an epoch may be smaller."""
        return Batches(epochs=self.epochs, size=self.batch_size, order_seed=self.order_seed, place=self.place)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Descent, ABC):
    """What Adam and AdamW share (Kingma and Ba 2015). Full batch unless `batch_size` is set; `order_seed` as in SGD."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    batch_size: int | None = None
    epochs: int = 100
    order_seed: int | None = 0

    def _ranges(self) -> dict[str, Range]:
        return {"betas": between(0, 1, "[)"), "eps": above(0), "batch_size": at_least(1), "epochs": at_least(1)}

    def first_rounds(self, count: int) -> tuple[Self, int]:
        """Of `epochs`."""
        return replace(self, epochs=count, schedule=Constant()), self.epochs

    @property
    def batches(self) -> Batches:
        """All records at once, or batches of `batch_size`."""
        return Batches(epochs=self.epochs, size=self.batch_size, order_seed=self.order_seed, place=self.place)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """Running means of the gradient and of its square, both 0."""
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        return zeros, zeros

    def adapt(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """torch.optim.Adam:  a = beta1 a + (1 - beta1) g,  b = beta2 b + (1 - beta2) g^2,

        theta = theta - lr a' / (sqrt(b') + eps),  with a' and b' divided by 1 - beta^(number + 1).
        """
        beta1, beta2 = self.betas
        first, second = state.buffers
        a = {name: torch.lerp(first[name], g, 1 - beta1) for name, g in gradient.items()}
        b = {name: torch.addcmul(beta2 * second[name], g, g, value=1 - beta2) for name, g in gradient.items()}
        rate = lr / (1 - beta1 ** (number + 1))
        scale = math.sqrt(1 - beta2 ** (number + 1))
        moved = {
            name: torch.addcdiv(value, a[name], _root(b[name]) / scale + self.eps, value=-rate)
            for name, value in state.params.items()
        }
        return State(moved, (a, b))


def _root(b: Tensor) -> Tensor:
    """sqrt(b) with derivative 0, not infinite, at b = 0 (the weights of a pixel that is always black)."""
    return b.clamp_min(torch.finfo(b.dtype).tiny).sqrt()


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Adaptive):
    """Adam; weight decay is added to the gradient."""

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.Adam."""
        if self.weight_decay:
            gradient = {name: torch.add(g, state.params[name], alpha=self.weight_decay) for name, g in gradient.items()}
        return self.adapt(state, gradient, lr, number)


@final
@dataclass(frozen=True, kw_only=True)
class AdamW(Adaptive):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = 1e-2

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.AdamW:  theta = (1 - lr weight_decay) theta  before the step."""
        shrunk = {name: (1 - lr * self.weight_decay) * value for name, value in state.params.items()}
        return self.adapt(State(shrunk, state.buffers), gradient, lr, number)
