"""A victim where only chosen rows move: the others belong to neurons that no record wakes up."""

import torch
from torch import nn

import lostwax as lw

LIVE = (2, 5)


def game():
    known, prior, secrets = lw.records.digits().split(200, 300, 200, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = lw.nets.mlp(64, 8, 10, activation=nn.ReLU)
    net[3].requires_grad_(False)  # it stays as torch has drawn it
    start = {name: value[0] for name, value in lw.inits.He(seed=1)(net, [0], seed=0).items()}
    start["1.bias"] = torch.full((8,), -100.0)
    start["1.bias"][list(LIVE)] = 1.0
    trainer = lw.GD(lr=0.1, momentum=0.9, steps=20, init=lw.inits.Given(start))
    return lw.games.Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior), secrets


def played(knowledge, secrets):
    cohort = knowledge.threat.deal(secrets, len(secrets), seed=1)
    return cohort, knowledge.trainer(knowledge.net, cohort, seed=1)
