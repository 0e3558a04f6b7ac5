"""What an audit suggests: release, release with changes, or do not release.

Decided here and nowhere else, from the grade, the ceiling and the policy. The colour of the page follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from lostwax.audits.conclusion import most_advantage
from lostwax.audits.words import first_upper, leak, people, residual
from lostwax.grades import Grade

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
    residual: str  # the risk that remains
    policy: str | None  # its result in one sentence; None without a policy


def decide(audit: Audit, breaches: Sequence[str] | None = None) -> Decision:
    """`breaches` are the broken limits of a policy, in words: empty if all are kept, None if there is no policy."""
    keeps_policy = None if breaches is None else not breaches
    suggestion = _suggestion(audit, keeps_policy)
    policy = None if breaches is None else "The policy is kept."
    if breaches:
        limits = "1 limit" if len(breaches) == 1 else f"{len(breaches)} limits"
        policy = f"The policy is broken: {limits} not kept, or not shown to be kept."
    return Decision(
        suggestion,
        _reason(audit, suggestion, keeps_policy),
        people(audit),
        residual(audit),
        policy,
    )


def _suggestion(audit: Audit, keeps_policy: bool | None) -> Suggestion:
    """RELEASE takes a proof with a low ceiling, or a policy that is kept: finding nothing is not enough."""
    grade = audit.grade
    if keeps_policy is False or grade is Grade.UNDECIDED:
        return Suggestion.KEEP
    if keeps_policy:
        return Suggestion.CHANGE if grade.leaks else Suggestion.RELEASE
    if grade.severe or _hides_more(audit):
        return Suggestion.KEEP
    low = grade is Grade.LIMITED and most_advantage(audit) <= LOW
    return Suggestion.RELEASE if low else Suggestion.CHANGE


def _hides_more(audit: Audit) -> bool:
    """Whether a small leak was found, and what was not audited may hold a larger one."""
    bounded = audit.ceiling is not None and audit.ceiling.certified and _is_limited(audit)
    return audit.grade is Grade.BETTER_THAN_CHANCE and bool(audit.conclusion.open) and not bounded


def _reason(audit: Audit, suggestion: Suggestion, keeps_policy: bool | None) -> str:
    """Why, in one or two sentences."""
    grade = audit.grade
    if grade is Grade.UNDECIDED:
        return "The audit is undecided. Complete it before you decide."
    if keeps_policy is False and not grade.leaks:
        return "No leak was found, but the policy is not shown to be kept."
    if keeps_policy is None and _hides_more(audit):
        return (
            "The model reveals something about single records, and was audited only in part. Complete the audit before "
            "you decide."
        )
    if grade.leaks:
        words = leak(audit)
        return f"The policy is kept, but {words}" if keeps_policy else first_upper(words)
    if keeps_policy:
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


def _is_limited(audit: Audit) -> bool:
    """Does a ceiling, certified or not, leave attacks less than half of what guessing leaves to win?"""
    return most_advantage(audit) <= HIGH
