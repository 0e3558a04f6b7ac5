"""S1 Figure 15, CIFAR-10: the reconstructor against DP-GD, error and test accuracy by epsilon, and the ceiling.

    python papers/s1_figure15.py --device cuda --store FOLDER [--known 5000] [--shadows 5000] [--targets 1000] \\
        [--rows epsilon_10 ...] [--data FOLDER]

S1 appendix: the victim of papers/s1_cifar.py, but with gradients clipped at C = 10 and noise for (epsilon, 1e-5)-DP;
the adversary sees the last weights, and its shadow models are trained alike: noise has no linear response. S1 has
54,000 of them. Every step takes the gradient of each of 5,000 records, so this is slow: fewer --known and --shadows are
a part of S1's scale. Rows are by a decoder that learns from the squared error alone, and by our regression in closed
form ("kernel"). S1 in words: even a large epsilon stops the attack, and keeps the accuracy; its numbers are only drawn.
"""

from dataclasses import replace

from s1_cifar import GD, Game, arguments, table
from s1_figure9 import DELTA, EPSILONS, STEPS, ceiling_rows
from s1_mnist import write

import lostwax as lw


def private(epsilon: float) -> lw.DPSGD:
    fields = {"lr": GD.lr, "momentum": GD.momentum, "init": GD.init, "clip": 10.0, "tf32": True}
    return lw.DPSGD.for_epsilon(epsilon, DELTA, steps=STEPS, publish_steps=False, **fields)


TRAINERS = {f"epsilon_{epsilon}": private(epsilon) for epsilon in EPSILONS}
TRAINERS["no_noise"] = replace(TRAINERS["epsilon_1"], noise_multiplier=0.0)
GAMES = {name: Game(trainer=trainer, smooth=False, looks=False) for name, trainer in TRAINERS.items()}
GAMES |= {f"{name}_kernel": replace(game, kernel=True) for name, game in GAMES.items()}

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    for name in options.rows:
        write(__file__, ceiling_rows(name, GAMES[name].trainer), options)
    table(__file__, GAMES, options)
