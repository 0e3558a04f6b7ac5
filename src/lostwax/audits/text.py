"""An audit for a person: printed as a table, and its first screen, as a page and a notebook show it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lostwax.audits.decision import decide
from lostwax.audits.words import by_luck, first_upper, reached, who
from lostwax.cards import card
from lostwax.metrics.estimate import median_interval
from lostwax.numerals import SIGN, at_most, count, interval, number, percent, round_up, side_by_side

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit

FEWEST_NULLS = 99  # to tell a false-positive rate of 1 %
WIDTH, NARROWEST = 120, 60  # columns
REASONS = ("solver-limited", "information-limited", "attack-limited", "undecided")
HEADER: tuple[str, ...] = "", "rebuilt", "nearer", "median error", "labels", "ms per record", "why the rest is not"


def as_table(audit: Audit, columns: int | None = None, breaches: Sequence[str] | None = None) -> str:
    """Title, grade, suggestion, conclusion in plain words, one row per line or baseline, notes.

    `breaches` are those of a policy, empty if it is kept; None: there is no policy.

    No line is wider than `columns`; None: than the terminal. Where there is none, as in a file, lines are not folded.
    """
    widest = terminal_columns() if columns is None else columns
    width = min(widest, WIDTH)
    played, conclusion, decision = len(audit.games), audit.conclusion, decide(audit, breaches)
    every = "all" if played == audit.population else str(played)
    lines = [
        f"lostwax audit of {audit.subject}",
        f"{audit.kind} · {every} of {audit.population} games · attack {audit.attack} · {audit.threat}",
        "",
        f"grade: {conclusion.grade}",
        *wrap(
            f"suggestion{' (no policy)' if breaches is None else ''}: {decision.suggestion}. {decision.reason}", width
        ),
        *map(plain_spaces, wrap(str(conclusion), width)),  # 5 % stays on one line
        "",
    ]
    rows = [HEADER, *line_cells(audit)]
    reasons = [f"{row[0]}: {row[-1]}" for row in rows[1:] if row[-1]]
    if not reasons or sum(least_widths(rows)) + 2 * len(HEADER) - 2 > widest:
        rows = [row[:-1] for row in rows]  # no reasons to give, or no place: they come below
    else:
        reasons = []
    lines += [*cut_to_fit(rows, widest), "", *reasons]
    lines += [
        f"rebuilt: the right candidate is named; error: {audit.metric}"
        if audit.chance is not None
        else f"rebuilt: {audit.criterion} <= {audit.threshold:g}; error: {audit.metric}; nearer: smaller error than "
        "every guess made without the model",
    ]
    lines += ["", "who can do it:", *cut_to_fit(_ladder(audit), widest), ""]
    worst = audit.finding(conclusion.line.name)
    if worst.cells is not None:
        which = f" ({worst.name})" if len(audit.findings) > 1 else ""
        lines.append(f"cells: {plain_spaces(str(worst.cells))}{which}")
    if audit.ceiling is not None:
        lines.append(f"ceiling for every attack on this training: {audit.ceiling.sentence}")
        lines += [f"it assumes: {assumption}" for assumption in audit.ceiling.assumptions]
    if audit.privacy is not None:
        lines.append(f"in any game: {plain_spaces(audit.privacy.sentence)}")
    if audit.kind == "this procedure" and audit.chance is None:
        lines += _more_numbers(audit)
    lines += [f"note: {note}" for note in audit.notes]
    if not conclusion.open:  # else the conclusion names them
        lines += [f"not answered: {why}" for why in audit.unanswered]
    lines += audit.left_out
    # lines of a table fit already; others are broken between words, and go on below with an indent
    folded = [
        [line] if len(line) <= widest else wrap(line, widest, subsequent_indent="  ", break_on_hyphens=False)
        for line in lines
    ]
    return "\n".join(part for parts in folded for part in parts)


def line_cells(audit: Audit) -> list[tuple[str, ...]]:
    """Below the header, a row for each line and baseline."""
    rows, summary = list[tuple[str, ...]](), audit.summary()
    for finding in audit.findings:
        numbers = summary[finding.name]
        rebuilt, error = _rate(numbers["rebuilt"], audit), _error(numbers["median_error"])
        nearer = "" if audit.chance is not None else _rate(numbers["beats_baselines"], audit)
        time = f"{numbers['milliseconds_per_record']:.3f}"
        reasons = [f"{100 * numbers[reason]:.1f} % {reason}" for reason in REASONS if numbers.get(reason, 0) > 0]
        rows.append((finding.name, rebuilt, nearer, error, _labels(numbers, audit), time, ", ".join(reasons)))
    for name in audit.baselines:
        rebuilt, error = _rate(summary[name]["rebuilt"], audit), _error(summary[name]["median_error"])
        rows.append((name, rebuilt, "", error, "", "", ""))
    return rows


def _ladder(audit: Audit) -> list[tuple[str, ...]]:
    """Every attacker, the weakest first: the grade, how much came back, by which attack."""
    return [
        (f"  {first_upper(who(rung.attacker))}", str(rung.grade or ""), plain_spaces(reached(rung)), rung.attack)
        for rung in audit.attackers.rungs
    ]


def terminal_columns() -> int:
    """How wide lines may be: as the terminal that stdout is, within limits; no limit where it is a file or a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return sys.maxsize
    return min(max(shutil.get_terminal_size().columns, NARROWEST), WIDTH)


def cut_to_fit(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The rows of a table, its cells side by side; the widest columns are folded until no line is wider than this."""
    least = least_widths(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + 2 * len(widths) - 2 > width and widths != least:
        widest = max((place for place in range(len(widths)) if widths[place] > least[place]), key=widths.__getitem__)
        widths[widest] -= 1
    lines: list[tuple[str, ...]] = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        folded = [wrap(cell, wide, break_long_words=False, break_on_hyphens=False) or [""] for cell, wide in cells]
        lines += zip_longest(*folded, fillvalue="")
    return side_by_side(lines, widths)


def least_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Of each column, the longest word."""
    return [max(len(word) for cell in column for word in cell.split() or [""]) for column in zip(*rows, strict=True)]


def plain_spaces(text: str) -> str:
    """Text for a terminal, which may break lines anywhere."""
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _more_numbers(audit: Audit) -> list[str]:
    """Success at the oracle's mean error, true positives where there are games enough, and the mean by every metric."""
    released = audit.findings[0]
    limit = f"error <= {audit.oracle_error:.4g}, the mean error of the {audit.oracle}"
    lines = [f"success rate ({limit}): {audit.success()}"]
    lines += [str(audit.tpr(null=null)) for null, scores in released.null_errors.items() if len(scores) >= FEWEST_NULLS]
    means = [f"{name} {errors.mean():.4g}" for name, errors in released.errors.items() if np.isfinite(errors).all()]
    return [*lines, f"means: {'; '.join(means)}"]


def _labels(numbers: dict[str, float], audit: Audit) -> str:
    """Classes are right or wrong, none if they are not attacked; numbers are off by some deviations."""
    if audit.labels_given:
        return "given"
    if "label_error" in numbers:
        return f"off by {_error(numbers['label_error'])} dev."
    return f"{_rate(numbers['labels_right'], audit)} right" if numbers["labels_right"] else "none"


def _rate(share: float, audit: Audit) -> str:
    text = f"{100 * share:.1f} %"
    if audit.complete:
        return text
    low, high = audit.interval(round(share * len(audit.games)))
    return f"{text} ({100 * low:.1f}-{100 * high:.1f})"


def _error(value: float) -> str:
    return f"{value:.3f}" if 0.001 <= value < 1000 else f"{value:.1e}"


class Fact(NamedTuple):
    """A number for the first screen, its name, and a detail."""

    value: str
    name: str
    detail: str


def as_card(audit: Audit) -> str:
    """The first screen as HTML for a notebook."""
    decision = decide(audit)
    return card(
        decision.suggestion.tone,
        kicker=audit.subject,
        grade=audit.grade,
        headline=audit.conclusion.headline,
        lead=f"Suggestion: {decision.suggestion}. {decision.reason}",
        text=(decision.people, *audit.conclusion.open),
        facts=facts(audit),
        small=f"{audit.kind} · {audit.attack} · {audit.threat} · no policy applied",
    )


def facts(audit: Audit) -> tuple[Fact, ...]:
    """Success with its interval beside luck, and the typical error."""
    if audit.chance is None:
        return (*_of_guesses(audit), *_of_membership(audit), *_proof(audit))
    guessing = Fact(f"{100 * audit.chance:.3g}{SIGN}", "by guessing", "in the long run, without the model")
    return (_of_games(audit, audit.conclusion.line.rebuilt, "identified"), guessing, *_proof(audit))


def _of_games(audit: Audit, won: int, name: str, by: str = "", beside: str = "") -> Fact:
    """A share of the games, with its interval where one is estimated."""
    games = len(audit.games)
    return Fact(percent(won / games), name, f"{count(won)} of {count(games)}{by}{_sure(audit, won)}{beside}")


def _of_guesses(audit: Audit) -> Iterator[Fact]:
    """The worst line, and the model as released if that is another line."""
    line, released, weakest = audit.conclusion.line, audit.findings[0], audit.conclusion.weakest
    worst = audit.finding(line.name)
    by = "" if weakest is None or weakest.attacker == audit.adversary else f" by {who(audit.adversary)}"
    beside = "" if worst.luck is None else f"; {by_luck(worst.luck.rebuilt_by_luck)}"
    is_other = line.name != released.name and audit.kind == "this model"
    yield _of_games(audit, line.rebuilt, "rebuilt at the optimum" if is_other else "rebuilt", by, beside)
    if is_other:
        yield _of_games(audit, int(released.rebuilt.sum()), "rebuilt as released")
    if line.targets > line.targets_guessed:  # else a guess gives as much
        guessed = f"; a guess from the other columns: {count(line.targets_guessed)}"
        yield _of_games(audit, line.targets, "of targets read", beside=guessed)
    if worst.cells is not None:
        yield Fact(percent(worst.cells.exact_share), "of cells exact", str(worst.cells))
    beside = "" if worst.luck is None else f"; {by_luck(worst.luck.nearer_by_luck)}"
    detail = f"baselines: {' and '.join(audit.baselines)}{_sure(audit, line.nearer)}{beside}"
    yield Fact(percent(line.nearer / len(audit.games)), "closer than every baseline", detail)
    errors = worst.errors[audit.criterion]
    oracle = number(float(np.median(audit.baselines[audit.oracle][audit.criterion])))
    between = None if audit.complete else median_interval(errors, spread=audit.split_spread)
    sure = "" if between is None else f"95{SIGN} interval {number(between[0])} to {number(between[1])}; "
    detail = f"{sure}the {audit.oracle}: {oracle}; in feature standard deviations"
    yield Fact(number(float(np.median(errors))), "median error", detail)


def _proof(audit: Audit) -> Iterator[Fact]:
    """What the noise proves: in this game, for two candidates, and epsilon."""
    if audit.ceiling is not None:
        proof = "certified" if audit.ceiling.certified else "not certified"
        yield Fact(at_most(audit.ceiling.upper), "ceiling in this game", f"success of any attack; {proof}")
    if audit.privacy is not None:
        two, privacy = audit.privacy.membership, audit.privacy
        yield Fact(at_most(two.upper), "ceiling for membership", "any attack that tells which of two records was used")
        if (ten := privacy.reconstruction) is not None:
            yield Fact(at_most(ten.upper), "ceiling for reconstruction", "any attack that names one of ten records")
        yield Fact(round_up(privacy.epsilon), "ε", f"at δ = {privacy.delta:g}; {privacy.adjacency}")


def _of_membership(audit: Audit) -> Iterator[Fact]:
    """Was this person in it?"""
    if (asked := audit.membership) is not None:
        detail = f"pairs of a person who was and one who was not; guessing 50{SIGN}; {plain_spaces(str(asked))}"
        yield Fact(percent(asked.share.value), "was this person in it?", detail)


def _sure(audit: Audit, won: int) -> str:
    return "" if audit.complete else f"; 95{SIGN} interval {interval(*audit.interval(won))}"
