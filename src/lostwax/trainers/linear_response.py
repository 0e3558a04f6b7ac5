"""The linear response of training: what one more record does to the weights, to first order.

One record among n moves every training step a little. Around the base trajectory, trained on the known records alone
with the loss still divided by n, the optimiser's state s (weights theta, momentum, moments) then answers linearly:

    delta s_{t+1} = dU_t (delta s_t, H_t delta theta_t + grad l(theta_t, z) / n),

U_t the optimiser's step, a function of state and gradient, and H_t the Hessian of the known records' loss. Forward,
this is computed record by record. `sweep` computes it backward, direction by direction: c_t(u) is the derivative of
<u, theta_T> with respect to the gradient of step t, so

    <u, delta theta_T(z)> = sum_t <c_t(u), grad l(theta_t, z)> / n,

and a record costs its own gradients along the base trajectory, whatever n is. With batches in a public order, the sum
runs over the steps that the record takes part in, and n is the size of their batch. A record's gradients change
smoothly from step to step, so that those at few steps are enough (`responses.py`).

With many known records, `by_parts` estimates the Hessian of each step from a part of them, others at the next step. The
errors average out over the steps; with the same part at every step they would add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Records, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.seeds import generator
from lostwax.trainers.descent import Descent, as_descent, quiet, stepped
from lostwax.trainers.fused import fused
from lostwax.trainers.stacked import (
    Architecture,
    Batch,
    Gradient,
    Params,
    batch_norms,
    device_kind,
    flat,
    gradient,
    layered_gradients,
    record_gradient,
    shaped,
    shapes_of,
)
from lostwax.trainers.stepwise import State, float32_products

STORED_NUMBERS = 1 << 28  # of a base trajectory; of a longer one only some states are stored, the others recomputed
DIRECTIONS_PER_MODEL = {"cpu": 1, "cuda": 4}  # Hessian products at a time, for each model that training has at a time
DIFFERENCE = 5e-4  # of the weights' length: a step that is small, but changes gradients by far more than rounding does
HESSIAN_RECORDS = 5_000  # known ones, enough to estimate a Hessian, and to train models that choose directions


def response_objection(trainer: Trainer, net: nn.Module, n: int) -> str | None:
    """Why training on n records has no linear response; None if it has one."""
    name, facts = type(trainer).__name__, trainer_facts(trainer, net, n)
    if not facts.differentiable:
        return f"{name} has no linear response: torch does not differentiate through it. Train shadow models instead."
    if batch_norms(net):
        return f"{name} has no linear response here: batch norm mixes records. Train shadow models instead."
    if not facts.deterministic:
        return (
            f"{name} has no linear response here: initial weights, batch orders or dropout are private, so there is no "
            "common base trajectory. Use a public initialisation and order_seed, or train shadow models instead."
        )
    return None


class StepRows(NamedTuple):
    """Which records take part in a step."""

    known: Tensor | slice  # rows of the known records
    secret: bool

    @classmethod
    def of(cls, trainer: Descent, cohort: Cohort) -> tuple[StepRows, ...]:
        """Of every step, from batches of a cohort whose records are their own row numbers."""
        n, device = len(cohort.shared), cohort.shared.y.device
        rows = Records(torch.arange(n, device=device), torch.arange(n, device=device))
        secret = Records(rows.x.new_full((1, 1), n), rows.x.new_full((1, 1), n))
        batches = trainer.batches(Cohort(rows, secret, cohort.index), seed=0)
        known = [(part[0][1] if (part := batch.shared) else rows.x[:0], bool(batch.own)) for batch in batches]
        return tuple(cls(slice(None) if len(some) == n else some, present) for some, present in known)


class BaseStep(NamedTuple):
    """One step of the base trajectory."""

    number: int
    state: State  # (1, ...) before the step
    slope: Params  # (1, ...) the gradient of the known records' part of the step's loss
    known: Batch  # the known records of the step
    size: int  # of the whole batch, with the secret if it takes part
    secret: bool  # whether the secret takes part

    @property
    def share(self) -> float:
        """Of the batch's mean loss, what the mean over the known records counts for."""
        return self.known.size / self.size


@dataclass(frozen=True, eq=False)
class BaseTrajectory:
    """Training on the known records and one that adds nothing yet, and the linear response to adding it."""

    trainer: Descent
    net: Architecture
    known: Records
    schedule: tuple[StepRows, ...]  # the records of every step
    states: tuple[State, ...]  # before every `stride`-th step, and after the last
    known_slopes: tuple[Params, ...]  # of every step, if every state is stored
    stride: int
    together: int  # directions whose Hessian products are computed at a time
    part: int | None = None  # known records, at least, from which a step's Hessian is estimated; None: all

    @classmethod
    def of(cls, trainer: Trainer, net: nn.Module, known: Records) -> BaseTrajectory:
        """Train the base model; raises ValueError if the trainer has no linear response."""
        if (objection := response_objection(trainer, net, len(known) + 1)) is not None:
            raise ValueError(objection)
        descent = as_descent(trainer)
        secret = known[torch.zeros(1, 1, dtype=torch.long, device=known.x.device)]
        ours, cohort = descent._prepare(net, Cohort(known, secret, torch.zeros(1, dtype=torch.long)))
        state, schedule = descent._start(ours, cohort, 0), StepRows.of(descent, cohort)
        numbers = len(schedule) * sum(
            value.numel() for part in (state.params, *state.buffers) for value in part.values()
        )
        stride = 1 if numbers <= STORED_NUMBERS else math.isqrt(len(schedule))
        together = DIRECTIONS_PER_MODEL[device_kind(known.x)] * descent.tile_size(net, cohort)
        walk = cls(descent, ours, cohort.shared, schedule, (), (), stride, together)
        states, slopes = [state], []
        for number in range(len(schedule)):
            step = walk._step(number, state)
            state = walk._after(step)
            if stride == 1:
                slopes.append(step.slope)
            if (number + 1) % stride == 0 and number + 1 < len(schedule):
                states.append(state)
        return replace(walk, states=(*states, state), known_slopes=tuple(slopes))

    def quick(self) -> BaseTrajectory:
        """The same trajectory, with derivatives in TF32 on a GPU: their rounding is far below what they leave out."""
        return replace(self, trainer=replace(self.trainer, tf32=True))

    def by_parts(self, part: int = HESSIAN_RECORDS) -> BaseTrajectory:
        """The same trajectory, with Hessians estimated from at least `part` known records, others at each step."""
        return replace(self, part=part)

    @property
    def end(self) -> Params:
        """(1, ...) the weights after the last step."""
        return self.states[-1].params

    def steps(self) -> Iterator[BaseStep]:
        """Every step, the first one first."""
        for first in range(0, len(self.schedule), self.stride):
            yield from self._segment(first)

    def backward(self) -> Iterator[BaseStep]:
        """Every step, the last one first."""
        for first in reversed(range(0, len(self.schedule), self.stride)):
            yield from reversed(list(self._segment(first)))

    def sweep(self, directions: Tensor) -> Iterator[tuple[BaseStep, Tensor]]:
        """For directions u (r, p), backward: each step that the secret takes part in, and c_t(u) / n, (r, p)."""
        back = self.states[-1].zeros(len(directions))._replace(params=self.shaped(directions.to(flat(self.end))))
        for step in self.backward():
            back, push = self._pulled(step, back)
            if step.secret:
                yield step, flat(push) / step.size
            answer = self.known_answer(step, push)  # H_t is symmetric
            back = State({name: value + answer[name] for name, value in back.params.items()}, back.buffers)

    def slope(self, step: BaseStep, x: Tensor, y: Tensor) -> Params:
        """grad l(theta_t, z) of one record z."""
        params = {name: value[0] for name, value in step.state.params.items()}
        return record_gradient(self.net, self.trainer.loss, params, x, y)

    def slopes(self, step: BaseStep, records: Records) -> Params:
        """(m, ...) grad l(theta_t, z) of each record z."""
        part = records.inputs, records.y
        with float32_products(self.trainer.tf32):
            slopes = layered_gradients(self.net, self.trainer.loss, step.state.params, part)
            if slopes is None:
                slopes = torch.func.vmap(partial(self.slope, step))(*part)
        return slopes

    def known_answer(self, step: BaseStep, directions: Params) -> Params:
        """H_t d of directions d (r, ...), H_t the Hessian of the known records' part of the step's loss."""
        if not step.known.shared:
            return {name: torch.zeros_like(value) for name, value in directions.items()}
        first, convolves = next(iter(directions.values())), any(value.ndim == 5 for value in directions.values())
        kernels = fused(self.net, self.trainer.loss, first.dtype, first.device) if self.trainer.tf32 else None
        if kernels is not None and convolves:
            return self.differences(step, directions, kernels)
        known = self._part(step)

        def slope(params: Params) -> Params:
            return gradient(self.net, self.trainer.loss, params, known)

        def along(direction: Params) -> Params:
            lifted = {name: value.unsqueeze(0) for name, value in direction.items()}
            moved: Params = torch.func.jvp(slope, (step.state.params,), (lifted,))[1]
            return {name: step.share * value[0] for name, value in moved.items()}

        with quiet(), float32_products(self.trainer.tf32):
            answer: Params = torch.func.vmap(along, chunk_size=self._parts(step) * self.together)(directions)
        return answer

    def differences(self, step: BaseStep, directions: Params, slope: Gradient) -> Params:
        """H_t d by differences of gradients at theta_t + s d and theta_t, s small.

        For a convolutional net, fused kernels compute them in float32 in less than half of the time of a product in
        TF32, and to the same accuracy: a few thousandths.
        """
        params, known = step.state.params, self._part(step)
        lengths = flat(directions).norm(dim=1).clamp_min(torch.finfo(flat(params).dtype).tiny)
        small, parts = DIFFERENCE * flat(params).norm() / lengths, []  # (r,)
        some = max(1, self._parts(step) * self.together // DIRECTIONS_PER_MODEL[device_kind(small)])
        for first in range(0, len(small), some):
            s = small[first : first + some]
            far = {name: s.view(-1, *[1] * (value.ndim - 1)) for name, value in directions.items()}
            moved = {name: params[name] + far[name] * value[first : first + some] for name, value in directions.items()}
            both = {name: torch.cat([params[name], value]) for name, value in moved.items()}
            with float32_products(tf32=False):
                slopes = slope(self.net, self.trainer.loss, both, known)
            parts.append({name: step.share * (value[1:] - value[:1]) / far[name] for name, value in slopes.items()})
        still = (lengths == lengths.new_tensor(torch.finfo(lengths.dtype).tiny)).nonzero().flatten()  # only rounding
        return {name: torch.cat([part[name] for part in parts]).index_fill(0, still, 0.0) for name in directions}

    def moved(self, step: BaseStep, moved: State, push: Params) -> State:
        """The optimiser's step, linearised: m changes (m, ...) of the state after it, from those before it."""
        at, rate = (step.state, step.slope), self._rate(step.number)
        with quiet():
            return stepped(self.trainer, at, (moved, push), rate, step.number)[1]

    def shaped(self, directions: Tensor) -> Params:
        return shaped(directions, shapes_of(self.end))

    def inputs(self, records: Records) -> Records:
        """What the net takes, in the dtype and on the device of the trajectory."""
        like = next(iter(self.end.values()))
        both = (part.to(like if part.is_floating_point() else like.device) for part in (records.inputs, records.y))
        return Records(*both)

    def _segment(self, first: int) -> Iterator[BaseStep]:
        state = self.states[first // self.stride]
        for number in range(first, min(first + self.stride, len(self.schedule))):
            step = self._step(number, state)
            yield step
            state = self._after(step)

    def _step(self, number: int, state: State) -> BaseStep:
        rows, secret = self.schedule[number]
        x, y = self.known.inputs[rows], self.known.y[rows]  # (b, ...)
        known, size = Batch(((x, y),) if len(y) else (), ()), len(y) + secret
        if self.known_slopes:
            slope = self.known_slopes[number]
        elif not known.shared:
            slope = {name: torch.zeros_like(value) for name, value in state.params.items()}
        else:
            with float32_products(self.trainer.tf32):
                mean = gradient(self.net, self.trainer.loss, state.params, known)
            slope = {name: known.size / size * value for name, value in mean.items()}
        return BaseStep(number, state, slope, known, size, secret)

    @property
    def secret_steps(self) -> list[int]:
        """The numbers of the steps that the secret takes part in."""
        return [number for number, rows in enumerate(self.schedule) if rows.secret]

    def _parts(self, step: BaseStep) -> int:
        """Into how many parts the known records of a step are divided."""
        return 1 if self.part is None else max(1, step.known.size // self.part)

    def _part(self, step: BaseStep) -> Batch:
        """The known records from which the Hessian of a step is estimated: another part at the next step."""
        if (parts := self._parts(step)) == 1:
            return step.known
        [(x, y)] = step.known.shared
        order = torch.from_numpy(generator(0, "parts").permutation(len(y)))  # the given one may be periodic
        rows = order[step.number % parts :: parts].to(y.device)
        return Batch(((x[rows], y[rows]),), ())

    def _after(self, step: BaseStep) -> State:
        return self.trainer.update(step.state, step.slope, self._rate(step.number), step.number)

    def _rate(self, number: int) -> float:
        return self.trainer.lr * self.trainer.schedule(number, len(self.schedule))

    def _pulled(self, step: BaseStep, back: State) -> tuple[State, Params]:
        """The optimiser's step, transposed: cotangents (r, ...) of the state after it -> of the state and gradient."""
        lr = self._rate(step.number)

        def update(state: State, slope: Params) -> State:
            return self.trainer.update(state, slope, lr, step.number)

        _, pull, *_ = torch.func.vjp(update, step.state, step.slope)
        transposed: Callable[[State], tuple[State, Params]] = torch.func.vmap(pull)
        state, slope = transposed(back.map(lambda value: value.unsqueeze(1)))  # (r, 1, ...)
        return state.map(lambda value: value.squeeze(1)), {name: value.squeeze(1) for name, value in slope.items()}
