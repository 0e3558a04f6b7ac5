"""A recipe: can images be rebuilt from a head that was trained on features of a public backbone?

    lostwax audit recipe.py

It runs as it is, on handwritten digits, in seconds. Replace the lines marked <- by your own backbone and data.
The adversary here is informed: it knows all training records but one. That is the worst case; an adversary who knows
only the distribution of the images can do less.
"""

import torch
from torch import nn

import lostwax as lw

# The backbone is public and frozen. A small net with random weights stands in for a pretrained one here.
torch.manual_seed(0)
backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())  # <- your backbone, in eval mode


def through(records: lw.Records) -> lw.Records:
    """The records with the features that the head is trained on; x is what an attack rebuilds."""
    with torch.no_grad():
        return lw.Records(records.x, records.y, backbone(records.x))


# known: the training set except one record. prior: records that the attack learns from. secrets: one per game.
everything = lw.records.digits()  # <- your records
known, prior, secrets = (through(part) for part in everything.split(50, 1_000, 100, seed=0))  # <- your sizes

# The head, and how it is trained.
net = nn.Linear(32, 10)  # <- features in, classes out
trainer = lw.GD(lr=0.5, steps=32)  # <- your way of training

threat = lw.Informed(known)

# One shadow head is trained per record of the prior, and a net learns to rebuild images from heads.
attack = lw.RecoNN(epochs=30)
