"""More records than the prior holds, for nets that train on a backbone's features."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from lostwax.attacks.reconn.augment import Affine, Augment
from lostwax.provenance import fingerprint
from lostwax.seeds import generator
from lostwax.types import Records
from lostwax.types.fields import at_least, check_fields

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

    @classmethod
    def examples(cls) -> tuple[Augmented, ...]:
        """Instances to test."""
        return cls(None), cls(nn.Flatten(), copies=2)
