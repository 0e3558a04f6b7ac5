"""A small CNN on 2,000 known pictures, on a laptop: what can be rebuilt of one more, without training shadow models?

One picture among 2,000 changes the weights a little, and training responds linearly: a shadow model then costs one
picture's gradients. With MNIST in the folder LOSTWAX_DATA; otherwise quickly, on scikit-learn's digits.
"""

import os
import time

from torch import nn

import lostwax as lw

if "LOSTWAX_DATA" in os.environ:
    records, known, prior, secrets, directions = lw.records.mnist(), 2_000, 2_000, 60, 128
else:
    records, known, prior, secrets, directions = lw.records.digits(), 300, 300, 20, 32
known, prior, secrets = records.split(known, prior, secrets, seed=0)
side = (records.x.shape[-1] - 5) // 3 + 1  # of what the convolution leaves
net = nn.Sequential(nn.Conv2d(1, 4, 5, stride=3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * side * side, 10))
trainer = lw.GD(lr=0.1, momentum=0.9, steps=30, init=lw.inits.LeCunNormal())  # smooth, with a public start

begin = time.perf_counter()
audit = lw.audit(
    net,
    trainer=trainer,
    threat=lw.Informed(known),
    attack=lw.KernelRidge(engine=lw.shadows.LinearResponse(directions=directions, checked=16)),
    prior=prior,
    secrets=secrets,
)
audited = time.perf_counter() - begin
print(audit)

begin, few = time.perf_counter(), 16
list(lw.simulate(net, trainer=trainer, threat=lw.Informed(known), prior=prior, models=few))
training = (time.perf_counter() - begin) / few * len(prior)
print(f"The whole audit took {audited:.0f} s. Training {len(prior):,} shadow models would take {training:.0f} s.")
