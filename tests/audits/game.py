"""A game that is over in milliseconds: the victim publishes its secret, and the attack reads it, well or badly."""

from dataclasses import dataclass

import torch
from torch import nn

import lostwax as lw
from lostwax.games import Guess, Records, Release

KNOWN, PRIOR, SECRETS = lw.records.digits().split(300, 500, 200, seed=0)


@dataclass(frozen=True)
class Publishes:
    """Its weights are the secret and the label."""

    def __call__(self, net, cohort, *, seed):
        return Release({"x": cohort.own.x[:, 0], "y": cohort.own.y[:, 0].float()[:, None]})

    def tile_size(self, net, cohort):
        return 64


@dataclass(frozen=True)
class Reads:
    """The secret but for noise, which grows from game to game; of a share of games nothing: a record of the prior."""

    noise: float = 0.1
    blind: float = 0.0

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        return lambda release, hints=None: self._guess(release, knowledge.prior)

    def _guess(self, release, prior):
        x, games = release.params["x"], len(release)
        random = torch.Generator().manual_seed(0)
        size = self.noise * torch.linspace(0.5, 1.5, games).reshape(-1, *[1] * (x.ndim - 1))
        read = x + size * torch.randn(x.shape, generator=random)
        other = prior.x[torch.randint(len(prior), (games,), generator=random)]
        lost = torch.rand(games, generator=random) < self.blind
        guess = torch.where(lost.reshape(-1, *[1] * (x.ndim - 1)), other, read)
        y = release.params["y"][:, 0].to(prior.y.dtype)
        return Guess(Records(guess[:, None], y[:, None]), torch.zeros(games, 1))


def audited(attack, net=None, **changes):
    """The audit of that attack, but for what is changed."""
    game = {"trainer": Publishes(), "threat": lw.Informed(KNOWN), "prior": PRIOR, "secrets": SECRETS}
    return lw.audit(net or nn.Identity(), attack=attack, **{**game, **changes})
