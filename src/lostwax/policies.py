"""The gate: limits that an audit must keep, from a small TOML file, and where it does not keep them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lostwax.audits import Audit, Finding

EXAMPLE = "max_rebuilt_share = 0.05"


class Breach(NamedTuple):
    """A limit that an audit does not keep, or cannot be shown to keep."""

    limit: str  # the key in the policy file
    allowed: float
    found: float | None  # what was compared with it; None where this audit cannot tell
    why: str

    def distance(self) -> float:
        """How far from the limit; least where this audit cannot tell."""
        return -1.0 if self.found is None else abs(self.found - self.allowed)

    def __str__(self) -> str:
        return f"{self.limit} = {self.allowed:g}: {self.why}"


class Measured(NamedTuple):
    """A number as a gate sees it: the end of its interval that speaks against the model, and the number in words."""

    worst: float
    words: str


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits for the lines of an audit; None sets none.

    Every number is taken at the worse end of its 95 % interval, so that an audit of too few games fails rather than
    passes; a limit that the audit cannot judge is a breach too, and so is an attack that was stopped or failed, or an
    optimum that was not reached. All lines are held to the limits, also the model at its optimum: a solver that stopped
    early is no defence.
    """

    max_rebuilt_share: float | None = None  # of games in which the record is rebuilt, or the right candidate named
    max_tpr_at_1pct: float | None = None  # true positive rate at a false positive rate of 1 %
    max_tpr_at_01pct: float | None = None  # and of 0.1 %
    min_median_ratio_to_oracle: float | None = None  # median error over that of the nearest record known anyway
    max_ceiling: float | None = None  # on the success of any attack, from differential privacy

    def __post_init__(self) -> None:
        for name, value in self._limits():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"Policy: expected {name} to be a number, got {value!r}.")
            most = math.inf if name.startswith("min_") else 1.0
            if not (0 <= value <= most and math.isfinite(value)):
                expected = "a number >= 0" if most == math.inf else "a share between 0 and 1 (5 % is 0.05)"
                raise ValueError(f"Policy: expected {name} to be {expected}, got {value}.")
        if not list(self._limits()):
            raise ValueError(f"Policy: it sets no limit, and would pass everything. Set one of {', '.join(names())}.")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """The policy in a TOML file: one `limit = number` a line."""
        source = Path(path)
        if not source.is_file():
            raise FileNotFoundError(f"Policy.read: there is no file {source}. Write one, with lines like {EXAMPLE}.")
        try:
            limits = tomllib.loads(source.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"Policy.read: {source} is not TOML: {error}. Write lines like {EXAMPLE}.") from None
        for name in limits:
            if name not in names():
                close = get_close_matches(name, names(), n=1)
                cure = f"Did you mean {close[0]}?" if close else f"It knows {', '.join(names())}."
                raise ValueError(f"Policy.read: {source} sets {name!r}, which is no limit. {cure}")
        try:
            return cls(**limits)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{source}: {error}") from None

    def breaches(self, audit: Audit) -> tuple[Breach, ...]:
        """Every limit that the audit does not keep, by the line that is furthest from it; empty: it passes."""
        found = []
        for name, allowed in self._limits():
            judged = [_judge(name, allowed, line, audit, finding) for line, finding in _lines(audit, name)]
            if name != "max_ceiling":  # which holds for all attacks, also for those without an answer
                judged.append(_unanswered(name, allowed, audit))
            if breaches := [breach for breach in judged if breach is not None]:
                found.append(max(breaches, key=Breach.distance))
        return tuple(found)

    def _limits(self) -> Iterator[tuple[str, float]]:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                yield field.name, value


class CannotTellError(ValueError):
    """This audit holds no such number, as a sentence."""


def names() -> list[str]:
    """The limits that a policy can set."""
    return [field.name for field in fields(Policy)]


def _lines(audit: Audit, name: str) -> list[tuple[str, Finding]]:
    """What is judged: every line, but for a ceiling, which is one for all attacks."""
    if name == "max_ceiling" or len(audit.findings) == 1:
        return [("", audit.findings[0])]
    return [(f"{finding.name}: ", finding) for finding in audit.findings]


def _judge(name: str, allowed: float, line: str, audit: Audit, finding: Finding) -> Breach | None:
    try:
        worst, words = MEASURES[name](audit, finding)
    except CannotTellError as reason:
        return Breach(name, allowed, None, f"{line}this audit cannot tell. {reason}")
    kept = worst >= allowed if name.startswith("min_") else worst <= allowed
    return None if kept else Breach(name, allowed, worst, f"{line}{words}.")


def _unanswered(name: str, allowed: float, audit: Audit) -> Breach | None:
    """What was not tried to the end might have broken the limit."""
    from lostwax.audits.text import CURES

    if not audit.unanswered:
        return None
    reasons = " ".join(audit.unanswered)
    return Breach(name, allowed, None, f"this audit cannot tell. {reasons} {CURES[audit.kind]}")


def _check_independent(audit: Audit) -> None:
    victims, played = audit.victims, len(audit.games)
    if victims < played:
        raise CannotTellError(
            f"Its {played} guesses come from {victims} victims, and those from one release are not independent: hold "
            "it to max_rebuilt_share, which counts victims, or audit a threat with one secret a victim."
        )


def _rebuilt_share(audit: Audit, finding: Finding) -> Measured:
    won, played, victims = int(finding.rebuilt.sum()), len(audit.games), audit.victims
    what = "rebuilt" if audit.chance is None else "named among the candidates"
    words = f"{won} of {played} records are {what}"
    if audit.kind == "this model" and played == audit.population:
        return Measured(won / played, f"{words} ({won / played:.3g} of all)")  # every row was played for
    high = audit.interval(won)[1]
    if victims < played:
        words += f", from {victims} victims"
    return Measured(high, f"{words}: a share of {won / played:.3g}, and with 95 % confidence up to {high:.3g}")


def _tpr(fpr: float) -> Callable[[Audit, Finding], Measured]:
    def measure(audit: Audit, finding: Finding) -> Measured:
        from lostwax.metrics import true_positives

        if not finding.null_errors:
            raise CannotTellError(
                "It has no null to count false positives by: audit a way of training (trainer, threat, prior, secrets) "
                "without candidates, with two different secrets or more."
            )
        _check_independent(audit)
        errors = finding.errors[audit.metric]
        try:
            found = [true_positives(errors, scores, null=null, fpr=fpr) for null, scores in finding.null_errors.items()]
        except ValueError as error:
            raise CannotTellError(str(error)) from None
        worst = max(found, key=lambda one: one.high)
        return Measured(worst.high, f"{worst}; the upper end counts")

    return measure


def _median_ratio(audit: Audit, finding: Finding) -> Measured:
    import numpy as np

    from lostwax.metrics.estimate import median_interval

    if audit.chance is not None:
        raise CannotTellError("Its adversary picks one of several candidates: hold it to max_rebuilt_share.")
    oracle = float(np.median(audit.baselines[audit.oracle][audit.metric]))
    if not 0 < oracle < math.inf:
        raise CannotTellError(
            f"The median error of the {audit.oracle} is {oracle:g}, and nothing can be measured by it."
        )
    errors = finding.errors[audit.metric]
    median = float(np.median(errors)) / oracle
    if audit.kind == "this model" and len(errors) == audit.population:
        return Measured(median, f"the median error is {median:.3g} times that of the {audit.oracle}")
    _check_independent(audit)
    if (interval := median_interval(errors)) is None:
        raise CannotTellError(f"{len(errors)} games are too few to enclose a median: play 6 or more.")
    low = interval[0] / oracle
    words = f"the median error is {median:.3g} times that of the {audit.oracle}, or, with 95 % confidence, {low:.3g}"
    return Measured(low, f"{words} times or more")


def _ceiling(audit: Audit, _: Finding) -> Measured:
    if audit.ceiling is None:
        raise CannotTellError("Training is not differentially private, so nothing bounds every attack.")
    return Measured(audit.ceiling.upper, f"any attack may reach {audit.ceiling}")


MEASURES: dict[str, Callable[[Audit, Finding], Measured]] = {
    "max_rebuilt_share": _rebuilt_share,
    "max_tpr_at_1pct": _tpr(0.01),
    "max_tpr_at_01pct": _tpr(0.001),
    "min_median_ratio_to_oracle": _median_ratio,
    "max_ceiling": _ceiling,
}
