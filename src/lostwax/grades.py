"""The grades of an audit, an ordered scale."""

from __future__ import annotations

from enum import StrEnum


class Grade(StrEnum):
    """How much of the training records the release reveals, from least to most."""

    LIMITED = "limited by proof"  # nothing was found, and certified ceilings bound every attack, in any game
    NOT_FOUND = "not found"  # by the attacks that were run
    UNDECIDED = "undecided"  # an applicable attack has no result, or too few games were run
    BETTER_THAN_CHANCE = "better than chance"  # guesses depend on the release
    RECOGNISABLE = "recognisable"  # closer than every baseline, or most candidates named
    EXACT = "exact"  # rebuilt

    @property
    def severity(self) -> int:
        """Position in this order, from 0."""
        return list(Grade).index(self)

    @property
    def leaks(self) -> bool:
        """True if an attack found something."""
        return self.severity > Grade.UNDECIDED.severity

    @property
    def severe(self) -> bool:
        """True if records can be rebuilt or recognised."""
        return self.severity >= Grade.RECOGNISABLE.severity
