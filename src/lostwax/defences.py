"""What an owner can do to a model before it is released, short of differential privacy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lostwax.fields import above, between, check_fields, expect
from lostwax.games import Cohort, Release, Step, Trainer, TrainerFacts
from lostwax.games.facts import trainer_facts
from lostwax.seeds import generator

__all__ = ["Defence", "Defended", "Quantised", "Rounded", "WeightNoise", "undefended"]


# What every defence can do.


@runtime_checkable
class Defence(Protocol):
    """A change to a model between training and release, as a value.

    Everybody knows which one it is. What `seed` draws is private, and belongs to the model's number alone.
    """

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """The same models, those of these numbers (m,), as they are published: names, shapes and dtypes are kept."""
        ...


def final_weights(defence: Defence, release: Release) -> Mapping[str, Tensor]:
    """The release's parameters, refused where they are not all that is published."""
    if release.steps is not None:
        raise ValueError(
            f"{type(defence).__name__}: it changes the weights that training ends with, but this release publishes "
            "the steps of training too, and they give those weights away. Release the final weights alone."
        )
    return release.params


# Weights in a narrower float.


@final
@dataclass(frozen=True)
class Rounded:
    """Every weight as a float of 16 bits, as models are often stored: `Rounded(torch.bfloat16)`.

    float16 keeps 11 binary digits, bfloat16 8. A weight beyond float16's range (65,504) becomes infinite, as in a file.
    """

    random: ClassVar[bool] = False
    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        check_fields(self)
        expect(self, "dtype", "torch.float16 or torch.bfloat16", self.dtype in (torch.float16, torch.bfloat16))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """Nothing is drawn."""
        weights = final_weights(self, release)
        return Release({name: value.to(self.dtype).to(value.dtype) for name, value in weights.items()})


# Weights as small whole numbers.


@final
@dataclass(frozen=True)
class Quantised:
    """Every weight as a whole number of `bits` bits, times a scale for each tensor: `Quantised(8)` is int8.

    Symmetric, the most common kind: the largest weight of a tensor, by its size, is +-127 times the scale.
    """

    random: ClassVar[bool] = False
    bits: int = 8

    def __post_init__(self) -> None:
        check_fields(self, bits=between(2, 16, "[]"))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """Nothing is drawn."""
        return Release({name: self._quantised(value) for name, value in final_weights(self, release).items()})

    def _quantised(self, value: Tensor) -> Tensor:
        levels = 2 ** (self.bits - 1) - 1
        weights = value.flatten(1)  # (m, size)
        largest = weights.abs().amax(1, keepdim=True)  # (m, 1), levels times the scale
        shares = weights / torch.where(largest == 0, 1, largest)  # in [-1, 1]
        quantised: Tensor = (shares * levels).round() / levels * largest  # the largest stays exactly as it was
        return quantised.view(value.shape)


# Noise on the weights.


@final
@dataclass(frozen=True)
class WeightNoise:
    """Gaussian noise on every weight, `sigma` times the root mean square of its tensor.

    No differential privacy follows from it: how far one record can move the weights is not bounded, and the noise's
    own size depends on the records.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_fields(self, sigma=above(0))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """A draw for each model, by the seed and its number."""
        weights = final_weights(self, release)
        if len(numbers) != len(release):
            raise ValueError(
                f"WeightNoise: expected the number of each of {len(release)} models, got {len(numbers)} numbers."
            )
        return Release({name: self._noisy(value, name, numbers, seed) for name, value in weights.items()})

    def _noisy(self, value: Tensor, name: str, numbers: Sequence[int], seed: int) -> Tensor:
        exact = value.double().flatten(1)  # (m, size)
        draws = [generator(seed, "weight noise", number, name).standard_normal(exact.shape[1]) for number in numbers]
        noise = torch.from_numpy(np.stack(draws)).to(value.device)  # (m, size)
        size = exact.square().mean(1, keepdim=True).sqrt()  # (m, 1)
        # its size in float32, so that the order in which a device adds changes no byte
        noisy: Tensor = exact + self.sigma * size.float().double() * noise
        return noisy.to(value.dtype).view(value.shape)


# A trainer whose models pass through a defence before anybody sees them.


@final
@dataclass(frozen=True)
class Defended:
    """Train, then change what is released: `Defended(GD(...), by=Rounded(torch.float16))`.

    A trainer itself, so the defence is known to the adversary like the rest of the procedure: shadow models pass
    through it too, and an attack learns from releases like the victim's. Defences follow each other as
    `Defended(Defended(GD(...), by=WeightNoise(0.01)), by=Quantised())`, each with randomness of its own.
    """

    trainer: Trainer
    by: Defence

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def defences(self) -> int:
        """How many follow each other."""
        return 1 + (self.trainer.defences if isinstance(self.trainer, Defended) else 0)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort, and defend each."""
        own_seed = int(generator(seed, "defence", self.defences).integers(2**63))
        return self.by(self.trainer(net, cohort, seed=seed), cohort.index.tolist(), seed=own_seed)

    def facts(self, net: nn.Module, n: int) -> TrainerFacts:
        """The trainer's own, except for what the defence takes away. DP is closed under post-processing."""
        deterministic = not getattr(self.by, "random", True)
        facts = trainer_facts(self.trainer, net, n)
        return facts._replace(
            deterministic=facts.deterministic and deterministic,
            differentiable=False,
            publishes_steps=False,
            objective=None,
        )

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """Every step of the training; the defence comes after the last."""
        return self.trainer.transcript(net, cohort, seed=seed)

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """The trainer's: a defence looks at one model at a time."""
        return self.trainer.tile_size(net, cohort)


def undefended(trainer: Trainer) -> Trainer:
    """The trainer behind all defences."""
    return undefended(trainer.trainer) if isinstance(trainer, Defended) else trainer


def in_words(trainer: Trainer) -> str:
    """The name of a trainer, and what its models are defended by."""
    if isinstance(trainer, Defended):
        return f"{in_words(trainer.trainer)}, defended by {trainer.by!r}"
    return type(trainer).__name__
