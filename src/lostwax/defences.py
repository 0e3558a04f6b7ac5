"""Changes to a model before its release, without differential privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.fields import above, between, check_fields, expect
from lostwax.games import Cohort, DefenceFacts, Release, Trainer, TrainerFacts
from lostwax.games.facts import stated, trainer_facts
from lostwax.seeds import generator

__all__ = ["Defence", "Defended", "Quantised", "Rounded", "WeightNoise", "undefended"]


@runtime_checkable
class Defence(Protocol):
    """A change to a model between training and release, known to the adversary except for what `seed` draws.

    It may state `facts()`.
    """

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """Change the models with these numbers (m,); names, shapes and dtypes stay."""


def final_weights(defence: Defence, release: Release) -> Mapping[str, Tensor]:
    """The release's parameters; raises ValueError if training steps are published too."""
    if release.steps is not None:
        raise ValueError(
            f"{type(defence).__name__}: it changes only the final weights, but this release publishes the training "
            "steps too, which reveal them. Release the final weights only."
        )
    return release.params


@final
@dataclass(frozen=True)
class Rounded:
    """Weights rounded to 16-bit floats: `Rounded(torch.bfloat16)`; beyond float16's range (65,504) to infinity."""

    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        check_fields(self)
        expect(self, "dtype", "torch.float16 or torch.bfloat16", self.dtype in (torch.float16, torch.bfloat16))

    def facts(self) -> DefenceFacts:
        return DefenceFacts(random=False)

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        weights = final_weights(self, release)
        return Release({name: value.to(self.dtype).to(value.dtype) for name, value in weights.items()})


@final
@dataclass(frozen=True)
class Quantised:
    """Weights as `bits`-bit integers times a scale per tensor, symmetric: `Quantised(8)` is int8, from -127 to 127."""

    bits: int = 8

    def __post_init__(self) -> None:
        check_fields(self, bits=between(2, 16, "[]"))

    def facts(self) -> DefenceFacts:
        return DefenceFacts(random=False)

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        levels, quantised = 2 ** (self.bits - 1) - 1, {}
        for name, value in final_weights(self, release).items():
            weights = value.flatten(1)  # (m, size)
            largest = weights.abs().amax(1, keepdim=True)  # (m, 1), levels times the scale
            shares = weights / torch.where(largest == 0, 1, largest)  # in [-1, 1]
            quantised[name] = ((shares * levels).round() / levels * largest).view(value.shape)  # the largest stays
        return Release(quantised)


@final
@dataclass(frozen=True)
class WeightNoise:
    """Gaussian noise on every weight, `sigma` times the root mean square of its tensor; not differential privacy."""

    sigma: float

    def __post_init__(self) -> None:
        check_fields(self, sigma=above(0))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """New noise per model, from the seed and its number."""
        weights = final_weights(self, release)
        if len(numbers) != len(release):
            raise ValueError(f"WeightNoise: expected the numbers of {len(release)} models, got {len(numbers)} numbers.")
        noisy = {}
        for name, value in weights.items():
            exact = value.double().flatten(1)  # (m, size)
            draws = [generator(seed, "weight noise", each, name).standard_normal(exact.shape[1]) for each in numbers]
            noise = torch.from_numpy(np.stack(draws)).to(value.device)  # (m, size)
            size = exact.square().mean(1, keepdim=True).sqrt()  # (m, 1)
            # round the scale to float32, so that the order of summation does not change it
            exact = exact + self.sigma * size.float().double() * noise
            noisy[name] = exact.to(value.dtype).view(value.shape)
        return Release(noisy)


@final
@dataclass(frozen=True)
class Defended:
    """A trainer followed by a defence, as are its shadow models: `Defended(GD(...), by=Rounded(torch.float16))`."""

    trainer: Trainer
    by: Defence

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def defences(self) -> int:
        """The number of nested defences."""
        return 1 + (self.trainer.defences if isinstance(self.trainer, Defended) else 0)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        own_seed = int(generator(seed, "defence", self.defences).integers(2**63))
        return self.by(self.trainer(net, cohort, seed=seed), cohort.index.tolist(), seed=own_seed)

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """The trainer's facts, except for those that the defence changes. DP is closed under post-processing."""
        facts = trainer_facts(self.trainer, net, n)
        return facts._replace(
            deterministic=facts.deterministic and not stated(self.by, DefenceFacts()).random,
            differentiable=False,
            publishes_steps=False,
            objective=None,
            first_rounds=None,
            settled=None,
            where_it_tells=None,
            with_labels=None,
        )

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        return self.trainer.tile_size(net, cohort)


def undefended(trainer: Trainer) -> Trainer:
    """The trainer behind all defences."""
    return undefended(trainer.trainer) if isinstance(trainer, Defended) else trainer


def in_words(trainer: Trainer) -> str:
    """The name of a trainer, and what its models are defended by."""
    if isinstance(trainer, Defended):
        return f"{in_words(trainer.trainer)}, defended by {trainer.by!r}"
    return type(trainer).__name__
