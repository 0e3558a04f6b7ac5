"""Exact inversion of training on S1's MNIST victims: error, certificate and time per target.

    python papers/newton_mnist.py --device cuda [--rows elu no_prior sigmoid tanh width_1] [--data FOLDER]

S1's set-up (s1_mnist.py), the release trained and stored in float32, the label not given. "no_prior" gives the attack
nothing but the known records. To reach: 100 ELU targets at mean MSE <= 1e-5 and median <= 1e-6, 95 certified, 99
labels, 4 s per target averaged over all (including preparation); 25 targets each for sigmoid and tanh. "width_1" is the
row of S1's Table IV that RecoNN misses.
The few games that none of Newton's own starting points explains start again from the answer of `Ensemble`, except in
"width_1", where there are more of them and each takes minutes.
"""

import time
from dataclasses import replace

import numpy as np
import torch
from s1_mnist import VICTIM, Game, Split, arguments, cohort, knowledge, mean_row, rate_row, split, squared_errors, write
from torch import nn

import lostwax as lw
from lostwax.reports.results import Row

FLOAT32 = replace(VICTIM, tf32=False)
GAMES = {  # the game, and how many targets
    "elu": (Game(paper=0.0089, trainer=FLOAT32), 100),
    "no_prior": (Game(trainer=FLOAT32), 100),
    "sigmoid": (Game(trainer=FLOAT32, activation=nn.Sigmoid), 25),
    "tanh": (Game(trainer=FLOAT32, activation=nn.Tanh), 25),
    "width_1": (Game(paper=0.0079, trainer=FLOAT32, hidden=1), 100),  # 805 numbers are released, 784 are sought
}


def play(name: str, data: Split) -> list[Row]:
    game, targets = GAMES[name]
    data = data._replace(secrets=data.secrets[:targets])
    at_hand = data._replace(prior=data.known) if name == "no_prior" else data
    games = cohort(data)
    release = game.trainer(knowledge(game, data).net, games, seed=0)
    start = time.perf_counter()
    attack = lw.Newton(bank=2_000, start=None if name == "width_1" else lw.Ensemble(members=2_048))
    inverter = attack.prepare(knowledge(game, at_hand), seed=0)
    prepared = time.perf_counter() - start
    found = inverter.invert(release)
    seconds = time.perf_counter() - start
    errors = squared_errors(torch.stack([one.record for one in found]).view_as(data.secrets.x), data.secrets.x)
    labels = np.array([int(one.label) for one in found]) == data.secrets.y.cpu().numpy()
    for row in np.flatnonzero(errors > 1e-5):
        one = found[row]
        print(
            f"  target {row}: MSE {errors[row]:.1e}, predicted {one.predicted:.1e}, label right: {labels[row]}, ",
            end="",
        )
        print(f"residual {one.residual:.1e}, rounding {one.rounding:.1e}, {one.jacobians} Jacobians")
    certified = np.array([one.certified for one in found])
    jacobians = np.array([float(one.jacobians) for one in found])
    sizes = f"{len(data.known):,} known, {len(errors)} targets"
    return [
        mean_row(name, f"{name}: mean MSE ({sizes})", errors, game.paper),
        Row(f"{name}.median", f"{name}: median MSE", float(np.median(errors))),
        Row(f"{name}.worst", f"{name}: largest MSE", float(errors.max())),
        rate_row(f"{name}.certified", f"{name}: certified", certified),
        rate_row(f"{name}.labels", f"{name}: labels right", labels),
        mean_row(f"{name}.jacobians", f"{name}: Jacobians per game", jacobians),
        Row(f"{name}.seconds", f"{name}: seconds a target, all included", seconds / len(errors)),
        Row(f"{name}.prepared", f"{name}: of it seconds in all to prepare", prepared),
    ]


if __name__ == "__main__":
    options = arguments(__doc__, GAMES, targets=100)
    everything = split(options)
    for name in options.rows:
        write(__file__, play(name, everything), options)
