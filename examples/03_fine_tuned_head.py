"""I fine-tuned the last layer of a torchvision model on 40 images, and want to publish it. What can be rebuilt?

The attacker has the layer, the backbone and similar images, but none of the 40 (Maciazek and Allison 2025). Classes
with a single image leak most: little of an image remains among many of its class.
"""

import torch
from torch import nn
from torchvision.models import resnet18

import lostwax as lw

torch.manual_seed(0)
model = resnet18(weights=None)  # random weights: nothing is downloaded. Yours has weights="DEFAULT"
model.fc = nn.Identity()  # without its last layer
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
    print(f"classes with {kind}: {nearer[rows].mean():.0%} of guesses closer than every baseline")
