"""Inversion of training on S4's ReLU victims, CIFAR-10: Newton and Ensemble where RecoNN and Mnemonist have been.

    python papers/s4_newton.py --device cuda [--rows relu_1 sigmoid_1 ...] [--attacks newton ensemble] [--data FOLDER]

The victims are the first of papers/s4_table3.py (same known records, same initialisations, if its sizes are the same),
trained in plain float32. ReLU makes training jump wherever a known record crosses a kink: Newton, which follows
derivatives, is not made for it, and Ensemble, which regresses over clouds of models, is. Sigmoid nets are smooth. A
record has 3,072 numbers, so that Newton takes products in place of a Jacobian (`Newton(products=28)`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from s1_mnist import mean_row, parser, rate_row, write
from s4_table3 import GAMES, Game, Split, Victims, split

import lostwax as lw
from lostwax.reports.results import Row
from lostwax.types import Attack, Knowledge

DEFAULT = ["relu_1", "relu_3", "sigmoid_1"]
SIZES = {
    "known": (10_000, "records that the adversary knows"),
    "shadows": (40_000, "records of the prior"),
    "targets": (1_000, "victims of which the first are attacked"),
    "attacked": (6, "of them"),
    "bank": (1_000, "models of Newton's, which tell the likeliest labels and where to begin"),
    "products": (28, "of Newton's with the Jacobian, and as many with its transpose"),
    "models": (2_048, "of Ensemble's in a round"),
    "rounds": (4, "of Ensemble's at most, for a target"),
    "seed": (0, "of everything drawn but the initialisations"),
}
ATTACKS: dict[str, Callable[[argparse.Namespace], Attack]] = {
    "newton": lambda options: lw.Newton(bank=options.bank, products=options.products),
    "ensemble": lambda options: lw.Ensemble(members=options.models, rounds=options.rounds, restarts=0),
}


def play(name: str, game: Game, data: Split, options: argparse.Namespace) -> list[Row]:
    """MAE + MSE, mean squared error and labels of each attack, on the same few victims."""
    trainer, secrets = replace(game.trainer, tf32=False), data.secrets[: options.attacked]
    knowledge = Knowledge(game.net, trainer, lw.Informed(data.known), lw.Weights(), data.prior)
    cohort = knowledge.threat.deal(secrets, len(secrets), seed=options.seed)
    victims = Victims(cohort, trainer(knowledge.net, cohort, seed=options.seed))
    blind = (data.prior.x.mean(0) - cohort.own.x).double().square().flatten(1).mean(1).cpu().numpy()
    rows = [mean_row(f"{name}.blind", f"{name}: mean MSE of the prior's mean", blind)]
    for attack in options.attacks:
        start = time.perf_counter()
        guess = ATTACKS[attack](options).prepare(knowledge, seed=options.seed)(victims.release)
        seconds = (time.perf_counter() - start) / len(secrets)
        missed = (guess.records.x - cohort.own.x).double().flatten(1).cpu()
        squared, right = missed.square().mean(1).numpy(), (guess.records.y == cohort.own.y).flatten().cpu().numpy()
        sizes = f"{len(data.known):,} known, {len(data.prior):,} prior, {len(secrets)} targets"
        rows += [
            mean_row(
                f"{name}.{attack}", f"{name}: {attack}'s MAE + MSE ({sizes})", missed.abs().mean(1).numpy() + squared
            ),
            mean_row(f"{name}.{attack}.mse", f"{name}: {attack}'s mean MSE", squared),
            Row(f"{name}.{attack}.median", f"{name}: {attack}'s median MSE", float(np.median(squared))),
            rate_row(f"{name}.{attack}.labels", f"{name}: {attack}'s labels right", right),
            Row(f"{name}.{attack}.seconds", f"{name}: {attack}'s seconds a target, all included", seconds),
        ]
    return rows


if __name__ == "__main__":
    made = parser(__doc__ or "", GAMES, SIZES)
    made.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), help="who plays")
    made.set_defaults(rows=DEFAULT)
    options = made.parse_args()
    data = split(options)
    for name in options.rows:
        write(__file__, play(name, GAMES[name], data, options), options)
