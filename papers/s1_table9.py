"""S1 Table IX, CIFAR-10: the reconstructor against victims that were trained longer, or by Adam.

    python papers/s1_table9.py --device cuda --store FOLDER [--rows gd_1k_100 ...] [--data FOLDER]
    python papers/s1_table9.py --device cuda --engine linear --directions 512 --shadows 54000 --targets 1000 \\
        --rows gd_1k_100_kernel ...

All rows but those with 50,000 known records, for which S1's prior is CIFAR-100. S1 has 54,000 shadow models per row; by
training it is 5,000 here, and of victims that are trained longer 4,000 or 2,000: some minutes per row on an H200. The
decoder learns from the squared error alone, which is what is compared; rows that end in "kernel" are our regression in
closed form instead, from the same shadow models. With `--engine linear` there are as many as S1's (see `s1_cifar.py`),
and rows that end in "newton" invert the response.
"""

from dataclasses import replace

from s1_cifar import ADAM, GD, Game, arguments, table

TABLE_9 = {  # known, optimiser, epochs: S1's MSE, LPIPS, accuracy on the training set and on new records
    (1, "gd", 100): (0.0041, 0.1861, 0.451, 0.327),
    (1, "gd", 250): (0.0126, 0.3117, 0.759, 0.324),
    (1, "gd", 500): (0.0170, 0.3594, 0.998, 0.328),
    (1, "adam", 100): (0.0052, 0.2042, 0.952, 0.299),
    (1, "adam", 250): (0.0065, 0.2355, 1.000, 0.300),
    (1, "adam", 500): (0.0068, 0.2428, 1.000, 0.303),
    (5, "gd", 100): (0.0049, 0.2070, 0.392, 0.388),
    (5, "gd", 250): (0.0201, 0.3863, 0.461, 0.401),
    (5, "gd", 500): (0.0761, 0.5272, 0.610, 0.451),
    (5, "adam", 100): (0.0052, 0.2179, 0.546, 0.395),
    (5, "adam", 250): (0.0062, 0.2148, 0.844, 0.418),
    (5, "adam", 500): (0.0143, 0.3460, 0.999, 0.421),
    (10, "gd", 100): (0.0209, 0.4184, 0.401, 0.397),
    (10, "gd", 250): (0.0385, 0.4851, 0.420, 0.410),
    (10, "gd", 500): (0.0761, 0.5287, 0.514, 0.473),
    (10, "adam", 100): (0.0081, 0.2501, 0.477, 0.443),
    (10, "adam", 250): (0.0208, 0.3950, 0.662, 0.470),
    (10, "adam", 500): (0.0357, 0.4930, 0.937, 0.474),
}
SHADOWS = {100: None, 250: 4_000, 500: 2_000}  # trained at most


def row(thousands: int, optimiser: str, epochs: int) -> Game:
    """One row: with more than 5,000 known records on a separate split."""
    error, lpips, *accuracies = TABLE_9[thousands, optimiser, epochs]
    sizes = {"own_split": 1_000 * thousands} if thousands > 5 else {"known": 1_000 * thousands}
    return Game(
        **sizes,
        trainer=replace(GD, steps=epochs) if optimiser == "gd" else replace(ADAM, epochs=epochs),
        shadows=SHADOWS[epochs],
        paper=error,
        paper_lpips=lpips,
        accuracies=(accuracies[0], accuracies[1]),
    )


ROWS = {f"{optimiser}_{size}k_{epochs}": row(size, optimiser, epochs) for size, optimiser, epochs in TABLE_9}
GAMES = {name: replace(game, looks=False) for name, game in ROWS.items()}
GAMES |= {f"{name}_kernel": replace(game, kernel=True) for name, game in ROWS.items()}
GAMES |= {f"{name}_newton": replace(game, newton=True) for name, game in ROWS.items()}

if __name__ == "__main__":
    table(__file__, GAMES, arguments(__doc__, GAMES))
