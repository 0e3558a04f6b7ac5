"""S1 Table IV, MNIST: hidden layers of width 1, 10 and 100, and the second layer alone of the last (100*).

    python papers/s1_table4.py --device cuda [--judges] [--rows width_1 ...] [--data FOLDER]

To reach: S1's errors, all far below the oracle. All but the first are rows of Table II too, and are taken from there
if they were run, except with --judges, which adds the columns LPIPS and KL.
"""

from dataclasses import replace

from s1_mnist import Game, arguments, split, table
from s1_table2 import GAMES as TABLE_II

TWINS = {"width_10": "default", "width_100": "larger_mlp", "width_100_second_layer": "second_layer"}
LPIPS_AND_KL = {"width_10": (0.0392, 0.0516), "width_100": (0.0338, 0.0258), "width_100_second_layer": (0.0477, 0.0840)}
GAMES = {"width_1": Game(paper=0.0079, paper_lpips=0.0325, paper_kl=0.0448, hidden=1, noise=0.03)}
for name, (lpips, kl) in LPIPS_AND_KL.items():
    GAMES[name] = replace(TABLE_II[TWINS[name]], paper_lpips=lpips, paper_kl=kl)

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options, TWINS)
