"""More records than the prior holds, for nets that train on a backbone's features."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lostwax.fields import above, at_least, check_fields
from lostwax.games import Records
from lostwax.learning.augment import Affine, Augment
from lostwax.provenance import fingerprint
from lostwax.seeds import generator

# What a reconstructor of heads is taught to lower: a number made of its guesses' errors.


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


@dataclass(frozen=True)
class LogError:
    """The mean of logarithms: what counts is how many guesses come near, not how far off the others are."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """A number."""
        return (error + FLOOR).log().mean()


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


ALIKE = 1e-2  # of a feature's size, by which two devices may differ


@dataclass(frozen=True, eq=False, repr=False)
class Augmented:
    """Every record `copies` times: once as it is, then made anew `by` small changes, and seen through the backbone.

    Computed once, before learning: a head needs its records' features, and a large backbone is too slow to run for
    every step. The copies stay in memory. `backbone=None` is for nets that train on x itself.
    """

    backbone: nn.Module | None
    by: Augment = field(default_factory=Affine)
    copies: int = 8

    def __post_init__(self) -> None:
        check_fields(self, copies=at_least(2))

    def objection(self, records: Records) -> str | None:
        """Why it cannot be done with such records, as a clause; None when it can."""
        if (clause := self.by.objection(Records(records.x, records.y))) is not None:
            return clause
        if (self.backbone is None) != (records.features is None):
            return (
                "its augment has a backbone, and the prior no features. Use Augmented(None, ...)"
                if records.features is None
                else "its augment has no backbone, and the net trains on features. Give it that of records.through"
            )
        if self.backbone is not None and records.features is not None:
            some = records[:8]
            made, given = Records(some.x, some.y).through(self.backbone).inputs, some.inputs
            if made.shape != given.shape or bool((made - given).abs().max() > ALIKE * given.abs().max()):
                return (
                    "its augment's backbone puts out other features than those of the prior. Give it the one that the "
                    "prior went through"
                )
        return None

    def __call__(self, records: Records, *, seed: int) -> Records:
        """(copies n, ...) those given, then copies of all of them, again and again."""
        count, parts = len(records), [records]
        plain = Records(records.x, records.y)
        for copy in range(1, self.copies):
            draws = int(generator(seed, "copies", copy).integers(2**63))
            made = self.by(plain, 2 * count, seed=draws)[count:]  # the first half are those given
            parts.append(made if self.backbone is None else made.through(self.backbone))
        features = [part.features for part in parts if part.features is not None]
        return Records(
            torch.cat([part.x for part in parts]),
            torch.cat([part.y for part in parts]),
            torch.cat(features) if features else None,
        )

    def __repr__(self) -> str:
        """By the backbone's fingerprint: whoever shares a checkpoint shares it."""
        return f"Augmented({self._backbone()}, by={self.by!r}, copies={self.copies})"

    def _backbone(self) -> str:
        if self.backbone is None:
            return "None"
        return f"{type(self.backbone).__name__} #{fingerprint(*self.backbone.state_dict().values())}"


NEIGHBOURS = (1, -1, 2, -2, 3, -3, 4, -4)  # so many places before a head are those that its guesses are held against


class Sought(NamedTuple):
    """The secrets by which each of g guesses is judged: those of its class, or all of the set."""

    places: Tensor  # (g, r) in the set; guesses for fewer than r have some twice ...
    counted: Tensor  # (g, r) ... that do not count

    @classmethod
    def of(cls, y: Tensor, classes: tuple[int, ...]) -> Sought:
        """From the labels (k,) of a set, and the class of each guess; one guess for all without."""
        groups = [(y == label).nonzero().flatten() for label in classes] or [torch.arange(len(y), device=y.device)]
        most = max(len(group) for group in groups)
        places = [torch.cat([group, group[:1].expand(most - len(group))]) for group in groups]
        counted = [torch.arange(most, device=y.device) < len(group) for group in groups]
        return cls(torch.stack(places), torch.stack(counted))

    def of_each(self, secrets: Tensor) -> Tensor:
        """(m, k, ...) -> (m, g, r, ...)."""
        return secrets[:, self.places]


def softmin(errors: Tensor, counted: Tensor, alpha: float) -> Tensor:
    """(m, g, r) -> (m, g): about the least of the errors, but one that all of them push (S2 Eq. 3).

    sum_i l_i exp(-alpha l_i) / sum_i exp(-alpha l_i)
    """
    shares = (-alpha * errors).masked_fill(~counted, -torch.inf).softmax(-1)
    return (shares * errors).sum(-1)


def of_others(wanted: Tensor) -> Tensor:
    """(m, g, r, ...) twice: for each guess those of another head, which are to it what any others are.

    It is the head before; where that has some of the very records that the guess is for, the nearest that has none.
    """
    heads, guesses = (torch.arange(size, device=wanted.device) for size in wanted.shape[:2])
    marks = wanted.flatten(3).double().view(torch.int64).sum(-1)  # (m, g, r) exact sums: equal records have equal ones
    others = torch.stack([heads.roll(places) for places in NEIGHBOURS], 1)  # (m, neighbours)
    apart = (marks[:, None, :, :, None] != marks[others].unsqueeze(3)).flatten(3).all(3)  # (m, neighbours, g)
    first = apart.int().argmax(1)  # (m, g), the head before where no neighbour will do
    return wanted[others.gather(1, first), guesses]


def nearest(errors: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, r) -> (m, g) twice: the least error, and its place among the r."""
    least, place = errors.masked_fill(~counted, torch.inf).min(-1)
    return least, place


def mean_errors(answers: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, ...) and (m, g, r, ...) -> mean squared and mean absolute errors, (m, g, r) each."""
    wrong = (answers.unsqueeze(2) - wanted).flatten(3)
    return wrong.square().mean(-1), wrong.abs().mean(-1)
