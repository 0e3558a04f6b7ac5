"""What a reconstructor of heads is taught to lower: a number made of its guesses' errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from lostwax.types.fields import above, check_fields

FLOOR = 1e-4  # below it an error is as good as none, for images in [-1, 1]
EDGE = 0.3  # how soft a bar is, as a share of it
GAIN, PULL = 3.0, 0.3  # weights of what is beyond a bar, and of the logarithm, which draws in guesses far from it


@runtime_checkable
class Aim(Protocol):
    """From the errors of guesses, squared and in [-1, 1] where pixels have bounds, to a number."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """`error` (m, g) to the guess's own set; `chance` (m, g) to another set, of which the head tells nothing."""
        ...


@dataclass(frozen=True)
class MeanError:
    """The mean (S2)."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """A number."""
        return error.mean()

    @classmethod
    def examples(cls) -> tuple[MeanError, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class LogError:
    """The mean of logarithms: what counts is how many guesses come near, not how far off the others are."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """A number."""
        return (error + FLOOR).log().mean()

    @classmethod
    def examples(cls) -> tuple[LogError, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class BeatChance:
    """As many guesses nearer than a bar as possible, at a `price` for those that are as near to another set.

    Such a guess tells nothing of its own set. The two shares, with a soft edge, make the Lagrangian of Neyman and
    Pearson's problem, the most true positives for a rate of false ones, with one bar for all classes, as S2 has it:
    where chance comes near, as it does to ones of MNIST, a less likely picture is better, or none. The bar `within` is
    a mean squared error of pixels in [-1, 1] (of deviations, where records have no bounds). A part of LogError brings
    guesses to it.
    """

    within: float
    price: float = 4.0

    def __post_init__(self) -> None:
        check_fields(self, within=above(0), price=above(0))

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """A number."""
        near, by_chance = (((1 - wrong / self.within) / EDGE).sigmoid().mean() for wrong in (error, chance))
        return PULL * LogError()(error, chance) - GAIN * (near - self.price * by_chance)

    @classmethod
    def examples(cls) -> tuple[BeatChance, ...]:
        """Instances to test."""
        return (cls(within=0.05),)
