"""Rebuild a record from the published steps of DP-SGD by gradient descent (Hayes et al. 2023), with a prior or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.attacks.dp_steps.prior_aware import PublishedSteps, no_steps
from lostwax.fields import above, at_least, check_fields
from lostwax.games import AttackFacts, Guess, Hints, Knowledge, Records, Release
from lostwax.games.protocols import accepted
from lostwax.learning.coordinates import unsolvable
from lostwax.learning.costs import Cost, Rate, classes
from lostwax.progress import counted
from lostwax.seeds import generator
from lostwax.trainers.clipping import clip_factor
from lostwax.trainers.dpsgd import as_dpsgd
from lostwax.trainers.stacked import Params, record_gradients

LEAST_DEVIATION = 1e-3  # of the largest: directions that vary less are dropped


class NormalLaw(NamedTuple):
    """z = mean of its class + v directions, v ~ N(0, I): one covariance for all classes."""

    classes: Tensor  # (classes,) in increasing order
    means: Tensor  # (classes, u)
    directions: Tensor  # (r, u) principal components times their deviations

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> NormalLaw:
        """From records (n, ...) of classes (n,), in float64."""
        z = x.double().flatten(1)
        classes, place = torch.unique(y, return_inverse=True)
        count = torch.bincount(place).to(z).unsqueeze(1)
        means = z.new_zeros(len(classes), z.shape[1]).index_add(0, place, z) / count
        centred = z - means[place]
        variance, basis = torch.linalg.eigh(centred.mT @ centred / max(1, len(z) - len(classes)))  # the largest last
        deviation = variance.clamp_min(0).sqrt()
        varies = deviation > LEAST_DEVIATION * deviation[-1]
        directions = (deviation * basis)[:, varies].mT.flip(0)
        return cls(classes, means.to(x), directions.to(x))

    def __call__(self, v: Tensor, y: Tensor) -> Tensor:
        """(..., r) of classes (...) -> (..., u)."""
        return self.means[torch.searchsorted(self.classes, y)] + v @ self.directions


class Anywhere(NamedTuple):
    """No prior: any record v (m, starts, ...) within the range of the data (Hayes et al. 2023, Eq. 1)."""

    like: Tensor  # one record
    low: float
    high: float

    @property
    def unit(self) -> float:
        return self.high - self.low

    def start(self, draws: np.random.Generator, count: int) -> Tensor:
        """(count, ...) random starts: uniform noise."""
        return self.low + self.unit * torch.from_numpy(draws.random((count, *self.like.shape))).to(self.like)

    def records(self, v: Tensor, labels: Tensor) -> Tensor:
        """(m, starts, ...) the records of v, given labels: v itself."""
        return v

    def confine(self, v: Tensor) -> None:
        """Clamp v to its bounds, in place."""
        v.clamp_(self.low, self.high)

    def misfit(self, clipped: Tensor, rest: Tensor) -> Tensor:
        """Elementwise, of clipped gradients to the rest of a step, over C:  -<clip(g), gbar> + |clip(g) - gbar|_1."""
        return (clipped - rest).abs() - clipped * rest

    def of_steps(self, misfit: Tensor, absent_misfit: Tensor) -> Tensor:
        """(m, t, starts) per step, given its misfit without the secret, (m, t, 1): the secret is in every step."""
        return misfit

    def negative_log_prior(self, v: Tensor) -> Tensor:
        """(m, starts) in the units of the misfit: 0."""
        return v.new_zeros(v.shape[:2])

    def posterior_deviations(self, sensitivity: Tensor) -> Tensor:
        """Of v, given the squared sensitivity of clipped gradients to records, (m, starts): 0."""
        return torch.zeros_like(sensitivity).unsqueeze(2)

    def around(self, draws: np.random.Generator, v: Tensor, spread: Tensor, labels: Tensor, pairs: int) -> list[Tensor]:
        """Records (m, starts, ...) drawn around v, whose gradients set the clipping. None: each clips its own."""
        return []


class Likeliest(NamedTuple):
    """The likeliest record under the noise of DP-SGD and a normal prior."""

    law: NormalLaw
    like: Tensor  # one record
    low: float
    high: float
    noise: float  # sigma, on every number of a step
    rate: float = 1.0  # q, the probability that a step draws the secret

    @property
    def unit(self) -> float:
        """v is in deviations of the prior."""
        return 1.0

    def start(self, draws: np.random.Generator, count: int) -> Tensor:
        return torch.from_numpy(draws.random((count, len(self.law.directions)))).to(self.like) - 0.5

    def records(self, v: Tensor, labels: Tensor) -> Tensor:
        return self.law(v, labels).view(*labels.shape, *self.like.shape)

    def confine(self, v: Tensor) -> None:
        """v is unbounded."""

    def misfit(self, clipped: Tensor, rest: Tensor) -> Tensor:
        """sigma^2 times the negative log-likelihood of normal noise."""
        return (clipped - rest).square() / 2

    def of_steps(self, misfit: Tensor, absent_misfit: Tensor) -> Tensor:
        """The same for a mixture: - sigma^2 ln((1 - q) exp(-absent_misfit / sigma^2) + q exp(-misfit / sigma^2))."""
        if self.rate == 1:
            return misfit
        gain = (absent_misfit - misfit) / self.noise**2  # in nats, for the secret having been drawn
        missed = torch.full_like(gain, math.log1p(-self.rate))
        return absent_misfit - self.noise**2 * torch.logaddexp(missed, gain + math.log(self.rate))

    def negative_log_prior(self, v: Tensor) -> Tensor:
        """sigma^2 times - log p(v), v ~ N(0, I)."""
        return self.noise**2 * v.square().sum(2) / 2

    def posterior_deviations(self, sensitivity: Tensor) -> Tensor:
        """(m, starts, r) sigma / sqrt(sigma^2 + q sensitivity |d_i|^2), the same sensitivity in all directions d_i."""
        seen = self.rate * sensitivity.unsqueeze(2) * self.law.directions.square().sum(1)
        return self.noise / (self.noise**2 + seen).sqrt()

    def around(self, draws: np.random.Generator, v: Tensor, spread: Tensor, labels: Tensor, pairs: int) -> list[Tensor]:
        """z(v + s xi) and z(v - s xi), xi ~ N(0, I), not clamped: that would change their second moments."""
        numbers = torch.from_numpy(draws.standard_normal((pairs, 1, 1, v.shape[2]))).to(v)
        return [self.records(v + side * spread * draw, labels) for draw in numbers for side in (1, -1)]


Search = Anywhere | Likeliest

STEP_BYTES = {"cpu": 2 << 30, "cuda": 16 << 30}  # of published steps that are held at a time
TYPICAL_SHARE = 0.2  # of the iterations: clipping by draws of the prior, then by draws around the estimate
PAIRS = 8  # of draws for a mean clipping factor; one pair per iteration


class History(NamedTuple):
    """The published steps of some models."""

    params: Params  # (m, t, ...)  theta_t
    secret_gradient: Params  # (m, t, ...)  gbar_t, in units of the clipping norm
    absent_misfit: Tensor  # (m, t, 1)  each step's misfit without the secret, that of a gradient of 0
    factor: Tensor | None = None  # (m, t, starts) clipping factors; None: each gradient clips itself

    def at(self, steps: NDArray[np.int64]) -> History:
        params, secret_gradient = ({name: value[:, steps] for name, value in part.items()} for part in self[:2])
        factor = None if self.factor is None else self.factor[:, steps]
        return History(params, secret_gradient, self.absent_misfit[:, steps], factor)


class GradientInverter(NamedTuple):
    """A prepared GradientInversion."""

    attack: GradientInversion
    steps: PublishedSteps
    search: Search
    classes: Tensor  # (classes,)
    seed: int

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        device, hint = self.classes.device, None if hints is None else hints.labels
        if hint is not None and self.attack.prior:
            unknown = ~torch.isin(hint.to(device), self.classes).flatten(1).all(1)  # (m,)
            if unknown.any():
                raise ValueError(
                    f"GradientInversion: the hints give game {int(unknown.int().argmax())} a label that no known or "
                    "prior record has, so it has no mean. Add some to the prior, or use prior=False."
                )
        labels = self.classes.expand(len(release), -1) if hint is None else hint.to(device)  # (m, labels)
        labels = labels.repeat_interleave(self.attack.restarts, 1)  # (m, starts)
        parts = [self._rebuild(*part) for part in self._histories(release, labels)]
        x, y, confidence = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
        return Guess(Records(x.unsqueeze(1), y.unsqueeze(1)), confidence.unsqueeze(1))

    def _histories(self, release: Release, labels: Tensor) -> Iterator[tuple[History, Tensor]]:
        """The steps of as many models at a time as memory holds."""
        numbers = sum(value[0].numel() for value in release.params.values())
        at_once = self.attack.steps_at_a_time * labels.shape[1]  # gradients, and what their gradient needs
        bytes_per_model = 4 * numbers * (2 * self.steps.trainer.steps + 8 * at_once)
        at_a_time = max(1, STEP_BYTES["cpu" if labels.device.type == "cpu" else "cuda"] // bytes_per_model)
        for models in torch.split(torch.arange(len(labels)), at_a_time):
            seen = list(self.steps(release.chosen(models), at_a_time))
            names, unit = list(seen[0].secret_gradient), 1 / self.steps.trainer.clip
            params = {name: torch.stack([step.params[name] for step in seen], 1) for name in seen[0].params}
            gradients = [torch.stack([step.secret_gradient[name] for step in seen], 1).mul_(unit) for name in names]
            flat = [value.flatten(2) for value in gradients]  # (m, t, numbers)
            misfits = [self.search.misfit(torch.zeros_like(value), value).sum(2, keepdim=True) for value in flat]
            secret_gradient = dict(zip(names, gradients, strict=True))
            yield History(params, secret_gradient, torch.stack(misfits).sum(0)), labels[models]

    def _rebuild(self, history: History, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best of all starts: records (m, ...), labels (m,), and their lead over the next label, or no record."""
        search, attack = self.search, self.attack
        starts, draws, order = (
            generator(self.seed, "adversary", "inversion", what) for what in ("starts", "clipping", "order")
        )
        start = search.start(starts, labels.shape[1])
        v, full_spread = start.expand(*labels.shape, *start.shape[1:]).clone(), start.new_ones(1)
        typical = search.around(draws, torch.zeros_like(v), full_spread, labels, PAIRS)
        spread = search.posterior_deviations(self._sensitivity(typical, labels, history)) if typical else full_spread
        history = self._clipped_as(typical, labels, history)
        first = round(TYPICAL_SHARE * attack.iterations) if typical else 0

        def nearby(some: History, pairs: int = 1) -> History:
            return self._clipped_as(search.around(draws, v, spread, labels, pairs), labels, some)

        self._descend(v, labels, history, first, order)
        self._descend(v, labels, history, attack.iterations - first, order, nearby)
        x, history = search.records(v, labels), nearby(history, PAIRS)
        misfits = [self._misfit(x, labels, piece) for piece in self._some_steps(history)]  # (m, starts) each
        total = (torch.stack(misfits).sum(0) + search.negative_log_prior(v)).nan_to_num(math.inf, math.inf)
        of_label, turn = total.view(len(x), -1, attack.restarts).min(2)  # (m, labels)
        least, row = of_label.sort(dim=1)
        models, row = torch.arange(len(x), device=x.device), row[:, 0]
        best = row * attack.restarts + turn[models, row]
        runner_up = least[:, 1] if least.shape[1] > 1 else history.absent_misfit.sum((1, 2))
        return x[models, best].clamp(search.low, search.high), labels[models, best], runner_up - least[:, 0]

    def _descend(
        self,
        v: Tensor,
        labels: Tensor,
        history: History,
        iterations: int,
        order: np.random.Generator,
        clipping: Callable[[History], History] = lambda some: some,
    ) -> None:
        """Minimise by Adam, v in place."""
        steps, search = self.steps.trainer.steps, self.search

        def objective(v: Tensor, some: History, share: float) -> Tensor:
            return (self._misfit(search.records(v, labels), labels, some) + share * search.negative_log_prior(v)).sum()

        slope: Callable[..., Tensor] = torch.func.grad(objective)
        adam = torch.optim.Adam([v], lr=self.attack.lr * search.unit)
        fall = torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(1, iterations))
        for _ in counted(range(iterations), "gradient inversion: iterations", iterations):
            chosen = order.permutation(steps)[: self.attack.steps_at_a_time]
            v.grad = slope(v, clipping(history.at(chosen)), len(chosen) / steps).nan_to_num(0, 0, 0)
            adam.step()
            fall.step()
            search.confine(v)

    def _some_steps(self, history: History) -> Iterator[History]:
        every = np.arange(history.absent_misfit.shape[1])
        return (history.at(some) for some in np.split(every, every[:: self.attack.steps_at_a_time][1:]))

    def _misfit(self, x: Tensor, labels: Tensor, history: History) -> Tensor:
        """(m, starts) the misfit of records (m, starts, ...), summed over steps."""
        misfits = history.absent_misfit.new_zeros(1)
        for name, clipped in self._clipped(x, labels, history).items():
            published = history.secret_gradient[name].flatten(2).unsqueeze(2)  # (m, t, 1, numbers)
            misfits = misfits + self.search.misfit(clipped, published).sum(3)  # (m, t, starts)
        return self.search.of_steps(misfits, history.absent_misfit).sum(1)

    def _clipped(self, x: Tensor, labels: Tensor, history: History) -> Params:
        """(m, t, starts, numbers) gradients of records (m, starts, ...), in units of the clipping norm."""
        gradients, self_clipping = self._gradients(x, labels, history)
        factor = self_clipping if history.factor is None else history.factor.flatten(0, 1)
        flat = {name: factor.unsqueeze(2) * value.flatten(2) for name, value in gradients.items()}  # (m t, starts, ...)
        return {name: value.view(len(labels), -1, *value.shape[1:]) for name, value in flat.items()}

    def _gradients(self, x: Tensor, labels: Tensor, history: History) -> tuple[Params, Tensor]:
        """Gradients of records (m, starts, ...) at all steps, (m t, starts, ...), and factors that clip them to 1."""
        trainer, t = self.steps.trainer, history.absent_misfit.shape[1]
        flat = {name: value.flatten(0, 1) for name, value in history.params.items()}  # (m t, ...)
        records, y = (part.unsqueeze(1).expand(len(x), t, *part.shape[1:]).flatten(0, 1) for part in (x, labels))
        gradients = record_gradients(self.steps.net, trainer.loss, flat, (records, y))
        squares = torch.stack([value.flatten(2).square().sum(2) for value in gradients.values()]).sum(0)
        return gradients, clip_factor((squares + 1e-24).sqrt(), trainer.clip) / trainer.clip  # smooth where g = 0

    def _clipped_as(self, records: list[Tensor], labels: Tensor, history: History) -> History:
        """Clip by the mean length of the gradients of records (m, starts, ...); without records, as before.

        Not by the mean of 1 / |g|: if only g / |g| is observed, the expectation of g is g / |g| E|g|.
        """
        if not records:
            return history
        factors = []
        for piece in self._some_steps(history):
            lengths = [1 / self._gradients(x, labels, piece)[1] for x in records]  # max(C, |g|)
            factors.append(1 / torch.stack(lengths).mean(0).view(len(labels), -1, labels.shape[1]))
        return history._replace(factor=torch.cat(factors, 1))

    def _sensitivity(self, records: list[Tensor], labels: Tensor, history: History) -> Tensor:
        """(m, starts) sensitivity  sum_t |clip(g_t(a)) - clip(g_t(b))|^2 / |a - b|^2  over pairs of records a, b."""
        moved, distance = torch.zeros_like(labels, dtype=records[0].dtype), records[0].new_zeros(())
        for a, b in zip(records[::2], records[1::2], strict=True):
            distance = distance + (a - b).flatten(2).square().sum(2)
            for piece in self._some_steps(history):
                ours, theirs = (self._clipped(x, labels, piece) for x in (a, b))
                moved = moved + torch.stack([(ours[k] - theirs[k]).square().sum((1, 3)) for k in ours]).sum(0)
        return moved / distance.clamp_min(1e-24)


SLOPE_COST = 75  # records trained on in a step that take as long as the gradient of one record's misfit to that step


@dataclass(frozen=True, kw_only=True)
class GradientInversion:
    """Search for the record whose clipped gradients match the published steps less those of the known records.

    With a `prior`: the likeliest record under DP-SGD's noise and a normal law with class means and the covariance
    within classes of the known and prior records. In units of the clipping norm it minimises

        sum_t |c_t g_t(z) - gbar_t|^2 / 2 sigma^2 - ln p(z),  c_t = 1 / mean of max(C, |g_t|),

    where the mean is over draws of the prior for the first fifth of the iterations, then over draws of the posterior
    around z. (With c_t = 1 / |g_t(z)| the prior would shrink z.) If steps sample records (`sample_rate` q < 1), each
    step is a mixture (`Likeliest.of_steps`). Without a prior, for q = 1 only, within the range of the data (Hayes et
    al. 2023, Eq. 1), it minimises  sum_t -<clip(g_t(z)), gbar_t> + |clip(g_t(z)) - gbar_t|_1.

    Adam runs from `restarts` random starts, each of the `iterations` on some of the steps; the start of the least sum
    over all steps is the answer. Confidence is the lead over the next label, or over no record if the label is given
    (`Informed(known, label_known=True)`).
    """

    iterations: int = 1_000
    lr: float = 0.05
    restarts: int = 3
    steps_at_a_time: int = 20
    prior: bool = True

    def __post_init__(self) -> None:
        check_fields(self, iterations=at_least(1), lr=above(0), restarts=at_least(1), steps_at_a_time=at_least(1))

    def objection(self, knowledge: Knowledge) -> str | None:
        if (reason := no_steps(knowledge) or unsolvable(knowledge)) is not None:
            return reason
        if knowledge.prior.y.is_floating_point():
            return "it tries every label, and these are real numbers. Use RecoNN."
        mechanism = knowledge.facts.trainer.mechanism
        if not self.prior and mechanism is not None and mechanism["sample_rate"] < 1:
            return (
                "without a prior it assumes that the secret is in every step (Hayes et al. 2023, Eq. 1), but with "
                f"sample_rate={mechanism['sample_rate']:g} it is in some. Use GradientInversion(prior=True)."
            )
        if as_dpsgd(knowledge.trainer).law().hidden:
            return (
                "it needs to know which other records were drawn, and with batches of a fixed size that is not "
                "published. Use PriorAware."
            )
        return None

    def facts(self) -> AttackFacts:
        """It rebuilds the record, as no other attack on steps does."""
        return AttackFacts(strength=50)

    def cost(self, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
        mechanism, known = knowledge.facts.trainer.mechanism, knowledge.facts.known
        if mechanism is None or known is None:
            return Cost(math.inf)
        steps, sample_rate = mechanism["steps"], mechanism["sample_rate"]
        starts = self.restarts * (1 if knowledge.facts.given.labels else classes(knowledge))
        slopes = self.iterations * min(self.steps_at_a_time, steps) * starts
        trained = steps * sample_rate * (len(known) + 1)  # records, in all steps
        return Cost(games * (1 + SLOPE_COST * slopes / trained) * rate.training)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> GradientInverter:
        knowledge = accepted(self, knowledge)
        steps, prior = PublishedSteps.of(knowledge), knowledge.prior
        x = torch.cat([steps.known.x, prior.x.to(steps.known.x)])  # known and prior records
        y = torch.cat([steps.known.y, prior.y.to(steps.known.y)])
        low, high = float(x.min()), float(x.max())
        search: Search = Anywhere(x[0], low, high)
        if self.prior:
            noise, rate = steps.trainer.noise_multiplier, steps.trainer.rate
            search = Likeliest(NormalLaw.of(x, y), x[0], low, high, noise, rate)
        return GradientInverter(self, steps, search, torch.unique(y), seed)
