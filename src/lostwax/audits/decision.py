"""What an audit suggests: release, release with changes, or do not release, with the evidence for and against.

Decided here and nowhere else, from the grade, the ceiling and the policy. The colour of the page follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from lostwax.audits.conclusion import most_advantage
from lostwax.games import Sees
from lostwax.grades import Grade
from lostwax.numerals import SIGN, at_most, count, percent

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit

# of what guessing leaves to win, in this game and with two candidates: more asks for more noise
LOW = 0.25  # two candidates are told apart in 62.5 % of games: about epsilon 1 at delta = 1e-5
HIGH = 0.5  # more speaks against a release


class Suggestion(StrEnum):
    """What to do with the model, from best to worst."""

    RELEASE = "release"
    CHANGE = "release with changes"
    KEEP = "do not release"

    @property
    def tone(self) -> str:
        """The colour of the page."""
        return {Suggestion.RELEASE: "calm", Suggestion.CHANGE: "warning", Suggestion.KEEP: "alarm"}[self]


class Decision(NamedTuple):
    """A suggestion for the person who decides."""

    suggestion: Suggestion
    reason: str
    people: str  # what the grade means for the people in the data
    supports: tuple[str, ...]  # evidence for a release
    opposes: tuple[str, ...]  # evidence against it
    residual: str  # the risk that remains
    policy: str | None  # its result in one sentence; None without a policy


def decide(audit: Audit, breaches: Sequence[str] | None = None) -> Decision:
    """`breaches` are the broken limits of a policy, in words: empty if all are kept, None if there is no policy."""
    kept = None if breaches is None else not breaches
    suggestion = _suggestion(audit, kept)
    policy = None
    if breaches is not None:
        limits = "1 limit" if len(breaches) == 1 else f"{len(breaches)} limits"
        policy = "The policy is kept." if kept else f"The policy is broken: {limits} not kept, or not shown to be kept."
    return Decision(
        suggestion,
        _reason(audit, suggestion, kept),
        _people(audit),
        tuple(_supports(audit, kept)),
        tuple(_opposes(audit, breaches or ())),
        _residual(audit),
        policy,
    )


def _suggestion(audit: Audit, kept: bool | None) -> Suggestion:
    """RELEASE takes a proof with a low ceiling, or a policy that is kept: finding nothing is not enough."""
    grade = audit.grade
    if kept is False or grade is Grade.UNDECIDED:
        return Suggestion.KEEP
    if kept:
        return Suggestion.CHANGE if grade.leaks else Suggestion.RELEASE
    if grade.severe or _hides_more(audit):
        return Suggestion.KEEP
    low = grade is Grade.LIMITED and most_advantage(audit) <= LOW
    return Suggestion.RELEASE if low else Suggestion.CHANGE


def _hides_more(audit: Audit) -> bool:
    """Whether a small leak was found, and what was not audited may hold a larger one."""
    bounded = audit.ceiling is not None and audit.ceiling.certified and _is_limited(audit)
    return audit.grade is Grade.BETTER_THAN_CHANCE and bool(audit.conclusion.open) and not bounded


def _reason(audit: Audit, suggestion: Suggestion, kept: bool | None) -> str:
    """Why, in one or two sentences."""
    grade = audit.grade
    if grade is Grade.UNDECIDED:
        return "The audit is undecided. Complete it before you decide."
    if kept is False and not grade.leaks:
        return "No leak was found, but the policy is not shown to be kept."
    if kept is None and _hides_more(audit):
        return (
            "The model reveals something about single records, and was audited only in part. Complete the audit before "
            "you decide."
        )
    leak = {
        Grade.EXACT: f"whoever {_sees(audit)} can rebuild training records.",
        Grade.RECOGNISABLE: f"whoever {_sees(audit)} can recognise training records.",
        Grade.BETTER_THAN_CHANCE: "the model reveals something about single records. Reduce that first, and audit "
        "again.",
    }
    if audit.conclusion.by_target:
        leak[grade] = f"whoever {_sees(audit)} can read the target of training records."
    if grade.leaks:
        return f"The policy is kept, but {leak[grade]}" if kept else leak[grade][:1].upper() + leak[grade][1:]
    if kept:
        proof = "" if grade is Grade.LIMITED else " This is not a proof that the records are safe."
        return f"No leak was found and the policy is kept.{proof}"
    if grade is Grade.NOT_FOUND and audit.ceiling is not None:
        return (
            "No leak was found, but the noise in training is too little for a proof. Train with more, or state in a "
            "policy what you accept."
        )
    if grade is Grade.NOT_FOUND:
        return (
            "No leak was found, which is not a proof that the records are safe. First state what you accept (a "
            "policy), limit who gets the model, or train with differential privacy."
        )
    if suggestion is Suggestion.RELEASE:
        return "Differential privacy limits every attack, known or not."
    return (
        "Differential privacy limits every attack, but the limit is high. Train with more noise, or state in a policy "
        "that you accept it."
    )


def _sees(audit: Audit) -> str:
    """What the attacker of this audit gets to see."""
    return {
        Sees.PREDICTIONS: "sees the predictions",
        Sees.MODEL: "gets the model",
        Sees.PART: "gets the layers that are given out",
    }[audit.adversary.sees]


def _people(audit: Audit) -> str:
    """What it means for the people whose records were used."""
    grade, line = audit.grade, audit.conclusion.line
    if audit.conclusion.by_target:
        whose = "any person’s target" if line.targets == len(audit.games) else "the target of some people"
        return (
            f"The attacker of this audit can read {whose} from the model, the very value that it was made to predict. "
            "It is like publishing that column."
        )
    if grade is Grade.EXACT:
        share = line.rebuilt / len(audit.games)
        whose = "any person’s record" if share == 1 else f"the records of {'most' if share >= 0.5 else 'some'} people"
        what = "the data" if share == 1 else "these records"
        where = "predictions" if audit.adversary.sees is Sees.PREDICTIONS else "model"
        return f"The attacker of this audit can read {whose} from the {where}: it is like publishing {what}."
    if grade is Grade.LIMITED:
        limit = at_most(1.0 if audit.ceiling is None else audit.ceiling.upper)
        return f"Whatever the attack, a person’s record is found in at most {limit} of cases: a limit, not zero risk."
    if grade is Grade.RECOGNISABLE and (audit.chance is not None or audit.conclusion.by_membership):
        return "An attacker with a list of possible records finds out which of them was used, and so who took part."
    return {
        Grade.RECOGNISABLE: "An attacker gets a likeness of a person’s record: not every value, but enough to tell it "
        "from others.",
        Grade.BETTER_THAN_CHANCE: "An attacker learns something about a person, too little here to rebuild a record. "
        "Stronger attacks may learn more.",
        Grade.UNDECIDED: "Nothing is known: neither that the people in the data are protected, nor that they are not.",
        Grade.NOT_FOUND: "The attacks that were run learn no more about a person than guessing does. Other attacks "
        "may: people are not proven to be safe.",
    }[grade]


def _supports(audit: Audit, kept: bool | None) -> Iterator[str]:
    """Evidence for a release."""
    found = audit.conclusion
    if kept:
        yield "All limits of the policy are kept."
    if _is_limited(audit):
        yield found.sentences[-1]
    if found.grade.leaks:
        yield from _none_won(audit)
    elif found.grade is not Grade.UNDECIDED:
        yield from _evidence(audit)
        if audit.complete:
            yield "Every record of the model was tried."


def _opposes(audit: Audit, breaches: Sequence[str]) -> Iterator[str]:
    """Evidence against a release."""
    found = audit.conclusion
    yield from (f"Policy: {breach}" for breach in breaches)
    yield from found.open
    if found.grade.leaks:
        yield from (one for one in _evidence(audit) if one not in _none_won(audit))
    if audit.ceiling is not None and not _is_limited(audit):
        yield found.sentences[-1]
    if not found.grade.leaks and found.grade is not Grade.LIMITED:
        yield found.sentences[-1 if audit.ceiling is None else -2]  # not a proof
    if audit.ceiling is None and not found.grade.leaks:
        yield "There is no noise in training with a proven limit, so nothing bounds attacks that were not run."
    if not found.grade.leaks and len(audit.games) < audit.population:
        yield f"{count(len(audit.games))} of {count(audit.population)} records were tried, not all."
    if not found.grade.leaks and audit.kind == "this procedure":
        yield "Models trained for the audit were attacked, not the model to be released."


def _evidence(audit: Audit) -> tuple[str, ...]:
    """The sentences with the numbers of the attacks, without those on the ceiling and on proof."""
    found = audit.conclusion
    after = (audit.ceiling is not None) + (not found.grade.leaks and found.grade is not Grade.LIMITED)
    return found.sentences[: len(found.sentences) - after]


def _none_won(audit: Audit) -> tuple[str, ...]:
    """Sentences that no game was won, in an audit that finds a leak by another measure."""
    line, evidence = audit.conclusion.line, _evidence(audit)
    rebuilt = evidence[:1] if audit.chance is None and line.rebuilt == 0 else ()
    nearer = tuple(one for one in evidence if line.nearer == 0 and one.startswith("In 0 of "))
    found = (*rebuilt, *nearer)
    return found if len(found) < len(evidence) else ()


def _is_limited(audit: Audit) -> bool:
    """Does a ceiling, certified or not, leave attacks less than half of what guessing leaves to win?"""
    return most_advantage(audit) <= HIGH


def _residual(audit: Audit) -> str:
    """The risk that remains whatever is decided on this evidence."""
    grade = audit.grade
    if grade is Grade.UNDECIDED:
        return "Unknown, because this audit is undecided."
    if grade.leaks:
        return (
            "Released as it is, the model gives the attacker at least what was measured here; stronger attacks may get "
            "more. After a change, audit again: this report says nothing about the changed model."
        )
    if grade is Grade.LIMITED and audit.ceiling is not None:
        blind = f"{'at most ' if audit.ceiling.blind_at_most else ''}{percent(audit.ceiling.baseline)}"
        return (
            f"In the long run any attack may still succeed in up to {at_most(audit.ceiling.upper)} of cases, where "
            f"guessing succeeds in {blind}."
        )
    won, words = audit.conclusion.line.rebuilt, "Attacks that were not run, or are not known today, may succeed"
    if audit.complete:
        return f"{words}."
    high = percent(audit.interval(won)[1])
    return f"{words}; and with 95{SIGN} confidence the attacks that were run succeed for up to {high} of records."
