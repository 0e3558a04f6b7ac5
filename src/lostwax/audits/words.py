"""The sentences about an audit, for print, page and file alike: made of its values, here and nowhere else.

Nothing looks into a sentence afterwards: whoever needs to know what one is about asks the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lostwax.games import Adversary, Attacker, Sees
from lostwax.grades import Grade
from lostwax.numerals import SIGN, at_most, count, interval, percent

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit, Finding
    from lostwax.audits.conclusion import Ladder, Line, Rung

MOST = 0.5  # of the missing records


@dataclass(frozen=True)
class Words:
    """The conclusion of an audit in plain words, from its worst line."""

    audit: Audit
    worst: Line
    released: Line  # the model as it is
    attacks: int
    weakest: Adversary | None  # who needs least for the grade; None: no leak was found

    def headline(self, grade: Grade) -> str:
        """What a manager reads."""
        audit, played, worst = self.audit, len(self.audit.games), self.worst
        which = f"{self._model}{self._where}"
        by = self._by
        often = f"{by}, more often than by guessing" if by else " more often than by guessing"
        tried = "This attack" if self.attacks == 1 else f"The best of {self.attacks} attacks"
        if grade is Grade.UNDECIDED:
            return f"Undecided: this audit cannot tell whether {self._noun}s can be rebuilt."
        if grade is Grade.LIMITED:
            limit = at_most(1.0 if audit.ceiling is None else audit.ceiling.upper)
            return f"In the long run no attack succeeds in more than {limit} of games; none was seen to beat guessing."
        if audit.chance is not None:
            return {
                Grade.RECOGNISABLE: f"Most secret records are picked out of the candidates{by}.",
                Grade.BETTER_THAN_CHANCE: f"Secrets are picked out of the candidates{often}.",
                Grade.NOT_FOUND: f"{tried} picks the secret record no more often than guessing.",
            }[grade]
        if grade.leaks and worst.by_target:
            read = f"The target of {count(worst.targets)} of {count(played)} {self._records} can be read from {which}"
            return f"{read}{by}; a guess from the other columns gives {count(worst.targets_guessed)}."
        if grade is Grade.EXACT:
            share = worst.rebuilt / played
            some = "Every {} tried" if share == 1 else "Most {}s" if share >= 0.5 else "Some {}s"
            some = "The {} tried" if played == 1 else "One {}" if worst.rebuilt == 1 else some
            some = some.format(self._noun)
            return f"{some} can be rebuilt from {which}{by}."
        nothing = "no more than guesses and luck do" if worst.rebuilt else f"no {self._noun}"
        return {
            Grade.RECOGNISABLE: f"Records can be recognised in what is rebuilt from {which}{by}.",
            Grade.BETTER_THAN_CHANCE: f"Guesses from {self._model}{by} are better than chance.",
            Grade.NOT_FOUND: f"{tried} rebuilds {nothing}.",
        }[grade]

    def of_membership(self, grade: Grade) -> str:
        """What a manager reads where no record is rebuilt as well as people are recognised."""
        often = "" if grade is Grade.RECOGNISABLE else ", more often than by guessing"
        return f"Whether a person was in the training set can be told from {self._model}{self._by}{often}."

    def of_other(self, rung: Rung, ladder: Ladder) -> str:
        """What a manager reads where somebody else than the adversary of the games needs less for the same grade."""
        attacker, can = rung.attacker, first_upper(who(rung.attacker))
        records = f"{count(rung.rebuilt)} of {count(rung.tried)} {attacker.unit}s"
        if rung.by_membership:
            often = "" if rung.grade is Grade.RECOGNISABLE else ", more often than by guessing"
            return f"{can} can tell whether a person was in the training set{often}."
        if rung.grade is Grade.BETTER_THAN_CHANCE:
            return f"{can} learns more about single {attacker.unit}s than guessing tells."
        if rung.grade is Grade.RECOGNISABLE:
            return f"{can} can recognise {attacker.unit}s in what is rebuilt from {self._model}."
        if attacker.kind is not Attacker.INSIDER:
            return f"{can} can read {records}."
        fruitless, unit = ladder.fruitless, attacker.unit
        end = "" if fruitless is None else f"; from {count(fruitless)} missing {unit}s on nothing was rebuilt"
        few = f"{percent(rung.share)} of the missing ones" if rung.rebuilt else f"{unit}s that the model fits worst"
        better = [other for other in ladder.by_missing.values() if other.share >= MOST]
        if rung.share >= MOST or not better:
            return f"{can} can rebuild {_missing(rung) if rung.share == 1 else few}{self._from}{end}."
        can = first_upper(who(better[0].attacker))
        few += f" if {count(attacker.missing or 0)} are missing"
        return f"{can} can rebuild {_missing(better[0])}{self._from}, and {few}{end}."

    def evidence(self, grade: Grade) -> Iterator[str]:
        """Each share beside what chance gives, with its interval."""
        if self.audit.chance is not None:
            yield self._named()
        else:
            yield self._rebuilt()
            yield from (*self._early(), *self._target(), *self._cells())
            if not self._all_rebuilt:
                yield self._nearer()
            yield from (*self._farther(), *self._membership())
        if not grade.leaks and grade is not Grade.LIMITED:
            attacks = "one attack" if self.attacks == 1 else f"{self.attacks} attacks"
            yield f"This is the result of {attacks}, not a proof that no attack can."
        if self.audit.ceiling is not None:
            yield self._ceiling()

    def _named(self) -> str:
        won, played, chance = self.worst.rebuilt, len(self.audit.games), self.audit.chance or 0.0
        return (
            f"In {count(won)} of {count(played)} games{self._share(won)} the right candidate is named; guessing names "
            f"it in {100 * chance:.3g}{SIGN}."
        )

    def _rebuilt(self) -> str:
        won, played, luck = self.worst.rebuilt, len(self.audit.games), self._finding.luck
        if played == 1:
            said = f"The one {self._noun} tried {'comes' if won else 'does not come'} back{self._from}"
        else:
            weakest = self.weakest
            to = "" if weakest is None or weakest == self.audit.adversary else f" to {who(self.audit.adversary)}"
            said = f"{_of(won, played)} {self._noun}s come back{self._from}{to}{self._share(won)}"
        if won and luck is not None:
            said += f"; {by_luck(luck.rebuilt_by_luck)}"
        if not self.worst.had:
            return f"{said}."
        return f"{said}. For {count(self.worst.had)} of them the adversary has a record that is as close."

    def _early(self) -> Iterator[str]:
        """That the model as it is hides records which its optimum gives away."""
        if self._where and self.worst.rebuilt > self.released.rebuilt:
            some = f"{_of(self.released.rebuilt, len(self.audit.games)).lower()} do{self._share(self.released.rebuilt)}"
            yield (
                f"As released, {some}: its weights are not at the optimum of these rows. The solver stopped early, "
                "which is luck, not a defence; or the model was fitted on other rows or weights; or noise was added, "
                "which the optimum leaves out."
            )

    def _target(self) -> Iterator[str]:
        """How many targets come back, beside a guess without the model; nothing where that is as good."""
        read, guessed, target = self.worst.targets, self.worst.targets_guessed, self._finding.target
        if target is not None and read > guessed:
            games, targets = target.read.shape
            which = "" if targets == 1 else f" (the worst of {targets})"
            yield (
                f"The target{which} comes back in {count(read)} of {count(games)} {self._records}{self._share(read)}; "
                f"a guess from the other columns, without the model, is right in {count(guessed)}."
            )

    def _cells(self) -> Iterator[str]:
        """How many cells are exact, and for how many of them this follows without any guess."""
        cells = self._finding.cells
        if cells is None or not cells.exact or self._all_rebuilt:
            return
        said = f"{count(cells.exact)} of {count(cells.total)} cells ({percent(cells.exact_share)}) come back exactly"
        if cells.certified:
            share = percent(cells.certified / max(1, cells.total))
            certain = f"{count(cells.certified)} of them ({share})"
            certain = "all of them" if cells.certified == cells.exact else certain
            said += f"; for {certain} no other value agrees with the model"
        yield f"{said}."

    def _nearer(self) -> str:
        """How many guesses are nearer than all that can be had without the model, and what luck gives."""
        luck, nearer = self._finding.luck, self.worst.nearer
        return (
            f"In {count(nearer)} of {count(len(self.audit.games))} games{self._share(nearer)} the guess is nearer to "
            "the secret than any guess made without the model"
            f"{'' if luck is None else f'; {by_luck(luck.nearer_by_luck)}'}."
        )

    def _farther(self) -> Iterator[str]:
        """How guesses compare with other secrets, where this gives the grade."""
        luck = self._finding.luck
        if luck is None or self._all_rebuilt or self.worst.grade is not Grade.BETTER_THAN_CHANCE:
            return
        if luck.blind_tables is not None:
            yield f"{percent(luck.farther)} of blind tables are farther from the rows."
        else:
            farther = f"{percent(luck.farther)} of other secrets are farther from a guess than its own"
            yield f"{farther}; by chance half of them are."

    def _membership(self) -> Iterator[str]:
        if self.audit.membership is not None:
            yield (
                f"Was this person in it? To {who(self.audit.adversary)}: {self.audit.membership}; guessing is right in "
                f"50{SIGN} of pairs."
            )

    def _ceiling(self) -> str:
        ceiling, privacy = self.audit.ceiling, self.audit.privacy
        assert ceiling is not None
        blind = "at most " if ceiling.blind_at_most else ""
        proof = "certified" if ceiling.certified else "not certified"
        return (
            f"Whatever the attack, it succeeds in at most {at_most(ceiling.upper)} of games ({proof}), where a blind "
            f"guess succeeds in {blind}{percent(ceiling.baseline)}."
            f"{'' if privacy is None else f' In any game: {privacy.sentence}.'}"
        )

    def _share(self, won: int) -> str:
        share = percent(won / len(self.audit.games))
        if self.audit.complete:
            return f" ({share})"
        return f" ({share}; 95{SIGN} interval {interval(*self.audit.interval(won))})"

    @property
    def _finding(self) -> Finding:
        return self.audit.finding(self.worst.name)

    @property
    def _all_rebuilt(self) -> bool:
        return self.worst.rebuilt == len(self.audit.games)

    @property
    def _model(self) -> str:
        return "this model" if self.audit.kind == "this model" else "models trained this way"

    @property
    def _by(self) -> str:
        """Who did it, where that is stated."""
        return "" if self.audit.adversary.missing is None else f" by {who(self.audit.adversary)}"

    @property
    def _noun(self) -> str:
        """What comes back or does not."""
        return "word" if self.audit.adversary.unit == "word" else "record"

    @property
    def _records(self) -> str:
        return "rows" if self.audit.kind == "this model" else "records"

    @property
    def _where(self) -> str:
        """Whether the model at its optimum is meant, not as released."""
        return " at its optimum" if self.worst.name == "as converged" else ""

    @property
    def _from(self) -> str:
        return f" from the model{self._where}" if self._where else ""


def _missing(rung: Rung) -> str:
    """The records that come back to an insider."""
    missing = "the missing one" if rung.attacker.missing == 1 else "the missing ones"
    return missing if rung.share == 1 else f"most of {missing}"


def by_luck(share: float) -> str:
    """What chance gives, as a clause."""
    return f"luck alone gives at most about {percent(share)}" if share else "luck alone gives about none"


def _of(won: int, played: int) -> str:
    """5 of 178; All 178; None of 178."""
    return f"All {count(played)}" if won == played else f"{count(won) if won else 'None'} of {count(played)}"


def who(attacker: Adversary) -> str:
    """The attacker by what they have."""
    if attacker.sees is Sees.PREDICTIONS:
        gets = "can query the model"
    elif attacker.sees is Sees.PART:
        gets = "gets the layers that are given out"
    else:
        gets = "gets the file" if attacker.files == 1 else f"has all {attacker.files} files"
        gets = "has both files" if attacker.files == 2 else gets
    if attacker.kind is Attacker.ANYONE:
        return f"anyone who {gets}"
    if attacker.kind is Attacker.OUTSIDER:
        return f"somebody with similar public {attacker.unit}s who {gets}"
    seen = "" if attacker.sees is Sees.MODEL and attacker.files == 1 else f" and {gets}"
    if attacker.missing is None:
        return f"the attacker{' who' if seen else ''}{seen.removeprefix(' and')}"
    others = f"all other {attacker.unit}s"
    others = others if attacker.missing == 1 else f"all but {count(attacker.missing)} {attacker.unit}s"
    return f"somebody who knows {others}{seen}"


def reached(rung: Rung) -> str:
    """How much came back to an attacker."""
    if rung.grade is None:
        return "not tried"
    if not rung.tried:
        return rung.reason if rung.by_membership else ""
    low, high = rung.interval
    sure = f"; 95{SIGN} interval {interval(low, high)}" if rung.games else ""
    worst = f", and {count(rung.worst_fitted)} of those that the model fits worst" if rung.worst_fitted else ""
    return f"{count(rung.rebuilt)} of {count(rung.tried)} {rung.attacker.unit}s ({percent(rung.share)}{sure}){worst}"


def first_upper(text: str) -> str:
    """With a capital letter."""
    return text[:1].upper() + text[1:]


def leak(audit: Audit) -> str:
    """What an attacker can do, of an audit that found a leak."""
    weakest = audit.conclusion.weakest
    by = audit.adversary if weakest is None else weakest.attacker
    attacker, records = who(by), "records that changed" if by.files == 2 else "training records"
    if audit.conclusion.by_target:
        return f"{attacker} can read the target of {records}."
    if audit.adversary.unit == "word" and audit.grade.severe:
        return f"{attacker} can read words of the training texts."
    return {
        Grade.EXACT: f"{attacker} can rebuild {records}.",
        Grade.RECOGNISABLE: f"{attacker} can recognise {records}.",
        Grade.BETTER_THAN_CHANCE: "the model reveals something about single records. Reduce that first, and audit "
        "again.",
    }[audit.grade]


def people(audit: Audit) -> str:
    """What the grade means for the people whose records were used."""
    grade, line = audit.grade, audit.conclusion.line
    attacker, by_target = audit.adversary, audit.conclusion.by_target
    if attacker.files == 2 and attacker.unit != "word" and (by_target or grade is Grade.EXACT):
        return (
            f"The {'target' if by_target else 'records'} of people who were erased, added or corrected can be read by "
            "whoever has both files. Of the others this says nothing."
        )
    if by_target:
        whose = "any person’s target" if line.targets == len(audit.games) else "the target of some people"
        return f"The attacker of this audit can read {whose} from the model. It is like publishing that column."
    if grade is Grade.EXACT:
        weakest = audit.conclusion.weakest
        attacker, share = (audit.adversary, 1.0) if weakest is None else (weakest.attacker, weakest.share)
        whose = "Any person’s record" if share == 1 else f"The records of {'most' if share >= 0.5 else 'some'} people"
        if attacker.unit == "word":
            whose = f"{'All' if share == 1 else percent(share)} of the words that people wrote"
        read = f"{whose} can be read from the {'predictions' if attacker.sees is Sees.PREDICTIONS else 'model'}"
        if attacker.unit == "word":
            return f"{read} by whoever has it, beside its public base."
        if attacker.kind is not Attacker.INSIDER:
            data = "the data" if share == 1 else "these records"
            return f"{read} without any other of them: it is like publishing {data}."
        rest = "the rest of the data" if attacker.missing in (1, None) else "nearly all of the data"
        return f"{read} by whoever has {rest}: a source, a partner, a former colleague. See “Who can do it”."
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


def residual(audit: Audit) -> str:
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
    words = "Attacks that were not run, or are not known today, may succeed"
    if audit.complete:
        return f"{words}."
    high = percent(audit.interval(audit.conclusion.line.rebuilt)[1])
    return f"{words}; and with 95{SIGN} confidence the attacks that were run succeed for up to {high} of records."
