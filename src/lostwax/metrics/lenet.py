"""LeNet, the classifier that judges images like MNIST's (S1 section V-B)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from lostwax.seeds import generator
from lostwax.types import Records

BATCH = 64
SMALLEST = 8  # pixels


def lenet(channels: int, height: int, width: int, classes: int, *, seed: int) -> nn.Sequential:
    """Two convolutions of 5 x 5, each pooled, and two dense layers, with rectifiers and dropout; torch's own start.

    The first convolution is padded, as LeCun et al. (1998, section II-B) pad the image; images under 16 pixels
    need the second padded too.
    """
    padding = 2 if min(height, width) < 16 else 0
    rows, columns = ((side // 2 + 2 * padding - 4) // 2 for side in (height, width))  # after both poolings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator(seed, "judge", "start").integers(2**63)))
        return nn.Sequential(
            nn.Conv2d(channels, 20, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * rows * columns, 500),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(500, classes),
        )


def train_lenet(net: nn.Module, records: Records, *, epochs: int, seed: int) -> None:
    """Adam, its rate rising once and falling once; order and dropout are functions of the seed."""
    optimiser = torch.optim.Adam(net.parameters())
    steps = epochs * -(-len(records) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    net.train()
    with torch.random.fork_rng(devices=[records.x.device] if records.x.is_cuda else []):
        torch.manual_seed(int(generator(seed, "judge", "dropout").integers(2**63)))
        for epoch in range(epochs):
            order = torch.from_numpy(generator(seed, "judge", "order", epoch).permutation(len(records)))
            for rows in torch.split(order.to(records.x.device), BATCH):
                optimiser.zero_grad()
                torch.autograd.backward(cross_entropy(net(records.x[rows]), records.y[rows]))
                optimiser.step()
                schedule.step()
    net.eval()
