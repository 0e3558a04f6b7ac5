"""The verbs as protocols: what a trainer, a threat, an attack, a metric must do. Nothing here is inherited from.

And one way to run any attack: whether it applies, on which device it computes, whether it answers as it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from lostwax.games.facts import attack_facts, attack_name, notes_of
from lostwax.games.notes import Noted
from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, with_records
from lostwax.games.records import Records


class Loss(Protocol):
    """A loss of a net's outputs (..., n, c) and the labels (..., n). Every method is elementwise over records."""

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record, (..., n)."""

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Its derivative d loss / d outputs, (..., n, c)."""

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """The label that gives this residual at these outputs: `residual` solved for y, (..., n)."""


@runtime_checkable
class Trainer(Protocol):
    """The victim's algorithm for m models: a seed in a field is public, what `seed` draws is private to each model."""

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort."""

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """How many models are computed at a time: chunks of whole tiles change no byte of a model."""


@runtime_checkable
class Threat(Protocol):
    """What the adversary knows. The auditor deals from the secret pool, the adversary from its prior.

    It may state `facts()`, name its `judge()`, and split a pool itself: `hold_out(pool, share, seed=...)`.
    """

    def deal(self, pool: Records, m: int, *, seed: int, start: int = 0) -> Cohort:
        """The training sets of models start .. start + m - 1."""

    def hints(self, cohort: Cohort, pool: Records, *, seed: int) -> Hints | None:
        """What the adversary is given about targets dealt from the pool, besides the release; `seed` is secret."""


@runtime_checkable
class Access(Protocol):
    """What of a release the adversary sees, as one row of numbers per model."""

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features)."""


class Game(NamedTuple):
    """Everything that determines a model, except its number."""

    net: nn.Module
    trainer: Trainer
    threat: Threat
    pool: Records
    seed: int

    def deal(self, numbers: range) -> Cohort:
        """The training sets of these models."""
        return self.threat.deal(self.pool, len(numbers), seed=self.seed, start=numbers.start)

    def tile(self) -> int:
        """How many models the trainer computes at a time; chunks of whole tiles give the same bytes."""
        return self.trainer.tile_size(self.net, self.deal(range(1)))


class Engine(Protocol):
    """Where models are trained. On one kind of device, all engines give the same bytes."""

    def __call__(self, game: Game, models: int) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1, in order, in chunks of the engine's choice."""

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The models of each span (whole tiles), in any order; spans are requested lazily."""

    def each(
        self, compute: Callable[[int], dict[str, Tensor]], numbers: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """What `compute`, which can be pickled, gives for each number, in any order."""


class Reconstructor(Protocol):
    """A prepared attack. What it should say in the audit is in its `notes`, if it has any."""

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        """Guess the secrets of every model in the release."""


@runtime_checkable
class Attack(Protocol):
    """A way to rebuild records. Fields are its settings. It may state `facts()` and predict its `cost` too."""

    def objection(self, knowledge: Knowledge) -> str | None:
        """Why it is not applicable, and what to do instead, as a clause without its name; None if it is."""

    def prepare(self, knowledge: Knowledge, *, seed: int) -> Reconstructor:
        """Do all the work that needs no release."""


@runtime_checkable
class Metric(Protocol):
    """A distance between guess and truth."""

    @property
    def name(self) -> str:
        """What it is called in an audit, with its unit."""

    @property
    def better(self) -> Literal["lower", "higher"]:
        """Which way is closer."""

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(..., features) twice -> (...)."""


def objection_to(attack: Any, knowledge: Knowledge) -> str | None:
    """Why the attack is not applicable, without its name, which attacks of version 0.2 write before; None if it is."""
    reason: str | None = attack.objection(knowledge)
    return None if reason is None else reason.removeprefix(f"{type(attack).__name__} is not applicable: ")


def refusal(attack: Attack, knowledge: Knowledge) -> str | None:
    """The same as a sentence."""
    reason = objection_to(attack, knowledge)
    return None if reason is None else f"{attack_name(attack)} is not applicable: {reason}"


def accepted(attack: Attack, knowledge: Knowledge) -> Knowledge:
    """The knowledge, with all records on the attack's device; raises where the attack is not applicable."""
    if (sentence := refusal(attack, knowledge)) is not None:
        raise ValueError(sentence)
    device = attack_facts(attack).device or knowledge.prior.x.device

    def moved(records: Records) -> Records:
        return records if str(records.x.device) == str(device) else records.to(device)

    return replace(knowledge, threat=with_records(knowledge.threat, moved), prior=moved(knowledge.prior))


class Prepared(NamedTuple):
    """A prepared attack, whose answers are checked."""

    attack: Attack
    reconstruct: Reconstructor

    @property
    def notes(self) -> tuple[Noted, ...]:
        return notes_of(self.reconstruct)

    def __call__(self, release: Release, hints: Hints | None = None) -> Guess:
        guess = self.reconstruct(release, hints)
        if not isinstance(guess, Guess):
            got = f"the function that {attack_name(self.attack)}.prepare returned gave {type(guess).__name__}"
            raise TypeError(f"audit: {got}. It must return lw.games.Guess(lw.Records(x, y), confidence).")
        return guess


def prepared(attack: Attack, knowledge: Knowledge, *, seed: int) -> Prepared:
    """The attack after all the work that needs no release."""
    reconstruct = attack.prepare(knowledge, seed=seed)
    if not callable(reconstruct):
        got = f"{attack_name(attack)}.prepare returned {type(reconstruct).__name__}"
        raise TypeError(f"audit: {got}. It must return a function of (release, hints).")
    return Prepared(attack, reconstruct)
