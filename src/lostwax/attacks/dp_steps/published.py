"""What an informed adversary makes of the published steps of DP-SGD, before it asks about any record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from lostwax.access import Weights
from lostwax.games import Cohort, Informed, Knowledge, Records, Release, Step
from lostwax.learning.objections import not_informed, several_secrets
from lostwax.trainers import DPSGD
from lostwax.trainers.clipping import Clipping
from lostwax.trainers.dpsgd import sample
from lostwax.trainers.stacked import Architecture, Params
from lostwax.trainers.stepwise import float32_products


class Seen(NamedTuple):
    """One step of some models: where it was taken, and what nobody but the secret and the noise put into it."""

    models: slice
    params: Params  # (m, ...)  theta_t
    rest: Params  # (m, ...)  gbar_t: the published sum less the clipped gradients of the known records


@dataclass(frozen=True)
class PublishedSteps:
    """The victim's procedure, as the adversary knows it.

    Without `subtract_known` it takes the published sums as they are, known records and all (S3 Fig. 10).
    """

    net: Architecture
    trainer: DPSGD
    known: Records
    clipping: Clipping
    subtract_known: bool = True

    @classmethod
    def of(cls, knowledge: Knowledge, *, subtract_known: bool = True) -> PublishedSteps:
        """For a game that `no_steps` does not object to."""
        trainer, threat = knowledge.trainer, knowledge.threat
        if not isinstance(trainer, DPSGD) or not isinstance(threat, Informed):
            raise TypeError(f"PublishedSteps: expected DPSGD and Informed, got {trainer!r} and {threat!r}.")
        known = threat.known.to(trainer.computes_in(knowledge.net))
        net = Architecture.of(knowledge.net, known.inputs.device, known.x.dtype)
        clipping = trainer.clipping(net, known.inputs.new_zeros(known.inputs.shape[1:]))
        return cls(net, trainer, known, clipping, subtract_known)

    def __call__(self, release: Release, at_a_time: int) -> Iterator[Seen]:
        """Step by step, and in each step some models at a time."""
        if release.steps is None:
            raise ValueError(
                "release: expected the steps of DP-SGD to be published (release.steps), got weights alone. Take the "
                "release that DPSGD returns; where the steps are kept secret, use RecoNN."
            )
        for step in release.steps():
            for start in range(0, len(next(iter(step.params.values()))), at_a_time):
                yield self._seen(step, slice(start, start + at_a_time))

    def _seen(self, step: Step, models: slice) -> Seen:
        expected = self.trainer.sample_rate * (len(self.known) + 1)
        step = step[models]
        params = dict(step.params)
        rest = {name: expected * value for name, value in step.gradient.items()}
        if not self.subtract_known or len(self.known) == 0:
            return Seen(models, params, rest)
        count = len(next(iter(params.values())))
        nobody = self.known[:0]  # (m, 0, ...)
        own = Records(*(part.expand(count, *part.shape) for part in (nobody.inputs, nobody.y)))
        cohort = Cohort(Records(self.known.inputs, self.known.y), own, torch.arange(count, device=own.x.device))
        with float32_products(self.trainer.tf32):
            records = sample(cohort, step.sampled, self.trainer.sample_rate)
            known = self.clipping.total(self.net, self.trainer.loss, params, records, self.trainer.clip)
        return Seen(models, params, {name: value - known[name] for name, value in rest.items()})


def no_steps(attack: object, knowledge: Knowledge) -> str | None:
    """The objection of an attack on published steps to a game that has none, or that it cannot follow."""
    name, trainer = type(attack).__name__, knowledge.trainer
    work = "it subtracts the gradients of all known records"
    if (sentence := not_informed(name, work, knowledge) or several_secrets(name, knowledge)) is not None:
        return sentence
    refusal = f"{name} is not applicable: "
    if not isinstance(trainer, DPSGD):
        return refusal + (
            f"it reads the noisy steps that DPSGD publishes, but the trainer is {type(trainer).__name__}, which "
            "publishes its last weights alone. Use RecoNN, or, with candidates, Refit."
        )
    if not trainer.publish_steps:
        return (
            refusal + "it reads the steps of training, and this trainer keeps them (publish_steps=False). Use RecoNN."
        )
    if trainer.noise_multiplier == 0:
        return refusal + "the steps hold no noise to be weighed against. With candidates, Refit is always right."
    if not isinstance(knowledge.access, Weights):
        return (
            refusal + f"it needs every step as it was taken, but the adversary sees {knowledge.access!r}. Use RecoNN."
        )
    return None


def models_at_a_time(steps: PublishedSteps, net: nn.Module, each: Records) -> int:
    """So many models fit a tile of the trainer's when each is asked about its own records (m, c, ...)."""
    one = each[:1]
    known = Records(steps.known.inputs, steps.known.y)
    index = torch.zeros(1, dtype=torch.long, device=one.inputs.device)
    return steps.trainer.tile_size(net, Cohort(known, Records(one.inputs, one.y), index))
