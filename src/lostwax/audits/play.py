"""One way through an audit: games are played by an attack, its answer is judged, and the findings fill an `Audit`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from lostwax.audits.audit import Audit, Finding
from lostwax.audits.judging import Answer, Judging
from lostwax.games import Attack, Noted, Records
from lostwax.games.facts import attack_name
from lostwax.games.notes import as_notes
from lostwax.progress import progress
from lostwax.provenance import fingerprint, machine, versions


class Settings(NamedTuple):
    """The arguments of `lw.audit` that every kind of audit takes."""

    games: int | None = None  # None: all
    seed: int = 0
    threshold: float = 0.05
    max_minutes: float | None = None


class Played(NamedTuple):
    """What came of one attack."""

    answer: Answer
    finding: Finding


class Games(Protocol):
    """Games that an audit plays: the secrets are dealt, the releases made."""

    @property
    def judging(self) -> Judging:
        """How answers are judged."""

    def answer(self, attack: Attack) -> Answer:
        """Prepare the attack, and let it guess the secrets of all games."""


def play(games: Games, attack: Attack) -> Played:
    """All games by one attack: prepared, answered, checked, judged."""
    with progress(attack_name(attack)):
        answer = games.answer(attack)
    return judged(games.judging, answer)


def judged(judging: Judging, answer: Answer) -> Played:
    """One attack's answer to all games, checked and scored."""
    judging.check(answer)
    with progress("scores"):
        return Played(answer, judging.finding(answer))


def of_table(table: Records) -> dict[str, Any]:
    """The provenance of an audit of a fitted table."""
    return {
        "data": fingerprint(table.x, table.y.double()),
        "rows": len(table),
        "features": table.x.shape[1],
    }


def filled(
    judging: Judging,
    lines: Sequence[Played],
    *,
    numbers: Tensor,
    seed: int,
    truth: Records | None = None,
    population: int | None = None,
    provenance: dict[str, Any],
    notes: Iterable[Noted] = (),
    **more: Any,
) -> Audit:
    """The audit of games with these numbers (m,), the best line first; `more` are further fields of it.

    `population` is how many games there could have been; None: any number. `truth` are the secrets in the shape in
    which they are shown, where that is not how they are scored.
    """
    best, scoring = lines[0], judging.scoring
    scored = judging.truth(best.answer)
    each = len(scored) // len(numbers)
    baselines = judging.baselines(scored)
    return Audit(
        metric=scoring.headline.name,
        criterion=scoring.criterion.name,
        threshold=scoring.threshold,
        games=numbers.repeat_interleave(each).cpu().numpy(),
        groups=judging.groups(each),
        population=len(scored) if population is None else population,
        truth=scored if truth is None else truth,
        findings=tuple(line.finding for line in lines),
        baselines=baselines,
        oracle=list(baselines)[-1],
        oracle_percentiles=judging.oracle_percentiles(scored),
        provenance={"versions": versions(), "machine": machine(), "seed": seed, **provenance},
        notes=as_notes(notes),
        **more,
    )
