"""The published steps of DP-SGD, less the gradients of the known records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Knowledge, Records, Release, Step
from lostwax.progress import counted
from lostwax.trainers import DPSGD
from lostwax.trainers.clipping import Clipping
from lostwax.trainers.dpsgd import as_dpsgd, sample
from lostwax.trainers.stacked import Architecture, Params
from lostwax.trainers.stepwise import float32_products


class Seen(NamedTuple):
    """One step of some models: its parameters, and the secret's gradient with the noise."""

    models: slice
    params: Params  # (m, ...)  theta_t
    rest: Params  # (m, ...)  gbar_t: the published sum less the clipped gradients of the known records
    present: Tensor | None = None  # (m,) whether the secret is in the step, where the other draws reveal it
    replaced: Params | None = None  # (m, ...)  what a batch of a fixed size loses by the secret: the mean of the others


@dataclass(frozen=True)
class PublishedSteps:
    """The victim's procedure, as the adversary knows it.

    Without `subtract_known` the published sums keep the known records (Hayes et al. 2023, Fig. 10).
    """

    net: Architecture
    trainer: DPSGD
    known: Records
    clipping: Clipping
    subtract_known: bool = True

    @classmethod
    def of(cls, knowledge: Knowledge, *, subtract_known: bool = True) -> PublishedSteps:
        """For a game that `no_steps` accepts."""
        trainer = as_dpsgd(knowledge.trainer)
        known = knowledge.facts.known_records.to(trainer.computes_in(knowledge.net))
        net = Architecture.of(knowledge.net, known.inputs.device, known.x.dtype)
        clipping = trainer.clipping(net, known.inputs.new_zeros(known.inputs.shape[1:]))
        return cls(net, trainer, known, clipping, subtract_known)

    def __call__(self, release: Release, at_a_time: int) -> Iterator[Seen]:
        """Every step, some models at a time."""
        if release.steps is None:
            raise ValueError(
                "release: expected the steps of DP-SGD to be published (release.steps), got weights alone. Pass the "
                "release that DPSGD returns; if the steps are secret, use RecoNN."
            )
        for step in counted(release.steps(), "published steps", self.trainer.steps):
            for start in range(0, len(next(iter(step.params.values()))), at_a_time):
                yield self._seen(step, slice(start, start + at_a_time))

    def _seen(self, step: Step, models: slice) -> Seen:
        law, rate, n = self.trainer.law(), self.trainer.rate, len(self.known) + 1
        expected = rate * n
        step = step[models]
        params = dict(step.params)
        secret_gradient = {name: expected * value for name, value in step.gradient.items()}
        present = law.present(step.number, step.sampled, n)
        if not self.subtract_known or len(self.known) == 0:
            return Seen(models, params, secret_gradient, present)
        count = len(next(iter(params.values())))
        no_records = self.known[:0]  # (m, 0, ...)
        no_secrets = Records(*(part.expand(count, *part.shape) for part in (no_records.inputs, no_records.y)))
        cohort = Cohort(
            Records(self.known.inputs, self.known.y), no_secrets, torch.arange(count, device=no_secrets.x.device)
        )
        with float32_products(self.trainer.tf32):
            records = sample(cohort, step.sampled, rate)
            known = self.clipping.total(self.net, self.trainer.loss, params, records, self.trainer.clip)
        mean = None
        if law.hidden:  # a batch holds as many of the known records, but not which is known
            mean = {name: value / len(self.known) for name, value in known.items()}
            known = {name: expected * value for name, value in mean.items()}
        return Seen(
            models, params, {name: value - known[name] for name, value in secret_gradient.items()}, present, mean
        )


def no_steps(knowledge: Knowledge) -> str | None:
    """Why an attack on published steps is not applicable; None where it is."""
    facts = knowledge.facts
    reason = facts.not_one_secret(knowledge.threat, "it subtracts the gradients of all known records")
    if reason is not None:
        return reason
    if not facts.trainer.publishes_steps:
        return (
            "it reads the noisy steps that DPSGD(publish_steps=True) publishes, but this "
            f"{type(knowledge.trainer).__name__} publishes only the final weights. Use RecoNN, or, with candidates, "
            "Refit."
        )
    if facts.trainer.mechanism is None:
        return "the steps hold no noise, and its likelihoods need some. With candidates, use Refit, which is exact."
    if not facts.access.all_weights:
        return f"it needs all weights of every step, but the adversary sees {knowledge.access!r}. Use RecoNN."
    return None


def models_at_a_time(steps: PublishedSteps, net: nn.Module, each: Records) -> int:
    """Number of models that fit a tile of the trainer when each is tested on its own records (m, c, ...)."""
    first = each[:1]
    known = Records(steps.known.inputs, steps.known.y)
    index = torch.zeros(1, dtype=torch.long, device=first.inputs.device)
    return steps.trainer.tile_size(net, Cohort(known, Records(first.inputs, first.y), index))
