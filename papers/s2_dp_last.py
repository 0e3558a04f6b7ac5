"""S2 section 4 and its open problem: what a certified ceiling costs its heads, if only the last weights are released.

    python papers/s2_dp_last.py [--rows mnist_10 ...] [--models FOLDER] [--imagenet FILE] [--pixels 128]

S2 trains heads by DP-SGD, finds that accuracy is lost before its attack fails, and names as open what can be guaranteed
where nobody sees the steps. For a linear head that is known: `lw.bounds.LastWeights`. Here each head gets noise for one
certified ceiling, one of ten candidates, by all steps and by the last weights; either picks its recipe, at each
ceiling, by the accuracy of heads on other records. The attack knows all other records, trains without noise on each of
the ten candidates, and names the one whose head is nearest to the release.

Training sets are balanced, candidates are of one class. Unlike S2's heads: full batches for N - 1 of N; features in
the 64 main directions of a public sample, cut to norm 1, so that clipping cuts no gradient; recipes that suit noise.
Digits go through `s2_pretrain.py`'s base model, pictures of CIFAR-10 through MobileNetV2, which was not tuned on
CIFAR-100.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import s2_data
import torch
from s1_mnist import mean_row, parser, rate_row, write
from s2_data import WEIGHTS, imagenet_backbone, letters_backbone, pictures
from s2_pictures import draw_ceilings
from torch import Tensor, nn
from torch.nn import functional

import lostwax as lw
from lostwax.bounds import FullBatch, LastWeights, calibrate
from lostwax.games import Records
from lostwax_dev.results import read_rows

CEILINGS = (0.15, 0.2, 0.3, 0.5, 0.7, 0.9)
CANDIDATES, TESTED = 10, 1_000
DIRECTIONS = 64
CLIP = 2.0  # the longest gradient of a softmax loss, at features of norm 1 and a bias
LARGEST, CHOOSING = 100_000, 20_000  # records in all training sets of a row, and in those to choose recipes on
ATTACKED = 20  # sets, from which on an attack's success says something
HEADS = {f"{kind}_{size}": size for kind in ("mnist", "cifar") for size in (10, 40, 1_000, 10_000)}
SIZES = {
    "games": (200, "training sets at most, for each number of records and ceiling"),
    "pool": (13_000, "records that sets are drawn from; as many others to choose recipes on"),
    "public": (2_000, "records that main directions are computed from"),
    "pixels": (s2_data.IMAGENET, "side of CIFAR-10's pictures, enlarged"),
    "seed": (0, "of everything drawn"),
}


class Recipe(NamedTuple):
    """How a head is trained; the learning rate is 1 / smoothness."""

    steps: int
    decay: float


RECIPES = [Recipe(1, 0.0), Recipe(10, 0.1), Recipe(30, 0.1), Recipe(100, 0.1), Recipe(300, 0.03)]


class Sets(NamedTuple):
    """m balanced training sets, the candidates for the last record of each (the first is the one), and new records."""

    train: Records  # (m, n, ...)
    candidates: Records  # (m, 10, ...), all of one class
    test: Records

    @classmethod
    def of(cls, pool: Records, size: int, games: int, seed: int) -> Sets:
        """Disjoint from the records that heads are judged on."""
        rest, test = pool.split(len(pool) - TESTED, TESTED, seed=seed)
        draws, each, rows, places = torch.Generator().manual_seed(seed), size // 10, [], []
        for _ in range(games):
            classes = [torch.nonzero(rest.y == label)[:, 0] for label in torch.randperm(10, generator=draws)]
            classes = [rows_of[torch.randperm(len(rows_of), generator=draws)] for rows_of in classes]
            rows.append(torch.cat([rows_of[:each] for rows_of in classes]))
            places.append(classes[-1][each - 1 : each - 1 + CANDIDATES])
        return cls(rest[torch.stack(rows)], rest[torch.stack(places)], test)


def law_of(recipe: Recipe, features: int) -> LastWeights:
    """Read from S2's head, on features of norm 1."""
    net = nn.Sequential(lw.nets.ShortFeatures(1.0), nn.Linear(features, 10))
    return lw.trainers.last_weights(net, lr=1 / (1 + recipe.decay), clip=CLIP, weight_decay=recipe.decay)


def with_ones(x: Tensor) -> Tensor:
    """(..., features + 1) features of norm 1 at most, and a one for the bias."""
    short = x / x.norm(dim=-1, keepdim=True).clamp_min(1)
    return torch.cat([short, torch.ones_like(x[..., :1])], -1)


def trained(recipe: Recipe, noise: float, train: Records, seed: int) -> Tensor:
    """(m, 10, features + 1) heads by noisy full-batch descent from S2's private start; no gradient is above `CLIP`."""
    x, onehot = with_ones(train.x), functional.one_hot(train.y, 10).float()  # (m, n, features + 1), (m, n, 10)
    draws, n = torch.Generator().manual_seed(seed), x.shape[1]
    law = law_of(recipe, train.x.shape[-1])
    theta = 0.002 * torch.randn(len(x), 10, x.shape[-1], generator=draws)
    for _ in range(recipe.steps):
        slope = ((x @ theta.mT).softmax(-1) - onehot).mT @ x
        if noise:
            slope += CLIP * noise * torch.randn(theta.shape, generator=draws)
        theta -= law.lr * (slope / n + recipe.decay * theta)
    return theta


def right(heads: Tensor, test: Records) -> Tensor:
    """(m,) their accuracy."""
    return ((with_ones(test.x) @ heads.mT).argmax(-1) == test.y).float().mean(1)


def noise_for(recipe: Recipe, ceiling: float, features: int, *, last: bool) -> float:
    """The least noise multiplier with this ceiling, by all steps or by the last weights."""
    law = {"max_success": ceiling, "baseline": 1 / CANDIDATES, "sampling": FullBatch(), "steps": recipe.steps}
    return calibrate(**law, released=law_of(recipe, features) if last else None).noise_multiplier


def chosen(ceiling: float, sets: Sets, features: int, seed: int, *, last: bool) -> tuple[Recipe, float]:
    """The recipe of the most accurate heads on the sets for choosing, and its noise."""
    noises = [noise_for(recipe, ceiling, features, last=last) for recipe in RECIPES]
    tried = [
        float(right(trained(recipe, noise, sets.train, seed), sets.test).mean())
        for recipe, noise in zip(RECIPES, noises, strict=True)
    ]
    best = tried.index(max(tried))
    return RECIPES[best], noises[best]


def guessed(recipe: Recipe, sets: Sets, seed: int) -> Tensor:
    """(10, m, 10, features + 1) heads without noise, for each candidate; the adversary does not know the start."""
    clean = []
    for place in range(CANDIDATES):
        x, y = sets.train.x.clone(), sets.train.y.clone()
        x[:, -1], y[:, -1] = sets.candidates.x[:, place], sets.candidates.y[:, place]
        clean.append(trained(recipe, 0.0, Records(x, y), seed))
    return torch.stack(clean)


def main_directions(public: Records, records: Records) -> Records:
    """Without the public sample's mean, in its main directions; scaled so that its median norm is 1."""
    mean = public.inputs.mean(0)
    directions = torch.linalg.svd(public.inputs - mean, full_matrices=False)[2][:DIRECTIONS].mT
    scale = ((public.inputs - mean) @ directions).norm(dim=1).median()
    return Records((records.inputs - mean) @ directions / scale, records.y)


def pools(kind: str, options: argparse.Namespace) -> tuple[Records, Records]:
    """Features of the records to report on, and of those to choose recipes on."""
    read = lw.records.mnist if kind == "mnist" else lw.records.cifar10
    parts = read("all", root=options.data).split(options.public, options.pool, options.pool, seed=options.seed)
    s2_data.IMAGENET = options.pixels
    backbone = letters_backbone(WEIGHTS, options) if kind == "mnist" else imagenet_backbone(options)
    public, reported, choosing = (pictures(part).through(backbone) for part in parts)
    return main_directions(public, reported), main_directions(public, choosing)


def play(name: str, reported: Records, choosing: Records, options: argparse.Namespace) -> None:
    """All ceilings, by all steps and by the last weights."""
    size, features = HEADS[name], reported.x.shape[1]
    games = min(options.games, LARGEST // size)
    ours = Sets.of(reported, size, games, options.seed)
    other = Sets.of(choosing, size, min(games // 2, CHOOSING // size), options.seed + 1)
    clean = [float(right(trained(recipe, 0.0, other.train, options.seed), other.test).mean()) for recipe in RECIPES]
    free = right(trained(RECIPES[clean.index(max(clean))], 0.0, ours.train, options.seed), ours.test)
    write(__file__, [mean_row(name, f"accuracy: {name} without noise ({games} heads)", free.double().numpy())], options)
    guesses: dict[Recipe, Tensor] = {}
    for ceiling in CEILINGS:
        for seen, last in (("all", False), ("last", True)):
            recipe, noise = chosen(ceiling, other, features, options.seed + 2, last=last)
            heads = trained(recipe, noise, ours.train, options.seed + 3)
            key, how = f"{name}.{ceiling:g}.{seen}", "the last weights" if last else "all steps"
            words = f"{name}, ceiling {ceiling:g} by {how} ({games} heads; steps {recipe.steps}, decay "
            words += f"{recipe.decay:g}, noise multiplier {noise:.3g})"
            rows = [mean_row(key, f"accuracy: {words}", right(heads, ours.test).double().numpy())]
            if games >= ATTACKED:
                if recipe not in guesses:
                    guesses[recipe] = guessed(recipe, ours, options.seed + 4)
                hits = (heads - guesses[recipe]).flatten(2).norm(dim=2).argmin(0) == 0
                rows.append(rate_row(f"{key}.attack", f"attack, one of ten candidates: {words}", hits.numpy()))
            write(__file__, rows, options)


def main() -> None:
    """Each number of records, and the picture of all."""
    made = parser(__doc__, HEADS, SIZES)
    made.add_argument("--models", type=Path, help="MNIST: folder of what s2_pretrain.py wrote; else that of the data")
    made.add_argument("--imagenet", type=Path, help="CIFAR-10: torchvision's weights; else searched for in --data")
    options = made.parse_args()
    for kind in ("mnist", "cifar"):
        if asked := [name for name in options.rows if name.startswith(kind)]:
            reported, choosing = pools(kind, options)
            for name in asked:
                play(name, reported, choosing, options)
    draw_ceilings(
        Path(__file__).resolve().parent.parent / "docs" / "figures" / "s2_dp_last.png",
        read_rows(write(__file__, [], options)),
        HEADS,
        CEILINGS,
    )


if __name__ == "__main__":
    main()
