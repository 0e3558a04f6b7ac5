"""S4 Figures 3, 4 and 5, CIFAR-10: losses by class and by target, from a good and from a bad initialisation.

    python papers/s4_figure3.py --device cuda [--rows good bad] [--data FOLDER]

The game of papers/s4_cifar.py. S4 calls an initialisation good where RecoNN's loss on the ReLU net is near that on the
Sigmoid net of the same start, and bad where it is far. Ours are those with the least and the largest loss of ReLU nets
in papers/s4_figure1.py, which has a quarter of the shadow models. S4 in words: every class is harder to rebuild from
ReLU nets; classes and targets differ more there, and more from the bad initialisation; from the good one a few targets
come back better than from the Sigmoid net. Some 80 s per row on an H200, by counting.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from s1_mnist import mean_row, rate_row, write
from s4_cifar import GAMES, Split, arguments, in_time, recipe, split, timed, trained
from s4_table3 import loss_rows, storage_rows

from lostwax_dev.results import Row

STARTS = {"good": 11, "bad": 18}  # initialisations
DRAWS = 2_000  # of the bootstrap
Losses = NDArray[np.float64]  # (targets,)


def spread(name: str, what: str, losses: Losses, classes: NDArray[np.int64], *, seed: int) -> list[Row]:
    """The deviation of the losses, and that of the classes' means, each with a bootstrap interval over targets."""
    random = np.random.default_rng(seed)
    groups = [losses[classes == label] for label in np.unique(classes)]
    drawn = [random.choice(group, (DRAWS, len(group))) for group in groups]  # (draws, targets) of each class
    means = np.stack([draws.mean(1) for draws in drawn], 1)  # (draws, classes)
    rows = []
    for kind, value, again in (
        ("classes", np.std([group.mean() for group in groups]), means.std(1)),
        ("targets", losses.std(), np.concatenate(drawn, 1).std(1)),
    ):
        low, high = np.quantile(again, [0.025, 0.975])
        ends = min(float(low), float(value)), max(float(high), float(value))
        rows.append(Row(f"{name}.{kind}", f"{name}: deviation over {kind} of {what}", float(value), *ends))
    return rows


def by_class(name: str, less: Losses, classes: NDArray[np.int64]) -> list[Row]:
    """How much less the loss of the Sigmoid net is, class by class."""
    return [
        mean_row(f"{name}.class_{label}", f"{name}: ReLU's loss less Sigmoid's, class {label}", less[classes == label])
        for label in np.flatnonzero(np.bincount(classes) > 1)
    ]


def play(name: str, data: Split, options: argparse.Namespace) -> list[Row]:
    """RecoNN on both nets of one start."""
    losses: dict[str, Losses] = {}
    rows: list[Row] = []
    for kind in ("relu", "sigmoid"):
        game, own = GAMES[f"{kind}_{STARTS[name]}"], f"{name}.{kind}"
        shadows, victims = trained(game, data, options)
        with timed("reconn"):
            reconstruct = recipe(options).learn(*shadows, seed=options.seed)
        losses[kind] = victims.losses(reconstruct)
        rows += [row for row in loss_rows(own, game, {"reconn": losses[kind]}, data) if row.id != "blind"]
        rows += storage_rows(own, shadows, victims, {}, options)
    classes = victims.cohort.own.y[:, 0].cpu().numpy()
    for kind, loss in losses.items():
        rows += spread(f"{name}.{kind}", "RecoNN's MAE + MSE", loss, classes, seed=options.seed)
    rows += by_class(name, losses["relu"] - losses["sigmoid"], classes)
    least = min((row for row in rows if ".class_" in row.id), key=lambda row: float(row.low or 0.0))
    rows.append(replace(least, id=f"{name}.least_class", quantity=f"{least.quantity}, whose interval reaches lowest"))
    better = losses["relu"] < losses["sigmoid"]
    return [*rows, rate_row(f"{name}.better", f"{name}: share of targets with a smaller loss from ReLU", better)]


if __name__ == "__main__":
    options = arguments(__doc__ or "", list(STARTS), among=STARTS).parse_args()
    data = split(options)
    for name in in_time(options.rows, options):
        write(__file__, play(name, data, options), options)
