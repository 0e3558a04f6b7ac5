"""The gate: limits from a small TOML file, and which of them an audit breaks."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lostwax.cards import card
from lostwax.fields import shown
from lostwax.grades import Grade

if TYPE_CHECKING:
    from lostwax.audits import Audit, Finding

EXAMPLE = 'max_grade = "not found"'
LEAST = 0.01  # threshold or ratio of errors; less would pass nearly everything
THRESHOLD = 0.05  # feature standard deviations; applies even if the audit's own threshold is smaller
OF_ATTACKERS = ("max_grade", "max_rebuilt_share")  # limits for one kind of attacker
ALLOWED = tuple(grade for grade in Grade if grade not in (Grade.UNDECIDED, Grade.EXACT))  # values of max_grade


class Breach(NamedTuple):
    """A limit that an audit breaks, or does not show to be kept."""

    limit: str  # the key in the policy file
    allowed: float | str
    found: float | str | None  # what was compared with it; None if the audit does not hold it
    why: str

    def distance(self) -> float:
        """Distance from the limit; smallest if the audit does not hold the number."""
        if isinstance(self.found, str) or isinstance(self.allowed, str):
            return math.inf
        return -1.0 if self.found is None else abs(self.found - self.allowed)

    def __str__(self) -> str:
        allowed = f'"{self.allowed}"' if isinstance(self.allowed, str) else f"{self.allowed:g}"
        return f"{self.limit} = {allowed}: {self.why}".replace("\N{NO-BREAK SPACE}", " ")


class Breaches(tuple[Breach, ...]):
    """The limits that an audit breaks: empty if the policy is kept."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """A card, for notebooks."""
        limits = "1 limit is" if len(self) == 1 else f"{len(self)} limits are"
        return card(
            "alarm" if self else "calm",
            kicker="policy",
            grade="broken" if self else "kept",
            headline=f"{limits} not kept, or not shown to be kept." if self else "Every limit of the policy is kept.",
            lead="" if self else "Keeping a policy is not a proof that no attack succeeds.",
            text=[str(breach) for breach in self],
        )


class Measured(NamedTuple):
    """The pessimistic end of a number's interval, or a grade, and a sentence with the number."""

    worst: float | str
    words: str


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits for an audit; None sets no limit.

    An undecided audit breaks every policy. The gate uses the pessimistic end of each 95 % interval, so an audit with
    too few games fails. A limit that the audit cannot judge is a breach. Every line of the audit must keep the limits,
    including the model at its optimum: a solver that stopped early is not a defence.
    """

    max_grade: str | None = None  # the worst grade allowed: "limited by proof", "not found", ...
    max_rebuilt_share: float | None = None  # share of games with the record rebuilt, or the right candidate named
    max_nearer_share: float | None = None  # share of games with a guess closer than every baseline
    max_exact_cell_share: float | None = None  # share of a table's cells that come back exactly
    max_membership: float | None = None  # share of pairs in which the person trained on is named; guessing: 0.5
    max_tpr_at_1pct: float | None = None  # true-positive rate at a false-positive rate of 1 %
    max_tpr_at_01pct: float | None = None  # and of 0.1 %
    min_median_ratio_to_oracle: float | None = None  # median error over that of the nearest available record
    max_ceiling: float | None = None  # certified bound on the success of any attack in the audit's game
    max_knowledge_margin: int | None = None  # the most missing records with which some may still come back
    threshold: float = THRESHOLD  # error that counts as rebuilt; the audit's own threshold if that is larger
    # limits for one kind of attacker, by name: {"anyone": {"max_grade": "not found"}, "insider": ...}
    attackers: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (*self.stated_limits(), ("threshold", self.threshold)):
            _check(name, name, value)
        if not isinstance(self.attackers, Mapping):
            raise TypeError(f"Policy: expected attackers to be limits by kind, got {shown(self.attackers)}.")
        for kind, limits in self.attackers.items():
            _check_attacker(kind, limits)
        if not list(self.stated_limits()) and not self.attackers:
            raise ValueError(f"Policy: no limit is set, so everything would pass. Set one of {', '.join(names())}.")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """The policy in a TOML file: one `limit = value` per line."""
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(f"Policy.read: {source} does not exist. Write it, with lines like {EXAMPLE}.")
        try:
            limits = tomllib.loads(source.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"Policy.read: {source} is not TOML: {error}. Write lines like {EXAMPLE}.") from None
        for name in limits:
            if name not in (known := [*names(), "threshold", "attackers"]):
                close = get_close_matches(name, known, n=1)
                cure = f"Did you mean {close[0]}?" if close else f"Expected {', '.join(known)}."
                raise ValueError(f"Policy.read: {source} sets {name!r}, which is not a limit. {cure}")
        try:
            return cls(**limits)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {error}") from None

    def breaches(self, audit: Audit) -> Breaches:
        """Every broken limit, with the line of the audit furthest from it; empty if the audit passes."""
        broken = []
        for name, allowed in self.stated_limits():
            lines = [("", audit.findings[0])]  # a grade or a ceiling belongs to the audit as a whole
            if name not in OF_THE_WHOLE and len(audit.findings) > 1:
                lines = [(f"{finding.name}: ", finding) for finding in audit.findings]
            judged = [self._judge(name, allowed, line, audit, finding) for line, finding in lines]
            if breaches := [breach for breach in judged if breach is not None]:
                broken.append(max(breaches, key=Breach.distance))
        broken += [breach for limit in self.attackers.items() for breach in _of_attacker(*limit, audit)]
        if not broken and list(self.stated_limits()) and (why := self._why_undecided(audit)) is not None:
            broken.append(Breach(*next(self.stated_limits()), None, f"this audit cannot decide it. {why}"))
        return Breaches(broken)

    def _why_undecided(self, audit: Audit) -> str | None:
        """Why an audit that breaks no limit does not pass; None if it does."""
        limits, grade = {name for name, _ in self.stated_limits()}, audit.conclusion.grade
        if grade is Grade.UNDECIDED or (audit.unanswered and grade is not Grade.LIMITED and limits != {"max_ceiling"}):
            return str(audit.conclusion)
        cells = max((line.cells.exact for line in audit.findings if line.cells is not None), default=0)
        about_cells = {"max_grade", "max_exact_cell_share", "max_knowledge_margin"}
        if cells and grade is not Grade.LIMITED and not limits & about_cells:
            return (
                f"{cells} cells come back exactly, targets included, and no limit of the policy is about cells: set "
                "max_exact_cell_share or max_grade too."
            )
        only_exact = limits <= {"max_rebuilt_share", "max_exact_cell_share"}
        if only_exact and audit.chance is None and audit.metric != audit.criterion:
            if any(finding.cells is not None for finding in audit.findings):
                return (
                    "Cells that are not exact may be known to a narrow interval, and a row except for one cell: set "
                    "max_grade or max_nearer_share too."
                )
            return (
                f"Images are recognisable long before every pixel is within {self.threshold:g} standard deviations: "
                "set max_grade or max_nearer_share too."
            )
        return None

    def _judge(self, name: str, allowed: float | str, line: str, audit: Audit, finding: Finding) -> Breach | None:
        try:
            worst, words = MEASURES[name](self, audit, finding)
        except UndecidedError as reason:
            return Breach(name, allowed, None, f"{line}this audit cannot decide it. {reason}")
        if isinstance(worst, str) or isinstance(allowed, str):
            passes = Grade(str(worst)).severity <= Grade(str(allowed)).severity
        else:
            passes = worst >= allowed if name.startswith("min_") else worst <= allowed
        return None if passes else Breach(name, allowed, worst, f"{line}{words}")

    def stated_limits(self) -> Iterator[tuple[str, float | str]]:
        """Limits of all attackers together, by name."""
        for name in names():
            if (value := getattr(self, name)) is not None:
                yield name, value


class UndecidedError(ValueError):
    """The audit does not hold the number that a limit is about."""


def names() -> list[str]:
    """The limits that a policy can set, of all attackers together."""
    return [field.name for field in fields(Policy) if field.name not in ("threshold", "attackers")]


def limits_of(policy: Policy, breaches: Breaches) -> list[tuple[str, str, str]]:
    """Each limit of the policy: its name, what it allows, and why it is broken (empty: kept)."""
    broken = {breach.limit: breach.why for breach in breaches}
    allowed = dict(policy.stated_limits())
    for kind, limits in policy.attackers.items():
        allowed |= {f"attackers.{kind}.{limit}": value for limit, value in limits.items()}
    return [
        (name, f'"{value}"' if isinstance(value, str) else f"{value:g}", broken.get(name, ""))
        for name, value in allowed.items()
    ]


def _check(limit: str, name: str, value: object) -> None:
    """Refuse a limit of the wrong type, or one that would pass everything; `name` is what the message calls it."""
    if limit == "max_grade":
        if not isinstance(value, str) or value not in ALLOWED:
            expected = ", ".join(f'"{grade}"' for grade in ALLOWED)
            raise ValueError(f"Policy: expected {name} to be one of {expected}, got {shown(value)}.")
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Policy: expected {name} to be a number, got {shown(value)}.")
    if limit == "max_knowledge_margin":
        if not isinstance(value, int) or value < 0:
            raise ValueError(f"Policy: expected {name} to be a number of records, 0 or more, got {shown(value)}.")
        return
    share = limit.startswith("max_")
    if not (abs(value) < 1e300 and (0 <= value < 1 if share else value >= LEAST)):
        expected = "a share from 0 to below 1 (5 % is 0.05)" if share else f"a number >= {LEAST:g}"
        passes = " Such a limit would pass everything." if (value == 1 if share else value < LEAST) else ""
        raise ValueError(f"Policy: expected {name} to be {expected}, got {shown(value)}.{passes}")


def _check_attacker(kind: object, limits: object) -> None:
    """Refuse limits of an attacker that is none, or that are none."""
    from lostwax.games.attackers import Attacker

    if kind not in list(Attacker):
        raise ValueError(f"Policy: expected attackers to be of {', '.join(Attacker)}, got {shown(kind)}.")
    if not isinstance(limits, Mapping) or not limits:
        raise TypeError(f"Policy: expected limits for attackers.{kind}, such as {EXAMPLE}, got {shown(limits)}.")
    for limit, value in limits.items():
        if limit not in OF_ATTACKERS:
            expected = " or ".join(OF_ATTACKERS)
            raise ValueError(
                f"Policy: attackers.{kind} sets {shown(limit)}, which is not a limit. Expected {expected}."
            )
        _check(limit, f"attackers.{kind}.{limit}", value)


def _of_attacker(kind: str, limits: Mapping[str, float | str], audit: Audit) -> Iterator[Breach]:
    """The limits that attackers of one kind break, or that nobody of this kind was played to judge."""
    from lostwax.audits.words import reached, who
    from lostwax.games.attackers import Attacker

    rungs = [rung for rung in audit.attackers.of_kind(Attacker(kind)) if rung.grade is not None]
    for limit, allowed in limits.items():
        name = f"attackers.{kind}.{limit}"
        if not rungs:
            yield Breach(name, allowed, None, "this audit cannot decide it: no attacker of this kind was tried.")
        elif limit == "max_grade":
            worst = max(rungs, key=lambda rung: -1 if rung.grade is None else rung.grade.severity)
            if worst.grade is not None and worst.grade.severity > Grade(str(allowed)).severity:
                yield Breach(name, allowed, str(worst.grade), f"{who(worst.attacker)}: the grade is {worst.grade}.")
        else:
            worst = max(rungs, key=lambda rung: rung.interval[1])
            if worst.interval[1] > float(allowed):
                yield Breach(name, allowed, worst.interval[1], f"{who(worst.attacker)}: {reached(worst)}.")


def _check_independent(audit: Audit) -> None:
    victims, games = audit.victims, len(audit.games)
    if victims < games:
        raise UndecidedError(
            f"Its {games} games come from {victims} independent victims or secrets. Limit max_rebuilt_share instead, "
            "which counts those, or use a threat with one secret per victim, all different."
        )


def _grade(policy: Policy, audit: Audit, _: Finding) -> Measured:
    conclusion = audit.conclusion
    if conclusion.grade is Grade.RECOGNISABLE and audit.chance is None:  # the audit's threshold may be smaller
        within = max(int((line.errors[audit.criterion] <= policy.threshold).sum()) for line in audit.findings)
        if within:
            words = f"the grade is {conclusion.grade}, and {within} records are rebuilt to within {policy.threshold:g}."
            return Measured(str(Grade.EXACT), words)
    return Measured(str(conclusion.grade), f"the grade is {conclusion.grade}. {conclusion.headline}")


def _rebuilt_share(policy: Policy, audit: Audit, finding: Finding) -> Measured:
    what, rebuilt = "named among the candidates", finding.rebuilt
    if audit.chance is None:
        limit = max(policy.threshold, audit.threshold)
        rebuilt = finding.errors[audit.criterion] <= limit
        what = f"rebuilt (error <= {limit:g})"
    worst, words = _share(audit, int(rebuilt.sum()), f"records are {what}")
    allowed = policy.max_rebuilt_share
    if audit.chance is not None and allowed is not None and allowed <= audit.chance:
        words += f" Guessing alone names a share of {audit.chance:.3g}: set a limit above that, or max_grade alone."
    return Measured(worst, words)


def _nearer_share(policy: Policy, audit: Audit, finding: Finding) -> Measured:
    if audit.chance is not None:
        raise UndecidedError("Its adversary chooses among candidates: limit max_rebuilt_share instead.")
    return _share(audit, int(audit.beats_baselines(finding).sum()), "guesses are closer than every baseline")


def _exact_cell_share(policy: Policy, audit: Audit, finding: Finding) -> Measured:
    if finding.cells is None:
        raise UndecidedError(
            "It does not tell what is known of single cells: audits of models fitted on tables do. Limit "
            "max_rebuilt_share and max_nearer_share instead."
        )
    cells, target, share = finding.cells, finding.target, finding.cells.exact_share
    words = f"{cells.exact} of {cells.total} cells are exact"
    if target is not None and (targets := float(target.read[:, target.worst].mean())) > share:
        share = targets  # however many other columns there are
        words = f"the target of {int(target.read[:, target.worst].sum())} of {len(target.read)} rows is exact"
    if audit.complete:
        return Measured(share, f"{words} ({share:.3g} of all).")
    high = audit.interval(math.ceil(share * len(audit.games)))[1]  # cells of one row are not independent
    return Measured(high, f"{words}: a share of {share:.3g}, and with 95 % confidence up to {high:.3g}.")


def _share(audit: Audit, won: int, what: str) -> Measured:
    """A share of games, at the upper end of its interval unless all records were attacked."""
    games, victims = len(audit.games), audit.victims
    words = f"{won} of {games} {what}"
    if audit.complete:
        return Measured(won / games, f"{words} ({won / games:.3g} of all).")
    high = audit.interval(won)[1]
    if victims < games:
        words += f", from {victims} victims"
    return Measured(high, f"{words}: a share of {won / games:.3g}, and with 95 % confidence up to {high:.3g}.")


def _tpr(fpr: float) -> Callable[[Policy, Audit, Finding], Measured]:
    def measure(policy: Policy, audit: Audit, finding: Finding) -> Measured:
        from lostwax.metrics import true_positives

        if not finding.null_errors:
            raise UndecidedError(
                "It has no null scores to count false positives by. Audit a way of training (trainer, threat, prior, "
                "secrets) without candidates, with at least two different secrets."
            )
        _check_independent(audit)
        if audit.split_spread:
            raise UndecidedError(
                "Its games share one split of the table, which this rate does not count. Limit max_rebuilt_share and "
                "max_nearer_share instead."
            )
        errors = finding.errors[audit.metric]
        try:
            rates = [true_positives(errors, scores, null=null, fpr=fpr) for null, scores in finding.null_errors.items()]
        except ValueError as error:
            raise UndecidedError(str(error)) from None
        worst = max(rates, key=lambda rate: rate.high)
        return Measured(worst.high, f"{worst}; the gate uses the upper end.")

    return measure


def _median_ratio(policy: Policy, audit: Audit, finding: Finding) -> Measured:
    import numpy as np

    from lostwax.metrics.estimate import median_interval

    if audit.chance is not None:
        raise UndecidedError("Its adversary chooses among candidates: limit max_rebuilt_share instead.")
    errors, nearest = finding.errors[audit.metric], audit.baselines[audit.oracle][audit.metric]
    oracle = float(np.median(nearest))
    if not 0 < oracle < math.inf:
        raise UndecidedError(f"The median error of the {audit.oracle} is {oracle:g}, so a ratio to it is undefined.")
    median = float(np.median(errors)) / oracle
    if audit.complete:
        return Measured(median, f"the median error is {median:.3g} times that of the {audit.oracle}.")
    _check_independent(audit)
    # both medians are estimated: two intervals at 97.5 % hold jointly at 95 %
    ours, theirs = (median_interval(scores, 0.975, audit.split_spread) for scores in (errors, nearest))
    if ours is None or theirs is None:
        raise UndecidedError(f"{len(errors)} games are too few for an interval of the median: run 7 or more.")
    low = ours[0] / theirs[1]
    words = f"the median error is {median:.3g} times that of the {audit.oracle}, or, with 95 % confidence, {low:.3g}"
    return Measured(low, f"{words} times or more.")


def _membership(policy: Policy, audit: Audit, _: Finding) -> Measured:
    if audit.membership is None:
        raise UndecidedError(
            "It did not ask who was trained on. Audit a way of training (trainer, threat, prior, secrets) without a "
            "named attack, and without candidates."
        )
    share = audit.membership.share
    words = (
        f"of a person who was trained on and one who was not, the right one is named in a share of {share.value:.3g}"
    )
    words += f" of pairs, and with 95 % confidence up to {share.high:.3g}."
    allowed = policy.max_membership
    if allowed is not None and allowed <= 0.5:
        words += " Guessing alone names 0.5: set a limit above that, or max_grade alone."
    return Measured(share.high, words)


def _knowledge_margin(policy: Policy, audit: Audit, _: Finding) -> Measured:
    margin, allowed = audit.attackers.margin, policy.max_knowledge_margin or 0
    if margin is None:
        raise UndecidedError("It does not state how many records its attackers know.")
    curve = audit.attackers.by_missing.items()
    more = [missing for missing, rung in curve if missing > allowed and rung.grade is not Grade.UNDECIDED]
    if margin <= allowed and min(more, default=math.inf) > 2 * (allowed + 1):  # far fewer may be enough
        raise UndecidedError(f"It tried no attacker, or too few games, who misses a few more than {allowed} records.")
    return Measured(margin, f"records still come back to an attacker who misses {margin}.")


def _ceiling(policy: Policy, audit: Audit, _: Finding) -> Measured:
    if audit.ceiling is None:
        raise UndecidedError("Training is not differentially private, so there is no bound on every attack.")
    if not audit.ceiling.certified:
        raise UndecidedError(f"The ceiling is not certified: {audit.ceiling.sentence}.")
    return Measured(audit.ceiling.upper, f"any attack may reach {audit.ceiling.sentence}.")


MEASURES: dict[str, Callable[[Policy, Audit, Finding], Measured]] = {
    "max_grade": _grade,
    "max_rebuilt_share": _rebuilt_share,
    "max_nearer_share": _nearer_share,
    "max_exact_cell_share": _exact_cell_share,
    "max_membership": _membership,
    "max_tpr_at_1pct": _tpr(0.01),
    "max_tpr_at_01pct": _tpr(0.001),
    "min_median_ratio_to_oracle": _median_ratio,
    "max_ceiling": _ceiling,
    "max_knowledge_margin": _knowledge_margin,
}
OF_THE_WHOLE = ("max_ceiling", "max_grade", "max_membership", "max_knowledge_margin")  # not of a line
