"""The attack of S3 that meets the ceiling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.candidates import candidates_in, choose, no_candidates, weighed
from lostwax.attacks.prior_aware.scores import InnerProducts, LargestProducts, LogLikelihood, Observed, Score
from lostwax.attacks.published_steps import PublishedSteps, models_at_a_time, no_steps
from lostwax.trainers.clipping import clip_factor, slopes_along
from lostwax.trainers.stacked import Batch
from lostwax.trainers.stepwise import float32_products
from lostwax.types import Guess, Hints, Knowledge, Records, Release
from lostwax.types.fields import check_fields


@dataclass(frozen=True)
class PriorAware:
    """Answer the candidate whose clipped gradients the noisy steps of DP-SGD hold most of (S3 section 3.3).

    At every step the adversary subtracts the clipped gradients of all records it knows (`subtract_known`; without, the
    attack fails unless they are few). What is left is the secret's clipped gradient, if it was drawn, and noise. The
    `score` says how that speaks for a candidate; LogLikelihood is the best possible, and with it no attack on the same
    candidates is right more often. Candidates that are not alike in chance (`Hints.chances`) are weighed by it.
    """

    score: Score = field(default_factory=LogLikelihood)
    subtract_known: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        return no_steps(self, knowledge) or no_candidates(self, knowledge)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Chooser:
        """Nothing can be computed before the steps are known, and nothing is drawn."""
        if (objection := self.objection(knowledge)) is not None:
            raise ValueError(objection)
        steps = PublishedSteps.of(knowledge, subtract_known=self.subtract_known)
        return Chooser(knowledge.net, steps, self.score)

    @classmethod
    def examples(cls) -> tuple[PriorAware, ...]:
        """Instances to test."""
        return cls(), cls(InnerProducts(), subtract_known=False), cls(LargestProducts())


class Chooser(NamedTuple):
    """A prepared PriorAware."""

    net: nn.Module
    steps: PublishedSteps
    score: Score

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """The candidate that the steps speak for most."""
        candidates = candidates_in(hints)  # (m, c, ...)
        return choose(hints, weighed(hints, self.scores(release, candidates)))

    def scores(self, release: Release, candidates: Records) -> Tensor:
        """(m, c) how the steps speak for each candidate, in nats."""
        return self.score(self.observed(release, candidates), self.steps.trainer)

    def observed(self, release: Release, candidates: Records) -> Iterator[Observed]:
        """What every step says of every candidate."""
        trainer, clip = self.steps.trainer, self.steps.trainer.clip
        own = candidates.to(self.steps.known.x.dtype)
        at_a_time = models_at_a_time(self.steps, self.net, own)
        parts: list[Observed] = []
        for models, params, rest in self.steps(release, at_a_time):
            records = own.inputs[models], own.y[models]
            with float32_products(trainer.tf32):
                along = slopes_along(self.steps.net, trainer.loss, params, rest, records)  # (m, c)
                (norms,) = self.steps.clipping.norms(self.steps.net, trainer.loss, params, Batch((), (records,)))
            factor = clip_factor(norms, clip)
            parts.append(Observed(factor * along / clip**2, (factor * norms / clip).square()))
            if models.stop >= len(own):  # the last models of the step
                yield Observed(*(torch.cat(each) for each in zip(*parts, strict=True)))
                parts = []
