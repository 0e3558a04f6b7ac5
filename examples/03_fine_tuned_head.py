"""I fine-tuned the last layer of a torchvision model on 40 images, and want to publish it. What can be rebuilt?

Whoever gets the layer has the backbone too, and other images of the kind, but none of the 40 (S2). It is classes with a
single image that leak: what remains of an image among many of its class is little.
"""

import torch
from torch import nn
from torchvision.models import resnet18

import lostwax as lw

torch.manual_seed(0)
model = resnet18(weights=None)  # yours has weights="DEFAULT"; here nothing is downloaded, and they are random
model.fc = nn.Identity()  # up to where the new layer begins
backbone = nn.Sequential(nn.Upsample(32), nn.Conv2d(1, 3, 1), model)  # digits of 8 x 8, grey, as the model takes images
public, private = lw.records.digits().through(backbone).split(1_100, 690, seed=0)

audit = lw.audit(
    nn.Linear(512, 10),
    trainer=lw.GD(lr=0.1, momentum=0.9, steps=30, init=lw.inits.Normal(0.002, seed=None)),  # the way I train it
    threat=lw.Weak(size=40, per_class=(1, 1, 1, 1, 6, 6, 6, 6, 6, 6)),
    attack=lw.WeakRecoNN(
        reader=lw.attacks.weak.SetReader(width=64, layers=2, heads=4),
        decoder=lw.decoders.MLPDecoder(width=256),
        steps=200,
        batch_size=32,
    ),
    prior=public,
    secrets=private,
    games=100,
)
print(audit)
nearer = audit.beats_baselines(audit.findings[0])
for kind, rows in (("one image", audit.truth.y < 4), ("six images", audit.truth.y >= 4)):
    print(f"classes with {kind}: in {nearer[rows].mean():.0%} nearer than any image of the attacker's")
