"""What the page says: the first screen, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lostwax.audits.conclusion import Conclusion
from lostwax.audits.decision import Decision, decide
from lostwax.audits.first_screen import Fact, facts
from lostwax.games import Sees
from lostwax.grades import Grade

if TYPE_CHECKING:
    from lostwax.audits import Audit

NOISE = "Train with differential privacy, which hides any one record. “What protects” below says how much noise."


class FirstScreen(NamedTuple):
    """The first screen."""

    tone: str
    conclusion: Conclusion
    decision: Decision
    facts: tuple[Fact, ...]
    advice: tuple[str, ...]


def answer(audit: Audit, breaches: Sequence[str] | None = None, measured: Sequence[str] = ()) -> FirstScreen:
    """The conclusion, the suggestion, its numbers, and advice.

    `breaches` are those of the policy, None without one. `measured` says what defences cost, where that was audited.
    """
    found, decision = audit.conclusion, decide(audit, breaches)
    return FirstScreen(
        decision.suggestion.tone, found, decision, facts(audit), _advice(audit, found, breaches, measured)
    )


def _advice(
    audit: Audit, found: Conclusion, breaches: Sequence[str] | None, measured: Sequence[str]
) -> tuple[str, ...]:
    again = "Audit the protected model again before you release it."
    early = found.line.name != audit.findings[0].name and audit.kind == "this model"
    check = ("Check that the audit was given the rows and sample weights that the model was fitted with.",)
    look = ("Look at the reconstructions below. Would the people in the records object to what they show?",)
    accept = ("State what you accept in a policy, and write the report with it: lw.report(..., policy=...).",)
    protect = (*remedies(audit), NOISE, *measured)
    advice: tuple[str, ...] = {
        Grade.EXACT: (*protect, *(check if early else ()), again),
        Grade.RECOGNISABLE: (*(look if audit.chance is None else ()), *protect, again),
        Grade.BETTER_THAN_CHANCE: (
            "Decide whether this leak is acceptable; stronger attacks may find more.",
            *protect,
            again,
        ),
        Grade.UNDECIDED: (_cure(audit), "This is not an all-clear: nothing was shown either way.", *measured),
        Grade.NOT_FOUND: (
            *(accept if breaches is None else ()),
            "Try stronger attacks, and attacks made for this kind of model.",
            "Only differential privacy has a ceiling that holds for every attack; see “What protects”."
            if audit.ceiling is None
            else "The ceiling for every attack is high: train with more noise; see “What protects”.",
            *measured,
        ),
        Grade.LIMITED: (
            "The ceiling holds for every attack: decide whether it is low enough, or add noise.",
            *measured,
        ),
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


def remedies(audit: Audit) -> tuple[str, ...]:
    """What would help against this leak in particular: this scaler, this file, predictions only, and what would not."""
    return tuple(dict.fromkeys(_remedies(audit)))


def _remedies(audit: Audit) -> Iterator[str]:
    for note in audit.notes:
        if note.cure:
            yield note.cure
    if audit.kind == "this model" and any(finding.stationarity is not None for finding in audit.findings):
        yield (
            "Do not give out exact predictions instead of the model: one more of them than it has columns gives away "
            "every weight of a linear model. Noise with a proven limit helps, and giving the model to fewer people."
        )
    elif audit.kind == "this model" or audit.adversary.sees is Sees.MODEL:
        yield (
            "Give out predictions only, and keep the model file. This hides less than it seems: audit it too "
            "(access=lw.access.Outputs() for a fitted model)."
        )
