"""The verbs as protocols: what a trainer, a threat, an attack, a metric must do. Nothing here is inherited from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, Step
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

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """Every step of that training, one at a time."""

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
