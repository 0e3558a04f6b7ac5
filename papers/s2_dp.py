"""S2 section 4 and Figure 4, MNIST with ten digits: how much DP-SGD it takes to stop the attack, and what it costs.

    python papers/s2_dp.py --device cuda --minutes 10 --tuning 2 --trained FOLDER [--rows epsilon_10 ...]

S2 appendix E: clipped gradients, every record drawn with probability q = 9/10 at each of the 32 steps, delta = N^-1.1,
all else as without privacy. The clip norm is S2's rule (step 3): the least that costs the head next to no accuracy when
there is no noise; S2 found 4.0 for its features. (S2's own code differs from its text: Opacus, given batches of N - 1,
draws with q = 1/2 and takes two steps per epoch.)
The reconstructor is the unprotected one, that of s2_table1.py's row mnist_10 (with the same width and folder it is
taken from there), tuned to heads of each epsilon, and then for as long again to beat chance
(`lw.attacks.weak.BeatChance`): what protects must protect from the better of the two. S2's criterion: at most 0.015
true positives at 1 % false ones, which S2 has up to epsilon = 7.2, where its head has lost over 30 points of accuracy.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from s1_mnist import write
from s2_data import Data, mnist
from s2_heads import (
    Game,
    accuracies,
    attack,
    beating_chance,
    game_parser,
    knowledge,
    mnist_trainer,
    prepared,
    rows_of,
    score,
)
from s2_pictures import draw_privacy

import lostwax as lw
from lostwax.attacks.weak import TrainedOnHeads
from lostwax.reports.results import Row, read_rows

SIZE = 10
VICTIM = mnist_trainer(SIZE)
RATE, DELTA = (SIZE - 1) / SIZE, SIZE**-1.1
# The least noise multiplier for each epsilon, `lw.DPSGD.for_epsilon(epsilon, DELTA, steps=32, sample_rate=RATE)`:
# written down so that machines without dp-accounting can train
NOISE = {2: 3.9466, 5: 2.2563, 10: 1.4858, 20: 0.9905, 50: 0.5930, 100: 0.4090}
CLIPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
COST = 0.01  # of accuracy, that clipping may take
GAMMA = 0.015  # S2's criterion
GAMES = {f"epsilon_{epsilon}": epsilon for epsilon in NOISE}


class Point(NamedTuple):
    """Of the curve."""

    epsilon: float
    tpr: float


def private(noise_multiplier: float, clip: float) -> lw.DPSGD:
    return lw.DPSGD(
        lr=VICTIM.lr,
        weight_decay=VICTIM.weight_decay,
        steps=VICTIM.steps,
        init=VICTIM.init,
        clip=clip,
        noise_multiplier=noise_multiplier,
        sample_rate=RATE,
        publish_steps=False,
    )


def chosen_clip(data: Data, seed: int) -> float:
    """The least clip norm that costs next to no accuracy (S2 appendix E, step 3)."""

    def accuracy(clip: float) -> float:
        return float(accuracies(Game(data=mnist, trainer=private(0.0, clip)), data.secrets, seed=seed).mean())

    least = accuracy(math.inf) - COST
    return next((clip for clip in CLIPS if accuracy(clip) >= least), CLIPS[-1])


def largest_safe(points: Sequence[Point]) -> float:
    """Up to which epsilon the criterion holds, log epsilon read off between two points; 0 where it does at none."""
    before: Point | None = None
    for point in sorted(points):
        if point.tpr > GAMMA:
            if before is None:
                return 0.0
            share = (GAMMA - before.tpr) / (point.tpr - before.tpr)
            return before.epsilon * (point.epsilon / before.epsilon) ** share
        before = point
    return 0.0 if before is None else before.epsilon


def measured(rows: Iterable[Row], kinds: Sequence[str] = ("", "_chance"), *, end: str = "value") -> list[Point]:
    """The points of the curve that have been measured, in this run or before; the better of both kinds of tuning.

    `end`: the rates themselves, or the "low" or "high" ends of their intervals.
    """
    rates = {row.id: float(row.value if getattr(row, end) is None else getattr(row, end)) for row in rows}
    held = {
        epsilon: [rates[f"{name}{kind}"] for kind in kinds if f"{name}{kind}" in rates]
        for name, epsilon in GAMES.items()
    }
    return [Point(epsilon, max(both)) for epsilon, both in held.items() if both]


def play(epsilon: int, clip: float, unprotected: TrainedOnHeads, data: Data, options: argparse.Namespace) -> None:
    """The reconstructor tuned to heads of this epsilon, against them; then taught to beat chance: the better counts."""
    name, game = f"epsilon_{epsilon}", Game(data=mnist, trainer=private(NOISE[epsilon], clip))
    tuning = replace(attack(game, data, options, name), minutes=options.tuning)
    tuned = tuning.tune(unprotected, knowledge(game, data), seed=options.seed)
    write(__file__, rows_of(name, game, score(tuned, game, data, options), data, options), options)
    further = f"{name}_chance"
    tuned = beating_chance(tuned, further, game, data, options)
    write(__file__, rows_of(further, game, score(tuned, game, data, options), data, options), options)


def main() -> None:
    made = game_parser(__doc__, GAMES)
    made.add_argument("--tuning", type=float, default=2.0, help="minutes of tuning, for each epsilon, twice")
    options = made.parse_args()
    data, game = mnist(options), Game(data=mnist, trainer=VICTIM)
    clip = chosen_clip(data, options.seed)
    write(
        __file__,
        [Row("clip", "clip norm, the least that costs no more than 0.01 of accuracy", clip, paper=4.0)],
        options,
    )
    unprotected = prepared("mnist_10", game, data, options)
    rows = rows_of("unprotected", game, score(unprotected, game, data, options), data, options)
    results = write(__file__, rows, options)
    for name in options.rows:
        play(GAMES[name], clip, unprotected, data, options)
    rows = read_rows(results)
    draw_privacy(results.parents[2] / "docs" / "figures" / "s2_dp.png", rows, GAMES, GAMMA)
    points = measured(rows)
    epsilons = ", ".join(str(point.epsilon) for point in points)
    what = f"largest epsilon with a TPR of at most {GAMMA} at FPR 1 %, between {epsilons}"
    both, alone = (
        [largest_safe(measured(rows, kinds, end=end)) for end in ("value", "high", "low")]  # a high rate is less safe
        for kinds in (("", "_chance"), ("",))
    )
    safe = [
        Row("safe", what, *both, paper=7.2),
        Row("safe.tuned", "the same by reconstructors that were tuned alone, as S2's", *alone, paper=7.2),
    ]
    write(__file__, safe, options)


if __name__ == "__main__":
    main()
