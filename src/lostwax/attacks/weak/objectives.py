"""What a reconstructor of heads minimises, the errors that enter it, and augmented records."""

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

FLOOR = 1e-4  # errors below it make no difference, for images in [-1, 1]
EDGE = 0.3  # softness of a threshold, relative to it
GAIN, PULL = 3.0, 0.3  # weights of the shares below a threshold, and of the log error, which acts far from it
ALIKE = 1e-2  # relative difference of features between devices
NEIGHBOURS = (1, -1, 2, -2, 3, -3, 4, -4)  # offsets of the other heads that give a guess's chance error


@runtime_checkable
class Objective(Protocol):
    """From the errors of guesses (squared, with bounded pixels in [-1, 1]) to a loss."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        """`error` (m, g) is to the guess's own training set, `chance` (m, g) to an unrelated one."""


@dataclass(frozen=True)
class MeanError:
    """The mean (Maciazek and Allison 2025)."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        return error.mean()


@dataclass(frozen=True)
class LogError:
    """The mean log error, which rewards many close guesses rather than small errors of the others."""

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        return (error + FLOOR).log().mean()


@dataclass(frozen=True)
class BeatChance:
    """Maximise the share of guesses with an error below `within`, at a `price` for those as close to another set.

    The Lagrangian of the Neyman-Pearson problem, with one threshold for all classes (Maciazek and Allison 2025).
    `within` is a mean squared error of pixels in [-1, 1], or of deviations where records are unbounded. A share of
    LogError attracts guesses that are far from it.
    """

    within: float
    price: float = 4.0

    def __post_init__(self) -> None:
        check_fields(self, within=above(0), price=above(0))

    def __call__(self, error: Tensor, chance: Tensor) -> Tensor:
        near, by_chance = (((1 - wrong / self.within) / EDGE).sigmoid().mean() for wrong in (error, chance))
        return PULL * LogError()(error, chance) - GAIN * (near - self.price * by_chance)


@dataclass(frozen=True, eq=False, repr=False)
class Augmented:
    """Every record `copies` times: once unchanged, then changed `by` an augmentation, and passed through the backbone.

    Computed once before learning, and kept in memory. Use `backbone=None` for nets that train on x itself.
    """

    backbone: nn.Module | None
    by: Augment = field(default_factory=Affine)
    copies: int = 8

    def __post_init__(self) -> None:
        check_fields(self, copies=at_least(2))

    def objection(self, records: Records) -> str | None:
        """Why it does not apply to such records, as a clause; None if it does."""
        if (clause := self.by.objection(Records(records.x, records.y))) is not None:
            return clause
        if (self.backbone is None) != (records.features is None):
            return (
                "its augment has a backbone, but the prior has no features. Use Augmented(None, ...)."
                if records.features is None
                else "its augment has no backbone, but the net trains on features. Pass the one of records.through."
            )
        if self.backbone is not None and records.features is not None:
            few = records[:8]
            fresh, stored = Records(few.x, few.y).through(self.backbone).inputs, few.inputs
            if fresh.shape != stored.shape or bool((fresh - stored).abs().max() > ALIKE * stored.abs().max()):
                return (
                    "its augment's backbone gives other features than the prior has. Pass the one that computed the "
                    "prior's."
                )
        return None

    def __call__(self, records: Records, *, seed: int) -> Records:
        """(copies n, ...) the given records, then changed copies of all of them, repeatedly."""
        count, parts = len(records), [records]
        plain = Records(records.x, records.y)
        for copy in range(1, self.copies):
            draws = int(generator(seed, "copies", copy).integers(2**63))
            changed = self.by(plain, 2 * count, seed=draws)[count:]  # the first half is unchanged
            parts.append(changed if self.backbone is None else changed.through(self.backbone))
        return Records.together(parts)

    def __repr__(self) -> str:
        """With the backbone's fingerprint, by which checkpoints recognise it."""
        name = "None"
        if self.backbone is not None:
            name = f"{type(self.backbone).__name__} #{fingerprint(*self.backbone.state_dict().values())}"
        return f"Augmented({name}, by={self.by!r}, copies={self.copies})"


class GuessTargets(NamedTuple):
    """The secrets that each of g guesses is compared with: those of its class, or all of the set."""

    places: Tensor  # (g, r) in the set; repeated where there are fewer than r
    counted: Tensor  # (g, r) False for repetitions

    @classmethod
    def of(cls, y: Tensor, classes: tuple[int, ...]) -> GuessTargets:
        """From the labels (k,) of a set and the class of each guess; no classes: one guess of any class."""
        groups = [(y == label).nonzero().flatten() for label in classes] or [torch.arange(len(y), device=y.device)]
        most = max(len(group) for group in groups)
        places = [torch.cat([group, group[:1].expand(most - len(group))]) for group in groups]
        counted = [torch.arange(most, device=y.device) < len(group) for group in groups]
        return cls(torch.stack(places), torch.stack(counted))

    def of_each(self, secrets: Tensor) -> Tensor:
        """(m, k, ...) -> (m, g, r, ...)."""
        return secrets[:, self.places]


def softmin(errors: Tensor, counted: Tensor, alpha: float) -> Tensor:
    """(m, g, r) -> (m, g): about the least error, with gradients to all (Maciazek and Allison 2025, Eq. 3).

    sum_i l_i exp(-alpha l_i) / sum_i exp(-alpha l_i)
    """
    shares = (-alpha * errors).masked_fill(~counted, -torch.inf).softmax(-1)
    return (shares * errors).sum(-1)


def of_other_heads(wanted: Tensor) -> Tensor:
    """(m, g, r, ...) -> the same shape: the targets of the head before, or the nearest that shares none."""
    heads, guesses = (torch.arange(size, device=wanted.device) for size in wanted.shape[:2])
    marks = wanted.flatten(3).double().view(torch.int64).sum(-1)  # (m, g, r) exact sums, equal for equal records
    others = torch.stack([heads.roll(places) for places in NEIGHBOURS], 1)  # (m, neighbours)
    disjoint = (marks[:, None, :, :, None] != marks[others].unsqueeze(3)).flatten(3).all(3)  # (m, neighbours, g)
    first = disjoint.int().argmax(1)  # (m, g), the head before if all share some
    return wanted[others.gather(1, first), guesses]


def nearest(errors: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, r) -> (m, g) twice: the least error, and its place among the r."""
    least, place = errors.masked_fill(~counted, torch.inf).min(-1)
    return least, place


def mean_errors(answers: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(m, g, ...) and (m, g, r, ...) -> mean squared and mean absolute errors, (m, g, r) each."""
    wrong = (answers.unsqueeze(2) - wanted).flatten(3)
    return wrong.square().mean(-1), wrong.abs().mean(-1)
