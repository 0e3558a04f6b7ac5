"""The data of the S2 scripts: pictures in [-1, 1] beside their features, the adversary's and the secret ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from lib.victims import letters as emnist
from lib.victims import vgg11
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import fuse_conv_bn_eval

import lostwax as lw
from lostwax.files import read_tensors
from lostwax.games import Records
from lostwax.metrics import nearest_neighbour
from lostwax.records.datasets import find_directory

SIDE = 32
WEIGHTS, PLAIN = "vgg11.safetensors", "vgg11_plain.safetensors"  # what s2_pretrain.py writes, and with --plain
ARCHITECTURES = "efficientnet_b0", "mobilenet_v2"  # 1,280 features, as S2's CIFAR-10 heads have
WIDE = "wide_resnet50_2"  # 2,048 features, as S2's CelebA heads have
IMAGENET = 224  # pixels, S2 D.1
MIRRORED = lw.learning.Affine(mirror=True)  # changes of pictures of things
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Data(NamedTuple):
    """Both sides' records, and how near the adversary's come to the secrets."""

    backbone: nn.Module
    prior: Records
    secrets: Records
    tau: float  # mean squared error of a secret's nearest record of the prior, mean over secrets (S2 section 2)
    paper_tau: float  # S2's
    changes: lw.learning.Affine = lw.learning.Affine()  # by which the adversary makes more of the prior


def pictures(records: Records) -> Records:
    """S2's: 32 x 32, in [-1, 1]."""
    return replace(records, x=2 * scaled(records).x - 1)


def scaled(records: Records) -> Records:
    """32 x 32."""
    return replace(records, x=functional.interpolate(records.x, size=SIDE, mode="bilinear"))


def mnist(options: argparse.Namespace) -> Data:
    """Digits, through the base model of `s2_pretrain.py`."""
    return _digits(WEIGHTS, options)


def plain_mnist(options: argparse.Namespace) -> Data:
    """The same, through one that was asked for the signs alone."""
    return _digits(PLAIN, options)


def unseen_mnist(options: argparse.Namespace) -> Data:
    """Secrets on which nothing was chosen: the training digits of `unseen`. The test digits are in the prior."""
    return _through(letters_backbone(WEIGHTS, options), *_unseen(lw.records.mnist, options), 0.0696, options)


def unseen_plain_mnist(options: argparse.Namespace) -> Data:
    """The same, through the plain base model."""
    return _through(letters_backbone(PLAIN, options), *_unseen(lw.records.mnist, options), 0.0696, options)


def unseen(train: Records) -> tuple[Records, Records]:
    """A training part without its last sixth, and that sixth: base models are judged on the former only."""
    last = len(train) - len(train) // 6
    return train[:last], train[last:]


def letters(options: argparse.Namespace) -> Data:
    """An adversary who has letters where the victims have digits, each called a digit at random (S2 3.2, point 8).

    tau stays that of a prior of digits, so that rates at it can be held against the other rows.
    """
    digits, letters = mnist(options), emnist(options.data)
    names = torch.randint(10, (len(letters),), generator=torch.Generator().manual_seed(options.seed))
    prior = pictures(replace(letters, y=names)).to(options.device)
    return digits._replace(prior=prior.through(digits.backbone))


def cifar10(options: argparse.Namespace) -> Data:
    """Through a torchvision model trained on ImageNet, which S2 goes on to train on CIFAR-100."""
    prior, secrets = (pictures(lw.records.cifar10(part, root=options.data)) for part in ("train", "test"))
    return _through(imagenet_backbone(options), prior, secrets, 0.1284, options)._replace(changes=MIRRORED)


def unseen_cifar10(options: argparse.Namespace) -> Data:
    """The same, with secrets on which nothing was chosen: `unseen`. The test pictures are in the prior."""
    parts = _unseen(lw.records.cifar10, options)
    return _through(imagenet_backbone(options), *parts, 0.1284, options)._replace(changes=MIRRORED)


def letters_backbone(name: str, options: argparse.Namespace) -> nn.Module:
    """What `s2_pretrain.py` wrote."""
    path = (options.models or find_directory("s2_data", [name], options.data)) / name
    if not path.exists():
        how = " --plain" if name == PLAIN else ""
        raise FileNotFoundError(
            f"no base model at {path}. Write it with papers/s2_pretrain.py{how}, or name its folder: --models."
        )
    backbone = vgg11(size=SIDE)[:-1]
    backbone.load_state_dict(read_tensors("s2_data", path))
    return backbone


def imagenet_backbone(options: argparse.Namespace, names: tuple[str, ...] = ARCHITECTURES) -> nn.Module:
    """A torchvision model without its last layer, from weights that the user has: the first of `names` found."""
    folder = find_directory("s2_data", [f"{name}*.pth" for name in names], options.data)
    found = [path for name in names for path in sorted(folder.glob(f"{name}*.pth"))]
    path = options.imagenet or next(iter(found), None)
    if path is None:
        raise FileNotFoundError(
            f"no ImageNet weights of {' or '.join(names)} in {folder}. They are not fetched for you: put "
            "torchvision's file (such as mobilenet_v2-*.pth) there, or name it: --imagenet."
        )
    return _torchvision(path)


def _torchvision(path: Path) -> nn.Module:
    from torchvision import models

    (architecture,) = (name for name in (*ARCHITECTURES, WIDE) if path.name.startswith(name))
    model = models.get_model(architecture, weights=None)
    model.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    setattr(model, "fc" if architecture == WIDE else "classifier", nn.Identity())
    return Frozen(nn.Sequential(ForImageNet(), folded(model))).to(memory_format=torch.channels_last)  # faster


def folded(model: nn.Module) -> nn.Module:
    """The model, in evaluation mode, with every batch norm that follows a convolution in a sequence made part of it.

    The same function up to rounding, and a third less to read and write.
    """
    for part in [module for module in model.eval().modules() if isinstance(module, nn.Sequential)]:
        for place, (first, second) in enumerate(pairwise(part)):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                part[place], part[place + 1] = fuse_conv_bn_eval(first, second), nn.Identity()
    return model


class Frozen(nn.Module):
    """A backbone that computes in float16 on a GPU.

    Its mantissa has the ten bits of TF32, in which convolutions of float32 are computed there anyway, and half the
    bytes.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        """Outputs in float32."""
        with torch.autocast(x.device.type, torch.float16, enabled=x.is_cuda):
            features: Tensor = self.net(x)
        return features.float()


class ForImageNet(nn.Module):
    """Pictures in [-1, 1] as models of ImageNet take them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1))
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 3, 224, 224)."""
        large = functional.interpolate(x, size=IMAGENET, mode="bicubic", antialias=True)
        return ((large + 1) / 2 - self.mean) / self.deviation


def _digits(weights: str, options: argparse.Namespace) -> Data:
    prior, secrets = (pictures(lw.records.mnist(part, root=options.data)) for part in ("train", "test"))
    return _through(letters_backbone(weights, options), prior, secrets, 0.0696, options)


def _unseen(read: Callable[..., Records], options: argparse.Namespace) -> tuple[Records, Records]:
    """The prior and the secrets: earlier settings were chosen with the test part as secrets, so it is in the prior."""
    train, test = (pictures(read(part, root=options.data)) for part in ("train", "test"))
    kept, secrets = unseen(train)
    return Records.together([kept, test]), secrets


def _through(
    backbone: nn.Module, prior: Records, secrets: Records, paper_tau: float, options: argparse.Namespace
) -> Data:
    backbone = backbone.to(options.device)
    ours, theirs = (part.to(options.device).through(backbone) for part in (prior, secrets))
    tau = nearest_neighbour(theirs.x.double(), ours.x.double(), percentiles=()).mean
    return Data(backbone, ours, theirs, tau, paper_tau)
