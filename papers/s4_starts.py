"""How fast do S4's victims learn? CIFAR-10: in how many rows of ReLU nets a record is stored, first and last.

    python papers/s4_starts.py [--device cuda] [--rows 0.05 he_0.05 ...] [--data FOLDER]

S4 names neither its learning rate nor its start. It says what its nets are like: rows that store nothing of a record
grow more from step to step (Fig. 5), and from some initialisations records come back no better than by a blind guess
(Fig. 1: MAE + MSE up to 0.29). A row is a learning rate, from the first LeCun-normal starts of papers/s4_table3.py or
from as many of He's. In a net that is dead no row of the first layer stores anything any more.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from lib.traces import row_scales
from s1_mnist import mean_row, parser, rate_row, write
from s4_cifar import FIRST_LAYER, GAMES

import lostwax as lw
from lostwax.games import Records
from lostwax_dev.results import Row

LECUN, HE = lw.inits.LeCunNormal, lw.inits.He
WAYS = {"0.02": (LECUN, 0.02), "0.05": (LECUN, 0.05), "0.1": (LECUN, 0.1), "0.2": (LECUN, 0.2), "he_0.05": (HE, 0.05)}
SIZES = {
    "known": (2_000, "records that all nets share"),
    "targets": (8, "records that are followed, one a net"),
    "starts": (8, "initialisations"),
    "seed": (0, "of everything drawn but the initialisations"),
}


def play(way: str, known: Records, targets: Records, options: argparse.Namespace) -> list[Row]:
    """The share of first-layer rows that the first and the last step store a target in, and of nets that are dead."""
    cohort, stored, (init, lr) = lw.Informed(known).deal(targets, len(targets), seed=options.seed), [], WAYS[way]
    for run in range(1, options.starts + 1):
        game = GAMES[f"relu_{run}"]
        trainer = replace(game.trainer, lr=lr, init=init(seed=run))
        scales = row_scales(trainer, game.net, cohort, seed=options.seed).of(FIRST_LAYER)
        stored.append(scales.stored.double().mean((0, 2)).cpu().numpy())  # (t,)
    shares = np.stack(stored)  # (starts, t)
    sizes = f"{len(known):,} known, {len(targets)} targets, {len(shares)} initialisations"
    words = "share of first-layer rows that store a target"
    return [
        mean_row(f"{way}.first", f"{way}: {words}, first step ({sizes})", shares[:, 0]),
        mean_row(f"{way}.last", f"{way}: {words}, last step", shares[:, -1]),
        rate_row(f"{way}.dead", f"{way}: nets whose last step stores no target in any row", shares[:, -1] == 0),
    ]


if __name__ == "__main__":
    options = parser(__doc__ or "", WAYS, SIZES).parse_args()
    parts = lw.records.cifar10("all", root=options.data).split(options.known, options.targets, seed=options.seed)
    known, targets = (part.to(options.device) for part in parts)
    for way in options.rows:
        write(__file__, play(way, known, targets, options), options)
