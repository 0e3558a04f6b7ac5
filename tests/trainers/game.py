"""A small game to train on: three classes of 4 x 4 images, eleven records a model, two of them its own."""

import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.inits import Given
from lostwax.nets import mlp

EXACT = {"rtol": 0, "atol": 1e-12}


def records(*shape, seed, side=4):
    random = torch.Generator().manual_seed(seed)
    x = torch.rand(*shape, 1, side, side, generator=random, dtype=torch.float64)
    return Records(x, torch.randint(3, shape, generator=random))


def cohort(m, *, shared=9, secrets=2, start=0):
    own = records(start + m, secrets, seed=1)[start:]
    return Cohort(records(shared, seed=0), own, torch.arange(start, start + m))


def net():
    torch.manual_seed(0)
    return mlp(16, 5, 3)


class Convolutions(nn.Module):
    """Not a Sequential: a skip connection, a tied layer used twice, a frozen layer, a constant buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.again = nn.Conv2d(4, 4, 3, padding=1)
        self.mix = nn.Linear(16, 16)
        self.frozen = nn.Linear(64, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x):
        h = self.norm(self.first(x - self.shift)).relu()
        h = h + self.again(self.again(h)).tanh()
        h = self.mix(h.flatten(2)).tanh()  # a linear layer over three axes
        return self.head(nn.functional.elu(self.frozen(h.flatten(1))))


def convolutions():
    torch.manual_seed(0)
    return Convolutions()


def given(module):
    return Given(module.state_dict())
