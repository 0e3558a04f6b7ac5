"""S1 Table IV, MNIST: hidden layers of width 1, 10 and 100, and the second layer alone of the last (100*).

    python papers/s1_table4.py --device cuda [--rows width_1 ...] [--data FOLDER]

The column of mean squared errors. To reach: S1's, all far below the oracle. All but the first are rows of Table II too,
and are taken from there if they were run.
"""

from s1_mnist import Game, arguments, split, table
from s1_table2 import GAMES as TABLE_II

TWINS = {"width_10": "default", "width_100": "larger_mlp", "width_100_second_layer": "second_layer"}
GAMES = {"width_1": Game(paper=0.0079, hidden=1, noise=0.03)} | {name: TABLE_II[twin] for name, twin in TWINS.items()}

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options, TWINS)
