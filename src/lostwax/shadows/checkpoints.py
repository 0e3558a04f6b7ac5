"""Models on disk, chunk by chunk, so that an audit that was stopped continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

from torch import Tensor

from lostwax import files
from lostwax.fields import check_fields
from lostwax.games import Cohort, Engine, Game, Release
from lostwax.progress import progress
from lostwax.provenance import build
from lostwax.shadows.game import Local, other_build, released, task_spans
from lostwax.shadows.identity import identity, key


@final
@dataclass(frozen=True)
class Checkpoints:
    """Keep what an engine trains in files of a folder, each written at once: models in it are not trained again.

    A file is found by everything that determines its models, the versions of lostwax, torch and numpy included
    (docs/scaling.md); any number of processes may write to the folder. It holds weights, which give records away, and
    guesses: only its owner can read it. Delete it after the audit.
    """

    folder: str | Path
    engine: Engine = field(default_factory=Local)

    def __post_init__(self) -> None:
        check_fields(self)
        files.named("Checkpoints", self.folder)

    def __call__(self, game: Game, models: int) -> Iterator[tuple[Cohort, Release]]:
        """Train the missing ones of models 0 .. models - 1, then read all in order."""
        return self.parts(game, task_spans(game, models))

    def each(
        self, compute: Callable[[int], dict[str, Tensor]], numbers: Iterable[int]
    ) -> Iterator[tuple[int, dict[str, Tensor]]]:
        """By the engine; `kept_or_computed` keeps it."""
        return self.engine.each(compute, numbers)

    def state(self, words: Mapping[str, str]) -> KeptState:
        """The file of what these words determine."""
        return KeptState(Path(self.folder) / f"{key({**words, **build()})}.safetensors")

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The spans that are there, and the others as they are trained; then those that were there."""
        name, spans = _name(game), list(spans)
        with progress("models that are kept", sum(map(len, spans))) as advance:
            for cohort in self._filled(game, spans, name):
                advance(len(cohort))
        return (self._read(game, span, name) for span in spans)

    def _filled(self, game: Game, spans: Iterable[range], name: str) -> Iterator[Cohort]:
        """Train and write what is missing; each chunk that is there."""
        missing = []
        for span in spans:
            if self._path(name, span).is_file():
                yield game.deal(span)
            else:
                missing.append(span)
        for cohort, release in self.engine.parts(game, missing):
            if other_build(release) is not None:
                raise ValueError(
                    "Checkpoints: a worker has other versions, and its models would later be taken for models of these "
                    "versions. Install the same versions on all machines, or leave the checkpoints out."
                )
            first = int(cohort.index[0])
            path = self._path(name, range(first, first + len(cohort)))
            # safetensors sorts by name, and the order of parameters is that of `Release.flat`
            numbered = {f"{place} {part}": value for place, (part, value) in enumerate(release.params.items())}
            files.write_checked(path, numbered, source="Checkpoints")
            yield cohort

    def _read(self, game: Game, span: range, name: str) -> tuple[Cohort, Release]:
        cohort, path = game.deal(span), self._path(name, span)
        numbered = files.read_checked("Checkpoints", path, cure="Delete it, and its models are trained again.")
        inorder = sorted(numbered, key=lambda each: int(each.partition(" ")[0]))
        return cohort, released(game, cohort, {each.partition(" ")[2]: numbered[each] for each in inorder})

    def _path(self, name: str, span: range) -> Path:
        return Path(self.folder) / f"{name}-{span.start}-{span.stop}.safetensors"


class KeptState(NamedTuple):
    """A file for the result of a computation, or for how far it came."""

    path: Path

    def read(self, device: str = "cpu") -> dict[str, Tensor] | None:
        """What was written last; None if there is nothing yet."""
        if not self.path.is_file():
            return None
        return files.read_checked("Checkpoints", self.path, device, cure="Delete it, and it is computed again.")

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace it, at once."""
        files.write_checked(self.path, tensors, source="Checkpoints")


def kept_or_computed(
    engine: Engine,
    compute: Callable[[int], dict[str, Tensor]],
    numbers: Iterable[int],
    words: Callable[[int], Mapping[str, str] | None],
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """What `compute` gives for each number, on the engine's workers; read where `Checkpoints` kept it.

    `words` determine it; what has none is not kept.
    """
    keeping, states = keeper(engine), dict[int, KeptState | None]()
    for number in numbers:
        determined_by = None if keeping is None else words(number)
        state = None if keeping is None or determined_by is None else keeping.state(determined_by)
        if state is not None and (stored := state.read()) is not None:
            yield number, stored
        else:
            states[number] = state
    for number, tensors in engine.each(compute, states):
        if (state := states[number]) is not None:
            state.write(tensors)
        yield number, tensors


def _name(game: Game) -> str:
    """Of all files of a game, as this version of lostwax trains it."""
    return key({**identity(game), **build()})


def keeper(engine: Engine | None) -> Checkpoints | None:
    """The engine, if it keeps what is computed."""
    return engine if isinstance(engine, Checkpoints) else None
