"""Responses of training to one more record, in some directions u of the weights: linear, and semi-linear.

A record's gradients along the base trajectory change smoothly, and much alike for all records. So the steps have an
interpolative decomposition (Cheng, Gimbutas, Martinsson and Rokhlin 2005): some are picked, and the gradient at every
step t is a mix of theirs,

    grad l(theta_t, z)  =  sum_s mix[s, t] grad l(theta_s, z)      for all z, approximately.

Linear response fails first where a record is learnt: its gradient shrinks on the way. In the semi-linear response it is
taken at theta_t + delta_t, and the answer is still exact for the known records,

    <u, delta theta_T(z)> = sum_t <c_t(u), grad l(theta_t + delta_t, z)> / n.

Only the place delta_t is approximate: there the known records answer through the leading part of their Hessians,
H_t = Q^T (Q H_t Q^T) Q with the rows of Q an orthonormal basis of what the Hessians move most. So a record still costs
its own gradients, and two products with Q per step, whatever n is. Of a small net the whole Hessians fit in memory:
delta_T is then followed itself, and no c_t are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from torch import Tensor

from lostwax.games import Records
from lostwax.seeds import generator
from lostwax.trainers.descent import quiet
from lostwax.trainers.linear_response import STORED_NUMBERS, BaseStep, BaseTrajectory
from lostwax.trainers.stacked import Batch, device_kind, flat, gradient
from lostwax.trainers.stepwise import State, float32_products

GRADIENT_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 29}  # of records' gradients at a time: a cache, enough for a GPU
ADJOINT_NUMBERS = {"cpu": 1 << 28, "cuda": 1 << 33}  # of c_t at all steps, before they are mixed
PROBED = 16  # directions in which the error of mixes is measured
ROUNDING = 1e-13  # of inner products, relative to the largest
SAMPLED_STEPS = 4  # whose Hessians choose the basis
POWER_ROUNDS = 2  # of the power iteration

Gram = NDArray[np.float64]  # (t, t) <grad l(theta_s, z), grad l(theta_t, z)> at any two steps, summed over records


def rows_of(numbers: Mapping[str, int], like: Tensor, each: int) -> int:
    """How many rows of `each` numbers are computed at a time, by the kind of device; at least one."""
    return max(1, numbers[device_kind(like)] // each)


class FewSteps(NamedTuple):
    """The steps that are picked, in order, and all steps as mixes of them."""

    picked: NDArray[np.intp]  # (k,)
    mix: NDArray[np.float64]  # (k, t)

    @classmethod
    def of(cls, gram: Gram, error: Callable[[FewSteps], float], tolerance: float) -> FewSteps | None:
        """About as few as keep the error within the tolerance, by bisection; None if half of the steps do not."""
        if not np.isfinite(gram).all():  # training that grows without bound
            return None
        order, rows = _pivoted(gram)

        def first(count: int) -> FewSteps:
            picked = order[:count]
            mix = solve_triangular(rows[:count, picked], rows[:count])  # least squares
            ascending = np.argsort(picked)
            return cls(picked[ascending], mix[ascending])

        low, high = 0, min(1, len(order))
        while high and not error(first(high)) <= tolerance:
            if high == len(order):
                return None
            low, high = high, min(2 * high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if error(first(middle)) <= tolerance else (middle, high)
        return first(high) if high else None


def _pivoted(gram: Gram) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Half of the steps (k,), each the one that those before it span worst, and rows (k, t): Cholesky with pivoting.

    rows^T rows = gram, exactly at the picked steps.
    """
    steps, left = len(gram), np.diag(gram).copy()
    rows, order = np.zeros((steps // 2, steps)), np.zeros(steps // 2, np.intp)
    for count in range(steps // 2):
        worst = left.argmax()
        if left[worst] <= ROUNDING * gram.max():
            return order[:count], rows[:count]
        rows[count] = (gram[worst] - rows[:count, worst] @ rows[:count]) / np.sqrt(left[worst])
        order[count] = worst
        left = left - np.square(rows[count])
        left[order[: count + 1]] = 0.0
    return order, rows


class Adjoints(NamedTuple):
    """The base weights and c_t(u) / n of r directions, at every step of the secret or, mixed, at few."""

    base: BaseTrajectory
    swept: tuple[tuple[BaseStep, Tensor], ...]  # the first step first; (r, p) each

    @classmethod
    def of(cls, base: BaseTrajectory, directions: Tensor) -> Adjoints:
        """The c_t of directions (r, p), for any number of records later."""
        return cls(base, tuple(reversed(list(base.sweep(directions)))))

    @classmethod
    def at_few_steps(
        cls,
        base: BaseTrajectory,
        directions: Tensor,
        sample: Records,
        advance: Callable[[int], None] = lambda count: None,
        tolerance: float = 1e-2,
    ) -> Adjoints:
        """The same at few steps, chosen on sample records; `advance` is called with the number of directions done.

        Directions are swept as many at a time as memory allows. The first ones choose the steps for all.
        """
        numbers = len(base.schedule) * directions.shape[1]  # of one direction
        first, *later = torch.split(directions, rows_of(ADJOINT_NUMBERS, directions, numbers))
        adjoints = cls.of(base, first)
        few = adjoints.few_steps(sample, tolerance)
        parts = [cls.mixed(base, adjoints.swept, few)]
        advance(len(first))
        for part in later:
            parts.append(cls.mixed(base, base.sweep(part), few))
            advance(len(part))
        steps, pushes = [step for step, _ in parts[0].swept], [[push for _, push in part.swept] for part in parts]
        return cls(base, tuple(zip(steps, (torch.cat(each) for each in zip(*pushes, strict=True)), strict=True)))

    @classmethod
    def mixed(cls, base: BaseTrajectory, swept: Iterable[tuple[BaseStep, Tensor]], few: FewSteps | None) -> Adjoints:
        """Picked steps, each with the c_t of all, mixed: sum_t mix[s, t] c_t. None: all steps, as they are."""
        if few is None:
            return cls(base, tuple(sorted(swept, key=lambda pair: pair[0].number)))
        column = {number: t for t, number in enumerate(base.secret_steps)}
        picked, steps = few.picked.tolist(), {}
        totals: list[Tensor] = []
        for step, push in swept:
            t = column[step.number]
            totals = totals or [torch.zeros_like(push) for _ in picked]
            for total, weight in zip(totals, few.mix[:, t].tolist(), strict=True):
                total.add_(push, alpha=weight)
            if t in picked:
                steps[t] = step
        return cls(base, tuple((steps[t], total) for t, total in zip(picked, totals, strict=True)))

    def __call__(self, records: Records) -> Tensor:
        """(m, r) <u, delta theta_T(z)> of m records z."""
        records, like, tf32 = self.base.inputs(records), self.swept[0][1], self.base.trainer.tf32
        total = like.new_zeros(len(records), len(like))
        some = rows_of(GRADIENT_NUMBERS, like, like.shape[1])
        for step, push in self.swept:
            parts = torch.split(push, [value.numel() for value in self.base.end.values()], 1)  # (r, ...), not copied
            for first in range(0, len(records), some):
                slopes = self.base.slopes(step, records[first : first + some])
                with float32_products(tf32):
                    for slope, part in zip(slopes.values(), parts, strict=True):
                        total[first : first + some].addmm_(slope.flatten(1), part.mT)
        return total

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """(m, k, r) the derivatives of <u, delta theta_T(z)> at m records z, along k directions of z.

        Those of labels are used if labels are numbers.
        """
        records, directions = map(self.base.inputs, (records, directions))
        k, like = len(directions), self.swept[0][1]
        total = like.new_zeros(len(records), k, len(like))
        some = max(1, rows_of(GRADIENT_NUMBERS, like, like.shape[1]) // k)  # records at a time
        for step, push in self.swept:

            def slope(x: Tensor, y: Tensor, step: BaseStep = step) -> Tensor:
                return torch.cat([value.flatten() for value in self.base.slope(step, x, y).values()])  # (p,)

            along = torch.func.vmap(_along(slope), (0, 0, None, None))
            with quiet(), float32_products(self.base.trainer.tf32):
                for first in range(0, len(records), some):
                    part = records[first : first + some]
                    tangents = along(part.inputs, part.y, directions.inputs, directions.y)  # (some, k, p)
                    total[first : first + some] += tangents @ push.mT
        return total

    def along(self, directions: Tensor) -> Adjoints:
        return self._replace(swept=tuple((step, push[directions]) for step, push in self.swept))

    def few_steps(self, sample: Records, tolerance: float) -> FewSteps | None:
        """Steps, picked on half of the sample, that give the sums of the other half; None: all are needed.

        The tolerance is relative to the sums' root mean square in each direction.
        """
        if len(sample) < 2 or len(self.swept) < 3:
            return None
        directions, middle, sample = len(self.swept[0][1]), len(sample) // 2, self.base.inputs(sample)
        some = self.along(torch.arange(0, directions, -(-directions // PROBED)))
        exact = some(sample)  # (m, r)
        size = exact.square().mean(0).sqrt().clamp_min(torch.finfo(exact.dtype).tiny)
        if not exact.isfinite().all():  # training amplifies small changes without bound
            return None

        def error(few: FewSteps) -> float:
            left = self.mixed(self.base, some.swept, few)(sample[middle:]) - exact[middle:]
            return float((left / size).square().mean().sqrt())

        return FewSteps.of(self._gram(sample[:middle]), error, tolerance)

    def _gram(self, records: Records) -> Gram:
        """At the steps of the secret, over all weights, or random ones where memory is short."""
        steps, end = len(self.base.secret_steps), flat(self.base.end)
        p, weights = end.shape[1], torch.arange(end.shape[1])
        if (most := max(1, STORED_NUMBERS // (len(records) * steps))) < p:
            weights = torch.from_numpy(generator(0, "weights").integers(0, p, most))
        weights, t = weights.to(records.y.device), 0
        slopes = end.new_empty(len(records), steps, len(weights))
        rows = torch.split(torch.arange(len(records)), rows_of(GRADIENT_NUMBERS, end, p))
        for step in self.base.steps():
            if step.secret:
                for part in rows:
                    slopes[part, t] = flat(self.base.slopes(step, records[part.to(records.y.device)]))[:, weights]
                t += 1
        total: Gram = sum(of_record @ of_record.mT for of_record in (rows.double() for rows in slopes)).cpu().numpy()
        return total


class LeadingHessians(NamedTuple):
    """The leading part of the known records' Hessian at every step."""

    basis: Tensor  # (q, p) orthonormal rows
    answers: Tensor  # (t, q, q) Q H_t Q^T

    @classmethod
    def of(cls, base: BaseTrajectory, rank: int, *, seed: int = 0) -> LeadingHessians:
        """By power iteration from random directions (Halko, Martinsson and Tropp 2011); costs rank products a step."""
        like = flat(base.end)
        rank = min(rank, like.shape[1])
        drawn = generator(seed, "leading Hessians").standard_normal((rank, like.shape[1]))
        basis = torch.from_numpy(drawn).to(like)
        steps = np.unique(np.linspace(0, len(base.schedule) - 1, SAMPLED_STEPS).round()).tolist()
        for _ in range(POWER_ROUNDS):
            answers = [_answer(base, step, basis) for step in base.steps() if step.number in steps]
            basis = torch.linalg.svd(torch.cat(answers), full_matrices=False).Vh[:rank]
        return cls(basis, torch.stack([_answer(base, step, basis) @ basis.mT for step in base.steps()]))

    def times(self, step: BaseStep, directions: Tensor) -> Tensor:
        """H_t d of directions d (m, p), approximately."""
        return (directions @ self.basis.mT) @ self.answers[step.number] @ self.basis


def _answer(base: BaseTrajectory, step: BaseStep, directions: Tensor) -> Tensor:
    return flat(base.known_answer(step, base.shaped(directions)))


class SemiLinear(NamedTuple):
    """Semi-linear responses in the directions of the adjoints."""

    adjoints: Adjoints
    hessians: LeadingHessians

    def __call__(self, records: Records) -> Tensor:
        base, swept = self.adjoints.base, self.adjoints.swept
        pushes, like, totals = {step.number: push for step, push in swept}, swept[0][1], []
        for part in _parts(base.inputs(records), self.hessians.basis):
            total = like.new_zeros(len(part), len(like))
            for step, slope, _ in _followed(base, self.hessians.times, part):
                if slope is not None and step.number in pushes:
                    total += slope @ pushes[step.number].mT
            totals.append(total)
        return torch.cat(totals)

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """As the adjoints', with a record's gradient along the base trajectory."""
        return self.adjoints.tangents(records, directions)

    def along(self, directions: Tensor) -> SemiLinear:
        return self._replace(adjoints=self.adjoints.along(directions))


class BaseSetsInTurns(NamedTuple):
    """Responses of several base sets, as `ModelPairs` deals them: `block` records have the first, and so on."""

    answers: tuple[Adjoints | SemiLinear | EveryWeight, ...]
    block: int
    scale: float

    def __call__(self, records: Records) -> Tensor:
        base_of = torch.arange(len(records), device=records.y.device) // self.block % len(self.answers)
        parts = [(base_of == number).nonzero()[:, 0] for number in range(len(self.answers))]
        seen = [answers(records[part]) for answers, part in zip(self.answers, parts, strict=True) if len(part)]
        return self.scale * torch.cat(seen)[torch.cat(parts).argsort()]

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """Those of all base sets, on average."""
        every = [answers.tangents(records, directions) for answers in self.answers]
        return self.scale * torch.stack(every).mean(0)

    def along(self, directions: Tensor) -> BaseSetsInTurns:
        return self._replace(answers=tuple(answers.along(directions) for answers in self.answers))


class EveryWeight(NamedTuple):
    """Semi-linear responses with the whole Hessians, t p^2 numbers; their tangents are semi-linear too."""

    base: BaseTrajectory
    hessians: Tensor  # (t, p, p) of the known records at every step
    directions: Tensor  # (r, p)

    @classmethod
    def of(cls, base: BaseTrajectory, directions: Tensor) -> EveryWeight:
        """In these directions (r, p); costs p Hessian products a step."""
        every = torch.eye(directions.shape[1]).to(directions)
        return cls(base, torch.stack([_answer(base, step, every) for step in base.steps()]), directions)

    def __call__(self, records: Records) -> Tensor:
        parts = _parts(self.base.inputs(records), self.directions)
        return torch.cat([self._end(part) @ self.directions.mT for part in parts])

    def tangents(self, records: Records, directions: Records) -> Tensor:
        records, directions = map(self.base.inputs, (records, directions))

        def delta(x: Tensor, y: Tensor) -> Tensor:
            return self._end(Records(x.unsqueeze(0), y.unsqueeze(0)))[0]

        some = rows_of(GRADIENT_NUMBERS, self.directions, self.directions.shape[1])
        each_record = torch.func.vmap(
            _along(delta, some), (0, 0, None, None), chunk_size=max(1, some // len(directions))
        )
        with quiet():
            tangents: Tensor = each_record(records.inputs, records.y, directions.inputs, directions.y)
        return tangents @ self.directions.mT

    def along(self, directions: Tensor) -> EveryWeight:
        return self._replace(directions=self.directions[directions])

    def _end(self, records: Records) -> Tensor:
        """(m, p) delta theta_T of each record."""

        def answer(step: BaseStep, directions: Tensor) -> Tensor:
            with float32_products(self.base.trainer.tf32):
                return directions @ self.hessians[step.number]

        for *_, state in _followed(self.base, answer, records):
            moved = state
        return flat(moved.params)


def _along(function: Callable[[Tensor, Tensor], Tensor], some: int | None = None) -> Callable[..., Tensor]:
    """The derivatives of a function of a record (x, y) along k directions (dx, dy), `some` of them at a time.

    Where labels are classes, along dx alone.
    """

    def derivative(x: Tensor, y: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
        if y.is_floating_point():
            tangent: Tensor = torch.func.jvp(function, (x, y), (dx, dy))[1]
        else:
            tangent = torch.func.jvp(lambda x: function(x, y), (x,), (dx,))[1]
        return tangent

    each_way: Callable[..., Tensor] = torch.func.vmap(derivative, (None, None, 0, 0), chunk_size=some)
    return each_way


def _parts(records: Records, like: Tensor) -> Iterator[Records]:
    """As many records at a time as there is memory for gradients of the size of a row."""
    some = rows_of(GRADIENT_NUMBERS, like, like.shape[1])
    for first in range(0, len(records), some):
        yield records[first : first + some]


def _followed(
    base: BaseTrajectory, known_answer: Callable[[BaseStep, Tensor], Tensor], records: Records
) -> Iterator[tuple[BaseStep, Tensor | None, State]]:
    """Every step, grad l(theta_t + delta_t, z) of each record z (m, p) if it takes part, and delta after the step."""
    moved = base.states[0].zeros(len(records))
    batch = Batch((), ((records.inputs.unsqueeze(1), records.y.unsqueeze(1)),))
    for step in base.steps():
        slope, answer = None, known_answer(step, flat(moved.params))
        if step.secret:
            here = {name: value + moved.params[name] for name, value in step.state.params.items()}
            with float32_products(base.trainer.tf32):
                slope = flat(gradient(base.net, base.trainer.loss, here, batch))
            answer = answer + slope / step.size
        moved = base.moved(step, moved, base.shaped(answer))
        yield step, slope, moved
