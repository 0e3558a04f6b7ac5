"""Which attacks play when the user names none: all that have no objection, the cheapest first, while there is time."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any, NamedTuple

from lostwax import attacks
from lostwax.attacks import NearestCandidate
from lostwax.audits.cost import Rate, predicted_seconds, shortened
from lostwax.audits.neurons import NeuronShares
from lostwax.threats import Informed
from lostwax.types import Attack, Guess, Knowledge

log = logging.getLogger(__name__)


class Played(NamedTuple):
    """One attack's answer to all games."""

    attack: Attack
    guess: Guess
    seconds: float  # of guessing; preparing is not counted
    neurons: NeuronShares | None = None
    untrained: Guess | None = None  # what it makes of Gaussian weights, in a game of the weak adversary

    @property
    def name(self) -> str:
        """What the attack is called: its type, and that of the attack inside."""
        return _name(self.attack)


class Tried(NamedTuple):
    """What came of all attacks."""

    played: tuple[Played, ...]
    unanswered: tuple[str, ...] = ()  # those that could play, but were too slow or failed, each with the reason
    left_out: tuple[str, ...] = ()  # those that object to the game, each with the reason


class TimeUp(Exception):  # noqa: N818  # no error: it ends an attack as Ctrl-C would
    """The time of an attack is over."""


def all_attacks(knowledge: Knowledge) -> tuple[Attack, ...]:
    """Every attack of the room that needs no argument, with its default settings.

    Where the game gives candidates, an attack that rebuilds records answers the candidate nearest to what it rebuilt.
    """
    kinds = [getattr(attacks, name) for name in attacks.__all__]
    found: list[Attack] = [kind() for kind in kinds if hasattr(kind, "prepare") and _needs_no_argument(kind)]
    threat = knowledge.threat
    if not isinstance(threat, Informed) or threat.candidates is None:
        return tuple(found)
    alone = replace(knowledge, threat=replace(threat, candidates=None))
    rebuilds = [attack.objection(alone) is None for attack in found]
    return tuple(NearestCandidate(one) if plain else one for one, plain in zip(found, rebuilds, strict=True))


def try_all(knowledge: Knowledge, play: Callable[[Attack], Played], *, games: int, end: float | None) -> Tried:
    """Play every attack without an objection, the cheapest first, until the clock (`time.monotonic`) says `end`.

    One that is predicted to take longer than the time left is not begun; one that takes longer after all is stopped;
    one that fails, for want of memory perhaps, leaves the field to the others. An attack of unknown cost comes last.
    """
    entrants = [(attack, attack.objection(knowledge)) for attack in all_attacks(knowledge)]
    refused = [objection for _, objection in entrants if objection is not None]
    willing = [attack for attack, objection in entrants if objection is None]
    if not willing:
        raise ValueError(f"audit: no attack can play this game. {' '.join(refused)}")
    rate = Rate.measured(knowledge)
    costs = sorted((predicted_seconds(one, knowledge, games, rate), number) for number, one in enumerate(willing))
    played: list[Played] = []
    unanswered: list[str] = []
    for seconds, number in costs:
        attack, left = willing[number], None if end is None else end - time.monotonic()
        if left is not None and left > 0 and (sooner := shortened(attack, left)) is not attack:
            attack, seconds = sooner, min(seconds, left)
        if left is not None and left < (0 if seconds == math.inf else seconds):
            unanswered.append(f"{_name(attack)} would take {_words(seconds)}, and {_words(max(left, 0))} were left.")
            continue
        log.info("%s plays (%s) ...", _name(attack), _words(seconds))
        start = time.monotonic()
        try:
            with _stopped_after(left):
                answer = play(attack)
        except TimeUp:
            spent = _words(time.monotonic() - start)
            unanswered.append(f"{_name(attack)} was stopped: it was not done after {spent}.")
        except ValueError as error:  # it found out too late that it cannot play
            unanswered.append(f"{_name(attack)} failed: {error}")
        except (RuntimeError, MemoryError) as error:  # torch's, numpy's: too little memory, a matrix without an inverse
            log.warning("%s failed.", _name(attack), exc_info=True)
            unanswered.append(f"{_name(attack)} failed: {_one_line(error)}")
        else:
            played.append(answer)
            log.info("%s has played, in %s.", _name(attack), _words(time.monotonic() - start))
    if not played:
        cure = "" if end is None else " Allow more minutes (max_minutes), or name a quicker attack."
        in_time = "" if end is None else " in time"
        raise ValueError(f"audit: no attack has an answer{in_time}. {' '.join(unanswered)}{cure}")
    return Tried(tuple(played), tuple(unanswered), tuple(refused))


@contextmanager
def _stopped_after(seconds: float | None) -> Iterator[None]:
    """TimeUp after so many seconds; None, another thread than the main one, or a system without alarms: never."""
    if seconds is None or not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # it may ring just now
            signal.signal(signal.SIGALRM, before)


def _needs_no_argument(kind: Any) -> bool:
    return is_dataclass(kind) and all(
        field.default is not MISSING or field.default_factory is not MISSING for field in fields(kind)
    )


def _name(attack: Attack) -> str:
    inside = getattr(attack, "attack", None)
    return type(attack).__name__ + (f"({_name(inside)})" if inside is not None else "")


def _one_line(error: Exception) -> str:
    """Its type and what it says."""
    return " ".join("".join(traceback.format_exception_only(error)).split())


def _words(seconds: float) -> str:
    if seconds == math.inf:
        return "for an unknown time"
    for unit, size in (("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:,.1f} {unit}"
    return f"about {seconds:.2g} s"
