"""Inversion of training on S4's victims, CIFAR-10: Newton and Ensemble where RecoNN and Mnemonist have been.

    python papers/s4_newton.py --device cuda [--rows relu_1 sigmoid_1 ...] [--attacks newton ensemble] [--data FOLDER]

The victims are the first of papers/s4_table3.py (same known records, same initialisations, if its sizes are the same).
ReLU makes training jump wherever a known record crosses a kink: Newton, which follows derivatives, is not made for it,
and Ensemble, which regresses over clouds of models, is. Sigmoid nets are smooth. A record has 3,072 numbers, so that
Newton takes products in place of a Jacobian (`Newton(products=28)`).

What it costs on an H200, by counting. Ensemble: ten classes of 2,048 models before the first target, and 2,048 a round,
1e14 operations each time. In float32 that is 3 s, and nothing would be seen of it for minutes; so it attacks
Table 3's victims as they are, trained in TF32, where it is 1 s: 20 s to begin with, and 7 s per target. Newton: few
models, but 28 products with the Jacobian and 28 with its transpose, each 40 steps of small operations that wait for
their launch, for all targets at once: half a minute. Its residual must fall far, so its victims are trained in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from s1_mnist import mean_row, parser, rate_row, squared_errors, write
from s4_cifar import GAMES, Game, Split, in_time, losses_of, split, timed

import lostwax as lw
from lostwax.games import Knowledge, Reconstructor, Records, Release
from lostwax_dev.results import Row

DEFAULT = ["relu_1", "sigmoid_1", "relu_3"]
SIZES = {
    "known": (10_000, "records that the adversary knows"),
    "shadows": (40_000, "records of the prior"),
    "targets": (1_000, "victims of which the first are attacked"),
    "attacked": (6, "of them"),
    "bank": (1_000, "models of Newton's, which tell the likeliest labels and where to begin"),
    "products": (28, "of Newton's with the Jacobian, and as many with its transpose"),
    "models": (2_048, "of Ensemble's in a round"),
    "rounds": (6, "of Ensemble's at most, for a target"),
    "minutes": (60.0, "after which no row and no further target of Ensemble's begins"),
    "seed": (0, "of everything drawn but the initialisations"),
}


class Player(NamedTuple):
    prepare: Callable[[Knowledge, argparse.Namespace], Reconstructor]
    tf32: bool  # what the victims are trained in
    together: bool  # does it invert all targets at about the price of one?


def newton(knowledge: Knowledge, options: argparse.Namespace) -> Reconstructor:
    return lw.Newton(bank=options.bank, products=options.products).prepare(knowledge, seed=options.seed)


def ensemble(knowledge: Knowledge, options: argparse.Namespace) -> Reconstructor:
    """Without Newton's last steps: a Jacobian of 3,072 tangents for every target, and its singular values."""
    attack = lw.Ensemble(members=options.models, rounds=options.rounds, restarts=0)
    return attack.prepare(knowledge, seed=options.seed)._replace(polish=None)


ATTACKS = {
    "ensemble": Player(ensemble, tf32=True, together=False),
    "newton": Player(newton, tf32=False, together=True),
}


def play(name: str, attack: str, game: Game, data: Split, options: argparse.Namespace) -> list[Row]:
    """One attack on the first victims, on as many as there is time for."""
    start, player = time.perf_counter(), ATTACKS[attack]
    trainer = replace(game.trainer, tf32=player.tf32)
    knowledge = Knowledge(game.net, trainer, lw.Informed(data.known), lw.access.Weights(), data.prior)
    cohort = knowledge.threat.deal(data.secrets, len(data.secrets), seed=options.seed)[: options.attacked]
    release = trainer(knowledge.net, cohort, seed=options.seed)
    with timed(f"{attack}, prepared"):
        reconstruct = player.prepare(knowledge, options)
    targets = list(range(len(cohort)))
    parts = {"all targets": targets} if player.together else {f"target {one}": [one] for one in targets}
    guesses: list[Records] = []
    for part in in_time(list(parts), options, least=2):  # an interval needs two
        with timed(f"{attack}, {part}"):
            some = {weight: value[parts[part]] for weight, value in release.params.items()}
            guesses.append(reconstruct(Release(some)).records)
        print("    MAE + MSE", *losses_of(guesses[-1].x, cohort.own.x[parts[part]]).round(4), flush=True)
    found = Records(*(torch.cat([getattr(guess, kind) for guess in guesses]) for kind in ("x", "y")))
    seconds = (time.perf_counter() - start) / len(found)
    return [
        *rows_of(name, attack, found, cohort.own[: len(found)], data),
        Row(f"{name}.{attack}.seconds", f"{name}: {attack}'s seconds per target, all included", seconds),
    ]


def rows_of(name: str, attack: str, found: Records, truth: Records, data: Split) -> list[Row]:
    """MAE + MSE, mean squared error and labels, beside those of a blind guess."""
    squared, right = squared_errors(found.x, truth.x), (found.y == truth.y).flatten().cpu().numpy()
    losses, blind = (losses_of(x, truth.x) for x in (found.x, data.prior.x.mean(0)))
    sizes = f"{len(data.known):,} known, {len(data.prior):,} prior, {len(truth)} targets"
    return [
        mean_row(f"{name}.blind", f"{name}: MAE + MSE of the prior's mean", blind),
        mean_row(f"{name}.{attack}", f"{name}: {attack}'s MAE + MSE ({sizes})", losses),
        mean_row(f"{name}.{attack}.mse", f"{name}: {attack}'s mean MSE", squared),
        Row(f"{name}.{attack}.median", f"{name}: {attack}'s median MSE", float(np.median(squared))),
        rate_row(f"{name}.{attack}.labels", f"{name}: {attack}'s labels right", right),
    ]


if __name__ == "__main__":
    made = parser(__doc__ or "", GAMES, SIZES)
    made.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="attacks to run")
    made.set_defaults(rows=DEFAULT)
    options = made.parse_args()
    data = split(options)
    for name in in_time(options.rows, options):
        for attack in in_time(options.attacks, options):
            write(__file__, play(name, attack, GAMES[name], data, options), options)
