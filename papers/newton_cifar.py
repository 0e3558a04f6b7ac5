"""Inversion of training on S1's CIFAR-10 victim, without a Jacobian: error and time per target.

    python papers/newton_cifar.py --device cuda [--data FOLDER] [--targets 4] [--products 28]

S1's CNN of 55,208 parameters (s1_cifar.py), 1,000 known records, the release trained and stored in float32, the label
not given. A record has 3,072 numbers, so a Jacobian of training would cost as many trainings; `Newton(products=28)` has
28 products with it and 28 with its transpose, each worth about two trainings, for all targets side by side. To reach:
2 targets below S1's 0.0049 (5,000 known, 54,000 shadow models); with 1,000 known S1 has 0.0041 (Table IX).
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import torch
from s1_cifar import GD, NET, split
from s1_mnist import cohort, mean_row, parser, rate_row, squared_errors, write

import lostwax as lw
from lostwax.games import Knowledge
from lostwax.reports.results import Row

SIZES = {
    "known": (1_000, "records that the adversary knows"),
    "prior": (10_000, "more of its records, of which it takes mean and covariance"),
    "targets": (4, "victims, each with a secret record"),
    "bank": (200, "models trained on known and prior records, to find the likeliest labels"),
    "products": (28, "with the Jacobian, and as many with its transpose: 4 + 8 + 16 at three linearisations"),
    "seed": (0, "of everything drawn"),
}


def main() -> None:
    options = parser(__doc__, ["products"], SIZES).parse_args()
    data = split(options)
    data = data._replace(prior=data.prior[: options.prior])
    trainer = replace(GD, tf32=False)
    knowledge = Knowledge(NET, trainer, lw.Informed(data.known), lw.access.Weights(), data.prior)
    release = trainer(NET, cohort(data), seed=options.seed)
    start = time.perf_counter()
    inverter = lw.Newton(bank=options.bank, products=options.products).prepare(knowledge, seed=options.seed)
    prepared = time.perf_counter() - start
    found = inverter.invert(release)
    seconds = time.perf_counter() - start
    errors = squared_errors(torch.stack([one.record for one in found]).view_as(data.secrets.x), data.secrets.x)
    for one, error in zip(found, errors, strict=True):
        print(f"  MSE {error:.5f}, predicted {one.predicted:.5f}, residual {one.residual:.1e}, {one.jacobians} steps")
    labels = np.array([int(one.label) for one in found]) == data.secrets.y.cpu().numpy()
    sizes = f"{len(data.known):,} known, {len(data.prior):,} prior, {len(errors)} targets, {options.products} products"
    rows = [
        mean_row("products", f"mean MSE ({sizes})", errors, 0.0041),
        Row("products.median", "median MSE", float(np.median(errors))),
        Row("products.worst", "largest MSE", float(errors.max())),
        rate_row("products.below", "share of targets below S1's mean MSE of 0.0049", errors < 0.0049),
        rate_row("products.labels", "labels right", labels),
        mean_row("blind", "mean MSE of the prior's mean", data.blind),
        mean_row("oracle", f"mean MSE of the nearest of {data.pool:,} records", data.nearest),
        Row("products.seconds", "seconds a target, all included", seconds / len(errors)),
        Row("products.prepared", "of it seconds in all to prepare", prepared),
    ]
    write(__file__, rows, options)


if __name__ == "__main__":
    main()
