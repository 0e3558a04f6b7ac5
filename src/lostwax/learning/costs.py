"""What an attack will cost in time, to a factor of about two on an idle machine, and in memory."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import torch

from lostwax.games import Attack, Cohort, Knowledge, Release, Trainer
from lostwax.games.facts import cost_of

FEWEST_PROBES, PROBES = 2, 5  # tries to measure the rate
MIN_ROUNDS = 20  # steps or epochs: of a shorter training, the first ones are too large a share to be tried before
# copies in memory at once, measured by benchmarks/memory.py
TABLES = 4  # of what is seen of the shadow models: as they come, standardised, and what is made on the way
VICTIMS = 2  # of what is seen of the victims
DOUBLE = 8  # bytes
MODELS_BYTES, MODEL_BYTES = 64e6, 4_096  # of the models in training on a CPU: in all, and per parameter
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
        cohort = _one_tile(knowledge)
        times: list[float] = []
        while len(times) < FEWEST_PROBES or (len(times) < PROBES and sum(times[1:]) < seconds):
            taken, release = _timed(knowledge.trainer, knowledge, cohort)
            times.append(taken)
        return cls.unknown(knowledge, release)._replace(training=min(times) / len(cohort))

    @classmethod
    def begun(cls, knowledge: Knowledge) -> Rate | None:
        """Predicted from the first steps or epochs; None if there are few, or if the trainer cannot be cut short."""
        cut_short = knowledge.facts.trainer.first_rounds
        once, thrice = (None, None) if cut_short is None else (cut_short(1), cut_short(3))
        if once is None or thrice is None or (rounds := once[1]) < MIN_ROUNDS:
            return None
        cohort = _one_tile(knowledge)
        _, release = _timed(once[0], knowledge, cohort)  # warm up
        first, third = (
            min(_timed(trainer, knowledge, cohort)[0] for _ in range(FEWEST_PROBES)) for trainer, _ in (once, thrice)
        )
        seconds = first + (rounds - 1) * max(third - first, 0.0) / 2
        return cls.unknown(knowledge, release)._replace(training=seconds / len(cohort))

    @classmethod
    def unknown(cls, knowledge: Knowledge, release: Release) -> Rate:
        """The sizes alone, from any models: where nothing is limited, nothing is measured."""
        first_model = Release({name: value[:1] for name, value in release.params.items()})
        return cls(0.0, knowledge.access(knowledge.net, first_model).shape[1], first_model.flat().shape[1])


def in_training(rate: Rate) -> float:
    """Bytes of the models that are trained at a time, on a CPU."""
    return min(MODELS_BYTES, MODEL_BYTES * float(rate.parameters))


def predicted(attack: Attack, knowledge: Knowledge, games: int, rate: Rate) -> Cost:
    """What the attack says that it costs; an unknown time where it does not say."""
    cost = cost_of(attack)
    return Cost(math.inf) if cost is None else Cost(*cost(knowledge, games, rate))


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


def _one_tile(knowledge: Knowledge) -> Cohort:
    """As many models as are trained at a time."""
    tile = knowledge.trainer.tile_size(knowledge.net, knowledge.threat.deal(knowledge.prior, 1, seed=0))
    return knowledge.threat.deal(knowledge.prior, tile, seed=0)


def _timed(trainer: Trainer, knowledge: Knowledge, cohort: Cohort) -> tuple[float, Release]:
    """Seconds of a training, and the models."""
    start = time.perf_counter()
    release = trainer(knowledge.net, cohort, seed=0)
    if release.flat().is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start, release
