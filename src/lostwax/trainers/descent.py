"""Gradient descent on many models at once, GD, SGD, Adam and AdamW, and its derivatives."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import ClassVar, Self, final

import torch
from torch import Tensor, nn

from lostwax.fields import Range, above, at_least, between
from lostwax.games import Cohort, Records, Release, Step, Trainer, TrainerFacts
from lostwax.schedules import Constant
from lostwax.trainers import gram
from lostwax.trainers.batches import Batches
from lostwax.trainers.fused import MLPTangent, fused
from lostwax.trainers.gram import Head
from lostwax.trainers.stacked import Architecture, Batch, Gradient, Masks, Params, drops, flat, gradient
from lostwax.trainers.stepwise import State, Stepwise, Trajectory, float32_products, gather, last


@dataclass(frozen=True, kw_only=True)
class Descent(Stepwise, ABC):
    """Gradient descent on the mean loss, with the same results as torch.optim on each model separately.

    In a public order of batches the secret record stands last among the records, or at `place`.
    """

    takes_tokens: ClassVar[bool] = True
    takes_dropout: ClassVar[bool] = True
    takes_batch_norm: ClassVar[bool] = True
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
        )

    @final
    def differentiable(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """The same training, equal to rounding, differentiable by torch.func in forward and reverse mode."""
        ours, cohort = self._prepare(net, cohort)
        tiles = self._tiles(ours, cohort)
        return Release(gather([(tile, last(self._walk(ours, cohort[rows], seed, gradient))) for tile, rows in tiles]))

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
        masks = Masks.of(net, inputs.new_zeros(2, *inputs.shape[2:]))
        for number, batch in enumerate(self.batches(cohort, seed=seed)):
            if masks.layers:
                like = next(iter(state.params.values()))
                drawn = masks.drawn(cohort.index, batch.size, like, seed=seed, step=number)  # (m, b, ...)
                parts = {name: torch.split(mask, batch.sizes, 1) for name, mask in drawn.items()}
                by_part = zip(*parts.values(), strict=True)
                batch = batch._replace(masks=tuple(dict(zip(parts, part, strict=True)) for part in by_part))
            before = state.params
            state, slope = self.step(net, state, batch, number, steps, slope_of)
            yield Step(number, before, slope), state

    @final
    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        return self.batches.records(cohort)


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
        return velocity(params, self.momentum)

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        return descend(state, gradient, lr, self.momentum, self.weight_decay)


@final
@dataclass(frozen=True, kw_only=True)
class GD(HeavyBall):
    """Full-batch gradient descent: `GD(lr=0.2, momentum=0.9, steps=100)` is the victim of Balle et al. 2022."""

    steps: int = 100

    def _ranges(self) -> dict[str, Range]:
        return {"momentum": between(0, 1, "[)"), "steps": at_least(1)}

    def first_rounds(self, count: int) -> tuple[Self, int]:
        return replace(self, steps=count, schedule=Constant()), self.steps

    @property
    def batches(self) -> Batches:
        return Batches(epochs=self.steps)

    def _end(self, net: Architecture, cohort: Cohort, seed: int) -> Params:
        """Train heads on few records in dual coordinates (`gram.py`), on which the linear `update` acts alike."""
        head = Head.of(net, cohort)
        if head is None:
            return super()._end(net, cohort, seed)
        rates = [self.lr * self.schedule(number, self.steps) for number in range(self.steps)]
        with float32_products(self.tf32):
            dual = head.dual(self._start(net, cohort, seed).params, cohort)
            if gram.has_kernel(dual, self.loss):
                end = gram.descended(dual, rates, momentum=self.momentum, weight_decay=self.weight_decay)
                return dual.params(end)
            state = State(dual.origin, self.buffers(dual.origin))
            for number, rate in enumerate(rates):
                state = self.update(state, dual.gradient(self.loss, state.params), rate, number)
            return dual.params(state.params)


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
        return replace(self, epochs=count, schedule=Constant()), self.epochs

    @property
    def batches(self) -> Batches:
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
        return replace(self, epochs=count, schedule=Constant()), self.epochs

    @property
    def batches(self) -> Batches:
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
        # with derivative 0, not infinite, at b = 0 (the weights of a pixel that is always black)
        roots = {name: value.clamp_min(torch.finfo(value.dtype).tiny).sqrt() for name, value in b.items()}
        moved = {
            name: torch.addcdiv(value, a[name], roots[name] / scale + self.eps, value=-rate)
            for name, value in state.params.items()
        }
        return State(moved, (a, b))


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Adaptive):
    """Adam; weight decay is added to the gradient."""

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
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


# Derivatives of training with respect to a model's own records.


@contextmanager
def quiet() -> Iterator[None]:
    """Silence a deprecation warning that torch's own forward-mode rules raise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=FutureWarning)
        yield


def quick_tangents(trainer: Descent, net: nn.Module, cohort: Cohort, directions: Tensor) -> Tensor | None:
    """(r, p) the jvp of `trainer.differentiable` along directions (r, k, ...), to rounding; None without a kernel."""
    device, dtype = cohort.own.inputs.device, trainer.computes_in(net)
    ours = Architecture.of(net, device, dtype)
    push = MLPTangent.of(ours, trainer.loss, dtype)
    if push is None or device.type != "cuda" or find_spec("triton") is None:
        return None
    return pushed(trainer, ours, push, cohort, directions)


def pushed(trainer: Descent, net: Architecture, push: MLPTangent, cohort: Cohort, directions: Tensor) -> Tensor:
    """The same with a given kernel."""
    r = len(directions)
    moved_own = Records(directions, cohort.own.y.expand(r, *cohort.own.y.shape[1:]))
    moved_cohort = Cohort(cohort.shared, moved_own, cohort.index.expand(r))  # batches use the same positions of both
    state = trainer._start(net, cohort, 0)
    moved = state.zeros(r)  # the start does not depend on the records
    steps = trainer.batches.steps(cohort.records)
    batches = (trainer.batches(training_sets, seed=0) for training_sets in (cohort, moved_cohort))
    for number, (batch, moved_batch) in enumerate(zip(*batches, strict=True)):
        with float32_products(trainer.tf32):
            gradient, moved_gradient = push(state.params, moved.params, batch, moved_batch)
        lr = trainer.lr * trainer.schedule(number, steps)
        state, moved = stepped(trainer, (state, gradient), (moved, moved_gradient), lr, number)
    return flat(moved.params)


def stepped(
    trainer: Descent, at: tuple[State, Params], moved: tuple[State, Params], lr: float, number: int
) -> tuple[State, State]:
    """The optimiser's step, and its derivative along all directions."""

    def update(state: State, gradient: Params) -> State:
        return trainer.update(state, gradient, lr, number)

    def along(state: State, gradient: Params) -> State:
        direction = state.map(lambda value: value.unsqueeze(0)), {name: g.unsqueeze(0) for name, g in gradient.items()}
        tangent: State = torch.func.jvp(update, at, direction)[1]
        return tangent

    after = update(*at)
    if trainer.linear_update:  # its own derivative
        return after, update(*moved)
    tangents: State = torch.func.vmap(along)(*moved)
    return after, tangents.map(lambda value: value.squeeze(1))  # (r, 1, ...) -> (r, ...)
