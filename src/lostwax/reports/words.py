"""The first screen of a report: the conclusion, the numbers behind it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lostwax.audits.conclusion import Conclusion, Line
from lostwax.grades import Grade
from lostwax.metrics.estimate import median_interval
from lostwax.numerals import SIGN, count, interval, number, percent

if TYPE_CHECKING:
    from lostwax.audits import Audit

TONES = {  # of the page
    Grade.EXACT: "alarm",
    Grade.RECOGNISABLE: "alarm",
    Grade.BETTER_THAN_CHANCE: "warning",
    Grade.UNDECIDED: "warning",
    Grade.NOT_FOUND: "calm",
    Grade.LIMITED: "calm",
}
NOISE = "Train with differential privacy, which hides any one record. “What protects” below says how much noise."


class Fact(NamedTuple):
    """A number for the first screen, its name, and a detail."""

    value: str
    name: str
    detail: str


class FirstScreen(NamedTuple):
    """The first screen."""

    tone: str
    conclusion: Conclusion
    facts: tuple[Fact, ...]
    advice: tuple[str, ...]


def answer(audit: Audit) -> FirstScreen:
    """The conclusion, its numbers, and advice."""
    found = audit.conclusion
    return FirstScreen(TONES[found.grade], found, _facts(audit), _advice(audit, found))


def _advice(audit: Audit, found: Conclusion) -> tuple[str, ...]:
    model = "this model’s weights" if audit.kind == "this model" else "the weights of models trained this way"
    keep_back = f"Do not release {model} if the training records are private."
    again = "Audit the protected model again before you release it."
    early = found.line.name != audit.findings[0].name and audit.kind == "this model"
    check = ("Check that the audit was given the rows and sample weights that the model was fitted with.",)
    advice = {
        Grade.EXACT: (keep_back, *(check if early else ()), NOISE, again),
        Grade.RECOGNISABLE: (
            "Look at the reconstructions below. Would the people in the records object to what they show?",
            keep_back,
            NOISE,
        ),
        Grade.BETTER_THAN_CHANCE: ("Decide whether this leak is acceptable; stronger attacks may find more.", NOISE),
        Grade.UNDECIDED: (_cure(audit), "This is not an all-clear: nothing was shown either way."),
        Grade.NOT_FOUND: (
            "Try stronger attacks, and attacks made for this kind of model.",
            "Only differential privacy has a ceiling that holds for every attack; see “What protects”.",
        ),
        Grade.LIMITED: ("The ceiling holds for every attack: decide whether it is low enough, or add noise.",),
    }[found.grade]
    if found.grade.leaks and audit.ceiling is not None:
        return ("A ceiling holds for every attack: decide whether it is low enough, or add noise.", *advice)
    return advice


def _cure(audit: Audit) -> str:
    if not audit.unanswered:
        return "Run more games, with different secrets."
    if audit.kind == "this model":
        return "Audit the unanswered parts by other means, or release a model that can be audited as a whole."
    return "Allow more minutes (max_minutes), or name the attack to run (attack)."


def _facts(audit: Audit) -> tuple[Fact, ...]:
    line = audit.conclusion.line
    if audit.chance is not None:
        detail = f"{count(line.rebuilt)} of {count(len(audit.games))}{_sure(audit, line.rebuilt)}"
        guessing = Fact(f"{100 * audit.chance:.3g}{SIGN}", "by guessing", "naming the likeliest candidate")
        return Fact(_share(audit, line.rebuilt), "identified", detail), guessing
    return (*_rebuilt(audit, line), *_cells(audit, line), _nearer(audit, line), _typical(audit, line))


def _rebuilt(audit: Audit, line: Line) -> tuple[Fact, ...]:
    """The worst line, and the model as released if that is another line."""
    luck, games = audit.finding(line.name).luck, count(len(audit.games))
    chance = "" if luck is None else f"; luck alone gives at most about {percent(luck.rebuilt_by_luck)}"
    detail = f"{count(line.rebuilt)} of {games}{_sure(audit, line.rebuilt)}{chance}"
    released = audit.findings[0]
    if line.name == released.name or audit.kind == "this procedure":
        return (Fact(_share(audit, line.rebuilt), "rebuilt", detail),)
    won = int(released.rebuilt.sum())
    return (
        Fact(_share(audit, line.rebuilt), "rebuilt at the optimum", detail),
        Fact(_share(audit, won), "rebuilt as released", f"{count(won)} of {games}{_sure(audit, won)}"),
    )


def _cells(audit: Audit, line: Line) -> tuple[Fact, ...]:
    """How many cells are exact, where the audit tells of single cells."""
    cells = audit.finding(line.name).cells
    return () if cells is None else (Fact(percent(cells.exact_share), "of cells exact", str(cells)),)


def _nearer(audit: Audit, line: Line) -> Fact:
    luck = audit.finding(line.name).luck
    chance = "" if luck is None else f"; luck alone gives at most about {percent(luck.nearer_by_luck)}"
    detail = f"baselines: {' and '.join(audit.baselines)}{_sure(audit, line.nearer)}{chance}"
    return Fact(_share(audit, line.nearer), "closer than every baseline", detail)


def _typical(audit: Audit, line: Line) -> Fact:
    errors = audit.finding(line.name).errors[audit.criterion]
    oracle = number(float(np.median(audit.baselines[audit.oracle][audit.criterion])))
    between = None if audit.complete else median_interval(errors)
    sure = "" if between is None else f"95{SIGN} interval {number(between[0])} to {number(between[1])}; "
    detail = f"{sure}the {audit.oracle}: {oracle}; in feature standard deviations"
    return Fact(number(float(np.median(errors))), "median error", detail)


def _share(audit: Audit, won: int) -> str:
    return percent(won / len(audit.games))


def _sure(audit: Audit, won: int) -> str:
    return "" if audit.complete else f"; 95{SIGN} interval {interval(*audit.interval(won))}"
