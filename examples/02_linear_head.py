"""A linear head on digits, trained to its optimum: ten victims are trained, and every secret is rebuilt."""

from torch import nn

import lostwax as lw

known, prior, secrets = lw.records.digits().split(1_000, 300, 100, seed=0)

audit = lw.audit(
    nn.Sequential(nn.Flatten(), nn.Linear(64, 10)),
    trainer=lw.Optimum(ridge=1e-3, mean=True),
    threat=lw.Informed(known),
    attack=lw.ClosedForm(),
    prior=prior,
    secrets=secrets,
    games=10,
)
print(audit)
