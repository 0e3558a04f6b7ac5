"""What limits S2's games: what the head holds of the features, or the way from features to pictures.

    python papers/s2_features.py --device cuda --generator mlp --batch 512 --minutes 4 --tuning 2 --rows unseen_plain_10

The games of `s2_table1.py`, with secrets on which nothing was chosen (`unseen` in `s2_data.py`). Rows named "oracle"
give the same reconstructor, with the same budget, the exact features in place of the head: with one record per class
its features, with four their mean, which is what a head holds of them to first order (docs/weak.md). So they show what
a better reading of the head could add, with this decoder and budget. They are not ceilings: a longer training may do
better, and a head on forty records holds a little more than the means. Rows named "posterior" read the features that
`s2_posterior.py` estimates from the head in closed form. With --marked, rows named "marked" put guesses on one scale
(`s2_marks.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from s2_data import unseen_cifar10, unseen_mnist, unseen_plain_mnist
from s2_heads import NO_NUMBERS, Game, game_parser, mnist_trainer, table
from s2_posterior import FeatureReader, class_means
from s2_table1 import FORTY, TEN_DIGITS, TEN_PICTURES
from torch import nn

from lostwax.games import Cohort, Records, Release

TILE = 16_384  # models at a time


@dataclass(frozen=True)
class MeanFeatures:
    """In place of training: row c of the weights is the mean of the features of class c."""

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """(m, c, d) weights, (m, c) biases of 0."""
        rows = class_means(cohort.own.inputs, cohort.own.y, net.get_parameter("bias").shape[0])
        return Release({"weight": rows, "bias": rows.new_zeros(rows.shape[:2])})

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """Any number gives the same."""
        return TILE


def no_heads(game: Game, records: Records, seed: int) -> dict[str, NDArray[np.float64]]:
    """Features have no accuracy."""
    return {}


TEN = Game(data=unseen_mnist, trainer=mnist_trainer(10), paper=TEN_DIGITS)
GAMES = {
    "plain_10": replace(TEN, data=unseen_plain_mnist),
    "mnist_10": TEN,
    "mnist_40": replace(FORTY, data=unseen_mnist),
    "plain_40": replace(FORTY, data=unseen_plain_mnist),
    "cifar_10": replace(TEN_PICTURES, data=unseen_cifar10),
}
GAMES = {f"unseen_{name}": game for name, game in GAMES.items()}
GAMES |= {f"{name}_posterior": replace(game, fitted=FeatureReader.fitted) for name, game in GAMES.items()}
GAMES |= {
    f"{name}_oracle": replace(game, trainer=MeanFeatures(), judged=no_heads, paper=NO_NUMBERS)
    for name, game in GAMES.items()
    if game.fitted is None
}

if __name__ == "__main__":
    made = game_parser(__doc__, GAMES)
    made.add_argument("--tuning", type=float, default=0.0, help="minutes of teaching to beat chance, for rows *_chance")
    made.set_defaults(conditional=False)
    table(__file__, GAMES, made.parse_args())
