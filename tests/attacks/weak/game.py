"""Heads whose records can be read off them: their features are the records themselves."""

from dataclasses import dataclass, replace

import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Knowledge, Records

DIGITS = lw.records.digits()
THREE = DIGITS[DIGITS.y < 3].through(nn.Flatten())  # (n, 1, 8, 8), and the same numbers as features
PRIOR, SECRETS = THREE.split(400, 130, seed=0)
NET, THREAT = nn.Linear(64, 3), lw.Weak(size=3)
TRAINER = lw.GD(lr=0.2, steps=10, init=lw.inits.Normal(0.002, seed=None))
ATTACK = lw.WeakRecoNN(
    reader=lw.attacks.weak.SetReader(width=64, layers=1, heads=2),
    decoder=lw.decoders.MLPDecoder(depth=0, input_noise=0.0),
    steps=200,
    batch_size=32,
    lr=1e-2,
)
QUICK = replace(ATTACK, steps=4)


def knowledge(trainer=TRAINER, net=NET, threat=THREAT, prior=PRIOR, access=None):
    return Knowledge(net, trainer, threat, access or lw.access.Weights(), prior)


def victims(games=40, trainer=TRAINER, net=NET, threat=THREAT):
    cohort = threat.deal(SECRETS, games, seed=1)
    return cohort, trainer(net, cohort, seed=1)


@dataclass(frozen=True)
class Swapped:
    """Trains every model on the records of its neighbour: nothing of its own is in it."""

    trainer: lw.GD = TRAINER

    def __call__(self, net, cohort, *, seed):
        own = Records(cohort.own.x.roll(1, 0), cohort.own.y.roll(1, 0), cohort.own.features.roll(1, 0))
        return self.trainer(net, Cohort(cohort.shared, own, cohort.index), seed=seed)

    def tile_size(self, net, cohort):
        return 64


def errors(guess, secrets):
    """(m, g) one record a class."""
    return (guess.records.x - secrets.x).square().flatten(2).mean(2)


def class_mean_errors(secrets):
    """(m, k) of who knows nothing but the class."""
    means = torch.stack([PRIOR.x[PRIOR.y == label].mean(0) for label in range(3)])
    return (means[secrets.y] - secrets.x).square().flatten(2).mean(2)
