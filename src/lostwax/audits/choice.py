"""Which attacks run when the user names none: all that apply, the strongest first, while there is time."""

from __future__ import annotations

import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from lostwax import attacks
from lostwax.attacks import NearestCandidate
from lostwax.audits.play import Played
from lostwax.clock import Clock, TimeUp, in_words
from lostwax.games import Attack, Knowledge
from lostwax.games.facts import attack_facts, attack_name
from lostwax.games.judges import judge_of
from lostwax.games.protocols import refusal
from lostwax.inits import trainable
from lostwax.learning.costs import Cost, Rate, predicted
from lostwax.shadows.game import covariance_models

SYSTEM = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
CONTROL_GROUPS = (  # of a container: limit, usage and details, in the two versions of control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
DOUBT = 6  # a prediction may be off by this factor: a machine with other work is slow at times
PROBING = 0.05  # of the time, for measuring the rate again after the first try
RESERVE = 0.2  # of the time left, for attacks that wait and need little
Victims = TypeVar("Victims")

log = logging.getLogger(__name__)


class Tried(NamedTuple):
    """What came of all attacks."""

    lines: tuple[Played, ...]
    unanswered: tuple[str, ...] = ()  # those that apply, but were too slow or failed, each with the reason
    left_out: tuple[str, ...] = ()  # those that are not applicable, each with the reason


def all_attacks(knowledge: Knowledge) -> tuple[Attack, ...]:
    """Every attack of the room that needs no argument, with its default settings."""

    def needs_no_argument(kind: Any) -> bool:
        attack = is_dataclass(kind) and isinstance(kind, Attack)
        return attack and not any(field.default is field.default_factory is MISSING for field in fields(kind))

    kinds = [getattr(attacks, name) for name in attacks.__all__]
    return tuple(answering(kind(), knowledge) for kind in kinds if needs_no_argument(kind))


def answering(attack: Attack, knowledge: Knowledge) -> Attack:
    """The attack; where candidates are given, one that rebuilds records answers the candidate nearest to its guess.

    Only naming the very candidate counts there, and a rebuilt record is none of them, however close it is.
    """
    names = knowledge.facts.given.candidates is None or attack_facts(attack).names_candidates
    return attack if names else NearestCandidate(attack)


def before_attacks(
    make: Callable[[], Victims], knowledge: Knowledge, *, games: int, clock: Clock
) -> tuple[Victims, Rate | None]:
    """What all attacks run against (the victims, and models for the null), and how fast models are trained.

    A limit that is too short for the victims is an error. Without a limit nothing is measured.
    """
    _check_memory(knowledge, games)
    if clock.end is None:
        return make(), None
    limit, rate = clock.left, None

    def work() -> Victims:
        nonlocal rate
        rate = Rate.begun(knowledge)
        if rate is None or not too_slow(rate):
            rate = Rate.measured(knowledge, seconds=min(1.0, PROBING * limit))
        if too_slow(rate):
            raise TimeUp
        return make()

    def too_slow(rate: Rate) -> bool:
        return models_before_attacks(knowledge, games, rate) * rate.training > DOUBT * clock.left

    try:
        return clock.run(work), rate
    except TimeUp:
        raise ValueError(_too_short(limit, knowledge, games, rate)) from None


class Entrant(NamedTuple):
    """An attack that waits, in the form that may be done in time."""

    attack: Attack
    cost: Cost
    changes: str = ""  # the settings in which this form differs from the attack

    @property
    def name(self) -> str:
        """Of the attack."""
        return attack_name(self.attack)

    def fits(self, left: float, doubt: float = 1.0) -> bool:
        """Is it done in the time left? One that goes by the clock takes less than it costs."""
        return self.cost.seconds / doubt <= left or attack_facts(self.attack).within is not None

    def excess(self, left: float, device: torch.device) -> str | None:
        """Why it is not even begun, if it would need more time or memory than there is."""
        if left == 0 or (not self.fits(left, DOUBT) and self.cost.seconds < math.inf):
            takes = in_words(self.cost.seconds) + (f" even with {self.changes}" if self.changes else "")
            return f"would take {takes}, and {in_words(left)} were left"
        free = available_bytes(torch.device(attack_facts(self.attack).device or device))
        if self.cost.bytes > free:
            return f"would need about {in_bytes(self.cost.bytes)} of memory, and {in_bytes(free)} were free"
        return None


def try_all(
    knowledge: Knowledge,
    play: Callable[[Attack], Played],
    *,
    games: int,
    clock: Clock,
    rate: Rate | None,
    entrants: Sequence[Attack] | None = None,
    alone: bool = False,
) -> Tried:
    """Run every attack that applies, of the `entrants` or of the room, while there is time; no line if none was done.

    The strongest that is predicted to fit into the time left goes next. Where none fits, predictions may still be too
    high by a factor of DOUBT: the strongest of the rest is tried, unless it would take longer even so. A share of the
    time is kept for weaker ones that need little. Errors of the one attack that was named, `alone`, are raised.
    """
    asked = [(attack, refusal(attack, knowledge)) for attack in (entrants or all_attacks(knowledge))]
    refused = [sentence for _, sentence in asked if sentence is not None]
    able = [attack for attack, sentence in asked if sentence is None]
    if not able:
        raise ValueError(f"audit: no attack is applicable. {' '.join(refused)}")
    able.sort(key=lambda attack: attack_facts(attack).strength, reverse=True)
    waiting = [_affordable(attack, knowledge, games, clock, rate) for attack in able]
    lines: list[Played] = []
    unanswered: list[str] = []
    while waiting:
        left = clock.left
        entrant = next((each for each in waiting if each.fits(left)), waiting[0])
        waiting.remove(entrant)
        name = entrant.name
        if (excess := entrant.excess(left, knowledge.prior.x.device)) is not None:
            unanswered.append(f"{name} {excess}.")
            continue
        log.info("%s runs ...", name)
        reserve = _reserve(entrant.cost.seconds, [each.cost.seconds for each in waiting], left)
        start, attack = time.monotonic(), _shortened(entrant.attack, left - reserve)
        try:
            line = clock.run(partial(play, attack), early=reserve)
        except TimeUp as stop:
            spent = in_words(time.monotonic() - start)
            unanswered.append(f"{name} was stopped: it was not done after {spent}.")
            if stop.still_running:  # beside it nothing can be timed, nor be sure of its random numbers
                unanswered += [f"{each.name} was not begun: {name} still runs." for each in waiting]
                break
        except (ValueError, RuntimeError, MemoryError) as error:
            if alone:
                raise
            said = str(error)  # of one that found out late that it does not apply
            if not isinstance(error, ValueError):  # of torch, numpy: too little memory, a matrix without an inverse
                log.warning("%s failed.", name, exc_info=True)
                said = " ".join("".join(traceback.format_exception_only(error)).split())  # its type, and what it says
            unanswered.append(f"{name} failed: {said}")
        else:
            lines.append(line)
            log.info("%s is done, after %s.", name, in_words(time.monotonic() - start))
            unanswered += _cut_short(entrant.attack, attack, time.monotonic() - start)
            if entrant.changes:
                said = f"ran with {entrant.changes}, because there was no time for its full form, which might find more"
                unanswered.append(f"{name} {said}.")
    if not lines and clock.end is None:
        raise ValueError(f"audit: no attack has an answer. {' '.join(unanswered)}")
    return Tried(tuple(lines), tuple(unanswered), tuple(refused))


def models_before_attacks(knowledge: Knowledge, games: int, rate: Rate) -> int:
    """How many models are trained before any attack begins: victims, and shadow models for a Gaussian null."""
    return games + (covariance_models(rate.parameters) if judge_of(knowledge.threat).gaussian_null else 0)


def _affordable(attack: Attack, knowledge: Knowledge, games: int, clock: Clock, rate: Rate | None) -> Entrant:
    """The attack, or the first of its cheaper forms that fits into the time left, else the cheapest.

    No seconds are predicted where there is no limit.
    """
    if rate is None:
        return Entrant(attack, Cost(0.0))
    full = Entrant(attack, predicted(attack, knowledge, games, rate))
    if clock.end is None:
        return full._replace(cost=full.cost._replace(seconds=0.0))
    if full.cost.seconds <= clock.left:
        return full
    cheaper = attack_facts(attack).cheaper(knowledge)
    forms = [Entrant(form, predicted(form, knowledge, games, rate), _changes(form, attack)) for form in cheaper]
    fitting = [form for form in forms if form.cost.seconds <= clock.left]
    return fitting[0] if fitting else min([full, *forms], key=lambda form: form.cost.seconds)


def _changes(form: Attack, attack: Attack) -> str:
    """The settings in which a cheaper form differs from the attack."""
    if not is_dataclass(form):
        return ""
    names = [field.name for field in fields(form) if getattr(form, field.name) != getattr(attack, field.name)]
    return ", ".join(f"{name}={getattr(form, name)!r}" for name in names)


def _reserve(seconds: float, waiting: Sequence[float], left: float) -> float:
    """Seconds of the time left that an attack must leave to the cheapest of those that wait, all by their costs.

    At most a share, and nothing that it needs itself; up to there DOUBT times what the others need.
    """
    cheap = 0.0
    for cost in sorted(waiting):
        if cheap + cost > RESERVE * left:
            break
        cheap += cost
    return min(DOUBT * cheap, RESERVE * left, max(left - seconds, 0.0)) if cheap else 0.0


def _shortened(attack: Attack, seconds: float) -> Attack:
    """The attack so that it is done within these seconds, if it learns for as long as it may; any other as it is."""
    within = attack_facts(attack).within
    return attack if within is None or seconds == math.inf else within(seconds)


def _cut_short(asked: Attack, played: Attack, seconds: float) -> list[str]:
    """A sentence if the attack goes by the clock and was given less time than it asks for, and took all of it."""
    minutes = attack_facts(played).minutes
    if minutes is None or minutes == attack_facts(asked).minutes or seconds < 60 * minutes:
        return []
    only = f"it learned for {minutes:.2g} minutes only, and might do better with more."
    return [f"{attack_name(played)} was cut short: {only}"]


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
    fewer = f", or use fewer games: about {fit:,} of {games:,} might do" if fit > 0 else ""
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
            f"{in_bytes(free)} are free. " + (f"Use fewer games: at most {fit:,} fit." if fit else "None would fit.")
        )


def available_bytes(device: torch.device) -> float:
    """What can be allocated there now, in a container too; infinite where the system does not say."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    free = [float("inf")]
    if (kilobytes := _number(SYSTEM, "MemAvailable:")) is not None:
        free.append(1024 * kilobytes)
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        free.append(float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for limit, usage, details in CONTROL_GROUPS:  # its limit less its usage, of which files read before can be dropped
        most, used = _number(GROUP / limit), _number(GROUP / usage)
        if most is not None and used is not None:
            free.append(max(most - used + (_number(GROUP / details, "inactive_file") or 0.0), 0.0))
    return min(free)


def in_bytes(number: float) -> str:
    """In words: 45 GB."""
    return f"{number / 1e9:,.2g} GB" if number < 1e10 else f"{number / 1e9:,.0f} GB"


def _number(path: Path, name: str | None = None) -> float | None:
    """The number in a file of the kernel's, or behind a name in it; None where there is none, as for "max"."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    words = [line.split() for line in lines]
    numbers = [line[-1] if name is None else line[1] for line in words if line and name in (None, line[0])]
    return float(numbers[0]) if numbers and numbers[0].isdigit() else None
