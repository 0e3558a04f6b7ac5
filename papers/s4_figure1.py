"""S4 Figure 1, CIFAR-10: how well records come back from ReLU and from Sigmoid nets, over many initialisations.

    python papers/s4_figure1.py --device cuda [--rows relu_1 sigmoid_1 ...] [--data FOLDER]

S4 has 20 initialisations of each. Here six of ReLU and three of Sigmoid are the default, with a quarter of the shadow
models of papers/s4_table3.py and twice the epochs; RecoNN as in S4, and row by row. In S4's figure RecoNN's MAE + MSE
ranges from 0.05 to 0.29 for ReLU, and is about 0.03 for Sigmoid. By counting, about 15 s per row on an H200.
"""

from __future__ import annotations

import argparse

from s1_mnist import write
from s4_cifar import GAMES, Split, arguments, in_time, split
from s4_table3 import ATTACKS, play

from lostwax.metrics import correlation
from lostwax_dev.results import Row, read_rows

PLAYED = ("reconn", "rows")
FEWEST = 8  # initialisations, for a correlation over them
RANGE = {"relu": (0.05, 0.29), "sigmoid": (0.03, 0.03), "dying": (0.05, 0.29)}  # S4's
DEFAULT = ["relu_1", "sigmoid_1", "relu_2", "relu_3", "sigmoid_2", "relu_4", "relu_5", "sigmoid_3", "relu_6"]


def ranges(measured: list[Row]) -> list[Row]:
    """The lowest and the highest mean of each kind and attack, over all initialisations that have been run."""
    rows = []
    for kind, paper in RANGE.items():
        for attack in PLAYED:
            names = {f"{name}.{attack}" for name in GAMES if name.startswith(kind)}
            means = sorted((row for row in measured if row.id in names), key=lambda row: float(row.value))
            if not means:
                continue
            for word, one, theirs in zip(("lowest", "highest"), (means[0], means[-1]), paper, strict=True):
                what = f"{kind}: {ATTACKS[attack]}, the {word} of {len(means)} initialisations, and its own interval"
                number = theirs if attack == "reconn" else None
                rows.append(Row(f"{kind}.{attack}.{word}", what, one.value, one.low, one.high, number))
    return rows


def storage(measured: list[Row], *, seed: int) -> list[Row]:
    """Do ReLU nets that store a target in more rows and steps have smaller errors? Over all initialisations run."""
    value = {row.id: float(row.value) for row in measured}
    names = [name for name in GAMES if name.startswith("relu") and {f"{name}.reconn", f"{name}.stored"} <= value.keys()]
    if len(names) < FEWEST:
        return []
    errors, stored = ([value[f"{name}.{part}"] for name in names] for part in ("reconn", "stored"))
    found = correlation(errors, stored, seed=seed).spearman
    what = f"relu: Spearman's correlation of RecoNN's error and the share that is stored, {len(names)} initialisations"
    return [Row("relu.stored.Spearman", what, *found[:3])]


def main(options: argparse.Namespace, data: Split) -> None:
    options.attacks = list(PLAYED)
    for name in in_time(options.rows, options):
        results = write(__file__, play(name, GAMES[name], data, options), options)
    measured = read_rows(results)
    write(__file__, ranges(measured) + storage(measured, seed=options.seed), options)


if __name__ == "__main__":
    options = arguments(__doc__ or "", DEFAULT, shadows=10_000, epochs=40).parse_args()
    main(options, split(options))
