"""The linear response of training: what one more record does to the weights, to first order.

One record among n moves every training step a little. Around the base trajectory, trained on the known records alone
with the loss still divided by n, the optimiser's state s (weights theta, momentum, moments) then answers linearly:

    delta s_{t+1} = dU_t (delta s_t, H_t delta theta_t + grad l(theta_t, z) / n),

U_t the optimiser's step, a function of state and gradient, and H_t the Hessian of the known records' loss. `tangents`
computes this forward, record by record. `sweep` computes it backward, direction by direction: c_t(u) is the derivative
of <u, theta_T> with respect to the gradient of step t, so

    <u, delta theta_T(z)> = sum_t <c_t(u), grad l(theta_t, z)> / n,

and a record costs its own gradients along the base trajectory, whatever n is. With batches in a public order, the sum
runs over the steps that the record takes part in, and n is the size of their batch. A record's gradients change
smoothly from step to step, so that those at few steps are enough (`few_steps.py`).

With many known records, `by_parts` estimates the Hessian of each step from a part of them, others at the next step. The
errors average out over the steps; with the same part at every step they would add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Records, Trainer
from lostwax.games.facts import trainer_facts
from lostwax.seeds import generator
from lostwax.trainers.derivatives import each, quiet, stepped
from lostwax.trainers.descent import Descent, as_descent
from lostwax.trainers.few_steps import FewSteps, Gram
from lostwax.trainers.fused import fused
from lostwax.trainers.record_gradients import layered_gradients
from lostwax.trainers.stacked import Architecture, Batch, Gradient, Params, gradient
from lostwax.trainers.stepwise import State, float32_products

STORED_NUMBERS = 1 << 28  # of a base trajectory; of a longer one only some states are stored, the others recomputed
GRADIENT_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 29}  # of records' gradients at a time: a cache, enough for a GPU
DIRECTIONS_PER_MODEL = {"cpu": 1, "cuda": 4}  # Hessian products at a time, for each model that training has at a time
DIFFERENCE = 5e-4  # of the weights' length: a step that is small, but changes gradients by far more than rounding does
ADJOINT_NUMBERS = {"cpu": 1 << 28, "cuda": 1 << 33}  # of c_t at all steps, before they are mixed
PROBED = 16  # directions in which the error of mixes is measured
PART = 5_000  # known records that are enough to estimate a Hessian, and to train models that choose directions


def response_objection(trainer: Trainer, net: nn.Module, n: int) -> str | None:
    """Why training on n records has no linear response; None if it has one."""
    name, facts = type(trainer).__name__, trainer_facts(trainer, net, n)
    if not facts.differentiable:
        return f"{name} has no linear response: torch does not differentiate through it. Train shadow models instead."
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
        return tuple(cls(slice(None) if len(one) == n else one, present) for one, present in known)


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
    kept: tuple[State, ...]  # before every `stride`-th step, and after the last
    known_slopes: tuple[Params, ...]  # of every step, if every state is kept
    stride: int
    together: int  # directions whose Hessian products are computed at a time
    part: int | None = None  # known records, at least, from which a step's Hessian is estimated; None: all

    @classmethod
    def of(cls, trainer: Trainer, net: nn.Module, known: Records) -> BaseTrajectory:
        """Train the base model; raises ValueError if the trainer has no linear response."""
        if (objection := response_objection(trainer, net, len(known) + 1)) is not None:
            raise ValueError(objection)
        descent = as_descent(trainer)
        own = known[torch.zeros(1, 1, dtype=torch.long, device=known.x.device)]
        ours, cohort = descent._prepare(net, Cohort(known, own, torch.zeros(1, dtype=torch.long)))
        state, schedule = descent._start(ours, cohort, 0), StepRows.of(descent, cohort)
        numbers = len(schedule) * sum(
            value.numel() for part in (state.params, *state.buffers) for value in part.values()
        )
        stride = 1 if numbers <= STORED_NUMBERS else math.isqrt(len(schedule))
        together = DIRECTIONS_PER_MODEL[kind(known.x)] * descent.tile_size(net, cohort)
        walk = cls(descent, ours, cohort.shared, schedule, (), (), stride, together)
        kept, slopes = [state], []
        for number in range(len(schedule)):
            step = walk._step(number, state)
            state = walk._after(step)
            if stride == 1:
                slopes.append(step.slope)
            if (number + 1) % stride == 0 and number + 1 < len(schedule):
                kept.append(state)
        return replace(walk, kept=(*kept, state), known_slopes=tuple(slopes))

    def quick(self) -> BaseTrajectory:
        """The same trajectory, with derivatives in TF32 on a GPU: their rounding is far below what they leave out."""
        return replace(self, trainer=replace(self.trainer, tf32=True))

    def by_parts(self, part: int = PART) -> BaseTrajectory:
        """The same trajectory, with Hessians estimated from at least `part` known records, others at each step."""
        return replace(self, part=part)

    @property
    def end(self) -> Params:
        """(1, ...) the weights after the last step."""
        return self.kept[-1].params

    def steps(self) -> Iterator[BaseStep]:
        """Every step, the first one first."""
        for first in range(0, len(self.schedule), self.stride):
            yield from self._segment(first)

    def backward(self) -> Iterator[BaseStep]:
        """Every step, the last one first."""
        for first in reversed(range(0, len(self.schedule), self.stride)):
            yield from reversed(list(self._segment(first)))

    def tangents(self, records: Records) -> Tensor:
        """(m, p) delta theta_T of each record, step by step: about as dear as training on each."""
        records = as_inputs(records, self.kept[0])
        moved = each(self.kept[0], lambda value: value.new_zeros(len(records), *value.shape[1:]))
        for step in self.steps():
            push = self.known_answer(step, moved.params)
            if step.secret:
                slopes = self.slopes(step, records)
                push = {name: value + slopes[name] / step.size for name, value in push.items()}
            moved = self.moved(step, moved, push)
        return flat(moved.params)

    def sweep(self, directions: Tensor) -> Iterator[tuple[BaseStep, Tensor]]:
        """For directions u (r, p), backward: each step that the secret takes part in, and c_t(u) / n, (r, p)."""
        zeros = each(self.kept[-1], lambda value: value.new_zeros(len(directions), *value.shape[1:]))
        back = State(self.shaped(directions.to(next(iter(self.end.values())))), zeros.buffers)
        for step in self.backward():
            back, push = self._pulled(step, back)
            if step.secret:
                yield step, flat(push) / step.size
            answer = self.known_answer(step, push)  # H_t is symmetric
            back = State({name: value + answer[name] for name, value in back.params.items()}, back.buffers)

    def responses(self, records: Records, directions: Tensor) -> Tensor:
        """(m, r) <u, delta theta_T(z)> of m records z and r directions u (r, p), in one sweep that stores nothing."""
        records = as_inputs(records, self.kept[0])
        total = directions.new_zeros(len(records), len(directions), dtype=flat(self.end).dtype)
        for step, push in self.sweep(directions):
            self.add_products(total, step, records, push)
        return total

    def adjoints(self, directions: Tensor) -> Adjoints:
        """The c_t of directions (r, p), for any number of records later."""
        return Adjoints(self, tuple(reversed(list(self.sweep(directions)))))

    def few_adjoints(
        self, directions: Tensor, sample: Records, advance: Callable[[int], None], tolerance: float = 1e-2
    ) -> Adjoints:
        """The same at few steps, chosen on sample records; `advance` is called with the number of directions done.

        Directions are swept as many at a time as memory allows. The first ones choose the steps for all.
        """
        p = directions.shape[1]
        first, *later = torch.split(directions, rows_of(ADJOINT_NUMBERS, directions, len(self.schedule) * p))
        whole = self.adjoints(first)
        few = whole.few_steps(sample, tolerance)
        parts = [self.mixed(whole.swept, few)]
        advance(len(first))
        for part in later:
            parts.append(self.mixed(self.sweep(part), few))
            advance(len(part))
        steps, pushes = [step for step, _ in parts[0].swept], [[push for _, push in part.swept] for part in parts]
        return Adjoints(self, tuple(zip(steps, (torch.cat(each) for each in zip(*pushes, strict=True)), strict=True)))

    def mixed(self, swept: Iterable[tuple[BaseStep, Tensor]], few: FewSteps | None) -> Adjoints:
        """Picked steps, each with the c_t of all, mixed: sum_t mix[s, t] c_t. None: all steps, as they are."""
        if few is None:
            return Adjoints(self, tuple(sorted(swept, key=lambda one: one[0].number)))
        column = {number: t for t, number in enumerate(self._own_steps())}
        picked, kept = few.picked.tolist(), {}
        totals: list[Tensor] = []
        for step, push in swept:
            t = column[step.number]
            totals = totals or [torch.zeros_like(push) for _ in picked]
            for total, weight in zip(totals, few.mix[:, t].tolist(), strict=True):
                total.add_(push, alpha=weight)
            if t in picked:
                kept[t] = step
        return Adjoints(self, tuple((kept[t], total) for t, total in zip(picked, totals, strict=True)))

    def gram(self, records: Records) -> Gram:
        """(t, t) <grad l(theta_s, z), grad l(theta_t, z)>, summed over records, at the steps of the secret.

        Over all weights, or random ones where memory is short.
        """
        steps, p = len(self._own_steps()), flat(self.end).shape[1]
        weights = torch.arange(p)
        if (most := max(1, STORED_NUMBERS // (len(records) * steps))) < p:
            weights = torch.from_numpy(generator(0, "weights").integers(0, p, most))
        weights, t = weights.to(records.y.device), 0
        found = flat(self.end).new_empty(len(records), steps, len(weights))
        rows = torch.split(torch.arange(len(records)), rows_of(GRADIENT_NUMBERS, found, p))
        for step in self.steps():
            if step.secret:
                for part in rows:
                    found[part, t] = flat(self.slopes(step, records[part.to(records.y.device)]))[:, weights]
                t += 1
        total: Gram = sum(one @ one.mT for one in (rows.double() for rows in found)).cpu().numpy()
        return total

    def add_products(self, total: Tensor, step: BaseStep, records: Records, push: Tensor) -> None:
        """Add <grad l(theta_t, z), push> of m records and r pushes (r, p) to the total (m, r), in place."""
        some = rows_of(GRADIENT_NUMBERS, push, push.shape[1])
        parts = torch.split(push, [value.numel() for value in self.end.values()], 1)  # (r, ...) each, not copied
        for first in range(0, len(records), some):
            slopes = self.slopes(step, records[first : first + some])
            with float32_products(self.trainer.tf32):
                for slope, part in zip(slopes.values(), parts, strict=True):
                    total[first : first + some].addmm_(slope.flatten(1), part.mT)

    def slope(self, step: BaseStep, x: Tensor, y: Tensor) -> Params:
        """grad l(theta_t, z) of one record z."""
        params = {name: value[0] for name, value in step.state.params.items()}
        outputs, pull, *_ = torch.func.vjp(lambda params: self.net(params, x.unsqueeze(0)), params)
        return dict(pull(self.trainer.loss.residual(outputs, y.unsqueeze(0)))[0])

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
        some = max(1, self._parts(step) * self.together // DIRECTIONS_PER_MODEL[kind(small)])
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
        with quiet():
            return stepped(self.trainer, (step.state, step.slope), (moved, push), self._rate(step.number), step.number)[
                1
            ]

    def shaped(self, flat: Tensor) -> Params:
        """(m, p) -> (m, ...), the inverse of `flat`."""
        parts = torch.split(flat, [value.numel() for value in self.end.values()], 1)
        named = zip(self.end.items(), parts, strict=True)
        return {name: part.reshape(-1, *value.shape[1:]) for (name, value), part in named}

    def _segment(self, first: int) -> Iterator[BaseStep]:
        state = self.kept[first // self.stride]
        for number in range(first, min(first + self.stride, len(self.schedule))):
            step = self._step(number, state)
            yield step
            state = self._after(step)

    def _step(self, number: int, state: State) -> BaseStep:
        rows, secret = self.schedule[number]
        x, y = self.known.inputs[rows], self.known.y[rows]  # (b, ...)
        known, size = Batch(((x, y),) if len(y) else (), ()), len(y) + secret
        slope = self.known_slopes[number] if self.known_slopes else self._slope(state.params, known, size)
        return BaseStep(number, state, slope, known, size, secret)

    def _own_steps(self) -> list[int]:
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

    def _slope(self, params: Params, known: Batch, size: int) -> Params:
        if not known.shared:
            return {name: torch.zeros_like(value) for name, value in params.items()}
        with float32_products(self.trainer.tf32):
            mean = gradient(self.net, self.trainer.loss, params, known)
        return {name: known.size / size * value for name, value in mean.items()}

    def _rate(self, number: int) -> float:
        return self.trainer.lr * self.trainer.schedule(number, len(self.schedule))

    def _pulled(self, step: BaseStep, back: State) -> tuple[State, Params]:
        """The optimiser's step, transposed: cotangents (r, ...) of the state after it -> of the state and gradient."""
        lr = self._rate(step.number)

        def update(state: State, slope: Params) -> State:
            return self.trainer.update(state, slope, lr, step.number)

        _, pull, *_ = torch.func.vjp(update, step.state, step.slope)
        transposed: Callable[[State], tuple[State, Params]] = torch.func.vmap(pull)
        state, slope = transposed(each(back, lambda value: value.unsqueeze(1)))  # (r, 1, ...)
        return each(state, lambda value: value.squeeze(1)), {name: value.squeeze(1) for name, value in slope.items()}


class Adjoints(NamedTuple):
    """The base weights and c_t(u) / n of r directions, at every step of the secret or, mixed, at few."""

    base: BaseTrajectory
    swept: tuple[tuple[BaseStep, Tensor], ...]  # the first step first; (r, p) each

    @property
    def form(self) -> str:
        """In words."""
        return "Linear response"

    def __call__(self, records: Records) -> Tensor:
        """(m, r) <u, delta theta_T(z)> of m records z."""
        records, like = as_inputs(records, self.base.kept[0]), self.swept[0][1]
        total = like.new_zeros(len(records), len(like))
        for step, push in self.swept:
            self.base.add_products(total, step, records, push)
        return total

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """(m, k, r) the derivatives of <u, delta theta_T(z)> at m records z, along k directions of z.

        Those of labels are used if labels are numbers.
        """
        records, directions = (as_inputs(part, self.base.kept[0]) for part in (records, directions))
        numbers, k, like = records.y.is_floating_point(), len(directions), self.swept[0][1]
        total = like.new_zeros(len(records), k, len(like))
        some = max(1, rows_of(GRADIENT_NUMBERS, like, like.shape[1]) // k)  # records at a time
        for step, push in self.swept:

            def slope(x: Tensor, y: Tensor, step: BaseStep = step) -> Tensor:
                return torch.cat([value.flatten() for value in self.base.slope(step, x, y).values()])  # (p,)

            def moved(
                x: Tensor, y: Tensor, dx: Tensor, dy: Tensor, slope: Callable[[Tensor, Tensor], Tensor] = slope
            ) -> Tensor:
                at, by = ((x, y), (dx, dy)) if numbers else ((x,), (dx,))
                tangent: Tensor = torch.func.jvp(slope if numbers else lambda x: slope(x, y), at, by)[1]
                return tangent

            along = torch.func.vmap(torch.func.vmap(moved, (None, None, 0, 0)), (0, 0, None, None))
            with quiet(), float32_products(self.base.trainer.tf32):
                for first in range(0, len(records), some):
                    part = records[first : first + some]
                    tangents = along(part.inputs, part.y, directions.inputs, directions.y)  # (some, k, p)
                    total[first : first + some] += tangents @ push.mT
        return total

    def along(self, kept: Tensor) -> Adjoints:
        """Some of the directions."""
        return self._replace(swept=tuple((step, push[kept]) for step, push in self.swept))

    def few_steps(self, sample: Records, tolerance: float) -> FewSteps | None:
        """Steps, picked on half of the sample, that give the sums of the other half; None: all are needed.

        The tolerance is relative to the sums' root mean square in each direction.
        """
        if len(sample) < 2 or len(self.swept) < 3:
            return None
        directions, middle, sample = len(self.swept[0][1]), len(sample) // 2, as_inputs(sample, self.base.kept[0])
        some = self.along(torch.arange(0, directions, -(-directions // PROBED)))
        exact = some(sample)  # (m, r)
        size = exact.square().mean(0).sqrt().clamp_min(torch.finfo(exact.dtype).tiny)
        if not exact.isfinite().all():  # training amplifies small changes without bound
            return None

        def error(few: FewSteps) -> float:
            left = self.base.mixed(some.swept, few)(sample[middle:]) - exact[middle:]
            return float((left / size).square().mean().sqrt())

        return FewSteps.of(self.base.gram(sample[:middle]), error, tolerance)


def rows_of(numbers: Mapping[str, int], like: Tensor, each: int) -> int:
    """How many rows of `each` numbers are computed at a time, by the kind of device; at least one."""
    return max(1, numbers[kind(like)] // each)


def kind(like: Tensor) -> str:
    """The kind of device, by which sizes are chosen."""
    return "cpu" if like.device.type == "cpu" else "cuda"


def flat(params: Params) -> Tensor:
    """(m, p)."""
    return torch.cat([value.flatten(1) for value in params.values()], 1)


def as_inputs(records: Records, state: State) -> Records:
    """The net's inputs, in the dtype and on the device of the trajectory."""
    like = next(iter(state.params.values()))
    both = (part.to(like if part.is_floating_point() else like.device) for part in (records.inputs, records.y))
    return Records(*both)
