"""S1 Table III, MNIST: a public or a private start, at two learning rates and with or without momentum.

    python papers/s1_table3.py --device cuda [--judges] [--rows public_0.2_0.9 ...] [--data FOLDER]

To reach: S1's errors with a public start, and failure (the error of a blind guess) with a private one, whatever the
learning rate. Three of the eight games are rows of Table II too, and are taken from there if they were run, except with
--judges, which adds the columns LPIPS and KL.
"""

from dataclasses import replace
from typing import NamedTuple

from s1_mnist import PRIVATE_START, VICTIM, Game, arguments, split, table
from s1_table2 import GAMES as TABLE_II


class Paper(NamedTuple):
    """S1's numbers of one game."""

    lpips: float
    mse: float
    kl: float


PAPER = {  # (learning rate, momentum): with a public start, with a private one
    (0.01, 0.0): (Paper(0.0197, 0.0041, 0.0140), Paper(0.3342, 0.0693, 5.2477)),
    (0.01, 0.9): (Paper(0.0225, 0.0049, 0.0179), Paper(0.3326, 0.0691, 5.2218)),
    (0.2, 0.0): (Paper(0.0286, 0.0063, 0.0357), Paper(0.3326, 0.0692, 5.3599)),
    (0.2, 0.9): (Paper(0.0382, 0.0089, 0.0414), Paper(0.3226, 0.0695, 5.5261)),
}
TWINS = {"public_0.01_0.9": "lr_0.01", "public_0.2_0.9": "default", "private_0.2_0.9": "random_start"}

GAMES = {}
for (lr, momentum), papers in PAPER.items():
    trainer = replace(VICTIM, lr=lr, momentum=momentum)
    public, private = Game(trainer=trainer), Game(trainer=replace(trainer, init=PRIVATE_START), copies=1)
    for start, game, paper in zip(("public", "private"), (public, private), papers, strict=True):
        name = f"{start}_{lr}_{momentum}"
        GAMES[name] = replace(
            TABLE_II[TWINS[name]] if name in TWINS else game,
            paper=paper.mse,
            paper_lpips=paper.lpips,
            paper_kl=paper.kl,
        )

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options, TWINS)
