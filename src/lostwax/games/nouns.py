"""Training sets, releases, knowledge, hints and guesses.

Axes, everywhere: m models (games), n records of a training set, k secret records, p parameters, t steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor, nn

from lostwax.games.facts import Facts, access_facts, threat_facts, trainer_facts
from lostwax.games.records import Records

if TYPE_CHECKING:
    from lostwax.games.protocols import Access, Engine, Threat, Trainer


@dataclass(frozen=True)
class Cohort:
    """m training sets that share known records: set i is `shared` followed by `own[i]`; a weak adversary knows none."""

    shared: Records  # (n - k, ...) known to the adversary
    own: Records  # (m, k, ...) the secrets
    index: Tensor  # (m,) the models' numbers: chunk 7 may hold models 1792..2047

    def __post_init__(self) -> None:
        m, k = self.own.x.shape[:2]
        if self.index.shape != (m,):
            raise ValueError(f"Cohort: expected one index per model, shape ({m},), got {tuple(self.index.shape)}.")
        if tuple(self.own.y.shape[:2]) != (m, k):
            raise ValueError(f"Cohort: expected own.y of shape ({m}, {k}, ...), got {tuple(self.own.y.shape)}.")
        if self.own.x.shape[2:] != self.shared.x.shape[1:]:
            ours, theirs = tuple(self.own.x.shape[2:]), tuple(self.shared.x.shape[1:])
            raise ValueError(f"Cohort: shared and own records differ in shape: {theirs} and {ours}.")

    def __len__(self) -> int:
        return int(self.own.x.shape[0])

    def __getitem__(self, models: Tensor | slice) -> Cohort:
        return Cohort(self.shared, self.own[models], self.index[models])

    @property
    def secrets(self) -> int:
        """k, the number of secret records per training set."""
        return int(self.own.x.shape[1])

    @property
    def records(self) -> int:
        """n, the number of records per training set."""
        return len(self.shared) + self.secrets


@dataclass(frozen=True)
class Step:
    """One training step of m stacked models: the parameters before it, and its gradient."""

    number: int
    params: Mapping[str, Tensor]  # (m, ...)
    gradient: Mapping[str, Tensor]  # (m, ...)
    sampled: Tensor | None = None  # (m, n - k) which shared records are in the batch, if published

    def __getitem__(self, models: slice | Tensor) -> Step:
        params, gradient = ({name: each[models] for name, each in of.items()} for of in (self.params, self.gradient))
        return Step(self.number, params, gradient, None if self.sampled is None else self.sampled[models])


@dataclass(frozen=True)
class Release:
    """What was published, m models stacked. It holds no secret: steps are sealed (`SealedSteps`)."""

    params: Mapping[str, Tensor]  # every value has a leading m axis
    steps: Callable[[], Iterator[Step]] | None = None  # if intermediate steps are published too (DP-SGD)

    def __post_init__(self) -> None:
        if self.steps is not None and not isinstance(self.steps, SealedSteps):
            object.__setattr__(self, "steps", SealedSteps(self.steps))

    @classmethod
    def together(cls, parts: Sequence[Release]) -> Release:
        """Concatenate releases; with steps if every part publishes them."""
        histories = [part.steps for part in parts if part.steps is not None]

        def steps() -> Iterator[Step]:
            for each in zip(*(history() for history in histories), strict=True):
                drawn = [step.sampled for step in each if step.sampled is not None]
                params, gradient = _join([step.params for step in each]), _join([step.gradient for step in each])
                yield Step(each[0].number, params, gradient, torch.cat(drawn) if drawn else None)

        return cls(_join([part.params for part in parts]), steps if len(histories) == len(parts) else None)

    def chosen(self, models: Tensor) -> Release:
        """The release of some of the models, with their steps if published."""
        history = self.steps

        def steps() -> Iterator[Step]:
            for step in history() if history is not None else ():
                yield step[models]

        params = {name: value[models.to(value.device)] for name, value in self.params.items()}
        return Release(params, None if history is None else steps)

    def __len__(self) -> int:
        return int(next(iter(self.params.values())).shape[0])

    def __getitem__(self, model: int) -> dict[str, Tensor]:
        """One model's parameters, ready for `net.load_state_dict(..., strict=False)`."""
        return {name: value[model] for name, value in self.params.items()}

    def flat(self) -> Tensor:
        return torch.cat([value.flatten(1) for value in self.params.values()], 1)  # (m, p)


@dataclass(frozen=True)
class Knowledge:
    """Everything an attack may use before it sees the release. It holds no secret and no release.

    Known and prior records that are slices of a larger tensor, which leads to the secrets (`x._base`), are copied.
    """

    net: nn.Module
    trainer: Trainer
    threat: Threat
    access: Access
    prior: Records
    engine: Engine | None = None  # where the models that an attack asks for are trained; None: here

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", self.prior.apart())
        object.__setattr__(self, "threat", with_records(self.threat, Records.apart))

    @cached_property
    def facts(self) -> Facts:
        """What threat, trainer and access state about themselves."""
        known, secrets, given = threat_facts(self.threat)
        trainer = trainer_facts(self.trainer, self.net, secrets if known is None else len(known) + secrets)
        return Facts(known, secrets, given, trainer, access_facts(self.access))


def with_records(threat: Threat, change: Callable[[Records], Records]) -> Threat:
    """The threat with each field that holds records changed; one that is no dataclass stays as it is."""
    if not is_dataclass(threat) or isinstance(threat, type):
        return threat
    settings = {field.name: getattr(threat, field.name) for field in fields(threat) if field.init}
    before = {name: value for name, value in settings.items() if isinstance(value, Records)}
    after = {name: change(value) for name, value in before.items()}
    return replace(threat, **after) if any(after[name] is not before[name] for name in before) else threat


@dataclass(frozen=True)
class Hints:
    """What the adversary is given about its target besides the release."""

    labels: Tensor | None = None  # (m, k) if the label is known
    parts: Tensor | None = None  # (m, k, ...) the known features of a secret, nan for the others
    candidates: Records | None = None  # (m, c, ...) one of them is the secret: a discrete prior, or a membership pair
    chances: Tensor | None = None  # (m, c) the prior probability of each candidate, if they differ

    def __getitem__(self, games: Tensor | slice) -> Hints:
        return Hints(**{name: None if part is None else part[games] for name, part in vars(self).items()})


@dataclass(frozen=True)
class Guess:
    """An attack's answer to m games."""

    records: Records  # (m, k, ...)
    confidence: Tensor  # (m, k), higher is more certain; comparable within one attack
    alternatives: Records | None = None  # (m, c, ...) all records that fit the release equally well, likeliest first
    certified: Tensor | None = None  # (m, k) whether the attack verified the guess, without the truth
    undetermined: Tensor | None = None  # (m, k, ...) features that the release hardly determines: near the prior mean
    kept: Tensor | None = None  # (m, k, d) uint8, what the release tells of each feature, a `cells.Kept`; None: all


def _join(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    for part in parts:
        if differ := [name for name in {**parts[0], **part} if _shape(part, name) != _shape(parts[0], name)]:
            raise ValueError(
                f"Release: models differ in the shape of {differ[0]}, so that they cannot be compared. If training "
                "leaves a history or a part of the records in the net, remove it before the net is returned."
            )
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _shape(params: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(params[name].shape[1:]) if name in params else None


_sending: ContextVar[bool] = ContextVar("_sending", default=False)


@contextmanager
def sending() -> Iterator[None]:
    """Within it, what is sealed can be pickled: an engine sends it to its workers."""
    token = _sending.set(True)
    try:
        yield
    finally:
        _sending.reset(token)


def is_sent() -> bool:
    """Whether an engine sends what is being pickled to its workers."""
    return _sending.get()


# Published steps are recomputed from the training set on demand. The training set is kept here under a number, and the
# object that an attack gets holds only the number: none of its attributes, closures or frames leads to a record.
_numbers = count()
_histories: dict[int, Callable[[], Iterator[Step]]] = {}
_iterators: dict[int, Iterator[Step]] = {}


@final
class SealedSteps:
    """Calls `steps()` without giving access to its training set. Copies are the object itself; no pickling."""

    __slots__ = ("_number",)

    def __init__(self, steps: Callable[[], Iterator[Step]]) -> None:
        self._number = next(_numbers)
        _histories[self._number] = steps

    def __call__(self) -> Iterator[Step]:
        return _SealedIterator(_histories[self._number]())

    def __deepcopy__(self, memo: object) -> SealedSteps:
        return self

    __copy__ = __deepcopy__

    def __reduce__(self) -> str:
        raise TypeError(
            "release.steps: cannot be pickled, since it recomputes the steps from the training set. Keep "
            "list(release.steps()) or release.params instead."
        )

    def __del__(self) -> None:
        _histories.pop(self._number, None)


@final
class _SealedIterator(Iterator["Step"]):
    """One pass over the steps. The generator, whose frame holds the training set, is kept under a number too."""

    __slots__ = ("_number",)

    def __init__(self, steps: Iterator[Step]) -> None:
        self._number = next(_numbers)
        _iterators[self._number] = iter(steps)

    def __next__(self) -> Step:
        return next(_iterators[self._number])

    def __del__(self) -> None:
        _iterators.pop(self._number, None)
