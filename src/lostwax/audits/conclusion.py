"""The conclusion of an audit: one grade, decided here and nowhere else, with the evidence for it.

Print, page, file and gate read it and decide nothing themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import bdtrc, ndtr

from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson
from lostwax.numerals import SIGN, at_most, count, interval, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lostwax.audits.audit import Audit, Finding
    from lostwax.audits.ceiling import Privacy
    from lostwax.bounds import Ceiling

LEVEL = 0.01  # at most this share of audits of pure noise is graded above chance, over all their lines and tests
FEW = 30  # independent games: fewer that find nothing leave the question open
LARGE = 0.5  # of what guessing leaves to win: more is the picture of a leak, a ceiling below it is a limit
DOUBTFUL = 0.05  # records that are rebuilt, and that luck gives with a smaller probability, leave the question open


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


class Conclusion(NamedTuple):
    """One grade for the whole audit: that of its worst line."""

    grade: Grade
    line: Line
    headline: str
    sentences: tuple[str, ...]  # the evidence: each share beside what chance gives, with its interval
    open: tuple[str, ...] = ()  # why it is undecided, or what else might be found
    by_membership: bool = False  # the grade is that of the question "was this person in it?", above that of the line

    def __str__(self) -> str:
        return " ".join((self.headline, *self.sentences, *self.open))

    @property
    def by_target(self) -> bool:
        """Whether the grade is that of a target that can be read."""
        return self.grade.leaks and self.line.by_target and not self.by_membership


def conclude(audit: Audit) -> Conclusion:
    """The grade of the worst line, limited by a certified ceiling, or open where it cannot be decided."""
    lines, membership = _lines(audit)
    # of lines that are equally bad the first, which is the release as it is
    worst = max(lines, key=lambda line: (line.grade.severity, line.rebuilt, line.nearer, line.by_target * line.targets))
    grade = worst.grade
    if grade is Grade.RECOGNISABLE and audit.chance is not None and _is_limited(audit):
        grade = Grade.BETTER_THAN_CHANCE
    if membership is Grade.RECOGNISABLE and _is_limited(audit):
        membership = Grade.BETTER_THAN_CHANCE
    by_membership = membership.severity > grade.severity
    grade = membership if by_membership else grade
    reasons = _open(audit, worst, grade)
    if not grade.leaks:
        grade = Grade.LIMITED if _is_limited(audit) else Grade.UNDECIDED if reasons else Grade.NOT_FOUND
    words = _Words(audit, worst, lines)
    headline = words.of_membership(grade) if by_membership else words.headline(grade)
    return Conclusion(grade, worst, headline, words.sentences(grade), reasons, by_membership)


def _lines(audit: Audit) -> tuple[list[Line], Grade]:
    """Every line with its grade, and that of membership, by Holm's method.

    All tests of all lines together alarm on noise in a share LEVEL.
    """
    by_line = [_tests(audit, finding) for finding in audit.findings]
    tests = [(number, False, *test) for number, found in enumerate(by_line) for test in found.items()]
    tests += [
        (number, True, *test) for number, line in enumerate(audit.findings) for test in _target_tests(audit, line)
    ]
    tests += [(len(by_line), False, *test) for test in _of_membership(audit).items()]
    tests.sort(key=lambda test: test[3])
    grades = {(number, target): Grade.NOT_FOUND for number in range(len(by_line) + 1) for target in (False, True)}
    for place, (number, target, grade, chance) in enumerate(tests):
        if chance > LEVEL / (len(tests) - place):
            break
        grades[number, target] = max(grades[number, target], grade, key=lambda one: one.severity)
    had = audit.had_anyway()
    lines = [
        Line(
            finding.name,
            max(grades[number, False], grades[number, True], key=lambda one: one.severity),
            rebuilt=int(finding.rebuilt.sum()),
            had=int((finding.rebuilt & had).sum()),
            nearer=int(audit.beats_baselines(finding).sum()),
            doubt=by_line[number].get(Grade.EXACT, 1.0) if audit.chance is None else min(by_line[number].values()),
            targets=0 if finding.target is None else int(finding.target.read[:, finding.target.worst].sum()),
            targets_guessed=0 if finding.target is None else int(finding.target.guessed[:, finding.target.worst].sum()),
            by_target=grades[number, True].severity > grades[number, False].severity,
        )
        for number, finding in enumerate(audit.findings)
    ]
    return lines, grades[len(by_line), False]


def _of_membership(audit: Audit) -> dict[Grade, float]:
    """The same for the question "was this person in it?": how many pairs are told apart, of which chance gives half."""
    if audit.membership is None:
        return {}
    large = audit.membership.share.low - 0.5 > LARGE * 0.5
    return {Grade.RECOGNISABLE if large else Grade.BETTER_THAN_CHANCE: audit.membership.chance}


def _tests(audit: Audit, finding: Finding) -> dict[Grade, float]:
    """What would be a leak, and the probability of seeing as much by chance."""
    if audit.chance is not None:
        won = _by_victims(audit, finding.rebuilt)
        chance = audit.chance if audit.chance_by_victims is None else audit.chance_by_victims
        low = clopper_pearson(won, audit.victims)[0]
        grade = Grade.RECOGNISABLE if low - chance > LARGE * (1 - chance) else Grade.BETTER_THAN_CHANCE
        return {grade: _at_least(won, audit.victims, chance)}
    in_target = 0 if finding.target is None else int(finding.target.certain.sum())  # tested by itself
    luck, certain = finding.luck, finding.cells is not None and finding.cells.certified > in_target
    if luck is None:  # nothing to compare with: a record rebuilt is taken at face value
        rebuilt = 0.0 if (finding.rebuilt & ~audit.had_anyway()).any() else 1.0
        return {Grade.EXACT: rebuilt, **({Grade.BETTER_THAN_CHANCE: 0.0} if certain else {})}
    if luck.blind_tables is not None:
        rebuilt, nearer, error = luck.blind_tables
        found = {Grade.EXACT: rebuilt, Grade.RECOGNISABLE: nearer, Grade.BETTER_THAN_CHANCE: error}
        return found | ({Grade.BETTER_THAN_CHANCE: 0.0} if certain else {})
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
    whole = math.floor(won + 1e-9)
    return 1.0 if whole == 0 else float(bdtrc(whole - 1, trials, min(1.0, chance)))


def _by_victims(audit: Audit, won: NDArray[np.bool_]) -> float:
    """Games won, where those of one group count as one: the sum of each group's share."""
    _, group, size = np.unique(
        audit.games if audit.groups is None else audit.groups, return_inverse=True, return_counts=True
    )
    return float((won / size[group]).sum())


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


def _open(audit: Audit, worst: Line, grade: Grade) -> tuple[str, ...]:
    """What stands in the way of an all-clear, each as a sentence; nothing once all records are rebuilt."""
    if worst.grade is Grade.EXACT and worst.rebuilt == len(audit.games):
        return ()
    reasons = [f"Not answered: {why}" for why in audit.unanswered]
    return (*reasons, *(() if grade.leaks else _too_little(audit, worst)))


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
    groups, had = audit.games if audit.groups is None else audit.groups, audit.had_anyway()
    rebuilt, anyway = (len(np.unique(groups[won])) for won in (finding.rebuilt & ~had, finding.rebuilt & had))
    return max(0, rebuilt - max(0, int(finding.luck.rebuilt) - anyway))


class _Words(NamedTuple):
    """The conclusion in plain words."""

    audit: Audit
    worst: Line
    lines: list[Line]

    def headline(self, grade: Grade) -> str:
        """What a manager reads."""
        audit, played = self.audit, len(self.audit.games)
        if grade is Grade.UNDECIDED:
            return "Undecided: this audit cannot tell whether records can be rebuilt."
        if grade is Grade.LIMITED:
            limit = at_most(1.0 if audit.ceiling is None else audit.ceiling.upper)
            return f"In the long run no attack succeeds in more than {limit} of games; none was seen to beat guessing."
        if audit.chance is not None:
            return {
                Grade.RECOGNISABLE: "Most secret records are picked out of the candidates.",
                Grade.BETTER_THAN_CHANCE: "Secrets are picked out of the candidates more often than by guessing.",
                Grade.NOT_FOUND: f"{self._tried()} picks the secret record no more often than guessing.",
            }[grade]
        if grade.leaks and self.worst.by_target:
            read, guessed = count(self.worst.targets), count(self.worst.targets_guessed)
            return (
                f"The target of {read} of {count(played)} {self._records()} can be read from {self._what()}"
                f"{self._where()}; a guess from the other columns gives {guessed}."
            )
        if grade is Grade.EXACT:
            share = self.worst.rebuilt / played
            which = "Every record tried" if share == 1 else "Most records" if share >= 0.5 else "Some records"
            which = "The record tried" if played == 1 else "One record" if self.worst.rebuilt == 1 else which
            return f"{which} can be rebuilt from {self._what()}{self._where()}."
        return {
            Grade.RECOGNISABLE: f"Records can be recognised in what is rebuilt from {self._what()}{self._where()}.",
            Grade.BETTER_THAN_CHANCE: f"Guesses from {self._what()} are better than chance.",
            Grade.NOT_FOUND: f"{self._tried()} rebuilds {self._nothing()}.",
        }[grade]

    def of_membership(self, grade: Grade) -> str:
        """What a manager reads where no record is rebuilt as well as people are recognised."""
        often = "" if grade is Grade.RECOGNISABLE else ", more often than by guessing"
        return f"Whether a person was in the training set can be told from {self._what()}{often}."

    def sentences(self, grade: Grade) -> tuple[str, ...]:
        """The evidence."""
        whole = [self._rebuilt(), *self._early(), *self._target(), *self._cells(), *self._nearer(), *self._membership()]
        parts = [self._named()] if self.audit.chance is not None else whole
        if not grade.leaks and grade is not Grade.LIMITED:
            parts.append(f"This is the result of {self._attacks()}, not a proof that no attack can.")
        if self.audit.ceiling is not None:
            parts.append(_under(self.audit.ceiling, self.audit.privacy))
        return tuple(parts)

    def _rebuilt(self) -> str:
        won, played = self.worst.rebuilt, len(self.audit.games)
        if played == 1:
            said = f"The one record tried {'comes' if won else 'does not come'} back{self._where()}"
        else:
            said = f"{_of(won, played)} records come back{self._where()}{self._share(won)}"
        if not won:
            return f"{said}."
        luck = self._finding().luck
        chance = "" if luck is None else f"; {by_luck(luck.rebuilt_by_luck)}"
        if not self.worst.had:
            return f"{said}{chance}."
        return f"{said}{chance}. For {count(self.worst.had)} of them the adversary has a record that is as close."

    def _early(self) -> tuple[str, ...]:
        """That the model as it is hides records which its optimum gives away."""
        released = self.lines[0]
        if not self._where() or self.worst.rebuilt <= released.rebuilt:
            return ()
        played = len(self.audit.games)
        return (
            f"As released, {_of(released.rebuilt, played).lower()} do{self._share(released.rebuilt)}: its weights are "
            "not at the optimum of these rows. The solver stopped early, which is luck, not a defence; or the model "
            "was fitted on other rows or weights; or noise was added, which the optimum leaves out.",
        )

    def _target(self) -> tuple[str, ...]:
        """How many targets come back, beside a guess without the model; nothing where that is as good."""
        read, guessed, target = self.worst.targets, self.worst.targets_guessed, self._finding().target
        if target is None or read <= guessed:
            return ()
        which = "" if target.read.shape[1] == 1 else f" (the worst of {target.read.shape[1]})"
        return (
            f"The target{which} comes back in {count(read)} of {count(len(target.read))} {self._records()}"
            f"{self._share(read)}; a guess from the other columns, without the model, is right in {count(guessed)}.",
        )

    def _cells(self) -> tuple[str, ...]:
        """How many cells are exact, and for how many of them this follows without any guess."""
        cells, played = self._finding().cells, len(self.audit.games)
        if cells is None or not cells.exact or self.worst.rebuilt == played:
            return ()
        share = percent(cells.exact_share)
        said = f"{count(cells.exact)} of {count(cells.total)} cells ({share}) come back exactly"
        if not cells.certified:
            return (f"{said}.",)
        certain = percent(cells.certified / max(1, cells.total))
        certain = "all of them" if cells.certified == cells.exact else f"{count(cells.certified)} of them ({certain})"
        return (f"{said}; for {certain} no other value agrees with the model.",)

    def _nearer(self) -> tuple[str, ...]:
        """How many guesses are nearer than all that can be had without the model, and what luck gives."""
        finding, played = self._finding(), len(self.audit.games)
        if self.worst.rebuilt == played:
            return ()
        said = (
            f"In {count(self.worst.nearer)} of {count(played)} games{self._share(self.worst.nearer)} the guess is "
            "nearer to the secret than any guess made without the model"
        )
        if finding.luck is None:
            return (f"{said}.",)
        sentence = f"{said}; {by_luck(finding.luck.nearer_by_luck)}."
        if self.worst.grade is not Grade.BETTER_THAN_CHANCE:
            return (sentence,)
        if finding.luck.blind_tables is not None:
            return sentence, f"{percent(finding.luck.farther)} of blind tables are farther from the rows."
        farther = f"{percent(finding.luck.farther)} of other secrets are farther from a guess than its own"
        return sentence, f"{farther}; by chance half of them are."

    def _membership(self) -> tuple[str, ...]:
        if self.audit.membership is None:
            return ()
        share, positives = self.audit.membership.share, self.audit.membership.true_positives
        return (
            "Was this person in it? Of a person who was and one who was not, the right one is named in "
            f"{percent(share.value)} of pairs (95{SIGN} interval {interval(share.low, share.high)}); guessing names it "
            f"in 50{SIGN}. At a false-positive rate of 1{SIGN}, {percent(positives.value)} of people "
            f"({interval(positives.low, positives.high)}) are recognised.",
        )

    def _named(self) -> str:
        won, played, chance = self.worst.rebuilt, len(self.audit.games), self.audit.chance or 0.0
        return (
            f"In {count(won)} of {count(played)} games{self._share(won)} the right candidate is named; guessing names "
            f"it in {100 * chance:.3g}{SIGN}."
        )

    def _share(self, won: int) -> str:
        share = percent(won / len(self.audit.games))
        if self.audit.complete:
            return f" ({share})"
        return f" ({share}; 95{SIGN} interval {interval(*self.audit.interval(won))})"

    def _finding(self) -> Finding:
        return self.audit.finding(self.worst.name)

    def _what(self) -> str:
        return "this model" if self.audit.kind == "this model" else "models trained this way"

    def _where(self) -> str:
        """Whether the model at its optimum is meant, not as released."""
        return " at its optimum" if self.worst.name == "as converged" else ""

    def _records(self) -> str:
        return "rows" if self.audit.kind == "this model" else "records"

    def _nothing(self) -> str:
        return "no more than guesses and luck do" if self.worst.rebuilt else "no record"

    def _attacks(self) -> str:
        one = self.audit.kind == "this model" or len(self.lines) == 1
        return "one attack" if one else f"{len(self.lines)} attacks"

    def _tried(self) -> str:
        return "This attack" if self._attacks() == "one attack" else f"The best of {self._attacks()}"


def by_luck(share: float) -> str:
    """What chance gives, as a clause."""
    return f"luck alone gives at most about {percent(share)}" if share else "luck alone gives about none"


def _under(ceiling: Ceiling, privacy: Privacy | None) -> str:
    blind = "at most " if ceiling.blind_at_most else ""
    proof = "certified" if ceiling.certified else "not certified"
    said = "" if privacy is None else f" In any game: {privacy.sentence}."
    return (
        f"Whatever the attack, it succeeds in at most {at_most(ceiling.upper)} of games ({proof}), where a blind guess "
        f"succeeds in {blind}{percent(ceiling.baseline)}.{said}"
    )


def _of(won: int, played: int) -> str:
    """5 of 178; All 178; None of 178."""
    return f"All {count(played)}" if won == played else f"{count(won) if won else 'None'} of {count(played)}"
