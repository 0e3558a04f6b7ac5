"""S1 Table IX, CIFAR-10: the reconstructor against victims that were trained longer, or by Adam.

    python papers/s1_table9.py --device cuda --store FOLDER [--rows gd_1k_100 ...] [--data FOLDER]
    python papers/s1_table9.py --device cuda --engine linear --directions 512 --shadows 54000 --targets 1000 \\
        --rows gd_1k_100_kernel ...

A subset: 1,000 known records, and the default row of Table II. S1 has 54,000 shadow models per row; here it is 5,000,
and of victims that are trained longer 4,000 or 2,000: some minutes per row on an H200. The decoder learns from the
squared error alone, which is what is compared; rows that end in "kernel" are our regression in closed form instead,
from the same shadow models. With `--engine linear` there are as many as S1's (see `s1_cifar.py`).
"""

from dataclasses import replace

from s1_cifar import ADAM, DEFAULT, GD, Game, arguments, table

ROWS = {
    "gd_1k_100": Game(known=1_000, paper=0.0041, paper_lpips=0.1861, accuracies=(0.451, 0.327)),
    "gd_1k_250": Game(
        known=1_000,
        trainer=replace(GD, steps=250),
        shadows=4_000,
        paper=0.0126,
        paper_lpips=0.3117,
        accuracies=(0.759, 0.324),
    ),
    "gd_1k_500": Game(
        known=1_000,
        trainer=replace(GD, steps=500),
        shadows=2_000,
        paper=0.0170,
        paper_lpips=0.3594,
        accuracies=(0.998, 0.328),
    ),
    "adam_1k_100": Game(known=1_000, trainer=ADAM, paper=0.0052, paper_lpips=0.2042, accuracies=(0.952, 0.299)),
    "adam_1k_250": Game(
        known=1_000,
        trainer=replace(ADAM, epochs=250),
        shadows=4_000,
        paper=0.0065,
        paper_lpips=0.2355,
        accuracies=(1.0, 0.300),
    ),
    "adam_1k_500": Game(
        known=1_000,
        trainer=replace(ADAM, epochs=500),
        shadows=2_000,
        paper=0.0068,
        paper_lpips=0.2428,
        accuracies=(1.0, 0.303),
    ),
    "gd_5k_100": DEFAULT,
}
GAMES = {name: replace(game, looks=False) for name, game in ROWS.items()}
GAMES |= {f"{name}_kernel": replace(game, kernel=True) for name, game in ROWS.items()}
GAMES |= {f"{name}_newton": replace(game, newton=True) for name, game in ROWS.items()}

if __name__ == "__main__":
    table(__file__, GAMES, arguments(__doc__, GAMES))
