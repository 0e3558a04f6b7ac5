"""The features of the records that S2's heads on digits were trained on: by Newton's method, or estimated.

    python papers/s2_held.py --data FOLDER [--rows public_9 ...] [--sets 20] [--processes 8]

S2's recipe (Table 3) on the plain base model, in float64, from N(0, 0.002^2) drawn with a public seed; one record of
each of n classes. The adversary has other digits. With fewer records than classes neither labels nor classes are given;
with ten records, one per class, the labels are. Secrets are the training digits of `unseen` in `s2_data.py`.

`private_10`: S2's private start, and the estimate of `s2_posterior.py`, with and without its third part.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from s1_mnist import mean_row, parser, rate_row, write
from s2_data import PLAIN, letters_backbone, pictures, unseen
from s2_heads import mnist_trainer
from s2_posterior import Estimate, class_means, coefficients_of, left_over
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Hints, Knowledge, Records
from lostwax.reports.results import Row
from lostwax.seeds import generator

CLASSES = 10
EXACT = 1e-20  # mean squared error of features
GAMES = {f"public_{size}": size for size in (2, 9, 10)}
PRIVATE = "private_10"
PUBLIC = lw.inits.Normal(0.002, seed=0)
SIZES = {
    "sets": (20, "training sets"),
    "prior": (1_500, "digits that the adversary has"),
    "pool": (2_000, "digits that the sets are drawn from"),
    "games": (1_000, "heads with a private start"),
    "processes": (1, "sets played at the same time"),
    "seed": (0, "of everything drawn"),
}


class Outcome(NamedTuple):
    """One set; errors are mean squared, of features."""

    error: float
    blind: float  # of the prior's class means
    certified: bool
    labels: bool  # all right
    seconds: float


def features(options: argparse.Namespace, sizes: tuple[int | None, int | None]) -> tuple[Records, Records]:
    """The prior and the pool, as the base model sees them."""
    backbone = letters_backbone(PLAIN, options)
    digits = unseen(lw.records.mnist("train", root=options.data))
    parts = (pictures(part[:size]) for part, size in zip(digits, sizes, strict=True))
    seen = (part.through(backbone) for part in parts)
    prior, pool = (Records(part.inputs.double(), part.y) for part in seen)
    return prior, pool


def play(number: int, *, size: int, prior: Records, pool: Records, seed: int) -> Outcome:
    """Train a head on one set and solve for its features."""
    torch.set_num_threads(1)
    random = generator(seed, "sets", number)
    labels = np.sort(random.choice(CLASSES, size, replace=False))
    rows = [int(random.choice((pool.y == label).nonzero().flatten().numpy())) for label in labels]
    own = pool[torch.tensor(rows)]
    trainer = replace(mnist_trainer(size), dtype=torch.float64, init=PUBLIC)
    net, threat = nn.Linear(prior.x.shape[1], CLASSES), lw.Weak(size)
    release = trainer(net, Cohort(pool[:0], own[torch.arange(size)[None]], torch.arange(1)), seed=seed)
    given = Hints(labels=own.y[None]) if size == CLASSES else None
    start = time.perf_counter()
    attack = lw.Newton(jacobians=2) if size == CLASSES else lw.Newton()
    reconstruct = attack.prepare(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=seed)
    (found,) = reconstruct.invert(release, given)
    seconds = time.perf_counter() - start
    order = found.label.argsort()
    means = torch.stack([prior.x[prior.y == label].mean(0) for label in own.y])
    return Outcome(
        error=float((found.record.view(size, -1)[order] - own.x).square().mean()),
        blind=float((means - own.x).square().mean()),
        certified=bool(found.certified),
        labels=bool(torch.equal(found.label[order], own.y)),
        seconds=seconds,
    )


def rows_of(name: str, outcomes: list[Outcome]) -> list[Row]:
    """Shares of sets, the error relative to class means, and the time."""
    sets = len(outcomes)
    exact = np.array([one.error < EXACT and one.labels for one in outcomes])
    certified = np.array([one.certified for one in outcomes])
    left = sum(one.error for one in outcomes) / sum(one.blind for one in outcomes)
    return [
        rate_row(f"{name}.exact", f"{name}: share of {sets} sets with all features within {EXACT:g}", exact),
        rate_row(f"{name}.certified", f"{name}: share of sets certified", certified),
        Row(f"{name}.left", f"{name}: error of the features over that of class means", left),
        Row(f"{name}.seconds", f"{name}: seconds per set, mean", float(np.mean([one.seconds for one in outcomes]))),
    ]


def private_rows(options: argparse.Namespace) -> list[Row]:
    """What the estimate leaves of the features' error, relative to that of class means."""
    prior, pool = (Records(part.x.float(), part.y) for part in features(options, (None, None)))
    net, trainer, threat = nn.Linear(prior.x.shape[1], CLASSES), mnist_trainer(CLASSES), lw.Weak(CLASSES)
    estimate = Estimate.of(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=options.seed + 1)
    cohort = threat.deal(pool, options.games, seed=options.seed)
    release = trainer(net, cohort, seed=options.seed)
    unshifted = estimate._replace(reach=torch.zeros_like(estimate.reach))
    rows = [
        mean_row(f"{PRIVATE}.{name}", f"{PRIVATE}: error of the features over that of class means{how}", left)
        for name, how, used in (("left", "", estimate), ("unshifted", ", the common shift not estimated", unshifted))
        for left in [left_over(used, release, cohort.own).double().numpy()]
    ]
    own = class_means(cohort.own.inputs, cohort.own.y, CLASSES)
    gains = coefficients_of(release, own).diagonal(dim1=1, dim2=2).mean(1).double() / (1 - 1 / CLASSES)  # (games,)
    first = trainer.lr * trainer.steps / CLASSES
    noise, variances = estimate.noise / gains.mean().square(), estimate.variances  # tau^2, w^2 by eigenvector
    seen, lost = noise * variances / (noise + variances), variances / CLASSES
    formula = float(((1 - 1 / CLASSES) * seen + lost).sum() / variances.sum())
    return [
        *rows,
        mean_row(f"{PRIVATE}.gain", f"{PRIVATE}: g over its value to first order", (gains / first).numpy()),
        Row(f"{PRIVATE}.formula", f"{PRIVATE}: the same as unshifted, by the formula of docs/weak.md", formula),
    ]


def main() -> None:
    made = parser(__doc__, [*GAMES, PRIVATE], SIZES)
    made.add_argument("--models", type=Path, help="folder of what s2_pretrain.py --plain wrote; else that of the data")
    options = made.parse_args()
    prior, pool = features(options, (options.prior, options.pool))
    for name in options.rows:
        if name == PRIVATE:
            write(__file__, private_rows(options), options)
            continue
        one = partial(play, size=GAMES[name], prior=prior, pool=pool, seed=options.seed)
        if options.processes > 1:
            with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool_of_workers:
                outcomes = list(pool_of_workers.map(one, range(options.sets)))
        else:
            outcomes = [one(number) for number in range(options.sets)]
        write(__file__, rows_of(name, outcomes), options)


if __name__ == "__main__":
    main()
