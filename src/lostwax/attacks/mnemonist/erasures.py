"""What a row that forgets the record is put back to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final, runtime_checkable

from torch import Tensor

from lostwax.defences import undefended
from lostwax.trainers.stepwise import Stepwise
from lostwax.types import Knowledge, Release


@runtime_checkable
class Erasure(Protocol):
    """A model that holds none of the secrets."""

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        """Why there is none for so many models of this game, as a sentence."""
        ...

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        """Its parameters, (...) each, in place of those of m models."""
        ...


@final
@dataclass(frozen=True)
class ToStart:
    """The values that training began with, as S4 has it. The row forgets the known records too, by far the most."""

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        """Where training begins somewhere else for each model, or nowhere."""
        trainer = undefended(knowledge.trainer)
        if not isinstance(trainer, Stepwise):
            return (
                "rows are put back to the values that training began with, but the trainer is "
                f"{type(trainer).__name__}, which begins nowhere. Use erase=ToMean()."
            )
        if not trainer.public_start(knowledge.net):
            return (
                "rows are put back to the values that training began with, but these are private. Use erase=ToMean(), "
                "or a public initialisation (init=LeCunNormal(seed=0))."
            )
        return None

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        """The public start."""
        trainer = undefended(knowledge.trainer)
        assert isinstance(trainer, Stepwise)  # else there was an objection
        return {name: value[0] for name, value in trainer.init(knowledge.net, [0], seed=0).items()}

    @classmethod
    def examples(cls) -> tuple[ToStart, ...]:
        """Instances to test."""
        return (cls(),)


@final
@dataclass(frozen=True)
class ToMean:
    """The mean of the models that are explained: the row forgets its own record alone.

    It stays where a reconstructor has seen rows. From the start it is as far as all the known records have moved it,
    many times what one record does, and an answer to that says little of the record.
    """

    def objection(self, knowledge: Knowledge, models: int) -> str | None:
        """Where the mean is a model's own."""
        if models < 2:
            return "rows are put back to the mean of all models explained, and there is one. Use erase=ToStart()."
        return None

    def __call__(self, knowledge: Knowledge, release: Release) -> dict[str, Tensor]:
        """The mean, in float64."""
        return {name: value.double().mean(0) for name, value in release.params.items()}

    @classmethod
    def examples(cls) -> tuple[ToMean, ...]:
        """Instances to test."""
        return (cls(),)
