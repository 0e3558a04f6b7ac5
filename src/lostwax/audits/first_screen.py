"""The first screen of an audit: grade, suggestion and the numbers behind them, as a page and a notebook show them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lostwax.audits.conclusion import Line
from lostwax.audits.decision import decide
from lostwax.audits.words import by_luck
from lostwax.cards import card
from lostwax.metrics.estimate import median_interval
from lostwax.numerals import SIGN, at_most, count, interval, number, percent, round_up

if TYPE_CHECKING:
    from lostwax.audits.audit import Audit


class Fact(NamedTuple):
    """A number for the first screen, its name, and a detail."""

    value: str
    name: str
    detail: str


def as_card(audit: Audit) -> str:
    """The first screen as HTML for a notebook."""
    found = decide(audit)
    return card(
        found.suggestion.tone,
        kicker=audit.subject,
        grade=audit.grade,
        headline=audit.conclusion.headline,
        lead=f"Suggestion: {found.suggestion}. {found.reason}",
        text=(found.people, *audit.conclusion.open),
        facts=facts(audit),
        small=f"{audit.kind} · {audit.attack} · {audit.threat} · no policy applied",
    )


def facts(audit: Audit) -> tuple[Fact, ...]:
    """Success with its interval beside luck, and the typical error."""
    line = audit.conclusion.line
    if audit.chance is not None:
        detail = f"{count(line.rebuilt)} of {count(len(audit.games))}{_sure(audit, line.rebuilt)}"
        guessing = Fact(f"{100 * audit.chance:.3g}{SIGN}", "by guessing", "in the long run, without the model")
        return Fact(_share(audit, line.rebuilt), "identified", detail), guessing, *_proof(audit)
    return (
        *_rebuilt(audit, line),
        *_target(audit, line),
        *_cells(audit, line),
        _nearer(audit, line),
        _typical(audit, line),
        *_membership(audit),
        *_proof(audit),
    )


def _proof(audit: Audit) -> Iterator[Fact]:
    """What the noise proves: in this game, for two candidates, and epsilon."""
    if audit.ceiling is not None:
        proof = "certified" if audit.ceiling.certified else "not certified"
        yield Fact(at_most(audit.ceiling.upper), "ceiling in this game", f"success of any attack; {proof}")
    if audit.privacy is not None:
        two, privacy = audit.privacy.membership, audit.privacy
        yield Fact(at_most(two.upper), "ceiling for membership", "any attack that tells which of two records was used")
        yield Fact(round_up(privacy.epsilon), "ε", f"at δ = {privacy.delta:g}; {privacy.adjacency}")


def _membership(audit: Audit) -> tuple[Fact, ...]:
    """Was this person in it?"""
    if audit.membership is None:
        return ()
    share, positives = audit.membership.share, audit.membership.true_positives
    detail = (
        f"pairs of a person who was and one who was not; 95{SIGN} interval {interval(share.low, share.high)}; guessing "
        f"50{SIGN}; at a false-positive rate of 1{SIGN}: {percent(positives.value)}"
    )
    return (Fact(percent(share.value), "was this person in it?", detail),)


def _rebuilt(audit: Audit, line: Line) -> tuple[Fact, ...]:
    """The worst line, and the model as released if that is another line."""
    luck, games = audit.finding(line.name).luck, count(len(audit.games))
    chance = "" if luck is None else f"; {by_luck(luck.rebuilt_by_luck)}"
    detail = f"{count(line.rebuilt)} of {games}{_sure(audit, line.rebuilt)}{chance}"
    released = audit.findings[0]
    if line.name == released.name or audit.kind == "this procedure":
        return (Fact(_share(audit, line.rebuilt), "rebuilt", detail),)
    won = int(released.rebuilt.sum())
    return (
        Fact(_share(audit, line.rebuilt), "rebuilt at the optimum", detail),
        Fact(_share(audit, won), "rebuilt as released", f"{count(won)} of {games}{_sure(audit, won)}"),
    )


def _target(audit: Audit, line: Line) -> tuple[Fact, ...]:
    """How many targets come back, where this is more than a guess gives."""
    if line.targets <= line.targets_guessed:
        return ()
    guessed = f"a guess from the other columns: {count(line.targets_guessed)}"
    detail = f"{count(line.targets)} of {count(len(audit.games))}{_sure(audit, line.targets)}; {guessed}"
    return (Fact(_share(audit, line.targets), "of targets read", detail),)


def _cells(audit: Audit, line: Line) -> tuple[Fact, ...]:
    """How many cells are exact, where the audit tells of single cells."""
    cells = audit.finding(line.name).cells
    return () if cells is None else (Fact(percent(cells.exact_share), "of cells exact", str(cells)),)


def _nearer(audit: Audit, line: Line) -> Fact:
    luck = audit.finding(line.name).luck
    chance = "" if luck is None else f"; {by_luck(luck.nearer_by_luck)}"
    detail = f"baselines: {' and '.join(audit.baselines)}{_sure(audit, line.nearer)}{chance}"
    return Fact(_share(audit, line.nearer), "closer than every baseline", detail)


def _typical(audit: Audit, line: Line) -> Fact:
    errors = audit.finding(line.name).errors[audit.criterion]
    oracle = number(float(np.median(audit.baselines[audit.oracle][audit.criterion])))
    between = None if audit.complete else median_interval(errors, spread=audit.split_spread)
    sure = "" if between is None else f"95{SIGN} interval {number(between[0])} to {number(between[1])}; "
    detail = f"{sure}the {audit.oracle}: {oracle}; in feature standard deviations"
    return Fact(number(float(np.median(errors))), "median error", detail)


def _share(audit: Audit, won: int) -> str:
    return percent(won / len(audit.games))


def _sure(audit: Audit, won: int) -> str:
    return "" if audit.complete else f"; 95{SIGN} interval {interval(*audit.interval(won))}"
