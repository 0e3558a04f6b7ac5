"""What the page says to the person who decides: who attacks, how far the audit goes, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lostwax.audits.conclusion import Conclusion
from lostwax.audits.decision import Decision, decide
from lostwax.audits.text import Fact, facts
from lostwax.audits.words import first_upper, who
from lostwax.games import Sees, Topic
from lostwax.grades import Grade
from lostwax.numerals import count

if TYPE_CHECKING:
    from lostwax.audits import Audit


class AttackerInWords(NamedTuple):
    """Who attacks, in two sentences, and how far the audit goes."""

    has: str
    knows: str
    applies: tuple[str, ...]  # "This applies if ..."
    differs: tuple[str, ...]  # "It does not apply if ..."
    untested: tuple[str, ...]


class _Premise(NamedTuple):
    """What an attacker has, or knows, in words."""

    said: str
    applies: str
    differs: str


SEEN = {
    Sees.MODEL: _Premise(
        "The attacker has the model itself, with every number in its file.",
        "the model file or its weights are given out, or can be copied by people who must not see the data",
        "only predictions are given out: such an attacker sees less, but is not shown to learn nothing",
    ),
    Sees.PREDICTIONS: _Premise(
        "The attacker does not have the model file, but sees the model’s predictions.",
        "people can query the model, or get a list of its predictions",
        "the model file is given out too: then this audit is too mild",
    ),
    Sees.PART: _Premise(
        "The attacker sees a part of the model ({access}).",
        "this part of the model is given out, and no more",
        "more of the model is given out: then this audit is too mild",
    ),
}
INSIDER = _Premise(
    "They know every other {row} of the training data, and look for the one that is missing",
    "someone can know most other {row}s: a colleague, a source of the data, a partner who trained on a copy, or "
    "anyone, where most of it is public",
    "nobody can know most other {row}s: such an attacker knows less, but was not tested",
)
OUTSIDER = _Premise(
    "They know no {row} of the training data, only what such {row}s look like",
    "anyone may attack, without inside knowledge",
    "someone knows other {row}s of the training data: then this audit is too mild",
)
BETWEEN = _Premise(
    "What they know: {threat}",
    "someone can know this much",
    "someone knows more: then this audit is too mild",
)


def attacker(audit: Audit) -> AttackerInWords:
    """In the words of `audit.threat` where that is neither an insider nor an outsider."""
    adversary = audit.adversary
    knowledge = INSIDER if adversary.knows_all_others else OUTSIDER if adversary.knows_none else BETWEEN
    seen = _Premise(*(text.replace("{access}", adversary.access) for text in SEEN[adversary.sees]))
    known = _Premise(*(text.replace("{row}", adversary.unit).replace("{threat}", audit.threat) for text in knowledge))
    extras = ["its label"] if audit.labels_given and adversary.unit != "word" else []
    extras += ["a short list of records that it may be"] if audit.chance is not None else []
    also = f"; they are given {' and '.join(extras)}" if extras else ""
    return AttackerInWords(
        seen.said,
        f"{known.said}{also}.",
        (seen.applies, known.applies),
        (seen.differs, known.differs),
        tuple(_untested(audit)),
    )


def _untested(audit: Audit) -> Iterator[str]:
    """What this audit left open, and what no audit of this kind tests."""
    if len(audit.games) < audit.population:
        left = audit.population - len(audit.games)
        yield f"{count(left)} of {count(audit.population)} records: a sample was drawn at random."
    if audit.unanswered:
        yield f"What has no answer ({len(audit.unanswered)}, listed below)."
    if audit.left_out:
        yield f"Attacks that do not apply here ({len(audit.left_out)}, listed below)."
    if audit.kind == "this procedure":
        yield "The model that is to be released: models trained in the same way were attacked instead."
    yield from (f"{first_upper(who(rung.attacker))}." for rung in audit.attackers.rungs if rung.grade is None)
    if audit.chance is None and audit.membership is None:
        yield "Whether a known person’s record was used at all (membership), apart from rebuilding it."
    if not any(note.topic is Topic.ATTRIBUTE for note in audit.notes):
        yield "Guessing one hidden value of a person whose other values are known (attribute inference)."
    yield "Several models trained on the same records, and files beside the model: checkpoints, logs, explanations."
    yield "Attacks that are not known today."


class FirstScreen(NamedTuple):
    """The first screen."""

    conclusion: Conclusion
    decision: Decision
    facts: tuple[Fact, ...]
    advice: tuple[str, ...]

    @property
    def tone(self) -> str:
        """The colour of the page."""
        return self.decision.suggestion.tone


def answer(audit: Audit, breaches: Sequence[str] | None = None, measured: Sequence[str] = ()) -> FirstScreen:
    """The conclusion, the suggestion, its numbers, and advice.

    `breaches` are those of the policy, None without one. `measured` says what defences cost, where that was audited.
    """
    advice = _advice(audit, measured, has_policy=breaches is not None)
    return FirstScreen(audit.conclusion, decide(audit, breaches), facts(audit), tuple(advice))


def _advice(audit: Audit, measured: Sequence[str], *, has_policy: bool) -> Iterator[str]:
    grade, ceiling = audit.grade, audit.ceiling
    if grade.leaks:
        if ceiling is not None:
            yield "A ceiling holds for every attack: decide whether it is low enough, or add noise."
        if grade is Grade.RECOGNISABLE and audit.chance is None:
            yield "Look at the reconstructions below. Would the people in the records object to what they show?"
        if grade is Grade.BETTER_THAN_CHANCE:
            yield "Decide whether this leak is acceptable; stronger attacks may find more."
        yield from remedies(audit)
        yield "Train with differential privacy, which hides any one record. “What protects” below says how much noise."
        yield from measured
        at_optimum = audit.conclusion.line.name != audit.findings[0].name and audit.kind == "this model"
        if grade is Grade.EXACT and at_optimum:
            yield "Check that the audit was given the rows and sample weights that the model was fitted with."
        yield "Audit the protected model again before you release it."
        return
    if grade is Grade.UNDECIDED:
        if not audit.unanswered:
            yield "Run more games, with different secrets."
        elif audit.kind == "this model":
            yield "Audit the unanswered parts by other means, or release a model that can be audited as a whole."
        else:
            yield "Allow more minutes (max_minutes), or name the attack to run (attack)."
        yield "This is not an all-clear: nothing was shown either way."
    elif grade is Grade.NOT_FOUND:
        if not has_policy:
            yield "State what you accept in a policy, and write the report with it: lw.report(..., policy=...)."
        yield "Try stronger attacks, and attacks made for this kind of model."
        yield from dict.fromkeys(note.cure for note in audit.notes if note.cure)
        if ceiling is None:
            yield "Only differential privacy has a ceiling that holds for every attack; see “What protects”."
        else:
            yield "The ceiling for every attack is high: train with more noise; see “What protects”."
    else:
        yield "The ceiling holds for every attack: decide whether it is low enough, or add noise."
    yield from measured


def remedies(audit: Audit) -> tuple[str, ...]:
    """What would help against this leak in particular: this scaler, this file, predictions only, and what would not."""
    cures = [note.cure for note in audit.notes if note.cure]
    if audit.kind == "this model" and any(finding.stationarity is not None for finding in audit.findings):
        cures.append(
            "Do not give out exact predictions instead of the model: one more of them than it has columns gives away "
            "every weight of a linear model. Noise with a proven limit helps, and giving the model to fewer people."
        )
    elif audit.kind == "this model" or audit.adversary.sees is Sees.MODEL:
        cures.append(
            "Give out predictions only, and keep the model file. This hides less than it seems: audit it too "
            "(access=lw.access.Outputs() for a fitted model)."
        )
    return tuple(dict.fromkeys(cures))
