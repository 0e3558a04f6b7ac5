"""Objections of attacks that look for what an informed adversary does not know."""

from __future__ import annotations

from lostwax.games import Informed, Knowledge


def not_informed(attack: str, work: str, knowledge: Knowledge) -> str | None:
    """The objection of an attack whose work takes all other records to a game where they are not known."""
    if isinstance(knowledge.threat, Informed):
        return None
    return (
        f"{attack} is not applicable: {work}, but the adversary is {type(knowledge.threat).__name__}. Use "
        "threat=Informed(known)."
    )


def several_secrets(attack: str, knowledge: Knowledge) -> str | None:
    """The objection of an attack that looks for one record to a game with more."""
    threat = knowledge.threat
    if not isinstance(threat, Informed) or threat.secrets == 1:
        return None
    return (
        f"{attack} is not applicable: it looks for one secret record, and every training set has {threat.secrets}. "
        "Use Newton, or Informed(known, secrets=1)."
    )
