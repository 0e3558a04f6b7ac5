"""Rebuild a record from any model, by regression on shadow models in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from lostwax.attacks.kernel_ridge.reconstructor import Regressed
from lostwax.attacks.kernel_ridge.regression import Regression
from lostwax.attacks.kernel_ridge.witness import Witness
from lostwax.attacks.reconn.augment import Augment
from lostwax.attacks.reconn.shadow_table import ShadowTable
from lostwax.attacks.reconn.shadowed import FEWEST, accepted, shadow_objection, shadow_tables
from lostwax.decoders import Span
from lostwax.types import Knowledge
from lostwax.types.fields import at_least, between, check_fields


@dataclass(frozen=True, kw_only=True)
class KernelRidge:
    """Train shadow models on records of the prior, and read the record off a model by kernel ridge regression.

    What RecoNN learns by descent is solved here: one regression a class, from the model's likeness to each shadow model
    to the record. Kernel and ridge are those with the least error on records left out, known in closed form; the class
    is the one whose shadow models explain the model best, with the word of one more regression over all classes. On
    S1's smooth victims of ten neurons its errors are half those of a decoder network taught by twice the shadow models,
    and there is nothing to tune. It keeps all shadow models in memory, and its cost grows with the cube of their number
    a class.

    `shadows` models are trained, None for one a record of the prior; more than that need an `augment`. A share
    `validation` of the prior's records is kept from learning, for an error that nothing was chosen by. `device` and
    `store` are as for RecoNN.
    """

    shadows: int | None = None
    augment: Augment | None = None
    validation: float = 0.05
    device: str | None = None
    store: str | Path | None = None

    def __post_init__(self) -> None:
        check_fields(self, shadows=at_least(FEWEST), validation=between(0, 1, "()"))

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it cannot play this game."""
        return shadow_objection(self, knowledge)

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Regressed:
        """Train the shadows and solve. The seed decides everything; victims trained with it share no draw."""
        return self.learn(*shadow_tables(self, knowledge, seed))

    def learn(self, knowledge: Knowledge, shadows: ShadowTable, unseen: ShadowTable) -> Regressed:
        """The second half of `prepare`, from shadow models that were trained before, in other runs perhaps."""
        knowledge = accepted(self, knowledge)
        shadows, unseen = (
            table.checked(type(self).__name__).to(knowledge.prior.x.device) for table in (shadows, unseen)
        )
        span, y = Span.of(knowledge.prior.x), shadows.records.y
        answers = span.shares(shadows.records.x).flatten(1).double()  # (s, d)
        classes = number = witness = None
        if y.is_floating_point():
            number = Span.of_deviations(knowledge.prior.y)
            answers = torch.cat([answers, number.shares(y).reshape(len(y), -1).double()], 1)
            rows = [torch.arange(len(y), device=y.device)]
        else:
            classes = y.bincount().nonzero()[:, 0]
            rows = [(y == label).nonzero()[:, 0] for label in classes]
        seen = shadows.seen  # in the victim's arithmetic until it is at scale: a record may move its last digits alone
        regression = Regression.fit(seen, answers, rows, told=shadows.told, dtype=span.shift.dtype)
        if classes is not None and len(classes) > 1:
            witness = Witness.taught(regression, seen, torch.searchsorted(classes, y))
        found = Regressed(knowledge.net, knowledge.access, span, regression, classes, witness, number)
        missed = (found.read(unseen.seen)[0] - span.shares(unseen.records.x))[:, unseen.sought]
        return found._replace(validation_error=float(missed.square().mean()))

    @classmethod
    def examples(cls) -> tuple[KernelRidge, ...]:
        """Instances to test."""
        return cls(), cls(shadows=12, validation=0.2)
