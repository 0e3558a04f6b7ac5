"""The gradient-based attack of S3: a record rebuilt from the published steps of DP-SGD, prior or no prior."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.normal_law import NormalLaw
from lostwax.attacks.published_steps import PublishedSteps, no_steps
from lostwax.seeds import generator
from lostwax.threats import Informed
from lostwax.trainers.clipping import clip_factor
from lostwax.trainers.per_record import record_gradients
from lostwax.trainers.stacked import Params
from lostwax.types import Guess, Hints, Knowledge, Records, Release

TYPICAL = 16  # records, for a typical length of gradients
BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of published steps that are held at a time


@dataclass(frozen=True, kw_only=True)
class GradientInversion:
    """Look for the record whose clipped gradients explain what the known records left unexplained (S3 Eq. 1).

    Minimises over z, within the range of the data,  sum_t  -<clip(g_t(z)), gbar_t> + |clip(g_t(z)) - gbar_t|_1,  in
    units of the clipping norm. From uniform noise, `restarts` times, by Adam, each of the `iterations` on some of the
    steps; the start that ends with the least sum over all steps is answered. Where the label is not told
    (`Informed(known, label_known=True)`), every label is tried, and they race.

    With `prior`, which S3 does without, it looks for the likeliest record under DP-SGD's noise and a normal law (see
    NormalLaw): the least  sum_t |clip(g_t(z)) - gbar_t|^2 / 2 sigma^2 - log p(z).
    """

    iterations: int = 1_000
    lr: float = 0.05
    restarts: int = 3
    steps_at_a_time: int = 20
    prior: bool = False

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
        labels = torch.cat([steps.known.y, knowledge.prior.y.to(steps.known.y.device)])
        law = None
        if self.prior:
            at_hand = torch.cat([steps.known.x, knowledge.prior.x.to(steps.known.x)])
            law = NormalLaw.of(at_hand, labels)
        return Inversion(self, steps, float(low.min()), float(high.max()), torch.unique(labels), law, seed)

    @classmethod
    def examples(cls) -> tuple[GradientInversion, ...]:
        """Instances to test."""
        return tuple(cls(iterations=5, restarts=2, steps_at_a_time=2, prior=prior) for prior in (False, True))


class History(NamedTuple):
    """The published steps of some models."""

    params: Params  # (m, t, ...)  theta_t
    rest: Params  # (m, t, ...)  gbar_t, in units of the clipping norm
    factor: Tensor | None = None  # (m, t, starts) by which gradients are clipped; None for as long as they are


class Inversion(NamedTuple):
    """A prepared GradientInversion."""

    settings: GradientInversion
    steps: PublishedSteps
    low: float
    high: float
    classes: Tensor  # (classes,)
    law: NormalLaw | None  # of the records
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
        order = generator(self.seed, "adversary", "inversion", "order")
        v = self._starts(labels)
        every = np.split(np.arange(steps), range(settings.steps_at_a_time, steps, settings.steps_at_a_time))
        if self.law is not None:
            history = history._replace(
                factor=torch.cat([self._typical(labels, _at(history, some)) for some in every], 1)
            )

        def objective(v: Tensor, some: History, share: float) -> Tensor:
            return (self._misfit(self._records(v, labels), labels, some) + share * self._surprise(v)).sum()

        slope: Callable[..., Tensor] = torch.func.grad(objective)
        adam = torch.optim.Adam([v], lr=settings.lr * (self.high - self.low if self.law is None else 1.0))
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(adam, settings.iterations)
        for _ in range(settings.iterations):
            chosen = order.permutation(steps)[: settings.steps_at_a_time]
            v.grad = slope(v, _at(history, chosen), len(chosen) / steps).nan_to_num(0, 0, 0)
            adam.step()
            fall.step()
            if self.law is None:
                v.clamp_(self.low, self.high)
        x = self._records(v, labels)
        misfit = torch.stack([self._misfit(x, labels, _at(history, some)) for some in every]).sum(0)  # (m, starts)
        misfit, x = misfit + self._surprise(v), x.clamp(self.low, self.high)
        ranked = misfit.sort(dim=1)
        models, best = torch.arange(len(x), device=x.device), ranked.indices[:, 0]
        lead = ranked.values[:, min(1, misfit.shape[1] - 1)] - ranked.values[:, 0]
        return x[models, best], labels[models, best], lead

    def _starts(self, labels: Tensor) -> Tensor:
        """(m, starts, ...) what is looked for: records of uniform noise, or near the middle of the law."""
        draws, known = generator(self.seed, "adversary", "inversion", "starts"), self.steps.known.x
        shape = known.shape[1:] if self.law is None else self.law.directions.shape[:1]
        noise = torch.from_numpy(draws.random((labels.shape[1], *shape))).to(known)
        start = self.low + (self.high - self.low) * noise if self.law is None else noise - 0.5
        return start.expand(*labels.shape, *shape).clone()

    def _records(self, v: Tensor, labels: Tensor) -> Tensor:
        """(m, starts, ...) the records that are looked for as v."""
        return v if self.law is None else self.law(v, labels).view(*labels.shape, *self.steps.known.x.shape[1:])

    def _surprise(self, v: Tensor) -> Tensor:
        """(m, starts) - log p(z), in the units of the misfit; nothing where there is no prior."""
        if self.law is None:
            return v.new_zeros(v.shape[:2])
        return self.steps.trainer.noise_multiplier**2 * v.square().sum(2) / 2

    def _misfit(self, x: Tensor, labels: Tensor, history: History) -> Tensor:
        """(m, starts) S3's Eq. 1 over these steps; with a prior half the squares of what is unexplained."""
        (m, starts), t = labels.shape, next(iter(history.rest.values())).shape[1]
        gradients, factor = self._gradients(x, labels, history)
        if history.factor is not None:
            factor = history.factor.flatten(0, 1)
        total = x.new_zeros(m, starts)
        for name, value in gradients.items():
            clipped = (factor.unsqueeze(2) * value.flatten(2)).view(m, t, starts, -1)  # (m, t, starts, numbers)
            rest = history.rest[name].flatten(2).unsqueeze(2)  # (m, t, 1, numbers)
            terms = (clipped - rest).abs() - clipped * rest if self.law is None else (clipped - rest).square() / 2
            total = total + terms.sum((1, 3))
        return total

    def _gradients(self, x: Tensor, labels: Tensor, history: History) -> tuple[Params, Tensor]:
        """Of records (m, starts, ...) at these steps, (m t, starts, ...), and what clips each to norm 1."""
        trainer, t = self.steps.trainer, next(iter(history.rest.values())).shape[1]
        flat = {name: value.flatten(0, 1) for name, value in history.params.items()}  # (m t, ...)
        records = [part.unsqueeze(1).expand(len(x), t, *part.shape[1:]).flatten(0, 1) for part in (x, labels)]
        gradients = record_gradients(self.steps.net, trainer.loss, flat, (records[0], records[1]))
        squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
        return gradients, clip_factor((squares + 1e-24).sqrt(), trainer.clip) / trainer.clip  # smooth where g = 0

    def _typical(self, labels: Tensor, history: History) -> Tensor:
        """(m, t, starts) the mean factor of some records of the law.

        Were it the record's own, the noise that a record takes on would make its gradient longer and so the clipped
        record fainter: the likeliest record under that model is a shadow of itself.
        """
        assert self.law is not None
        draws = generator(self.seed, "adversary", "inversion", "typical")
        factors = []
        for _ in range(TYPICAL):
            v = torch.from_numpy(draws.standard_normal(self.law.directions.shape[0])).to(self.law.directions)
            x = self._records(v.expand(*labels.shape, -1), labels).clamp(self.low, self.high)
            factors.append(self._gradients(x, labels, history)[1])
        return torch.stack(factors).mean(0).view(len(labels), -1, labels.shape[1])


def _part(release: Release, models: slice) -> Release:
    """Some of the models, steps and all."""
    steps = release.steps
    some = {name: value[models] for name, value in release.params.items()}
    return Release(some, None if steps is None else lambda: (step[models] for step in steps()))


def _at(history: History, steps: np.ndarray) -> History:
    params, rest = ({name: value[:, steps] for name, value in part.items()} for part in history[:2])
    return History(params, rest, None if history.factor is None else history.factor[:, steps])
