"""The grades of an audit, an ordered scale."""

from __future__ import annotations

from enum import StrEnum


class Grade(StrEnum):
    """How much of the training records comes back, from least to most."""

    LIMITED = "limited by proof"  # nothing was found, and a certified ceiling bounds every attack
    NOT_FOUND = "not found"  # by what was tried
    UNDECIDED = "undecided"  # something that should have been tried has no answer, or too little was tried
    BETTER_THAN_CHANCE = "better than chance"  # guesses owe something to the release
    RECOGNISABLE = "recognisable"  # nearer than any guess made without it, or most candidates named
    EXACT = "exact"  # rebuilt

    @property
    def severity(self) -> int:
        """Its place in that order, from 0."""
        return list(Grade).index(self)

    @property
    def leaks(self) -> bool:
        """Was something found that the release gives away?"""
        return self.severity > Grade.UNDECIDED.severity
