"""A recipe: can records be rebuilt from nets that are trained like this?

    lostwax audit recipe.py --out audit/

It runs as it is, on handwritten zeros, ones and twos: a minute or two on two cores. The lines marked <- are for your
own net and data.
"""

import torch

import lostwax as lw

# Records are tensors x (n, ...) and y (n,): lw.Records(x, y), lw.records.folder("images/"), lw.records.npz(...), ...
digits = lw.records.digits()
everything = digits[digits.y < 3]  # <- your records

# Three parts that share no record. known: what the adversary knows of the training set, all of it but one record.
# prior: records like the secret ones, that the attack may learn from. secrets: one per game, never shown to the attack.
known, prior, secrets = everything.split(50, 250, 200, seed=0)  # <- your sizes

# The net as training starts: for every game a victim is trained anew from its weights, on the known records and a
# secret one. For pretrained weights: net = lw.adapters.load_weights(net, "weights.safetensors"). Seed fresh ones.
torch.manual_seed(0)
net = lw.nets.mlp(64, 8, 3)  # <- any nn.Module with one output per class

# How it is trained: lw.GD, lw.SGD, lw.Adam, lw.AdamW, or a training function of your own, lw.OwnTraining(train).
# Where each training draws a start of its own: init=lw.inits.TorchDefault(seed=None)
trainer = lw.GD(lr=0.2, momentum=0.9, steps=20)  # <- your way of training

threat = lw.Informed(known)

# How many secrets to play for. True positive rates at 1 % take 99 games or more.
games = 10

# Without an attack, all that apply to this game run; some take their time. To choose one yourself:
#     attack = lw.RecoNN(shadows=3_000, augment=lw.learning.Shifts())
