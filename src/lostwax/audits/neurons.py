"""Which neurons hold a record, for a few games of an audit: what its report draws."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.access import Neuron, neurons
from lostwax.attacks import EmbeddingRecoNN, KernelRidge, Mnemonist, MnemonistRecoNN, RecoNN, ToMean
from lostwax.types import Attack, Guess, Hints, Knowledge, Reconstructor, Records, Release

READERS = (RecoNN, MnemonistRecoNN, EmbeddingRecoNN, KernelRidge)  # they answer any model at once, a masked one too
FEWEST = 3  # games, of which one is the best, one the median and one the worst
MASKS_A_ROW = 10
MOST = 2**31  # numbers of all masked models: seconds


class NeuronShares(NamedTuple):
    """How much of a blind guess's squared error an attack is spared by what each neuron has learnt of the record.

    Minus a coefficient of `Mnemonist(erase=ToMean())` over that error: 0 where a neuron tells nothing, below where it
    misleads. They need not add up to 1, for neurons repeat one another.
    """

    places: tuple[int, int, int]  # in the audit's list of games: the best, the median, the worst
    rows: tuple[Neuron, ...]
    shares: NDArray[np.float64]  # (places, rows)
    standard_errors: NDArray[np.float64]  # (places, rows)


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
) -> NeuronShares | None:
    """For an attack that has learnt to read models, where that takes seconds; None for all others.

    `truth` are the secrets of the m victims, (m, 1, ...), and `guess` what the attack made of them.
    """
    rows = neurons(knowledge.net)
    mnemonist = Mnemonist(masks=MASKS_A_ROW * max(1, len(rows)), erase=ToMean())
    few = len(release) < FEWEST
    if few or not isinstance(attack, READERS) or mnemonist.objection(knowledge, len(release)) is not None:
        return None
    errors = (guess.records.x.to(truth.x) - truth.x).double().square().flatten(1).mean(1)  # (m,)
    if not errors.isfinite().all():
        return None
    order = errors.argsort().tolist()
    places = order[0], order[len(order) // 2], order[-1]
    if len(places) * mnemonist.masks * sum(value[0].numel() for value in release.params.values()) > MOST:
        return None
    found = mnemonist(reconstruct, knowledge, release, truth, seed=seed, hints=hints, only=places)
    blind = (knowledge.prior.x.mean(0).to(truth.x) - truth.x[list(places)]).double().square().flatten(1).mean(1)
    unit = blind.clamp_min(1e-300).unsqueeze(1).cpu()  # (places, 1)
    shares, standard_errors = (part.cpu() / unit for part in (-found.coefficients, found.standard_errors))
    return NeuronShares(places, rows, shares.numpy(), standard_errors.numpy())
