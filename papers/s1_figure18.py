"""S1 Figure 18, MNIST: fixed sets of 100, 1,000 and 10,000 records.

    python papers/s1_figure18.py --device cuda --attack kernel --judges [--rows known_100 ...] [--data FOLDER]

S1 in words: the error, LPIPS and KL fall only a little as the set that the adversary knows gets smaller.
"""

from s1_mnist import Game, arguments, split, table

GAMES = {f"known_{size}": Game(known=size) for size in (100, 1_000, 10_000)}

if __name__ == "__main__":
    options = arguments(__doc__, GAMES)
    table(__file__, GAMES, split(options), options)
