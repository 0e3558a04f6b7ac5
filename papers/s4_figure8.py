"""S4 Figure 8, CIFAR-10: do rows with small coefficients rebuild records best, when RecoNN has each alone?

    python papers/s4_figure8.py --device cuda [--rows relu_1 relu_2 ...] [--data FOLDER]

The game of papers/s4_table3.py with a quarter of its shadow models, for two initialisations. RecoNN is explained, by
rows put back to their initial values as in S4 and by rows put back to the mean; then it learns from every row of the
first layer alone. S4 shows a scatter of ten rows, and finds that the smaller the coefficient, the smaller the loss: a
correlation of +1 would be best. Ten points say little; so the ten rows are compared for every target too, its own
coefficients with its own losses, and the mean is over targets. By counting, about 40 s per row on an H200.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from s1_mnist import mean_row, write
from s4_cifar import EXPLAINED, FIRST_LAYER, GAMES, Game, Split, arguments, in_time, recipe, split, timed, trained

import lostwax as lw
from lostwax.attacks.mnemonist import Erasure, seen_by
from lostwax.metrics import correlation
from lostwax.metrics.estimate import spearman
from lostwax_dev.results import Row

ERASURES: dict[str, Erasure] = {"start": lw.attacks.mnemonist.ToStart(), "mean": lw.attacks.mnemonist.ToMean()}


def play(name: str, game: Game, data: Split, options: argparse.Namespace) -> list[Row]:
    """The loss from each row of the first layer, its coefficients, and how they go together."""
    (knowledge, *tables), victims = trained(game, data, options)
    attack, seed = recipe(options), options.seed
    with timed("reconn"):
        whole = attack.learn(knowledge, *tables, seed=seed)
    cohort, some = victims.cohort, range(min(EXPLAINED, len(victims.release)))
    with timed("explanations"):
        explanations = {
            way: lw.attacks.Mnemonist(masks=options.masks, erase=erase)(
                whole, knowledge, victims.release, cohort.own, seed=seed, only=some
            )
            for way, erase in ERASURES.items()
        }
    every = explanations["start"].rows
    places = [place for place, row in enumerate(every) if row.module == FIRST_LAYER]
    alone = []
    for place in places:
        access = lw.access.Superparameters((every[place],))
        seen = [seen_by(access, knowledge.net, table) for table in tables]
        with timed(f"row {every[place]} alone"):
            alone.append(victims.losses(attack.learn(replace(knowledge, access=access), *seen, seed=seed)))
    rows = [
        mean_row(f"{name}.{every[place]}", f"{name}: RecoNN's MAE + MSE, from row {every[place]}", loss)
        for place, loss in zip(places, alone, strict=True)
    ]
    losses = np.stack(alone, 1)  # (targets, first-layer rows)
    for way, found in explanations.items():
        coefficients = found.coefficients[:, places].cpu().numpy()  # (explained, first-layer rows)
        rows += [
            Row(f"{name}.{every[place]}.{way}", f"{name}: coefficient of row {every[place]} (to {way})", float(value))
            for place, value in zip(places, coefficients.mean(0), strict=True)
        ]
        words = f"{name}: Spearman's, coefficients (to {way}) and losses from single rows"
        agreed = correlation(coefficients.mean(0), losses.mean(0)).spearman
        rows += [
            Row(f"{name}.{way}_agreement", words, *agreed[:3]),
            mean_row(f"{name}.{way}_agreements", f"{words}, within a target", spearman(coefficients, losses[some])),
        ]
    return rows


if __name__ == "__main__":
    options = arguments(__doc__ or "", ["relu_1", "relu_2"], shadows=10_000).parse_args()
    data = split(options)
    for name in in_time(options.rows, options):
        write(__file__, play(name, GAMES[name], data, options), options)
