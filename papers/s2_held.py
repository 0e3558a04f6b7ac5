"""The features of the records that S2's heads on digits were trained on: by Newton's method, or estimated.

    python papers/s2_held.py --data FOLDER [--rows public_9 ...] [--sets 20] [--processes 8]

S2's recipe (Table 3) on the plain base model, in float64, from N(0, 0.002^2) drawn with a public seed; one record of
each of n classes. The adversary has other digits. With fewer records than classes neither labels nor classes are given.
Secrets are the training digits of `unseen` in `s2_data.py`.

`public_10`: ten records, one per class, labels given. One dimension in ten is lost, and many sets explain the weights:
of these the one nearest to the estimate of `s2_posterior.py`, which has the prior's answer for that dimension.
`private_10`: S2's private start, and that estimate, with and without its third part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
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
from torch import Tensor, nn

import lostwax as lw
from lostwax.games import Cohort, Knowledge, Records, Release
from lostwax.seeds import generator
from lostwax_dev.results import Row

CLASSES = 10
EXACT = 1e-20  # mean squared error of features
GAMES = {f"public_{size}": size for size in (2, 9)}
PUBLIC_TEN, PRIVATE = "public_10", "private_10"
PUBLIC, ALMOST_ZERO = lw.inits.Normal(0.002, seed=0), lw.inits.Normal(1e-5, seed=None)
SPREAD, ITERATIONS = 1e-4, 20  # of the finite differences and of the search for a set that explains the weights
EXPLAINED = 1e-12  # of the weights' move
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
    start = time.perf_counter()
    reconstruct = lw.Newton().prepare(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=seed)
    (found,) = reconstruct.invert(release, None)
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


class Explained(NamedTuple):
    """A set that explains a release."""

    features: Tensor  # (n, d)
    residual: float  # of the weights, relative to their move


def nearest_explaining(
    guess: Tensor, released: Tensor, start: Tensor, train: Callable[[Tensor], Tensor], iterations: int = ITERATIONS
) -> Explained:
    """The set nearest to a guess (n, d) whose training ends at the released weights (c, d + 1), by Gauss-Newton.

    `train` gives the weights of each of m sets, (m, n, d) -> (m, c, d + 1), the last column the biases. All of
    W - s W_0 = A F  lies in the span of the rows of W, W_0 and F: only coordinates in it are solved for. There are more
    of them than equations, so each step is the shortest.
    """
    rows = torch.cat([released[:, :-1], start, guess])
    basis = torch.linalg.qr(rows.mT).Q.mT  # (k, d)
    reads = torch.block_diag(basis, torch.ones(1, 1).to(basis))  # (k + 1, d + 1)
    size = (released[:, :-1] - start).norm()
    spread = SPREAD * torch.eye(len(guess) * len(basis)).to(guess).view(-1, len(guess), len(basis))

    def residuals(sets: Tensor) -> Tensor:  # (m, n, k) -> (m, c (k + 1))
        return ((train(sets @ basis) - released) @ reads.mT).flatten(1) / size

    x = guess @ basis.mT  # (n, k)
    left = residuals(x[None])[0]
    for _ in range(iterations):
        ahead, behind = residuals(torch.cat([x + spread, x - spread])).chunk(2)
        slopes = (ahead - behind).mT / (2 * SPREAD)
        step = torch.linalg.lstsq(slopes, -left[:, None], driver="gelsd", rcond=1e-7).solution.view(x.shape)
        shares = 0.5 ** torch.arange(10).to(x)
        tried = residuals(x + shares.view(-1, 1, 1) * step)
        best = int(tried.norm(dim=1).argmin())
        if float(tried[best].norm()) >= float(left.norm()):
            break
        x, left = x + shares[best] * step, tried[best]
    return Explained(x @ basis, float(left.norm()))


def public_ten_rows(options: argparse.Namespace) -> list[Row]:
    """What is left of the features' error where the answer explains the weights."""
    prior, pool = features(options, (None, options.pool))
    net, threat, recipe = nn.Linear(prior.x.shape[1], CLASSES), lw.Weak(CLASSES), mnist_trainer(CLASSES)
    trainer, labels = replace(recipe, dtype=torch.float64, init=PUBLIC), torch.arange(CLASSES)
    cohort = threat.deal(pool, options.sets, seed=options.seed)
    release = trainer(net, cohort, seed=options.seed)
    start = trainer.init(net, [0], seed=options.seed)["weight"][0].double()

    def train(sets: Tensor) -> Tensor:
        given = Records(sets, labels.expand(len(sets), -1))
        weights = trainer(net, Cohort(pool[:0], given, torch.arange(len(sets))), seed=options.seed).params
        return torch.cat([weights["weight"], weights["bias"].unsqueeze(2)], 2)

    begun = time.perf_counter()
    single = Records(prior.x.float(), prior.y)
    facts = Knowledge(net, replace(recipe, init=ALMOST_ZERO), threat, lw.access.Weights(), single)
    estimate = Estimate.of(facts, seed=options.seed + 1)
    shrunk = (1 - trainer.lr * trainer.weight_decay) ** trainer.steps * start  # s W_0
    moved = release.params["weight"] - shrunk
    guesses = estimate(Release({"weight": moved.float(), "bias": release.params["bias"].float()})).double()
    weights = torch.cat([release.params["weight"], release.params["bias"].unsqueeze(2)], 2)
    found = [nearest_explaining(*pair, start, train) for pair in zip(guesses, weights, strict=True)]
    seconds = (time.perf_counter() - begun) / options.sets
    truth = class_means(cohort.own.inputs, cohort.own.y, CLASSES)  # one record each
    blind = (estimate.means.double() - truth).square().sum((1, 2)).mean()
    explained = torch.stack([one.features for one in found])
    before, after = ((some - truth).square().sum((1, 2)) / blind for some in (guesses, explained))
    right = np.array([one.residual < EXPLAINED for one in found])
    name, error = PUBLIC_TEN, "error of the features over that of class means"
    return [
        rate_row(f"{name}.explained", f"{name}: share of sets whose answer gives the weights to {EXPLAINED:g}", right),
        mean_row(f"{name}.left", f"{name}: {error}", after.numpy()),
        mean_row(f"{name}.estimate", f"{name}: {error}, the estimate alone", before.numpy()),
        Row(f"{name}.seconds", f"{name}: seconds per set, mean", seconds),
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
    made = parser(__doc__, [*GAMES, PUBLIC_TEN, PRIVATE], SIZES)
    made.add_argument("--models", type=Path, help="folder of what s2_pretrain.py --plain wrote; else that of the data")
    options = made.parse_args()
    prior, pool = features(options, (options.prior, options.pool))
    whole = {PUBLIC_TEN: public_ten_rows, PRIVATE: private_rows}  # with all digits of the prior
    for name in options.rows:
        if name in whole:
            write(__file__, whole[name](options), options)
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
