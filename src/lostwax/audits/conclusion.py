"""The conclusion of an audit: one grade, decided here and nowhere else, with the evidence for it.

Print, page, file and gate read it and decide nothing themselves. Who can do it is a ladder: attackers sorted by what
they have, the weakest first. Whoever has all of a weaker attacker's means has at least its grade, and the weakest one
with the worst grade is the one whom the headline names.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import bdtrc, ndtr

from lostwax.audits.words import Words
from lostwax.games import Adversary, Attacker, Sees
from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson
from lostwax.numerals import percent

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit, Finding

LEVEL = 0.01  # at most this share of audits of pure noise is graded above chance, over all their lines and tests
FEW = 30  # independent games: fewer that find nothing leave the question open
LARGE = 0.5  # of what guessing leaves to win: more is the picture of a leak, a ceiling below it is a limit
FEW_RECORDS = 2  # of which an insider cannot miss several
MEMBERSHIP = "was this person in it?"  # the question, among the lines
DOUBTFUL = 0.05  # records that are rebuilt, and that luck gives with a smaller probability, leave the question open


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


class Line(NamedTuple):
    """What one line of an audit shows."""

    name: str
    grade: Grade  # a leak only where chance is ruled out, else NOT_FOUND
    rebuilt: int  # games won
    had: int  # ... in which the adversary has a record anyway that is as close
    nearer: int  # games with a guess nearer than every baseline, rebuilt or not
    doubt: float  # the probability that luck alone rebuilds as many or as closely
    targets: int = 0  # of the target that is read most often beyond guessing: games in which it is
    targets_guessed: int = 0  # ... and in which a guess from the other columns is right
    by_target: bool = False  # the grade is that of the target: the other columns alone have a lower one

    @property
    def badness(self) -> tuple[int, int, int]:
        """The larger, the worse."""
        return (self.grade.severity, self.rebuilt, self.nearer)


@dataclass(frozen=True)
class Conclusion:
    """One grade for the whole audit: that of its worst line, or of another attacker if that is worse."""

    grade: Grade
    line: Line
    ladder: Ladder  # every attacker, with the grade of each
    weakest: Rung | None  # who needs least for this grade; None: no leak was found
    open: tuple[str, ...]  # why it is undecided, or what else might be found
    by_membership: bool  # the grade is that of the question "was this person in it?", above that of the line
    words: Words = field(repr=False, compare=False)

    @property
    def headline(self) -> str:
        """What a manager reads."""
        if self.weakest is not None and self.weakest.attacker != self.words.audit.adversary:
            return self.words.of_other(self.weakest, self.ladder)
        return self.words.of_membership(self.grade) if self.by_membership else self.words.headline(self.grade)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The evidence: each share beside what chance gives, with its interval."""
        return tuple(self.words.evidence(self.grade))

    def __str__(self) -> str:
        return " ".join((self.headline, *self.sentences, *self.open))

    @property
    def by_target(self) -> bool:
        """Whether the grade is that of a target that can be read."""
        return self.grade.leaks and self.line.by_target and not self.by_membership and self.grade is self.line.grade


def conclude(audit: Audit) -> Conclusion:
    """The grade of the worst line, limited by a certified ceiling, or open where it cannot be decided."""
    lines, membership = _lines(audit)
    # of lines that are equally bad the first, which is the release as it is
    worst = max(lines, key=lambda line: (*line.badness, line.by_target * line.targets))
    grade = worst.grade
    if grade is Grade.RECOGNISABLE and audit.chance is not None and _is_limited(audit):
        grade = Grade.BETTER_THAN_CHANCE
    if membership is Grade.RECOGNISABLE and _is_limited(audit):
        membership = Grade.BETTER_THAN_CHANCE
    by_membership = membership.severity > grade.severity
    grade = membership if by_membership else grade
    reasons: tuple[str, ...] = ()
    if not (worst.grade is Grade.EXACT and worst.rebuilt == len(audit.games)):  # else there is no more to find
        too_little = () if grade.leaks else _too_little(audit, worst)
        reasons = (*(f"Not answered: {why}" for why in audit.unanswered), *too_little)
    if not grade.leaks:
        grade = Grade.LIMITED if _is_limited(audit) else Grade.UNDECIDED if reasons else Grade.NOT_FOUND
    played = Rung(audit.adversary, grade, audit.attack, worst.rebuilt, len(audit.games), games=_estimated(audit))
    rungs = (*audit.rungs, played)
    ladder = Ladder.of((*rungs, *untried(audit.adversary, rungs)))
    if (other := ladder.grade) is not None and other.leaks:
        by_membership &= other is grade
        grade = other
    weakest = ladder.weakest(grade) if grade.leaks else None
    attacks, by = 1 if audit.kind == "this model" else len(lines), None if weakest is None else weakest.attacker
    words = Words(audit, worst, lines[0], attacks, by)
    return Conclusion(grade, worst, ladder, weakest, reasons, by_membership, words)


def worst_lines(audit: Audit) -> set[str]:
    """Lines that are equally bad, of which versions choose differently."""
    lines, _ = _lines(audit)
    most = max(line.badness for line in lines)
    return {line.name for line in lines if line.badness == most}


def _estimated(audit: Audit) -> int:
    """How many independent games an estimate rests on; none where every record was tried."""
    return 0 if audit.complete else audit.victims


class _Test(NamedTuple):
    """What would be a leak, and the probability of seeing as much by chance."""

    subject: str  # the name of a line, or MEMBERSHIP
    of_target: bool
    grade: Grade
    chance: float


def _lines(audit: Audit) -> tuple[list[Line], Grade]:
    """Every line with its grade, and that of membership, by Holm's method.

    All tests of all lines together alarm on noise in a share LEVEL.
    """
    by_line = {finding.name: _tests(audit, finding) for finding in audit.findings}
    tests = [_Test(name, False, *test) for name, line_tests in by_line.items() for test in line_tests.items()]
    tests += [_Test(line.name, True, *test) for line in audit.findings for test in _target_tests(audit, line)]
    if audit.membership is not None:  # how many pairs are told apart, of which chance gives half
        large = audit.membership.share.low - 0.5 > LARGE * 0.5
        grade = Grade.RECOGNISABLE if large else Grade.BETTER_THAN_CHANCE
        tests.append(_Test(MEMBERSHIP, False, grade, audit.membership.chance))
    grades: defaultdict[tuple[str, bool], Grade] = defaultdict(lambda: Grade.NOT_FOUND)
    for place, test in enumerate(sorted(tests, key=lambda test: test.chance)):
        if test.chance > LEVEL / (len(tests) - place):
            break
        key = test.subject, test.of_target
        grades[key] = _worse(grades[key], test.grade)
    had = audit.had_anyway()

    def line(finding: Finding) -> Line:
        of_record, of_target = (grades[finding.name, of_target] for of_target in (False, True))
        chances, target = by_line[finding.name], finding.target
        return Line(
            finding.name,
            _worse(of_record, of_target),
            rebuilt=int(finding.rebuilt.sum()),
            had=int((finding.rebuilt & had).sum()),
            nearer=int(audit.beats_baselines(finding).sum()),
            doubt=chances.get(Grade.EXACT, 1.0) if audit.chance is None else min(chances.values()),
            targets=0 if target is None else int(target.read[:, target.worst].sum()),
            targets_guessed=0 if target is None else int(target.guessed[:, target.worst].sum()),
            by_target=of_target.severity > of_record.severity,
        )

    return [line(finding) for finding in audit.findings], grades[MEMBERSHIP, False]


def _worse(first: Grade, second: Grade) -> Grade:
    return max(first, second, key=lambda grade: grade.severity)


def _tests(audit: Audit, finding: Finding) -> dict[Grade, float]:
    """What would be a leak, and the probability of seeing as much by chance."""
    if audit.chance is not None:
        _, group, size = np.unique(audit.victim_of_game, return_inverse=True, return_counts=True)
        won = float((finding.rebuilt / size[group]).sum())  # games of one victim count as one
        chance = audit.chance if audit.chance_by_victims is None else audit.chance_by_victims
        low = clopper_pearson(won, audit.victims)[0]
        grade = Grade.RECOGNISABLE if low - chance > LARGE * (1 - chance) else Grade.BETTER_THAN_CHANCE
        return {grade: _at_least(won, audit.victims, chance)}
    in_target = 0 if finding.target is None else int(finding.target.certain.sum())  # tested by itself
    luck, certain = finding.luck, finding.cells is not None and finding.cells.certified > in_target
    if luck is None:  # nothing to compare with: a record rebuilt is taken at face value
        rebuilt = 0.0 if (finding.rebuilt & ~audit.had_anyway()).any() else 1.0
        return {Grade.EXACT: rebuilt, **({Grade.BETTER_THAN_CHANCE: 0.0} if certain else {})}
    if (shares := luck.blind_tables or luck.other_rows) is not None:
        rebuilt, nearer, error = shares
        chances = {Grade.EXACT: rebuilt, Grade.RECOGNISABLE: nearer, Grade.BETTER_THAN_CHANCE: error}
        return chances | ({Grade.BETTER_THAN_CHANCE: 0.0} if certain else {})
    # the mean of as many shares that are 1/2 on average by chance, whose variance is at most 1/4
    farther = float(ndtr((0.5 - luck.farther) * 2 * math.sqrt(luck.games)))
    return {
        Grade.EXACT: min(
            1.0, 2 * min(_by_luck(luck.rebuilt_pairs, luck.rebuilt, luck.games, luck.rebuilt_by_luck), luck.closest)
        ),
        Grade.RECOGNISABLE: _by_luck(luck.nearer_pairs, luck.nearer, luck.games, luck.nearer_by_luck),
        Grade.BETTER_THAN_CHANCE: 0.0 if certain else farther,  # no other value explains a cell: luck has no part in it
    }


def _target_tests(audit: Audit, finding: Finding) -> Iterator[tuple[Grade, float]]:
    """For each target, what would be a leak, and the probability of as much by chance.

    A sign test of games in which it is read and a guess from the other columns is wrong, against the reverse: the guess
    knows all that the attack knows but the model, and the other columns of the row too.
    """
    if finding.target is None:
        return
    different = finding.target.different
    for read, guessed, certain in zip(*(part.T for part in finding.target[:3]), strict=True):
        beyond, short = (int((more & ~less)[different].sum()) for more, less in ((read, guessed), (guessed, read)))
        share, chance, games = float(read.mean()), float(guessed.mean()), int(different.sum())
        low = share if audit.complete else clopper_pearson(share * games, games)[0]
        grade = Grade.RECOGNISABLE if low - chance > LARGE * (1 - chance) else Grade.BETTER_THAN_CHANCE
        yield grade, 0.0 if (certain & ~guessed).any() else _at_least(beyond, beyond + short, 0.5)


def _by_luck(pairs: tuple[int, int] | None, won: float, trials: int, chance: float) -> float:
    """The probability of as many by chance: a sign test where each game has a pair, one with another release."""
    return _at_least(won, trials, chance) if pairs is None else _at_least(pairs[0], sum(pairs), 0.5)


def _at_least(won: float, trials: int, chance: float) -> float:
    """P[a binomial number of trials is at least `won`]."""
    wins = math.floor(won + 1e-9)
    return 1.0 if wins == 0 else float(bdtrc(wins - 1, trials, min(1.0, chance)))


def most_advantage(audit: Audit) -> float:
    """The share of what guessing leaves to win that any attack may reach: in this game, or with two candidates.

    The larger one: a game with more candidates has a lower ceiling, but training is no more private for it.
    """
    if audit.ceiling is None or audit.privacy is None:
        return 1.0
    return max(audit.ceiling.advantage, audit.privacy.membership.advantage)


def _is_limited(audit: Audit) -> bool:
    """Are both ceilings certified, and do they leave any attack less than half of what guessing leaves to win?"""
    if audit.ceiling is None or audit.privacy is None:
        return False
    return audit.ceiling.certified and audit.privacy.membership.certified and most_advantage(audit) <= LARGE


def _too_little(audit: Audit, worst: Line) -> Iterator[str]:
    """Why finding nothing does not show that nothing can be found."""
    if not audit.complete and audit.victims < FEW:
        games = "1 game is" if audit.victims == 1 else f"{audit.victims} independent games are"
        yield f"{games} too few to find nothing: run {FEW} or more."
    if audit.chance is not None:
        if audit.chance >= 1:
            yield "Guessing among the candidates is always right: give more of them."
        elif worst.doubt <= DOUBTFUL:
            yield (
                f"Guessing names as many candidates with a probability of {percent(worst.doubt)}: run more games to "
                "rule it out."
            )
        return
    infinite = max(int(np.isinf(finding.errors[audit.criterion]).sum()) for finding in audit.findings)
    if infinite:
        yield f"{infinite} of {len(audit.games)} guesses are not finite numbers, and show nothing."
    if worst.nearer and all(finding.luck is None for finding in audit.findings):
        yield "There are no other secrets to compare with chance: run more games with different secrets."
    for finding in audit.findings:
        if uncompared := _uncompared(audit, finding):
            yield (
                f"{uncompared} of the records rebuilt by {finding.name} could not be compared with chance: too few "
                "games are given the same."
            )
    if worst.doubt <= DOUBTFUL:
        yield (
            f"Luck alone rebuilds as many records with a probability of {percent(worst.doubt)}: run more games to "
            "rule it out."
        )


def _uncompared(audit: Audit, finding: Finding) -> int:
    """How many rebuilt records (not had anyway) luck may not have looked at: it compares some of the games."""
    if finding.luck is None or finding.luck.games >= audit.victims:
        return 0
    groups, had = audit.victim_of_game, audit.had_anyway()
    rebuilt, anyway = (len(np.unique(groups[won])) for won in (finding.rebuilt & ~had, finding.rebuilt & had))
    return max(0, rebuilt - max(0, int(finding.luck.rebuilt) - anyway))
