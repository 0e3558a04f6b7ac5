"""The published steps of DP-SGD less the known records, and the prior-aware attack, which reaches the ceiling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.fields import check_fields
from lostwax.games import AttackFacts, Cohort, Guess, Hints, Knowledge, Records, Release, Step
from lostwax.games.protocols import accepted
from lostwax.learning.candidates import candidates_in, choose, no_candidates, weighed
from lostwax.learning.costs import Cost, Rate
from lostwax.progress import counted
from lostwax.trainers import DPSGD
from lostwax.trainers.clipping import Clipping, clip_factor, slopes_along
from lostwax.trainers.dpsgd import as_dpsgd, sample
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.trainers.stepwise import float32_products


class Seen(NamedTuple):
    """One step of some models: its parameters, and the secret's gradient with the noise."""

    models: slice
    params: Params  # (m, ...)  theta_t
    secret_gradient: Params  # (m, ...)  gbar_t: the published sum less the clipped gradients of the known records
    present: Tensor | None = None  # (m,) whether the secret is in the step, where the other draws reveal it
    replaced: Params | None = None  # (m, ...)  what a batch of a fixed size loses by the secret: the mean of the others


@dataclass(frozen=True)
class PublishedSteps:
    """The victim's procedure, as the adversary knows it.

    Without `subtract_known` the published sums keep the known records (Hayes et al. 2023, Fig. 10).
    """

    net: Architecture
    trainer: DPSGD
    known: Records  # x is what the net trains on
    clipping: Clipping
    subtract_known: bool = True

    @classmethod
    def of(cls, knowledge: Knowledge, *, subtract_known: bool = True) -> PublishedSteps:
        trainer = as_dpsgd(knowledge.trainer)
        known = knowledge.facts.known_records.to(trainer.computes_in(knowledge.net))
        known = Records(known.inputs, known.y)
        net = Architecture.of(knowledge.net, known.x.device, known.x.dtype)
        clipping = trainer.clipping(net, known.x.new_zeros(known.x.shape[1:]))
        return cls(net, trainer, known, clipping, subtract_known)

    def __call__(self, release: Release, at_a_time: int) -> Iterator[Seen]:
        if release.steps is None:
            raise ValueError(
                "release: expected the steps of DP-SGD to be published (release.steps), got weights alone. Pass the "
                "release that DPSGD returns; if the steps are secret, use RecoNN."
            )
        for step in counted(release.steps(), "published steps", self.trainer.steps):
            for start in range(0, len(next(iter(step.params.values()))), at_a_time):
                yield self._seen(step, slice(start, start + at_a_time))

    def _seen(self, step: Step, models: slice) -> Seen:
        law, n, step = self.trainer.law(), len(self.known) + 1, step[models]
        params, expected = dict(step.params), self.trainer.rate * n
        secret_gradient = {name: expected * value for name, value in step.gradient.items()}
        present = law.present(step.number, step.sampled, n)
        if not self.subtract_known or len(self.known) == 0:
            return Seen(models, params, secret_gradient, present)
        index = torch.arange(len(next(iter(params.values()))), device=self.known.x.device)
        no_secrets = Records(
            *(part[:0].expand(len(index), 0, *part.shape[1:]) for part in (self.known.x, self.known.y))
        )
        with float32_products(self.trainer.tf32):
            records = sample(Cohort(self.known, no_secrets, index), step.sampled, self.trainer.rate)
            known = self.clipping.total(self.net, self.trainer.loss, params, records, self.trainer.clip)
        mean = None
        if law.hidden:  # a batch holds as many of the known records, but not which is known
            mean = {name: value / len(self.known) for name, value in known.items()}
            known = {name: expected * value for name, value in mean.items()}
        remainder = {name: value - known[name] for name, value in secret_gradient.items()}
        return Seen(models, params, remainder, present, mean)

    def models_at_a_time(self, net: nn.Module, each: Records) -> int:
        """Number of models that fit a tile of the trainer when each is tested on its own records (m, c, ...)."""
        first = Records(each.inputs[:1], each.y[:1])
        index = torch.zeros(1, dtype=torch.long, device=first.x.device)
        return self.trainer.tile_size(net, Cohort(self.known, first, index))


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


class Observed(NamedTuple):
    """One step's evidence on every candidate, in units of the clipping norm C: the mean for the secret is 1."""

    products: Tensor  # (m, c)  <clip(g_z), gbar> / C^2
    squares: Tensor  # (m, c)  |clip(g_z)|^2 / C^2: 1 if clipped
    present: Tensor | None = None  # (m,) whether the secret is in the step, where that is known


@runtime_checkable
class Score(Protocol):
    """A rule to add up the evidence of all steps, in nats."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """(m, c) for each candidate; the highest is the answer."""


@dataclass(frozen=True)
class LogLikelihood:
    """sum_t ln(1 - q + q exp((|gbar_t|^2 - |gbar_t - clip(g_z)|^2) / (2 sigma^2 C^2))) (Hayes et al. 2023, app. G).

    The log-likelihood ratio of training with and without z: with ln p(z) added, no attack is right more often. So for
    Poisson sampling; other ways to draw batches have their own (`trainers/batches.py`).
    """

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """|gbar|^2 - |gbar - g|^2 = 2 <g, gbar> - |g|^2."""
        return trainer.law().evidence(self._gains(steps, trainer.noise_multiplier**2))

    def _gains(self, steps: Iterator[Observed], variance: float) -> Iterator[Tensor]:
        for step in steps:
            gain = (step.products - step.squares / 2) / variance
            yield gain if step.present is None else gain * step.present.unsqueeze(1)


@dataclass(frozen=True)
class PriorAware:
    """Choose the candidate whose clipped gradients best match the noisy steps (Hayes et al. 2023, section 3.3).

    Subtracting the clipped gradients of the known records (`subtract_known`; without it the attack fails unless they
    are few) leaves the secret's, if it was drawn, and noise. The `score` rates every candidate: with LogLikelihood, the
    optimum, no attack on the same candidates is right more often. Prior probabilities (`Hints.chances`) are added.
    """

    score: Score = field(default_factory=LogLikelihood)
    subtract_known: bool = True

    def __post_init__(self) -> None:
        check_fields(self)

    def objection(self, knowledge: Knowledge) -> str | None:
        return no_steps(knowledge) or no_candidates(knowledge)

    def facts(self) -> AttackFacts:
        return AttackFacts(strength=75, names_candidates=True)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        return Cost(games * rate.training)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Chooser:
        """Nothing to compute before the steps are known; nothing is random."""
        knowledge = accepted(self, knowledge)
        steps = PublishedSteps.of(knowledge, subtract_known=self.subtract_known)
        return Chooser(knowledge.net, steps, self.score)


class Chooser(NamedTuple):
    """A prepared PriorAware."""

    net: nn.Module
    steps: PublishedSteps
    score: Score

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        return choose(hints, weighed(hints, self.scores(release, candidates_in(hints))))

    def scores(self, release: Release, candidates: Records) -> Tensor:
        """(m, c) the score of each candidate, in nats."""
        return self.score(self.observed(release, candidates), self.steps.trainer)

    def observed(self, release: Release, candidates: Records) -> Iterator[Observed]:
        trainer, clip = self.steps.trainer, self.steps.trainer.clip
        tested = candidates.to(self.steps.known.x.dtype)  # (m, c, ...)
        parts: list[Observed] = []
        at_a_time = self.steps.models_at_a_time(self.net, tested)
        for models, params, secret_gradient, present, replaced in self.steps(release, at_a_time):
            records = tested.inputs[models], tested.y[models]
            with float32_products(trainer.tf32):
                along = slopes_along(self.steps.net, trainer.loss, params, secret_gradient, records)  # (m, c)
                (norms,) = self.steps.clipping.norms(self.steps.net, trainer.loss, params, Batch((), (records,)))
            factor = clip_factor(norms, clip)
            products, squares = factor * along, (factor * norms).square()
            if replaced is not None:  # g_z in the place of the mean of the others: their difference
                across = factor * slopes_along(self.steps.net, trainer.loss, params, replaced, records)
                products = products - _product(replaced, secret_gradient)
                squares = squares - 2 * across + _product(replaced, replaced)
            parts.append(Observed(products / clip**2, squares / clip**2, present))
            if models.stop >= len(tested):  # the last models of the step
                known = [part.present for part in parts if part.present is not None]
                yield Observed(
                    torch.cat([part.products for part in parts]),
                    torch.cat([part.squares for part in parts]),
                    torch.cat(known) if known else None,
                )
                parts = []


def _product(one: Params, other: Params) -> Tensor:
    """(m, 1) the inner product of stacked parameters."""
    products = [(value * other[name]).flatten(1).sum(1) for name, value in one.items()]
    return torch.stack(products).sum(0).unsqueeze(1)
