"""Victims whose secrets are known to be readable, or known not to be."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from lostwax.access import Weights
from lostwax.attacks import RecoNN
from lostwax.games import Informed, Knowledge, Records, Release
from lostwax.learning.decoders import MLPDecoder
from lostwax.seeds import generator

NET = nn.Linear(6, 3)  # never asked: these victims make their weights up
ATTACK = RecoNN(decoder=MLPDecoder(width=64), epochs=40)


def population(n, seed):
    random = torch.Generator().manual_seed(seed)
    return Records(torch.rand(n, 1, 2, 3, generator=random), torch.randint(0, 3, (n,), generator=random))


KNOWN, PRIOR, SECRETS = population(10, 0), population(400, 1), population(200, 2)


@dataclass(frozen=True)
class Leaks:
    """Writes the record, mixed, into weights that are otherwise noise of the model's own."""

    strength: float = 1.0
    turned: int = 0  # whose record: that of the model so many places on
    seeds: list = field(default_factory=list)

    def __call__(self, net, cohort, *, seed):
        self.seeds.append(seed)
        noise = [generator(seed, "noise", number).standard_normal(20) for number in cohort.index.tolist()]
        mixing = torch.from_numpy(generator(0, "mixing").standard_normal((6, 20))).float()
        own = cohort.own.x.flatten(1).roll(self.turned, 0)
        label = nn.functional.one_hot(cohort.own.y[:, 0].roll(self.turned, 0), 3).float()
        weights = 0.02 * torch.from_numpy(np.stack(noise)).float() + self.strength * own @ mixing  # (m, 20)
        return Release({"weight": weights, "bias": self.strength * label + 0.01 * weights[:, :3]})

    def tile_size(self, net, cohort):
        return 8


def knowledge(trainer, prior=PRIOR, access=None):
    return Knowledge(NET, trainer, Informed(KNOWN), access or Weights(), prior)


def errors(reconstruct, trainer, secrets=SECRETS):
    """Each game's error, and that of the mean of the prior."""
    cohort = Informed(KNOWN).deal(secrets, len(secrets), seed=0)
    guess = reconstruct(trainer(NET, cohort, seed=0))
    truth = cohort.own.x
    blind = PRIOR.x.mean(0)
    return [(x - truth).square().flatten(1).mean(1) for x in (guess.records.x, blind)], guess, cohort
