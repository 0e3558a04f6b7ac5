"""What an attack will cost: the trainings it runs, at the rate that a short probe measures.

Right to a factor of about two on an idle machine. A choice between attacks needs no more, and a limit on time is kept
by the clock.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import singledispatch
from typing import NamedTuple

import torch
from torch import nn

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
from lostwax.audits.memory import classes, decoder_parameters
from lostwax.games import Attack, Informed, Knowledge, Release, Weak
from lostwax.learning.decoders import RowDecoder, Span
from lostwax.learning.standardise import Standardise
from lostwax.shadows.game import covariance_models
from lostwax.trainers import DPSGD

NEWTON_JACOBIANS = 2  # that a game computes of its own, about (docs/newton.md)
PAIR = 4  # trainings that a product with Newton's Jacobian and one with its transpose are worth
SLOPE = 75  # records trained on in a step that the slope of one record's misfit to that step is worth
KERNEL_SOLVES = 100  # of s^3 operations each, s the shadow models of a class: eigenvectors for three kernels
OPERATIONS = 1e10  # a second, in double precision
TIMED = 1_024  # features of the decoder that is timed, at most: a larger one might not fit into memory
PROBES = 5  # tries to measure the rate, at most
LEARNING = 0.6  # of the time of an attack that goes by the clock; the rest is for getting ready and for guessing


class Rate(NamedTuple):
    """How fast this machine trains these victims."""

    training: float  # seconds a model, a tile at a time
    features: int  # what is seen of a model
    parameters: int  # of a model

    @classmethod
    def measured(cls, knowledge: Knowledge, *, seconds: float = 1.0) -> Rate:
        """From one tile of models, the best of a few tries where those take no more than about so many seconds.

        The first try is slow (it loads what training needs), and others may be, on a machine with other work.
        """
        net, trainer, threat, prior = knowledge.net, knowledge.trainer, knowledge.threat, knowledge.prior
        tile = trainer.tile_size(net, threat.deal(prior, 1, seed=0))
        cohort = threat.deal(prior, tile, seed=0)
        times: list[float] = []
        while not times or (len(times) < PROBES and sum(times) < seconds):
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


def models_before_attacks(knowledge: Knowledge, games: int, rate: Rate) -> int:
    """How many models are trained before any attack begins: victims, and shadow models for a weak game's null."""
    return games + (covariance_models(rate.parameters) if isinstance(knowledge.threat, Weak) else 0)


@singledispatch
def predicted_seconds(attack: Attack, knowledge: Knowledge, games: int, rate: Rate) -> float:
    """How long the attack will take, prepared and played; infinite where nobody has said what it runs."""
    return math.inf


@predicted_seconds.register
def _(attack: ClosedForm, knowledge: Knowledge, games: int, rate: Rate) -> float:
    return 0.0  # it trains nothing


@predicted_seconds.register
def _(attack: Refit, knowledge: Knowledge, games: int, rate: Rate) -> float:
    candidates = knowledge.threat.candidates if isinstance(knowledge.threat, Informed) else None
    return attack.repeats * (candidates or 0) * games * rate.training


@predicted_seconds.register
def _(attack: PriorAware, knowledge: Knowledge, games: int, rate: Rate) -> float:
    return games * rate.training  # every step again, for the gradients of the known records


@predicted_seconds.register
def _(attack: GradientInversion, knowledge: Knowledge, games: int, rate: Rate) -> float:
    trainer, threat = knowledge.trainer, knowledge.threat
    if not isinstance(trainer, DPSGD) or not isinstance(threat, Informed):
        return math.inf
    starts = attack.restarts * (1 if threat.label_known else classes(knowledge))
    slopes = attack.iterations * min(attack.steps_at_a_time, trainer.steps) * starts
    trained = trainer.steps * trainer.sample_rate * (len(threat.known) + 1)  # records, in all steps
    return games * (1 + SLOPE * slopes / trained) * rate.training


@predicted_seconds.register
def _(attack: KernelRidge, knowledge: Knowledge, games: int, rate: Rate) -> float:
    shadows, groups = attack.shadows or len(knowledge.prior), classes(knowledge)
    return shadows * rate.training + groups * KERNEL_SOLVES * (shadows / groups) ** 3 / OPERATIONS


@predicted_seconds.register
def _(attack: NearestCandidate, knowledge: Knowledge, games: int, rate: Rate) -> float:
    return predicted_seconds(attack.attack, knowledge, games, rate)


@predicted_seconds.register
def _(attack: Newton, knowledge: Knowledge, games: int, rate: Rate) -> float:
    if attack.products is not None:
        return (attack.bank + PAIR * attack.products * games) * rate.training
    tangents = attack.coordinates or knowledge.prior.x.shape[1:].numel()  # of a Jacobian; each costs about a training
    return (attack.bank + tangents * (classes(knowledge) + NEWTON_JACOBIANS * games)) * rate.training


@predicted_seconds.register
def _(attack: Ensemble, knowledge: Knowledge, games: int, rate: Rate) -> float:
    return attack.members * (classes(knowledge) + (attack.rounds - 1) * games) * rate.training


@predicted_seconds.register
def _(attack: RecoNN, knowledge: Knowledge, games: int, rate: Rate) -> float:
    shadows = attack.shadows or len(knowledge.prior)
    steps = attack.epochs * attack.members * math.ceil(shadows / attack.batch_size)
    return shadows * rate.training + steps * _decoder_step(attack, knowledge, rate.features)


@predicted_seconds.register
def _(attack: WeakRecoNN, knowledge: Knowledge, games: int, rate: Rate) -> float:
    return math.inf if attack.minutes is None else 60 * attack.minutes  # it goes by the clock


def goes_by_the_clock(attack: Attack) -> bool:
    """Does it learn for as long as it may?"""
    return isinstance(attack, WeakRecoNN)


def shortened(attack: Attack, seconds: float) -> Attack:
    """The attack, if it goes by the clock, so that it is done within these seconds; any other as it is."""
    if not isinstance(attack, WeakRecoNN) or seconds == math.inf:
        return attack
    minutes = LEARNING * seconds / 60
    return replace(attack, minutes=minutes if attack.minutes is None else min(attack.minutes, minutes))


def _decoder_step(attack: RecoNN, knowledge: Knowledge, features: int) -> float:
    """Seconds of one step of the decoder's training: of a small one, the best of three, times how much larger it is."""
    small = features if isinstance(attack.decoder, RowDecoder) else min(features, TIMED)
    like = knowledge.prior.x if attack.device is None else knowledge.prior.x[:1].to(attack.device)
    with torch.random.fork_rng(devices=[like.device] if like.is_cuda else []):
        still = torch.zeros(small, dtype=torch.float64)
        scale = Standardise(torch.arange(small), still, still + 1, small, math.inf)
        decoder = attack.decoder_for(knowledge, scale, Span.of(like)).to(like)
        seen = torch.randn(attack.batch_size, small, device=like.device, dtype=like.dtype)
        optimiser = torch.optim.AdamW(decoder.parameters())
        seconds = min(_timed_step(decoder, optimiser, seen) for _ in range(3))
    if small == features:
        return seconds
    return seconds * decoder_parameters(attack, knowledge, features) / decoder_parameters(attack, knowledge, small)


def _timed_step(decoder: nn.Module, optimiser: torch.optim.Optimizer, seen: torch.Tensor) -> float:
    start = time.perf_counter()
    optimiser.zero_grad()
    decoder(seen).square().mean().backward()
    optimiser.step()
    if seen.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
