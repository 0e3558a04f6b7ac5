"""Which attacks play when the user names none: all that have no objection, the strongest first, while there is time."""

from __future__ import annotations

import logging
import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch

from lostwax import attacks
from lostwax.attacks import (
    ClosedForm,
    Ensemble,
    GradientInversion,
    KernelRidge,
    NearestCandidate,
    Newton,
    PriorAware,
    RecoNN,
    Refit,
    WeakRecoNN,
)
from lostwax.audits.clock import Clock, TimeUp, in_words
from lostwax.audits.cost import Rate, goes_by_the_clock, models_before_attacks, predicted_seconds, shortened
from lostwax.audits.memory import available_bytes, in_bytes, predicted_bytes
from lostwax.audits.neurons import NeuronShares
from lostwax.games import Attack, Guess, Informed, Knowledge
from lostwax.inits import trainable

STRONGEST_FIRST = (  # those that can be exact, then those that learn from simulated models; others come last
    ClosedForm,
    Refit,
    PriorAware,
    Newton,
    Ensemble,
    GradientInversion,
    KernelRidge,
    WeakRecoNN,
    RecoNN,
)
DOUBT = 6  # a prediction may be off by this factor: a machine with other work is slow at times
PROBING = 0.05  # of the time, for measuring the rate again after the first try
KEPT = 0.2  # of the time left, for attacks that wait and need little
Made = TypeVar("Made")

log = logging.getLogger(__name__)


class Played(NamedTuple):
    """One attack's answer to all games."""

    attack: Attack
    guess: Guess
    seconds: float  # of guessing; preparing is not counted
    neurons: NeuronShares | None = None
    untrained: Guess | None = None  # what it makes of Gaussian weights, in a game of the weak adversary
    strangers: Guess | None = None  # what it makes of other games' releases, where more is given than a class

    @property
    def name(self) -> str:
        """What the attack is called: its type, and that of the attack inside."""
        return _name(self.attack)


class Tried(NamedTuple):
    """What came of all attacks."""

    played: tuple[Played, ...]
    unanswered: tuple[str, ...] = ()  # those that could play, but were too slow or failed, each with the reason
    left_out: tuple[str, ...] = ()  # those that object to the game, each with the reason


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


def before_attacks(
    make: Callable[[], Made], knowledge: Knowledge, *, games: int, clock: Clock
) -> tuple[Made, Rate | None]:
    """What all attacks play against (the victims, and models for the null), and how fast models are trained.

    The clock runs for the probe that measures the rate and for the victims as it does for attacks. Without victims
    there is no audit, so that a limit which is too short for them is an error. Without a limit nothing is measured.
    """
    _check_memory(knowledge, games)
    if clock.end is None:
        return make(), None
    limit, rate = clock.left, None

    def work() -> Made:
        nonlocal rate
        rate = Rate.measured(knowledge, seconds=min(1.0, PROBING * limit))
        if models_before_attacks(knowledge, games, rate) * rate.training > DOUBT * clock.left:
            raise TimeUp
        return make()

    try:
        return clock.run(work), rate
    except TimeUp:
        raise ValueError(_too_short(limit, knowledge, games, rate)) from None


def try_all(
    knowledge: Knowledge, play: Callable[[Attack], Played], *, games: int, clock: Clock, rate: Rate | None
) -> Tried:
    """Play every attack without an objection, while there is time.

    The strongest that is predicted to fit into the time left goes next. Where none fits, predictions may still be too
    high by a factor of DOUBT: the strongest of the rest is tried, unless it would take longer even so. The clock stops
    an attack that takes too long after all; a share of the time is kept for weaker ones that need little. One that is
    predicted not to fit into memory is left out, and one that fails all the same leaves the field to the others.
    """
    entrants = [(attack, attack.objection(knowledge)) for attack in all_attacks(knowledge)]
    refused = [objection for _, objection in entrants if objection is not None]
    waiting = sorted((attack for attack, objection in entrants if objection is None), key=_strength)
    if not waiting:
        raise ValueError(f"audit: no attack can play this game. {' '.join(refused)}")
    costs = dict(zip(map(id, waiting), _costs(waiting, knowledge, games, clock, rate), strict=True))
    played: list[Played] = []
    unanswered: list[str] = []
    while waiting:
        left = clock.left
        attack = next((one for one in waiting if _fits(one, costs[id(one)], left)), waiting[0])
        waiting.remove(attack)
        seconds = costs[id(attack)]
        if left == 0 or (not _fits(attack, seconds / DOUBT, left) and seconds < math.inf):
            unanswered.append(f"{_name(attack)} would take {in_words(seconds)}, and {in_words(left)} were left.")
            continue
        if (too_large := _too_large(attack, knowledge, games, rate)) is not None:
            unanswered.append(too_large)
            continue
        log.info("%s plays ...", _name(attack))
        kept = _kept(seconds, [costs[id(one)] for one in waiting], left)
        start, asked, attack = time.monotonic(), attack, shortened(attack, left - kept)
        try:
            answer = clock.run(partial(play, attack), early=kept)
        except TimeUp as stop:
            spent = in_words(time.monotonic() - start)
            unanswered.append(f"{_name(attack)} was stopped: it was not done after {spent}.")
            if stop.still_running:  # beside it nothing can be timed, nor be sure of its random numbers
                unanswered += [f"{_name(one)} was not begun: {_name(attack)} still runs." for one in waiting]
                break
        except ValueError as error:  # it found out too late that it cannot play
            unanswered.append(f"{_name(attack)} failed: {error}")
        except (RuntimeError, MemoryError) as error:  # torch's, numpy's: too little memory, a matrix without an inverse
            log.warning("%s failed.", _name(attack), exc_info=True)
            unanswered.append(f"{_name(attack)} failed: {_one_line(error)}")
        else:
            played.append(answer)
            log.info("%s has played, in %s.", _name(attack), in_words(time.monotonic() - start))
            unanswered += _cut_short(asked, attack, time.monotonic() - start)
    if not played:
        cure = "" if clock.end is None else " Allow more minutes (max_minutes), or name a quicker attack."
        in_time = "" if clock.end is None else " in time"
        raise ValueError(f"audit: no attack has an answer{in_time}. {' '.join(unanswered)}{cure}")
    return Tried(tuple(played), tuple(unanswered), tuple(refused))


def _costs(willing: Sequence[Attack], knowledge: Knowledge, games: int, clock: Clock, rate: Rate | None) -> list[float]:
    """Predicted seconds of each attack; zero where there is no limit."""
    if rate is None or clock.end is None:
        return [0.0] * len(willing)
    return [predicted_seconds(one, knowledge, games, rate) for one in willing]


def _too_large(attack: Attack, knowledge: Knowledge, games: int, rate: Rate | None) -> str | None:
    """A sentence if the attack is predicted to need more memory than there is, where it computes."""
    if rate is None:
        return None
    needed = predicted_bytes(attack, knowledge, games, rate.features)
    free = available_bytes(torch.device(getattr(attack, "device", None) or knowledge.prior.x.device))
    if needed <= free:
        return None
    return f"{_name(attack)} would need about {in_bytes(needed)} of memory, and {in_bytes(free)} were free."


def _kept(seconds: float, waiting: Sequence[float], left: float) -> float:
    """Seconds of the time left that an attack must leave to the cheapest of those that wait, all by their costs.

    At most a share, and nothing that it needs itself; up to there DOUBT times what the others need.
    """
    cheap = 0.0
    for cost in sorted(waiting):
        if cheap + cost > KEPT * left:
            break
        cheap += cost
    return min(DOUBT * cheap, KEPT * left, max(left - seconds, 0.0)) if cheap else 0.0


def _fits(attack: Attack, seconds: float, left: float) -> bool:
    """Is it done in the time left, if it takes these seconds? One that goes by the clock takes less."""
    return seconds <= left or goes_by_the_clock(attack)


def _cut_short(asked: Attack, played: Attack, seconds: float) -> list[str]:
    """A sentence if the attack goes by the clock and was given less time than it asks for, and took all of it."""
    given, wanted = getattr(played, "minutes", None), getattr(asked, "minutes", None)
    if given is None or given == wanted or seconds < 60 * given:
        return []
    return [f"{_name(played)} was cut short: it learned for {given:.2g} minutes only, and might do better with more."]


def _strength(attack: Attack) -> int:
    """Its place in STRONGEST_FIRST, by the attack inside where there is one."""
    kind = type(attack.attack) if isinstance(attack, NearestCandidate) else type(attack)
    return STRONGEST_FIRST.index(kind) if kind in STRONGEST_FIRST else len(STRONGEST_FIRST)


def _too_short(limit: float, knowledge: Knowledge, games: int, rate: Rate | None) -> str:
    """The limit does not even suffice for the victims: how long they take, and how many would fit."""
    if rate is None:
        return (
            f"audit: max_minutes is too short: training a few models, to measure how long it takes, was not done after "
            f"{in_words(limit)}. Allow more minutes."
        )
    null = models_before_attacks(knowledge, 0, rate)
    needed = max((games + null) * rate.training, limit)
    fit = min(int(limit / rate.training / 2) - null, games // 2)  # half the time is for attacks
    also = f" and {null:,} models for the null" if null else ""
    fewer = f", or play fewer games: about {fit:,} of {games:,} might do" if fit > 0 else ""
    return (
        f"audit: max_minutes is too short: before any attack begins, training {games:,} victims{also} takes "
        f"{in_words(needed)} or more, and {in_words(limit)} were left. Allow more minutes{fewer}."
    )


def _check_memory(knowledge: Knowledge, games: int) -> None:
    """All victims are kept, and are in memory twice while they are put together."""
    x, parameters = knowledge.prior.x, sum(value.numel() for value in trainable(knowledge.net).values())
    needed, free = 2 * games * parameters * x.element_size(), available_bytes(x.device)
    if needed > free:
        fit = int(games * free / needed)
        raise ValueError(
            f"audit: {games:,} victims of {parameters:,} parameters would need about {in_bytes(needed)} of memory, and "
            f"{in_bytes(free)} are free. " + (f"Play fewer games: at most {fit:,} fit." if fit else "None would fit.")
        )


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
