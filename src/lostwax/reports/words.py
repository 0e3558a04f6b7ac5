"""What an audit means for somebody about to release the model, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lostwax.audits.text import CURES, left_open
from lostwax.metrics import true_positives
from lostwax.metrics.estimate import median_interval
from lostwax.reports.numerals import SIGN, at_most, count, interval, number, percent
from lostwax.reports.tally import Tally

if TYPE_CHECKING:
    from lostwax.audits import Audit

FEW = 30  # games: below, the answer says how little they show


class Fact(NamedTuple):
    """A number for the first screen, what it is, and what to know with it."""

    value: str
    name: str
    detail: str


class Answer(NamedTuple):
    """The first screen."""

    leaks: bool
    headline: str
    sentences: tuple[str, ...]
    facts: tuple[Fact, ...]
    advice: tuple[str, ...]


def answer(audit: Audit) -> Answer:
    """Can records be rebuilt, how many of how many, compared with what, and what to do."""
    found = _with_what_is_open(audit, _answer(audit, Tally.of(audit)))
    if audit.ceiling is None:
        return found
    blind = f", if a blind guess wins at most {percent(audit.ceiling.baseline)}" if audit.ceiling.blind_at_most else ""
    ceiling = (
        f"Whatever the attack, it succeeds in at most {at_most(audit.ceiling.upper)} of games{blind}: training adds "
        "noise."
    )
    decide = "The ceiling holds for every attack: decide whether it is low enough, or add noise."
    return found._replace(sentences=(*found.sentences, ceiling), advice=(decide, *found.advice[:1]))


def _answer(audit: Audit, tally: Tally) -> Answer:
    if audit.chance is not None:
        return _named(audit, tally)
    if tally.rebuilt > tally.without:
        return _rebuilt(audit, tally)
    if tally.converged > tally.without:
        return _by_accident(audit, tally)
    if tally.near and _beyond_chance(audit):
        return _near(audit, tally)
    return _none(audit, tally)


def _with_what_is_open(audit: Audit, found: Answer) -> Answer:
    """No all-clear where something that should have been tried has no answer."""
    sentences = left_open(audit)
    if not sentences or found.leaks:
        return found._replace(sentences=(*found.sentences, *sentences))
    return found._replace(
        headline=f"{found.headline.removesuffix('.')}, but not all was tried.",
        sentences=(*found.sentences, *sentences),
        advice=(CURES[audit.kind], *found.advice),
    )


def _rebuilt(audit: Audit, tally: Tally) -> Answer:
    share = tally.rebuilt / tally.played
    which = "Every record tried" if share == 1 else "Most records" if share >= 0.5 else "Some records"
    if tally.played == 1:
        which = "The record tried"
    return Answer(
        leaks=True,
        headline=f"{which} can be rebuilt from {_released(audit)}.",
        sentences=(
            f"{_came_back(tally, ' almost exactly')} {_without(tally)}",
            *_nearer(tally),
            *_uncertainty(tally),
        ),
        facts=_facts(audit, tally),
        advice=(
            _keep_back(audit),
            "Train with noise that hides any one record (differential privacy). “What protects” below says how much.",
            "Audit the protected model again before it goes out.",
        ),
    )


def _by_accident(audit: Audit, tally: Tally) -> Answer:
    return Answer(
        leaks=True,
        headline="Records stay hidden only until the model is trained to the end.",
        sentences=(
            f"{_came_back(tally, ' from the model as it is')} From the same model trained to the end, "
            f"{'it does' if tally.played == 1 else f'{count(tally.converged)} do'}. What hides records here is that "
            "training stopped early, which is accidental noise and no defence, or that the model was fitted on other "
            "rows or weights than these.",
        ),
        facts=(
            _rebuilt_fact(tally),
            Fact(
                percent(tally.converged / tally.played),
                "rebuilt when trained to the end",
                f"{count(tally.converged)} of {tally.records}, from the same model at its optimum",
            ),
            _without_fact(tally),
        ),
        advice=(
            "Treat this model as one from which records can be rebuilt: better attacks get round such noise.",
            "See that the audit was given the rows, and the sample weights, that the model was fitted with.",
            "Train with noise that hides any one record (differential privacy). “What protects” below says how much.",
        ),
    )


def _near(audit: Audit, tally: Tally) -> Answer:
    return Answer(
        leaks=True,
        headline="No record comes back exactly, but the model gives some away.",
        sentences=(
            f"In {count(tally.near)} of {count(tally.played)} games the reconstruction comes nearer to the secret "
            "record than anything the attacker had without the model.",
            *_uncertainty(tally),
        ),
        facts=(_rebuilt_fact(tally), _nearer_fact(audit, tally), _error_fact(audit, tally)),
        advice=(
            "Look at the reconstructions below. Would the people in the records mind what they show?",
            _keep_back(audit),
            "Or train with noise that hides any one record; “What protects” below says how much.",
        ),
    )


def _none(audit: Audit, tally: Tally) -> Answer:
    first = _came_back(tally) if tally.rebuilt == 0 else f"{_came_back(tally)} {_without(tally)}"
    who, what = _attacks(tally)
    few = (
        (f"{tally.played} games are few: play more before you rely on this.",)
        if tally.played < FEW and not tally.every
        else ()
    )
    return Answer(
        leaks=False,
        headline=f"{who} rebuilds no record." if tally.rebuilt == 0 else f"{who} learns nothing from the model.",
        sentences=(first, f"That is the result of {what}, no proof that none can.", *_uncertainty(tally)),
        facts=_facts(audit, tally),
        advice=(
            *few,
            "Try stronger attacks, and ones made for this kind of model.",
            "Only noise with a proven ceiling (differential privacy) holds for every attack; see “What protects”.",
        ),
    )


def _named(audit: Audit, tally: Tally) -> Answer:
    chance = audit.chance or 0.0
    leaks = tally.low > chance
    choices = f"{round(1 / chance):,} candidates"
    guessing = f"{100 * chance:.3g}{SIGN}"
    picked = f"{count(tally.rebuilt)} of {tally.records}"
    return Answer(
        leaks=leaks,
        headline=(
            "Whose record was used can be told from the model."
            if leaks
            else f"{_attacks(tally)[0]} tells whose record was used no better than a guess."
        ),
        sentences=(
            f"In {count(tally.rebuilt)} of {count(tally.played)} games the right record is picked out of {choices}; "
            f"guessing picks it in {guessing}.",
            *_uncertainty(tally),
        ),
        facts=(
            Fact(percent(tally.rebuilt / tally.played), "picked out", f"{picked}; {_interval(tally)}"),
            Fact(guessing, "by guessing", f"one of {choices}"),
        ),
        advice=(
            (_keep_back(audit), "Train with noise that hides any one record; “What protects” below says how much.")
            if leaks
            else ("Play more games, and stronger attacks, before you rely on this.",)
        ),
    )


def _attacks(tally: Tally) -> tuple[str, str]:
    """Who played, as the subject of a sentence and as its object."""
    if tally.attacks == 1:
        return "This attack", "one attack"
    return f"The best of {tally.attacks} attacks", f"{tally.attacks} attacks"


def _facts(audit: Audit, tally: Tally) -> tuple[Fact, ...]:
    return (_rebuilt_fact(tally), _without_fact(tally), _error_fact(audit, tally))


def _rebuilt_fact(tally: Tally) -> Fact:
    interval = "all were tried" if tally.every else _interval(tally)
    detail = f"{count(tally.rebuilt)} of {tally.records}; {interval}"
    return Fact(percent(tally.rebuilt / tally.played), "rebuilt", detail)


def _without_fact(tally: Tally) -> Fact:
    detail = f"{count(tally.without)} of {count(tally.played)}, by the {tally.without_name}"
    return Fact(percent(tally.without / tally.played), "without the model", detail)


def _error_fact(audit: Audit, tally: Tally) -> Fact:
    errors = audit.findings[0].errors[audit.criterion]
    oracle = number(float(np.median(audit.baselines[audit.oracle][audit.criterion])))
    between = None if tally.every else median_interval(errors)
    sure = "" if between is None else f"95{SIGN} interval {number(between[0])} to {number(between[1])}; "
    detail = f"{sure}the {audit.oracle}: {oracle}; in standard deviations of a feature"
    return Fact(number(float(np.median(errors))), "typical error", detail)


def _nearer_fact(audit: Audit, tally: Tally) -> Fact:
    share = percent(tally.near / tally.played)
    low, high = audit.interval(tally.near)
    sure = "" if tally.every else f"; 95{SIGN} interval {interval(low, high)}"
    return Fact(share, "closer than any guess", f"than the {' and the '.join(audit.baselines)}{sure}")


def _beyond_chance(audit: Audit) -> bool:
    """Where false alarms can be counted, more is asked than lucky guesses: more games won at a rate of 10 % of them.

    Of so large a rate few games tell much.
    """
    return all(
        true_positives(audit.errors, scores, null=null, fpr=0.1).low > 0.1
        for null, scores in audit.findings[0].null_errors.items()
        if len(scores) >= FEW
    )


def _came_back(tally: Tally, how: str = "") -> str:
    if tally.played == 1:
        return (
            f"The one record tried came back{how}."
            if tally.rebuilt
            else f"The one record tried did not come back{how}."
        )
    return f"{_of(tally)} came back{how}."


def _of(tally: Tally) -> str:
    if tally.rebuilt == tally.played:
        return f"All {tally.records}"
    return f"{count(tally.rebuilt) if tally.rebuilt else 'None'} of {tally.records}"


def _without(tally: Tally) -> str:
    some = "none" if tally.without == 0 else count(tally.without)
    return f"Without the model, the best guess gets {some}."


def _nearer(tally: Tally) -> tuple[str, ...]:
    if not tally.near:
        return ()
    return (f"{count(tally.near)} more come nearer than anything the attacker had without the model.",)


def _uncertainty(tally: Tally) -> tuple[str, ...]:
    if tally.every or tally.played >= FEW:
        return ()
    return (f"With so few games the true share may be anywhere from {interval(tally.low, tally.high)}.",)


def _interval(tally: Tally) -> str:
    return f"95{SIGN} interval {interval(tally.low, tally.high)}"


def _released(audit: Audit) -> str:
    return "this model" if audit.kind == "this model" else "models trained this way"


def _keep_back(audit: Audit) -> str:
    if audit.kind == "this model":
        return "Do not hand out this model’s weights if its training records are private."
    return "Do not hand out the weights of models trained this way on private records."
