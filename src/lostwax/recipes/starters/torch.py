"""A recipe: can records be rebuilt from nets trained like this?

    lostwax audit recipe.py

It runs as it is, on handwritten zeros, ones and twos: a minute or two on two cores. Replace the lines marked <- by your
own net and data.
"""

import torch

import lostwax as lw

# Records are tensors x (n, ...) and y (n,): lw.Records(x, y), lw.records.folder("images/"), lw.records.npz(...), ...
digits = lw.records.digits()
everything = digits[digits.y < 3]  # <- your records

# Three disjoint parts. known: the training set except one record, which the adversary knows. prior: records like the
# secret ones, which the attack learns from. secrets: one per game, never shown to the attack.
known, prior, secrets = everything.split(50, 250, 200, seed=0)  # <- your sizes

# The net before training: in every game a victim is trained from these weights, on the known records and a secret one.
# For pretrained weights: net = lw.adapters.load_weights(net, "weights.safetensors"). Seed random ones.
torch.manual_seed(0)
net = lw.nets.mlp(64, 8, 3)  # <- any nn.Module with one output per class

# How it is trained: lw.GD, lw.SGD, lw.Adam, lw.AdamW, or your own training function, lw.OwnTraining(train).
# If each training draws its own initial weights: init=lw.inits.TorchDefault(seed=None)
trainer = lw.GD(lr=0.2, momentum=0.9, steps=20)  # <- your way of training

threat = lw.Informed(known)

# How many secrets to attack. A false-positive rate of 1 % needs at least 99 games.
games = 10

# Without an attack, all that apply are run; some are slow. To choose one:
#     attack = lw.RecoNN(shadows=3_000, augment=lw.learning.Shifts())
