"""Who can do it: what every attacker of an audit reached, from the weakest to the strongest.

An audit plays its games against one adversary. What others reach who have less, or something else, are the rungs of a
ladder. An attacker succeeds wherever somebody succeeds who has no more than they have, so grades never fall on the way
up; the weakest attacker with the worst grade is the one whom the headline names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lostwax.games import Adversary, Attacker, Sees
from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson

FEW_RECORDS = 2  # of which an insider cannot miss several


@dataclass(frozen=True)
class Rung:
    """What one attacker reached, or why nothing was tried."""

    attacker: Adversary
    grade: Grade | None  # None: not tried
    attack: str = ""
    rebuilt: int = 0  # records ...
    tried: int = 0  # ... of these
    certified: int = 0  # rebuilt records of which the attacker knows that they are right
    cells: int = 0  # single values that are exact, where records are not
    games: int = 0  # independent ones, in which several records may be missing; 0: nothing is estimated
    worst_fitted: int = 0  # of the records that the model fits worst, tried beside those games: rebuilt
    reason: str = ""  # why it was not tried, or is undecided
    by_membership: bool = False  # the grade is that of the question "was this person in it?"; nothing was rebuilt

    @property
    def share(self) -> float:
        """Of the records that were tried, those that were rebuilt."""
        return self.rebuilt / max(1, self.tried)

    @property
    def leaks(self) -> bool:
        """True if this attacker found something."""
        return self.grade is not None and self.grade.leaks

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share, counted by games; the share itself where every record was tried."""
        return clopper_pearson(self.share * self.games, self.games) if self.games else (self.share, self.share)


def _severity(rung: Rung) -> int:
    return -1 if rung.grade is None else rung.grade.severity


@dataclass(frozen=True)
class Ladder:
    """Every attacker of an audit, the weakest first."""

    rungs: tuple[Rung, ...]

    @classmethod
    def of(cls, rungs: Iterable[Rung]) -> Ladder:
        """Sorted by what attackers have; who has more has the grade of who has less, if that is worse."""
        raised: list[Rung] = []
        for rung in sorted(rungs, key=lambda rung: rung.attacker.has):
            below = [weaker for weaker in raised if weaker.leaks and rung.attacker.has_all_of(weaker.attacker)]
            best = max((*below, rung), key=lambda weaker: (_severity(weaker), weaker is rung, weaker.share))
            raised.append(replace(best, attacker=rung.attacker) if not rung.tried else replace(rung, grade=best.grade))
        return cls(tuple(raised))

    @property
    def grade(self) -> Grade | None:
        """The worst."""
        return max(self.rungs, key=_severity).grade if self.rungs else None

    def weakest(self, grade: Grade) -> Rung | None:
        """The attacker who needs least for a leak of this grade, or a worse one."""
        return next(
            (rung for rung in self.rungs if rung.grade is not None and rung.grade.severity >= grade.severity), None
        )

    def of_kind(self, kind: Attacker) -> tuple[Rung, ...]:
        """The rungs of one kind of attacker."""
        return tuple(rung for rung in self.rungs if rung.attacker.kind is kind)

    @property
    def by_missing(self) -> dict[int, Rung]:
        """Number of records that the attacker does not know -> the rung: the curve of the knowledge margin."""
        of_file = (rung for rung in self.rungs if rung.tried and rung.attacker.files == 1)
        return {rung.attacker.missing: rung for rung in of_file if rung.attacker.missing is not None}

    @property
    def margin(self) -> int | None:
        """The knowledge margin: the most missing records with which some still come back; None: nothing was tried."""
        curve = self.by_missing
        some = (missing for missing, rung in curve.items() if rung.rebuilt or rung.worst_fitted)
        return max(some, default=0) if curve else None

    @property
    def fruitless(self) -> int | None:
        """The fewest missing records, above the margin, with which none came back; None: nobody tried so many."""
        return min((missing for missing in self.by_missing if missing > (self.margin or 0)), default=None)


def untried(adversary: Adversary, rungs: Iterable[Rung]) -> Iterator[Rung]:
    """Attackers of the usual kinds whom nobody played: all that is said of them is that."""
    if adversary.records is None:
        return

    def usual(attacker: Adversary) -> tuple[object, ...]:
        return attacker.kind, attacker.sees, attacker.files, attacker.missing == 1

    played = {usual(rung.attacker) for rung in rungs}
    insider = Adversary.insider(adversary.records, adversary.unit)
    stranger, caller = replace(insider, known=0), replace(insider, sees=Sees.PREDICTIONS)
    several = (
        [Adversary.insider(adversary.records, adversary.unit, missing=2)] if adversary.records > FEW_RECORDS else []
    )
    for attacker in (stranger, replace(stranger, public=True), *several, insider, caller):
        if usual(attacker) not in played:
            yield Rung(attacker, None)
