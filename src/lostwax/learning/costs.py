"""What an attack will cost in time, to a factor of about two on an idle machine, and in memory."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from lostwax.games import Knowledge, Release

FEWEST_PROBES, PROBES = 2, 5  # tries to measure the rate
TABLES = 2  # of what is seen of the shadow models: as they come, and standardised
DOUBLE = 8  # bytes
OPERATIONS = 1e10  # per second, in double precision


class Cost(NamedTuple):
    """What `attack.cost(knowledge, games, rate)` predicts, from preparing to the last guess."""

    seconds: float
    bytes: float = 0.0  # tables that grow with the game: shadow models, decoders, Jacobians, kernels


class Rate(NamedTuple):
    """How fast this machine trains these victims."""

    training: float  # seconds per model, a tile at a time
    features: int  # what is seen of a model
    parameters: int  # of a model

    @classmethod
    def measured(cls, knowledge: Knowledge, *, seconds: float = 1.0) -> Rate:
        """From one tile of models: the best of a few tries within about this many seconds.

        The first try is never the only one: it loads code, starts processes and allocates, and can take a hundred times
        as long as the next.
        """
        net, trainer, threat, prior = knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior
        tile = trainer.tile_size(net, threat.deal(prior, 1, seed=0))
        cohort = threat.deal(prior, tile, seed=0)
        times: list[float] = []
        while len(times) < FEWEST_PROBES or (len(times) < PROBES and sum(times[1:]) < seconds):
            start = time.perf_counter()
            release = trainer(net, cohort, seed=0)
            flat = release.flat()
            if flat.is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return cls(min(times) / tile, knowledge.access(net, release).shape[1], flat.shape[1])

    @classmethod
    def unknown(cls, knowledge: Knowledge, release: Release) -> Rate:
        """Where nothing is limited, and so nothing measured: the sizes alone, from the victims."""
        one = Release({name: value[:1] for name, value in release.params.items()})
        return cls(0.0, knowledge.access(knowledge.net, one).shape[1], one.flat().shape[1])


def classes(knowledge: Knowledge) -> int:
    """How many there are in the prior; one, where labels are numbers."""
    y = knowledge.prior.y
    return 1 if y.is_floating_point() else len(torch.unique(y))


def largest_class(knowledge: Knowledge, shadows: int) -> float:
    """Of this many shadow models, those of the class that has most."""
    y = knowledge.prior.y
    if y.is_floating_point():
        return float(shadows)
    return shadows * float(torch.unique(y, return_counts=True)[1].max()) / len(y)
