"""Inversion of training on S1's CIFAR-10 victim: error and time per target.

    python papers/newton_cifar.py --device cuda --rows products [--data FOLDER] [--targets 4] [--products 28]
    python papers/newton_cifar.py --device cuda --rows response --known 5000 --targets 20 --prior 40000 --bank 20000 \
        [--directions 1200] [--coordinates 1000] [--data FOLDER]

S1's CNN of 55,208 parameters (s1_cifar.py), the release trained and stored in float32, the label not given. A record
has 3,072 numbers, so a Jacobian of training would cost as many trainings.

products: `Newton(products=28)` has 28 products with it and 28 with its transpose, each worth about two trainings, for
all targets side by side. To reach: 2 targets below S1's 0.0049 (5,000 known, 54,000 shadow models); with 1,000 known S1
has 0.0041 (Table IX).

response: `Newton(response=LinearResponse(...))` sweeps the linear response of training once for all targets, in
`directions` of weight space, and solves for `coordinates` principal components of the records. To reach: 1e-3 on
average over 20 targets with 5,000 known.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from s1_cifar import GD, NET, split
from s1_mnist import cohort, mean_row, parser, rate_row, squared_errors, write

import lostwax as lw
from lostwax.games import Knowledge
from lostwax_dev.results import Row

SIZES = {
    "known": (1_000, "records that the adversary knows"),
    "prior": (10_000, "more of its records, of which it takes mean and covariance"),
    "targets": (4, "victims, each with a secret record"),
    "bank": (200, "models trained on known and prior records, to find the likeliest labels"),
    "products": (28, "with the Jacobian, and as many with its transpose: 4 + 8 + 16 at three linearisations"),
    "directions": (1_200, "of weight space, of the linear response"),
    "coordinates": (1_000, "principal components of the records, solved for with the linear response"),
    "seed": (0, "of everything drawn"),
}


def attack(row: str, options: argparse.Namespace) -> tuple[lw.Newton, str]:
    """The attack of a row, and its settings in words."""
    if row == "products":
        return lw.Newton(bank=options.bank, products=options.products), f"{options.products} products"
    response = lw.shadows.LinearResponse(
        directions=options.directions, checked=max(8, min(64, options.directions // 8))
    )
    words = f"{options.directions:,} directions, {options.coordinates:,} coordinates, bank of {options.bank:,}"
    return lw.Newton(bank=options.bank, coordinates=options.coordinates, response=response), words


def main() -> None:
    options = parser(__doc__, ["products", "response"], SIZES).parse_args()
    data = split(options)
    data = data._replace(prior=data.prior[: options.prior])
    trainer = replace(GD, tf32=False)
    knowledge = Knowledge(NET, trainer, lw.Informed(data.known), lw.access.Weights(), data.prior)
    release = trainer(NET, cohort(data), seed=options.seed)
    for row in options.rows:
        newton, words = attack(row, options)
        start = time.perf_counter()
        inverter = newton.prepare(knowledge, seed=options.seed)
        prepared = time.perf_counter() - start
        if newton.response is not None:
            print(f"  {inverter.problem.quick.responses.check}", flush=True)
        found = inverter.invert(release)
        seconds = time.perf_counter() - start
        errors = squared_errors(torch.stack([one.record for one in found]).view_as(data.secrets.x), data.secrets.x)
        for one, error in zip(found, errors, strict=True):
            print(
                f"  MSE {error:.2g}, predicted {one.predicted:.2g}, residual {one.residual:.1e}, {one.jacobians} steps"
            )
        labels = np.array([int(one.label) for one in found]) == data.secrets.y.cpu().numpy()
        sizes = f"{len(data.known):,} known, {len(data.prior):,} prior, {len(errors)} targets, {words}"
        rows = [
            mean_row(row, f"mean MSE ({sizes})", errors, 0.0041 if len(data.known) == 1_000 else 0.0049),
            Row(f"{row}.median", "median MSE", float(np.median(errors))),
            Row(f"{row}.worst", "largest MSE", float(errors.max())),
            rate_row(f"{row}.below", "share of targets below S1's mean MSE of 0.0049", errors < 0.0049),
            rate_row(f"{row}.labels", "labels right", labels),
            mean_row(f"{row}.blind", "mean MSE of the prior's mean", data.blind),
            mean_row(f"{row}.oracle", f"mean MSE of the nearest of {data.pool:,} records", data.nearest),
            Row(f"{row}.seconds", "seconds per target, all included", seconds / len(errors)),
            Row(f"{row}.prepared", "of it seconds in all to prepare", prepared),
        ]
        write(__file__, rows, options)


if __name__ == "__main__":
    main()
