"""S4 Figure 1, CIFAR-10: how well records come back from ReLU and from Sigmoid nets, over 20 initialisations of each.

    python papers/s4_figure1.py --device cuda [--rows relu_1 sigmoid_1 ...] [--data FOLDER]

The game of papers/s4_table3.py with a quarter of its shadow models, for 40 rows are many; RecoNN as in S4, and row by
row. In S4's figure RecoNN's MAE + MSE ranges from 0.05 to 0.29 for ReLU, and is about 0.03 for Sigmoid. About 20 s a
row on an H200, reckoned and not yet measured.
"""

from __future__ import annotations

import argparse

from s1_mnist import write
from s4_table3 import ATTACKS, GAMES, Split, arguments, play, split

from lostwax.reports.results import Row

PLAYED = ("reconn", "rows")
RANGE = {"relu": (0.05, 0.29), "sigmoid": (0.03, 0.03)}  # S4's


def ranges(played: dict[str, list[Row]]) -> list[Row]:
    """The lowest and the highest mean of each activation and attack, over the initialisations that were played."""
    rows = []
    for activation, paper in RANGE.items():
        for attack in PLAYED:
            names = [f"{name}.{attack}" for name in played if name.startswith(activation)]
            means = [float(row.value) for found in played.values() for row in found if row.id in names]
            if not means:
                continue
            for word, value, theirs in zip(("lowest", "highest"), (min(means), max(means)), paper, strict=True):
                what = f"{activation}: {ATTACKS[attack]}, the {word} of {len(means)} initialisations"
                rows.append(
                    Row(f"{activation}.{attack}.{word}", what, value, paper=theirs if attack == "reconn" else None)
                )
    return rows


def main(options: argparse.Namespace, data: Split) -> None:
    options.attacks = [attack for attack in PLAYED if attack in options.attacks]
    played = {}
    for name in options.rows:
        played[name] = play(name, GAMES[name], data, options)
        write(__file__, played[name], options)
    write(__file__, ranges(played), options)


if __name__ == "__main__":
    options = arguments(__doc__ or "", list(GAMES), shadows=10_000)
    main(options, split(options))
