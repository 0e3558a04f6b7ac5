"""The gradient-based attack of S3: a record rebuilt from the published steps of DP-SGD, with no prior at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.published_steps import PublishedSteps, no_steps
from lostwax.seeds import generator
from lostwax.threats import Informed
from lostwax.trainers.clipping import clip_factor
from lostwax.trainers.per_record import record_gradients
from lostwax.trainers.stacked import Params
from lostwax.types import Guess, Hints, Knowledge, Records, Release

BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of published steps that are held at a time


@dataclass(frozen=True, kw_only=True)
class GradientInversion:
    """Look for the record whose clipped gradients explain what the known records left unexplained (S3 Eq. 1).

    Minimises over z, within the range of the data,  sum_t  -<clip(g_t(z)), gbar_t> + |clip(g_t(z)) - gbar_t|_1,  in
    units of the clipping norm. From uniform noise, `restarts` times, by Adam, each of the `iterations` on some of the
    steps; the start that ends with the least sum over all steps is answered. Where the label is not told
    (`Informed(known, label_known=True)`), every label is tried, and they race.
    """

    iterations: int = 1_000
    lr: float = 0.05
    restarts: int = 3
    steps_at_a_time: int = 20

    def __post_init__(self) -> None:
        for name in ("iterations", "restarts", "steps_at_a_time"):
            if getattr(self, name) < 1:
                raise ValueError(f"GradientInversion: expected {name} >= 1, got {getattr(self, name)}.")
        if not self.lr > 0:
            raise ValueError(f"GradientInversion: expected lr > 0, got {self.lr}.")

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        refusal = "GradientInversion cannot play this game: "
        if (objection := no_steps(self, knowledge)) is not None:
            return objection
        if isinstance(knowledge.threat, Informed) and knowledge.threat.parts is not None:
            return refusal + "it looks for the whole record, and makes no use of the parts that are known. Use RecoNN."
        if knowledge.prior.features is not None:
            return refusal + "the net trains on features of the records, through a backbone it cannot see. Use RecoNN."
        if knowledge.prior.y.is_floating_point():
            return refusal + "it tries every label, and these are numbers without end. Use RecoNN."
        return None

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Inversion:
        """Nothing can be computed before the steps are known. The seed draws starts and steps."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        steps = PublishedSteps.of(knowledge)
        low, high = (torch.stack([side(steps.known.x), side(knowledge.prior.x)]) for side in (torch.amin, torch.amax))
        classes = torch.unique(torch.cat([steps.known.y, knowledge.prior.y.to(steps.known.y.device)]))
        return Inversion(self, steps, float(low.min()), float(high.max()), classes, seed)

    @classmethod
    def examples(cls) -> tuple[GradientInversion, ...]:
        """Instances to test."""
        return (cls(iterations=5, restarts=2, steps_at_a_time=2),)


class History(NamedTuple):
    """The published steps of some models."""

    params: Params  # (m, t, ...)  theta_t
    rest: Params  # (m, t, ...)  gbar_t, in units of the clipping norm


class Inversion(NamedTuple):
    """A prepared GradientInversion."""

    settings: GradientInversion
    steps: PublishedSteps
    low: float
    high: float
    classes: Tensor  # (classes,)
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Every game on its own, many at a time."""
        device, told = self.classes.device, None if hints is None else hints.labels
        labels = self.classes.expand(len(release), -1) if told is None else told.to(device)  # (m, labels)
        labels = labels.repeat_interleave(self.settings.restarts, 1)  # (m, starts)
        parts = [self._rebuild(*part) for part in self._histories(release, labels)]
        x, y, confidence = (torch.cat(each) for each in zip(*parts, strict=True))
        return Guess(Records(x.unsqueeze(1), y.unsqueeze(1)), confidence.unsqueeze(1))

    def _histories(self, release: Release, labels: Tensor) -> Iterator[tuple[History, Tensor]]:
        """So many models at a time as memory holds; each time the steps are published again."""
        numbers = sum(value[0].numel() for value in release.params.values())
        at_once = self.settings.steps_at_a_time * labels.shape[1]  # gradients, and what their gradient needs
        each = 4 * numbers * (2 * self.steps.trainer.steps + 8 * at_once)
        at_a_time = max(1, BYTES["cpu" if labels.device.type == "cpu" else "cuda"] // each)
        for start in range(0, len(labels), at_a_time):
            some = slice(start, start + at_a_time)
            seen = list(self.steps(_part(release, some), at_a_time))
            params = {name: torch.stack([step.params[name] for step in seen], 1) for name in seen[0].params}
            rest = {name: torch.stack([step.rest[name] for step in seen], 1) for name in seen[0].rest}
            unit = 1 / self.steps.trainer.clip
            yield History(params, {name: value.mul_(unit) for name, value in rest.items()}), labels[some]

    def _rebuild(self, history: History, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best of all starts: records (m, ...), their labels (m,), and how far they lead the next start's sum."""
        settings, steps = self.settings, self.steps.trainer.steps
        starts, order = (generator(self.seed, "adversary", "inversion", what) for what in ("starts", "order"))
        span = self.high - self.low
        noise = torch.from_numpy(starts.random((labels.shape[1], *self.steps.known.x.shape[1:])))
        x = (self.low + span * noise.to(self.steps.known.x)).expand(*labels.shape, *noise.shape[1:]).clone()

        def objective(x: Tensor, some: History) -> Tensor:
            return self._misfit(x, labels, some).sum()

        slope: Callable[..., Tensor] = torch.func.grad(objective)
        adam = torch.optim.Adam([x], lr=settings.lr * span)
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(adam, settings.iterations)
        for _ in range(settings.iterations):
            chosen = order.permutation(steps)[: settings.steps_at_a_time]
            x.grad = slope(x, _at(history, chosen)).nan_to_num(0, 0, 0)
            adam.step()
            fall.step()
            x.clamp_(self.low, self.high)
        every = np.split(np.arange(steps), range(settings.steps_at_a_time, steps, settings.steps_at_a_time))
        misfit = torch.stack([self._misfit(x, labels, _at(history, some)) for some in every]).sum(0)  # (m, starts)
        ranked = misfit.sort(dim=1)
        models, best = torch.arange(len(x), device=x.device), ranked.indices[:, 0]
        lead = ranked.values[:, min(1, misfit.shape[1] - 1)] - ranked.values[:, 0]
        return x[models, best], labels[models, best], lead

    def _misfit(self, x: Tensor, labels: Tensor, history: History) -> Tensor:
        """(m, starts) S3's Eq. 1 over these steps."""
        trainer, (m, starts) = self.steps.trainer, labels.shape
        t = next(iter(history.rest.values())).shape[1]
        flat = {name: value.flatten(0, 1) for name, value in history.params.items()}  # (m t, ...)
        records = [part.unsqueeze(1).expand(m, t, *part.shape[1:]).flatten(0, 1) for part in (x, labels)]
        gradients = record_gradients(self.steps.net, trainer.loss, flat, (records[0], records[1]))  # (m t, starts, ...)
        squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
        factor = clip_factor((squares + 1e-24).sqrt(), trainer.clip) / trainer.clip  # smooth where g = 0
        total = x.new_zeros(m, starts)
        for name, value in gradients.items():
            clipped = (factor.unsqueeze(2) * value.flatten(2)).view(m, t, starts, -1)  # (m, t, starts, numbers)
            rest = history.rest[name].flatten(2).unsqueeze(2)  # (m, t, 1, numbers)
            total = total + ((clipped - rest).abs() - clipped * rest).sum((1, 3))
        return total


def _part(release: Release, models: slice) -> Release:
    """Some of the models, steps and all."""
    steps = release.steps
    some = {name: value[models] for name, value in release.params.items()}
    return Release(some, None if steps is None else lambda: (step[models] for step in steps()))


def _at(history: History, steps: np.ndarray) -> History:
    return History(*({name: value[:, steps] for name, value in part.items()} for part in history))
