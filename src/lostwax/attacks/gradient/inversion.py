"""Descent towards the record that explains the published steps, for many models and starts at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.gradient.search import Likeliest, Search
from lostwax.attacks.published_steps import PublishedSteps
from lostwax.seeds import generator
from lostwax.trainers.clipping import clip_factor
from lostwax.trainers.per_record import record_gradients
from lostwax.trainers.stacked import Params
from lostwax.types import Guess, Hints, Records, Release

BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of published steps that are held at a time
TYPICAL_SHARE = 0.2  # of the iterations, before gradients are clipped as those of records near the estimate are
PAIRS = 8  # of records, for a mean clipping; one pair in each iteration


class History(NamedTuple):
    """The published steps of some models."""

    params: Params  # (m, t, ...)  theta_t
    rest: Params  # (m, t, ...)  gbar_t, in units of the clipping norm
    silence: Tensor  # (m, t, 1)  the misfit of a gradient of 0: of each step, if the secret was not in it
    factor: Tensor | None = None  # (m, t, starts) by which gradients are clipped; None: each by its own length


class Inversion(NamedTuple):
    """A prepared GradientInversion."""

    steps: PublishedSteps
    search: Search
    classes: Tensor  # (classes,)
    iterations: int
    lr: float
    restarts: int
    steps_at_a_time: int
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Every game on its own, many at a time."""
        device, told = self.classes.device, None if hints is None else hints.labels
        if told is not None and isinstance(self.search, Likeliest):
            unheard = ~torch.isin(told.to(device), self.classes).flatten(1).all(1)  # (m,)
            if unheard.any():
                raise ValueError(
                    f"GradientInversion: the hints give game {int(unheard.int().argmax())} a label that no known or "
                    "prior record has, whose mean to begin with. Add some to the prior, or take prior=False."
                )
        labels = self.classes.expand(len(release), -1) if told is None else told.to(device)  # (m, labels)
        labels = labels.repeat_interleave(self.restarts, 1)  # (m, starts)
        parts = [self._rebuild(*part) for part in self._histories(release, labels)]
        x, y, confidence = (torch.cat(each) for each in zip(*parts, strict=True))
        return Guess(Records(x.unsqueeze(1), y.unsqueeze(1)), confidence.unsqueeze(1))

    def _histories(self, release: Release, labels: Tensor) -> Iterator[tuple[History, Tensor]]:
        """So many models at a time as memory holds; each time the steps are published again."""
        numbers = sum(value[0].numel() for value in release.params.values())
        at_once = self.steps_at_a_time * labels.shape[1]  # gradients, and what their gradient needs
        each = 4 * numbers * (2 * self.steps.trainer.steps + 8 * at_once)
        at_a_time = max(1, BYTES["cpu" if labels.device.type == "cpu" else "cuda"] // each)
        for start in range(0, len(labels), at_a_time):
            some = slice(start, start + at_a_time)
            seen = list(self.steps(_part(release, some), at_a_time))
            params = {name: torch.stack([step.params[name] for step in seen], 1) for name in seen[0].params}
            rest = {name: torch.stack([step.rest[name] for step in seen], 1) for name in seen[0].rest}
            unit = 1 / self.steps.trainer.clip
            rest = {name: value.mul_(unit) for name, value in rest.items()}
            yield History(params, rest, self._silence(rest)), labels[some]

    def _rebuild(self, history: History, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best of all starts: records (m, ...), their labels (m,), and how far they lead what speaks against them.

        That is the best start of another label; where there is none, no record at all.
        """
        search, draws, order = self.search, self._draws("clipping"), self._draws("order")
        start = search.start(self._draws("starts"), labels.shape[1])
        v, whole = start.expand(*labels.shape, *start.shape[1:]).clone(), start.new_ones(1)
        typical = search.around(draws, torch.zeros_like(v), whole, labels, PAIRS)
        spread = search.left_open(self._reach(typical, labels, history)) if typical else whole
        history = self._clipped_as(typical, labels, history)
        first = round(TYPICAL_SHARE * self.iterations) if typical else 0

        def nearby(some: History) -> History:
            return self._clipped_as(search.around(draws, v, spread, labels, 1), labels, some)

        self._descend(v, labels, history, first, order)
        self._descend(v, labels, history, self.iterations - first, order, nearby)
        x = search.records(v, labels)
        history = self._clipped_as(search.around(draws, v, spread, labels, PAIRS), labels, history)
        misfit = torch.stack([self._misfit(x, labels, some) for some in self._few(history)]).sum(0)  # (m, starts)
        total = (misfit + search.surprise(v)).nan_to_num(math.inf, math.inf)
        of_label, turn = total.view(len(x), -1, self.restarts).min(2)  # (m, labels)
        least, row = of_label.sort(dim=1)
        models, row = torch.arange(len(x), device=x.device), row[:, 0]
        best = row * self.restarts + turn[models, row]
        other = least[:, 1] if least.shape[1] > 1 else history.silence.sum((1, 2))
        return x[models, best].clamp(search.low, search.high), labels[models, best], other - least[:, 0]

    def _descend(
        self,
        v: Tensor,
        labels: Tensor,
        history: History,
        iterations: int,
        order: np.random.Generator,
        clipping: Callable[[History], History] = lambda some: some,
    ) -> None:
        """So many steps of Adam on v, in place."""
        steps, search = self.steps.trainer.steps, self.search

        def objective(v: Tensor, some: History, share: float) -> Tensor:
            return (self._misfit(search.records(v, labels), labels, some) + share * search.surprise(v)).sum()

        slope: Callable[..., Tensor] = torch.func.grad(objective)
        adam = torch.optim.Adam([v], lr=self.lr * search.unit)
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(1, iterations))
        for _ in range(iterations):
            chosen = order.permutation(steps)[: self.steps_at_a_time]
            v.grad = slope(v, clipping(_at(history, chosen)), len(chosen) / steps).nan_to_num(0, 0, 0)
            adam.step()
            fall.step()
            search.confine(v)

    def _few(self, history: History) -> Iterator[History]:
        """Its steps, so many at a time."""
        steps = history.silence.shape[1]
        for start in range(0, steps, self.steps_at_a_time):
            yield _at(history, np.arange(start, min(start + self.steps_at_a_time, steps)))

    def _draws(self, what: str) -> np.random.Generator:
        return generator(self.seed, "adversary", "inversion", what)

    def _misfit(self, x: Tensor, labels: Tensor, history: History) -> Tensor:
        """(m, starts) of records (m, starts, ...), over these steps."""
        each = history.silence.new_zeros(1)
        for name, clipped in self._clipped(x, labels, history).items():
            rest = history.rest[name].flatten(2).unsqueeze(2)  # (m, t, 1, numbers)
            each = each + self.search.misfit(clipped, rest).sum(3)  # (m, t, starts)
        return self.search.of_steps(each, history.silence).sum(1)

    def _clipped(self, x: Tensor, labels: Tensor, history: History) -> Params:
        """(m, t, starts, numbers) gradients of records (m, starts, ...), in units of the clipping norm."""
        gradients, own = self._gradients(x, labels, history)
        factor = own if history.factor is None else history.factor.flatten(0, 1)
        flat = {name: factor.unsqueeze(2) * value.flatten(2) for name, value in gradients.items()}  # (m t, starts, ...)
        return {name: value.view(len(labels), -1, *value.shape[1:]) for name, value in flat.items()}

    def _silence(self, rest: Params) -> Tensor:
        flat = [value.flatten(2) for value in rest.values()]  # (m, t, numbers)
        each = [self.search.misfit(torch.zeros_like(value), value).sum(2, keepdim=True) for value in flat]
        return torch.stack(each).sum(0)

    def _gradients(self, x: Tensor, labels: Tensor, history: History) -> tuple[Params, Tensor]:
        """Of records (m, starts, ...) at these steps, (m t, starts, ...), and what clips each to norm 1."""
        trainer, t = self.steps.trainer, next(iter(history.rest.values())).shape[1]
        flat = {name: value.flatten(0, 1) for name, value in history.params.items()}  # (m t, ...)
        records = [part.unsqueeze(1).expand(len(x), t, *part.shape[1:]).flatten(0, 1) for part in (x, labels)]
        gradients = record_gradients(self.steps.net, trainer.loss, flat, (records[0], records[1]))
        squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
        return gradients, clip_factor((squares + 1e-24).sqrt(), trainer.clip) / trainer.clip  # smooth where g = 0

    def _clipped_as(self, records: list[Tensor], labels: Tensor, history: History) -> History:
        """By the mean length of the gradients of records (m, starts, ...); of none: as before.

        Not by the mean of 1 / |g|: if the steps tell nothing but g / |g|, then g = g / |g| E|g| is to be expected.
        """
        if not records:
            return history
        found = []
        for some in self._few(history):
            lengths = [1 / self._gradients(x, labels, some)[1] for x in records]  # max(C, |g|)
            found.append(1 / torch.stack(lengths).mean(0).view(len(labels), -1, labels.shape[1]))
        return history._replace(factor=torch.cat(found, 1))

    def _reach(self, records: list[Tensor], labels: Tensor, history: History) -> Tensor:
        """(m, starts) sum_t |clip(g_t(a)) - clip(g_t(b))|^2 / |a - b|^2, over pairs of records a and b."""
        moved, apart = torch.zeros_like(labels, dtype=records[0].dtype), records[0].new_zeros(())
        for a, b in zip(records[::2], records[1::2], strict=True):
            apart = apart + (a - b).flatten(2).square().sum(2)
            for some in self._few(history):
                one, other = (self._clipped(x, labels, some) for x in (a, b))
                moved = moved + torch.stack([(one[k] - other[k]).square().sum((1, 3)) for k in one]).sum(0)
        return moved / apart.clamp_min(1e-24)


def _part(release: Release, models: slice) -> Release:
    """Some of the models, steps and all."""
    steps = release.steps
    some = {name: value[models] for name, value in release.params.items()}
    return Release(some, None if steps is None else lambda: (step[models] for step in steps()))


def _at(history: History, steps: np.ndarray) -> History:
    params, rest = ({name: value[:, steps] for name, value in part.items()} for part in history[:2])
    factor = None if history.factor is None else history.factor[:, steps]
    return History(params, rest, history.silence[:, steps], factor)
