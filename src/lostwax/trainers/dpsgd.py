"""DP-SGD: clipped gradients, sampled batches, Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from lostwax import philox
from lostwax.fields import Range, above, at_least, between, expect
from lostwax.games import Cohort, Loss, LossFacts, Mechanism, Release, Step, Trainer, TrainerFacts
from lostwax.games.facts import loss_facts
from lostwax.inits import Numbers
from lostwax.losses import CrossEntropy
from lostwax.nets import trained_head
from lostwax.released import LastWeights
from lostwax.schedules import Constant
from lostwax.seeds import key
from lostwax.trainers.batches import DrawsBatches, Independent, Law, pool, together
from lostwax.trainers.clipping import Clipping, Ghost, PerRecord, Sample
from lostwax.trainers.descent import descend, velocity
from lostwax.trainers.stacked import Architecture, Batch, Params, shaped, shapes_of
from lostwax.trainers.stepwise import Stepwise, Trajectory, float32_products

MAX_GATHERED_RATE = 0.2  # up to which copying the sampled records is cheaper than computing with all of them


def sample(cohort: Cohort, drawn: Tensor | None, rate: float) -> Sample:
    """The sampled records: gathered if they are few, else all records with weight 0 for the others."""
    if drawn is None or rate > MAX_GATHERED_RATE:
        batch = together(cohort, slice(None), slice(None))
        if drawn is None:
            return Sample.whole(batch, len(cohort))
        counted = torch.split(drawn.to(cohort.own.inputs.dtype), [len(cohort.shared), cohort.secrets], dim=1)
        return Sample(batch, tuple(part for part in counted if part.shape[1]))
    slab, _ = computed(cohort, rate)
    model, record = drawn.nonzero(as_tuple=True)
    place = drawn.cumsum(1)[model, record] - 1
    slabs = 1 + int(place.max()) // slab if len(place) else 1
    positions = record.new_zeros(len(drawn), slabs * slab)  # padded with record 0, at weight 0
    positions[model, place] = record
    included = cohort.own.inputs.new_zeros(len(drawn), slabs * slab)
    included[model, place] = 1
    parts = tuple(map(pool(cohort), torch.split(positions, slab, dim=1)))
    return Sample(Batch((), parts), torch.split(included, slab, dim=1))


def computed(cohort: Cohort, rate: float) -> tuple[int, int]:
    """The number of records per model in one computation, and how many of them are not shared.

    Gathered records come in slabs of this size. A second slab is rare and adds zeros to models that do not need it, so
    that the other models of a tile do not change a model's bytes.
    """
    if rate > MAX_GATHERED_RATE:
        return cohort.records, cohort.secrets
    mean = rate * cohort.records
    few = min(int(mean + 4 * mean**0.5) + 1, cohort.records)
    return few, few


def gaussian_noise(like: Params, numbers: Numbers, *, seed: int) -> Iterator[Params]:
    """N(0, 1) noise per step in the shape of stacked parameters, by (seed, model, step, position), on every device."""
    first, p = next(iter(like.values())), sum(value[0].numel() for value in like.values())
    ours, models = key(seed, "noise"), torch.as_tensor(numbers, device=first.device)
    for step in count():
        yield shaped(philox.normal(ours, models, p, turn=step).to(first.dtype), shapes_of(like))


COARSE_GRID = 1e-3  # dp-accounting's discretisation: coarser is faster, and errs towards more noise
LARGE_EPSILON = 10.0  # above this epsilon, the grid grows with epsilon
PRECISION = 1e-4  # relative, of the noise multiplier


def noise_for(epsilon: float, delta: float, *, steps: int, sample_rate: float) -> float:
    """The smallest noise multiplier for T Poisson-sampled Gaussian steps (add-or-remove-one), rounded up."""
    for name, value, wanted, holds in (
        ("epsilon", epsilon, "finite and > 0", 0 < epsilon < math.inf),
        ("delta", delta, "in (0, 1)", 0 < delta < 1),
        ("steps", steps, ">= 1", steps >= 1),
        ("sample_rate", sample_rate, "in (0, 1]", 0 < sample_rate <= 1),
    ):
        if not holds:
            raise ValueError(f"DPSGD.for_epsilon: expected {name} {wanted}, got {value}.")
    drawn = -math.expm1(steps * math.log1p(-sample_rate)) if sample_rate < 1 else 1.0  # P(a record is ever sampled)
    if delta >= drawn:
        raise ValueError(
            f"DPSGD.for_epsilon: expected delta < {drawn:.3g}, the probability that a record is ever sampled, got "
            f"{delta}, which needs no noise at all. Use a smaller delta."
        )

    def enough(noise: float) -> bool:
        return _delta(noise, epsilon, steps, sample_rate) <= delta

    high = 1.0
    while not enough(high):
        high *= 2
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _delta(noise: float, epsilon: float, steps: int, sample_rate: float) -> float:
    """An upper bound on delta after T steps at this epsilon."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
    from dp_accounting.privacy_accountant import NeighboringRelation

    if sample_rate == 1:  # T full-batch steps equal one step with less noise: closed form
        return float(GaussianPrivacyLoss(noise / math.sqrt(steps)).get_delta_for_epsilon(epsilon))
    grid = COARSE_GRID * max(1.0, epsilon / LARGE_EPSILON)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=grid)
    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise))
    return float(accountant.compose(step, steps).get_delta(epsilon))


@final
@dataclass(frozen=True, kw_only=True)
class DPSGD(Stepwise):
    """Differentially private SGD (Abadi et al., arXiv 1607.00133).

    Each step samples every record with probability `sample_rate` and uses the gradient

        g_t = (sum over the sampled records of  g min(1, C / |g|)  +  C sigma N(0, I)) / (sample_rate n)

    with C = `clip` and sigma = `noise_multiplier`. It divides by the *expected* batch size, since the actual size
    depends on which records are present. A gradient that is not finite counts as 0. With `publish_steps` a release
    holds what the privacy accountant assumes the adversary to see: `release.steps()` recomputes the weights before
    every step, g_t, and which shared records were sampled.

    `batches`, a value of `lw.bounds` such as `BallsInBins(epochs)`, draws them in another way than by Poisson sampling.
    """

    lr: float = 0.1
    clip: float = 1.0
    noise_multiplier: float = 1.0
    steps: int = 100
    sample_rate: float = 1.0
    momentum: float = 0.0
    publish_steps: bool = True
    batches: DrawsBatches | None = field(default=None, metadata={"identity": "if set"})

    def _ranges(self) -> dict[str, Range]:
        noise = {"clip": above(0, infinite=True), "noise_multiplier": at_least(0), "steps": at_least(1)}
        return {**noise, "sample_rate": between(0, 1, "(]"), "momentum": between(0, 1, "[)")}

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self, "clip", "finite if there is noise", self.noise_multiplier == 0 or self.clip < math.inf)
        expect(self, "sample_rate", "left out if there are batches", self.batches is None or self.sample_rate == 1)
        self.law()

    def first_rounds(self, count: int) -> tuple[Self, int] | None:
        """Of `steps`, if each draws its records alike."""
        return None if self.batches else (replace(self, steps=count, schedule=Constant()), self.steps)

    @classmethod
    def for_epsilon(
        cls, epsilon: float, delta: float = 1e-5, *, steps: int = 100, sample_rate: float = 1.0, **fields: Any
    ) -> Self:
        """With the smallest noise for (epsilon, delta)-DP (add-or-remove-one); other fields as usual."""
        if fields.get("batches") is not None:
            raise ValueError("DPSGD.for_epsilon: it is for Poisson sampling. With batches, use lw.calibrate.")
        noise = noise_for(epsilon, delta, steps=steps, sample_rate=sample_rate)
        return cls(noise_multiplier=noise, steps=steps, sample_rate=sample_rate, **fields)

    def mechanism(self) -> Mechanism:
        """What the bound on every attack's success depends on."""
        mechanism = Mechanism(noise_multiplier=self.noise_multiplier, sample_rate=self.rate, steps=self.steps)
        return mechanism if self.batches is None else {**mechanism, "sampling": self.batches}

    def last_weights(self, net: nn.Module) -> LastWeights:
        """For `lw.bound(released=...)` if only the last weights of this net go out; a ValueError if nothing is proved.

        `facts` states it with `publish_steps=False`, where it is proved.
        """
        expect(self, "momentum", "0 for last_weights", self.momentum == 0)
        expect(self, "schedule", "Constant() for last_weights", self.schedule == Constant())
        expect(self, "batches", "left out for last_weights: state them in lw.bound", self.batches is None)
        return last_weights(
            net,
            lr=self.lr,
            clip=self.clip,
            weight_decay=self.weight_decay,
            loss=self.loss,
            largest_batch=1 / self.rate,
        )

    def law(self) -> Law:
        if self.batches is None:
            return Independent(self.sample_rate, self.steps)
        return self.batches.law(self.steps)

    @property
    def rate(self) -> float:
        """The share of the steps that a record is in, on average."""
        return self.sample_rate if self.batches is None else self.batches.share(self.steps)

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """The mechanism that bounds every attack, and whether steps are published."""
        noisy, private_start = self.noise_multiplier > 0, not self.public_start(net)
        deterministic = not noisy and self.rate == 1 and not private_start
        mechanism = self.mechanism() if noisy else None
        if mechanism is not None and not self.publish_steps:
            with suppress(ValueError):  # nothing is proved about them alone
                mechanism = {**mechanism, "released": self.last_weights(net)}
        stated = TrainerFacts(deterministic, private_start, False, self.steps, mechanism, self.publish_steps)
        return stated._replace(loss=self.loss, first_rounds=self.first_rounds)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        params = super().__call__(net, cohort, seed=seed).params
        return Release(params, (lambda: self.transcript(net, cohort, seed=seed)) if self.publish_steps else None)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        return velocity(params, self.momentum)

    def clipping(self, net: Architecture, record: Tensor) -> Clipping:
        """Ghost clipping if the net allows it, else per-record gradients."""
        return Ghost.of(net, record) or PerRecord()

    def _trajectory(self, net: Architecture, cohort: Cohort, seed: int) -> Trajectory:
        state = self._start(net, cohort, seed)
        law, rate = self.law(), self.rate
        expected = rate * cohort.records
        clipping = self.clipping(net, cohort.own.inputs.new_zeros(cohort.own.inputs.shape[2:]))
        noise = gaussian_noise(state.params, cohort.index, seed=seed)
        for number, drawn in enumerate(law.draws(cohort, seed=seed)):
            with float32_products(self.tf32):
                records = sample(cohort, drawn, rate)
                slope = clipping.total(net, self.loss, state.params, records, self.clip)
            if self.noise_multiplier > 0:
                added, scale = next(noise), self.clip * self.noise_multiplier
                slope = {name: torch.add(value, added[name], alpha=scale) for name, value in slope.items()}
            slope = {name: value.div_(expected) for name, value in slope.items()}
            # a copy: a slice would reveal whether the secrets were sampled
            known = None if drawn is None or law.hidden else drawn[:, : len(cohort.shared)].clone()
            published = Step(number, state.params, slope, known)
            lr = self.lr * self.schedule(number, self.steps)
            state = descend(state, slope, lr, self.momentum, self.weight_decay)
            yield published, state

    def _seen(self, cohort: Cohort) -> tuple[int, int]:
        return computed(cohort, self.rate)


def as_dpsgd(trainer: Trainer) -> DPSGD:
    """The trainer, as one that publishes noisy steps; a TypeError if it only says that it is one."""
    if not isinstance(trainer, DPSGD):
        kind = type(trainer).__name__
        raise TypeError(
            f"{kind}: its facts say publishes_steps=True, which takes a DPSGD. State publishes_steps=False."
        )
    return trainer


# What the last weights forget, read from the net, the loss and the settings of the optimiser.

PROBES = 256


def last_weights(
    net: nn.Module,
    *,
    lr: float,
    clip: float,
    weight_decay: float = 0.0,
    loss: Loss = CrossEntropy(),
    feature_norm: float | None = None,
    largest_batch: float = 1.0,
) -> LastWeights:
    """For `lw.bound(released=...)`, or a ValueError that says why nothing is proved about the last weights alone.

    The net is a linear layer, or one after layers that are not trained; its features have a norm of at most
    `feature_norm`, or that of an `lw.nets.ShortFeatures` before it. No record's gradient may be cut by `clip`, unless a
    cut one still belongs to a convex loss: that of one output, as cutting its slope gives a loss like Huber's, and a
    squared error. `largest_batch` is the size of the largest batch that may be drawn, over the expected size.
    """
    layer, norm = trained_head(net)
    norm = feature_norm if feature_norm is not None else norm
    if norm is None:
        raise ValueError(
            "last_weights: nothing bounds the features. Put lw.nets.ShortFeatures(norm) before the linear layer, or "
            "pass feature_norm if no record can have longer ones."
        )
    if not (norm >= 0 and largest_batch >= 1):
        raise ValueError(
            f"last_weights: expected feature_norm of at least 0 and largest_batch of at least 1, got {norm} and "
            f"{largest_batch}. The largest batch is no smaller than the expected one."
        )
    facts = loss_facts(loss, layer.out_features)
    if facts is None or facts.curvature is None:
        raise ValueError(f"last_weights: {loss} states no largest curvature. Use CrossEntropy, or a squared error.")
    if _exceeds(loss, facts, layer.out_features):
        raise ValueError(
            f"last_weights: {type(loss).__name__} is steeper or sharper than it states. Give it a facts() of its own."
        )
    length = math.hypot(norm, 0.0 if layer.bias is None else 1.0)
    longest = math.inf if facts.slope is None else facts.slope * length
    if not facts.shortened and clip < longest * (1 - 1e-12):
        raise ValueError(
            f"last_weights: clip={clip:g} cuts gradients of {type(loss).__name__}, which are up to {longest:.6g} long, "
            f"and cut ones belong to no convex loss. Use clip={math.ceil(longest * 1e6) / 1e6:g}, or shorter features."
        )
    if math.isinf(longest) and math.isinf(clip):
        raise ValueError(f"last_weights: gradients of {type(loss).__name__} are unbounded. Pass a finite clip.")
    smoothness = facts.curvature * length**2 * largest_batch * (1 + 1e-12) + weight_decay
    return LastWeights(lr=lr, smoothness=smoothness, convexity=weight_decay)


def _exceeds(loss: Loss, facts: LossFacts, outputs: int) -> bool:
    """Whether residuals contradict what is stated: a subclass may weigh classes, and inherit the statement."""
    draws = torch.Generator().manual_seed(0)
    z, step, y = torch.randn(3, PROBES, outputs, generator=draws, dtype=torch.float64)
    z, step = z * torch.logspace(-1, 1.5, PROBES).unsqueeze(1), step / 10
    if facts.classes is not None:
        y = torch.arange(PROBES) % facts.classes
    residual = loss.residual(z, y)
    change = loss.residual(z + step, y) - residual
    steepest, sharpest = residual.norm(dim=1).max(), (change.norm(dim=1) / step.norm(dim=1)).max()
    steep = facts.slope is not None and bool(steepest > facts.slope * (1 + 1e-9))
    bent = facts.curvature is not None and bool(sharpest > facts.curvature * (1 + 1e-9))
    return steep or bent or bool(((change * step).sum(1) < -1e-9).any())
