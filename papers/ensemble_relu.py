"""Ensemble against S1's ReLU victim on MNIST, and against victims whose batch order is private.

    python papers/ensemble_relu.py --device cuda [--rows relu private_0.01_64 ...] [--data FOLDER]

"relu": 10,000 known records, the victim of S1 Table II (S1: 0.0182). To reach: median 5e-4, mean 5e-3.
"private_LR_SIZE": victims of S1 Figure 7 that draw their own order of batches of SIZE, at learning rate LR. For speed
1,000 records are known and 5,000 are of the prior, as in papers/s1_figure7.py, and fewer targets are attacked
(--private); RecoNN, prepared as there with 5,000 shadow models, attacks the same victims.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from numpy.typing import NDArray
from s1_mnist import (
    START,
    Game,
    Split,
    cohort,
    knowledge,
    mean_row,
    median_row,
    parser,
    play,
    rate_row,
    split,
    squared_errors,
    write,
)
from torch import Tensor, nn

import lostwax as lw
from lostwax_dev.results import Row

GAMES = {"relu": Game(paper=0.0182, activation=nn.ReLU)} | {
    f"private_{lr}_{size}": Game(
        trainer=lw.SGD(lr=lr, batch_size=size, epochs=100, order_seed=None, init=START, tf32=True),
        known=1_000,
        prior=5_000,
        copies=1,
    )
    for lr in (0.01, 0.2)
    for size in (64, 512)
}
SIZES = {
    "known": (10_000, "records that the adversary knows"),
    "shadows": (59_000, "records of the prior"),
    "targets": (50, "victims, each with a secret record"),
    "private": (20, "of them with a private batch order"),
    "models": (2_048, "trained in a round: a whole tile of the GPU, so that fewer would take as long"),
    "rounds": (8, "at most, for a target"),
    "width": (2_048, "of RecoNN's two hidden layers"),
    "epochs": (50, "of RecoNN's training"),
    "members": (1, "decoders of RecoNN's"),
    "seed": (0, "of everything drawn"),
}


def invert(name: str, game: Game, data: Split, attack: lw.Ensemble, seed: int) -> list[Row]:
    """The attack on every target, with what it says about itself."""
    start = time.perf_counter()
    facts = knowledge(game, data)
    reconstruct = attack.prepare(facts, seed=seed)
    prepared = time.perf_counter()
    found = reconstruct.invert(game.trainer(facts.net, cohort(data), seed=seed))
    seconds = (time.perf_counter() - prepared) / len(found)

    def errors(estimates: list[Tensor]) -> NDArray[np.float64]:
        return squared_errors(torch.stack(estimates).view_as(data.secrets.x), data.secrets.x)  # pixels lie in [0, 1]

    first, last = errors([one.rounds[0].estimate for one in found]), errors([one.estimate for one in found])
    right = np.array([one.label for one in found]) == data.secrets.y.cpu().numpy()
    for one, error in zip(found, last, strict=True):
        print(f"  {error:.1e}", " ".join(f"{turn.predicted:.0e}" for turn in one.rounds), f"{one.residual:.0e}")
    sizes = f"{len(data.known):,} known, {len(data.secrets)} targets, {attack.members:,} models a round"
    expected = np.array([one.predicted for one in found])
    return [
        mean_row(name, f"{name}: mean MSE ({sizes})", last, game.paper),
        median_row(f"{name}.median", f"{name}: median MSE", last),
        mean_row(f"{name}.first", f"{name}: mean MSE of the first round alone", first),
        rate_row(f"{name}.beats", f"{name}: share nearer than mean and nearest record", last < _baseline(data)),
        rate_row(f"{name}.labels", f"{name}: labels right", right),
        rate_row(f"{name}.foretold", f"{name}: share of errors up to 3 times the expected", last <= 3 * expected),
        Row(f"{name}.prepare", f"{name}: seconds to prepare, for all targets", prepared - start),
        Row(f"{name}.seconds", f"{name}: seconds a target", seconds),
    ]


def _baseline(data: Split) -> NDArray[np.float64]:
    return np.minimum(data.nearest, data.blind)


def main() -> None:
    options = parser(__doc__, GAMES, SIZES).parse_args()
    everything = split(options)
    attack = lw.Ensemble(members=options.models, rounds=options.rounds)
    few = everything._replace(
        secrets=everything.secrets[: options.private],
        nearest=everything.nearest[: options.private],
        blind=everything.blind[: options.private],
    )
    for name in options.rows:
        game, data = GAMES[name], everything if name == "relu" else few
        write(__file__, invert(name, game, data.of(game), attack, options.seed), options)
        if name != "relu":
            reconn = play(game, data, options).errors
            write(__file__, [mean_row(f"{name}.reconn", f"{name}: mean MSE of RecoNN, same victims", reconn)], options)


if __name__ == "__main__":
    main()
