"""S1 Table III, MNIST: a public or a private start, at two learning rates and with or without momentum.

    python papers/s1_table3.py --device cuda [--rows public_0.2_0.9 ...] [--data FOLDER]

The column of mean squared errors. To reach: S1's with a public start, and failure (the error of a blind guess) with a
private one, whatever the learning rate. Three of the eight games are rows of Table II too, and are taken from there
if they were run.
"""

from dataclasses import replace

from s1_mnist import PRIVATE_START, VICTIM, Game, arguments, split, table
from s1_table2 import GAMES as TABLE_II

PAPER = {  # (learning rate, momentum): with a public start, with a private one
    (0.01, 0.0): (0.0041, 0.0693),
    (0.01, 0.9): (0.0049, 0.0691),
    (0.2, 0.0): (0.0063, 0.0692),
    (0.2, 0.9): (0.0089, 0.0695),
}

GAMES = {}
for (lr, momentum), (public, private) in PAPER.items():
    trainer = replace(VICTIM, lr=lr, momentum=momentum)
    GAMES[f"public_{lr}_{momentum}"] = Game(paper=public, trainer=trainer)
    GAMES[f"private_{lr}_{momentum}"] = Game(paper=private, trainer=replace(trainer, init=PRIVATE_START), copies=1)
TWINS = {"public_0.01_0.9": "lr_0.01", "public_0.2_0.9": "default", "private_0.2_0.9": "random_start"}
GAMES |= {name: TABLE_II[twin] for name, twin in TWINS.items()}

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options, TWINS)
