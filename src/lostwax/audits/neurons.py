"""Which neurons hold a record, for a few games of an audit: what its report draws."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.access import Neuron, neurons
from lostwax.attacks.mnemonist import Mnemonist, ToMean
from lostwax.games import Attack, Guess, Hints, Knowledge, Reconstructor, Records, Release
from lostwax.games.facts import attack_facts

log = logging.getLogger(__name__)
FEWEST = 3  # games, of which one is the best, one the median and one the worst
MASKS_A_ROW = 10
SECONDS = 20.0  # for all of it: what would take longer is left out
OF_TIME_LEFT = 0.1  # ... or of what is left of a limit
AT_A_TIME = 64  # masked models that the attack is shown before the clock is looked at
OPERATIONS = 1e10  # a second, of the regressions
WARM = 1.0  # seconds until its rate tells how long all will take
NUMBERS = 2**27  # of the masks of one game


class NeuronShares(NamedTuple):
    """How much of a blind guess's squared error an attack is spared by what each neuron has learnt of the record.

    Minus a coefficient of `Mnemonist(erase=ToMean())` over that error: 0 where a neuron tells nothing, below where it
    misleads. They need not add up to 1, for neurons repeat one another.
    """

    places: tuple[int, int, int]  # in the audit's list of games: the best, the median, the worst
    rows: tuple[Neuron, ...]
    shares: NDArray[np.float64]  # (places, rows)
    standard_errors: NDArray[np.float64]  # (places, rows)


class _TooSlowError(Exception):
    """It would take longer than it may."""


def neuron_shares(
    attack: Attack,
    reconstruct: Reconstructor,
    knowledge: Knowledge,
    release: Release,
    guess: Guess,
    truth: Records,
    hints: Hints | None,
    *,
    seed: int,
    seconds: float = SECONDS,
) -> NeuronShares | None:
    """For an attack that answers any model at once (`reads_weights`), if it takes these seconds at most; else None.

    `truth` are the secrets of the m victims, (m, 1, ...), and `guess` what the attack made of them.
    """
    rows = neurons(knowledge.net)
    mnemonist = Mnemonist(masks=MASKS_A_ROW * max(1, len(rows)), erase=ToMean())
    few = len(release) < FEWEST
    if few or not attack_facts(attack).reads_weights or mnemonist.objection(knowledge, len(release)) is not None:
        return None
    errors = (guess.records.x.to(truth.x) - truth.x).double().square().flatten(1).mean(1)  # (m,)
    if not errors.isfinite().all():
        return None
    order = errors.argsort().tolist()
    places = order[0], order[len(order) // 2], order[-1]
    solving = len(places) * 2 * mnemonist.masks * len(rows) ** 2 / OPERATIONS
    if solving > seconds / 2 or mnemonist.masks * len(rows) > NUMBERS:
        log.info("Which of %d neurons hold a record is left out: it would take too long.", len(rows))
        return None
    timed = _timed(reconstruct, len(places) * mnemonist.masks, seconds - solving)
    try:
        explanation = mnemonist(timed, knowledge, release, truth, seed=seed, hints=hints, only=places)
    except _TooSlowError:
        log.info("Which of %d neurons hold a record is left out: it would take over %.2g s.", len(rows), seconds)
        return None
    blind = (knowledge.prior.x.mean(0).to(truth.x) - truth.x[list(places)]).double().square().flatten(1).mean(1)
    unit = blind.clamp_min(1e-300).unsqueeze(1).cpu()  # (places, 1)
    shares, standard_errors = (part.cpu() / unit for part in (-explanation.coefficients, explanation.standard_errors))
    return NeuronShares(places, rows, shares.numpy(), standard_errors.numpy())


def _timed(reconstruct: Reconstructor, models: int, seconds: float) -> Reconstructor:
    """The reconstructor, given a few models at a time; raises if all would take longer than `seconds`."""
    start, done = time.monotonic(), 0

    def answer(release: Release, hints: Hints | None = None) -> Guess:
        nonlocal done
        parts = []
        for some in torch.split(torch.arange(len(release)), AT_A_TIME):
            masked = Release({name: value[some.to(value.device)] for name, value in release.params.items()})
            parts.append(reconstruct(masked, None if hints is None else hints[some]).records)
            done += len(some)
            spent = time.monotonic() - start
            if spent > seconds or (spent > WARM and spent / done * models > seconds):
                raise _TooSlowError
        records = Records.together(parts)
        return Guess(records, records.x.new_zeros(len(records), 1))

    return answer
