"""S1 Table IV, MNIST: hidden layers of width 1, 10 and 100, and the second layer alone of the last (100*).

    python papers/s1_table4.py --device cuda [--rows width_1 ...] [--data FOLDER]

The column of mean squared errors. To reach: S1's, all far below the oracle.
"""

from s1_mnist import Game, arguments, second_layer, split, table

GAMES = {
    "width_1": Game(paper=0.0079, hidden=1, noise=0.03),
    "width_10": Game(paper=0.0089),
    "width_100": Game(paper=0.0079, hidden=100, copies=1),
    "width_100_second_layer": Game(paper=0.0124, hidden=100, access=second_layer, noise=0.03),
}

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options)
