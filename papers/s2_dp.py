"""S2 section 4 and Figure 4: how much DP-SGD it takes to stop the attack, and what it costs.

    python papers/s2_dp.py --device cuda --minutes 10 --tuning 2 --trained FOLDER [--rows epsilon_10 ...]
    python papers/s2_dp.py --game mnist_40 --games 10000 --device cuda --minutes 10 --tuning 2 --trained FOLDER
    python papers/s2_dp.py --game cifar_10 --device cuda --minutes 10 --tuning 2 --trained FOLDER [--imagenet FILE]
    python papers/s2_dp.py --game cifar_40 --device cuda --minutes 10 --tuning 2 --trained FOLDER [--imagenet FILE]

S2 appendix E: clipped gradients, every record drawn with probability q = (N - 1) / N at each step, delta = N^-1.1, all
else as without privacy. The clip norm is S2's rule (step 3): the least that costs the head next to no accuracy when
there is no noise; S2 found 4.0 for its features of MNIST and 1.2 for those of CIFAR-10. (S2's own code differs from its
text: Opacus, given batches of N - 1, draws with q = 1/2 and takes two steps per epoch.)
The reconstructor is the unprotected one, that of s2_table1.py's row of the same name (with the same width and folder it
is taken from there), tuned to heads of each epsilon, and then for as long again to beat chance
(`lw.attacks.weak.BeatChance`): what protects must protect from the better of the two. S2's criterion: at most 0.015
true positives at 1 % false ones, which S2 has up to epsilon = 7.2 for ten digits, where its head has lost over 30
points of accuracy, 6.0 for forty, 15.5 and 41.8 for ten and forty of CIFAR-10. CIFAR-10's base model differs from S2's
(`s2_table1.py`). Rows of games other than ten digits begin with the game's name.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from s1_mnist import write
from s2_data import Data
from s2_heads import (
    NO_NUMBERS,
    Game,
    Victims,
    accuracies,
    attack,
    beating_chance,
    game_parser,
    knowledge,
    prepared,
    rows_of,
    score,
)
from s2_pictures import draw_privacy
from s2_table1 import GAMES as UNPROTECTED

import lostwax as lw
from lostwax.attacks.weak import TrainedOnHeads
from lostwax_dev.results import Row, read_rows

EPSILONS = (2, 5, 10, 20, 50, 100)
# The least noise multiplier for each epsilon, `lw.DPSGD.for_epsilon(epsilon, delta, steps=steps, sample_rate=rate)`:
# written down so that machines without dp-accounting can train
NOISE = {
    "mnist_10": (3.9466, 2.2563, 1.4858, 0.9905, 0.5930, 0.4090),
    "mnist_40": (7.1088, 3.7112, 2.3154, 1.4777, 0.8449, 0.5663),
    "cifar_10": (4.8303, 2.7595, 1.8153, 1.2085, 0.7217, 0.4967),
    "cifar_40": (8.8776, 4.6338, 2.8905, 1.8441, 1.0539, 0.7059),
}
CLIPS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
COST = 0.01  # of accuracy, that clipping may take
GAMMA = 0.015  # S2's criterion
GAMES = {f"epsilon_{epsilon}": epsilon for epsilon in EPSILONS}
DEFAULT = "mnist_10"


class Paper(NamedTuple):
    """S2's numbers."""

    clip: float
    safe: float  # the largest epsilon that stops its attack


PAPER = {"mnist_10": Paper(4.0, 7.2), "mnist_40": Paper(4.0, 6.0)}
PAPER |= {"cifar_10": Paper(1.2, 15.5), "cifar_40": Paper(1.2, 41.8)}


class Point(NamedTuple):
    """Of the curve."""

    epsilon: float
    tpr: float


def sample_rate(size: int) -> float:
    return (size - 1) / size


def delta(size: int) -> float:
    return size**-1.1


def private(game: Game, noise_multiplier: float, clip: float) -> Game:
    """The same game under DP-SGD."""
    victim = game.trainer
    trainer = lw.DPSGD(
        lr=victim.lr,
        weight_decay=victim.weight_decay,
        steps=victim.steps,
        init=victim.init,
        clip=clip,
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate(game.size),
        publish_steps=False,
    )
    return replace(game, trainer=trainer)


def prefix(game: str, end: str) -> str:
    """How the names of a game's rows, or their words, begin."""
    return "" if game == DEFAULT else f"{game}{end}"


def chosen_clip(game: Game, data: Data, seed: int) -> float:
    """The least clip norm that costs next to no accuracy (S2 appendix E, step 3)."""

    def accuracy(clip: float) -> float:
        return float(accuracies(private(game, 0.0, clip), data.secrets, seed=seed).mean())

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


def play(name: str, game: Game, unprotected: TrainedOnHeads, data: Data, options: argparse.Namespace) -> None:
    """The reconstructor tuned to heads of this epsilon, against them; then taught to beat chance: the better counts."""
    tuning = replace(attack(game, data, options, name), minutes=options.tuning)
    tuned = tuning.tune(unprotected, knowledge(game, data), seed=options.seed)
    victims = Victims.of(game, data, options)
    write(__file__, rows_of(name, game, score(tuned, victims), data, options), options)
    further = f"{name}_chance"
    tuned = beating_chance(tuned, further, game, data, options)
    write(__file__, rows_of(further, game, score(tuned, victims), data, options), options)


def main() -> None:
    made = game_parser(__doc__, GAMES)
    made.add_argument("--tuning", type=float, default=2.0, help="minutes of tuning, for each epsilon, twice")
    made.add_argument("--game", choices=NOISE, default=DEFAULT, help="the row of s2_table1.py that is protected")
    options = made.parse_args()
    before, paper = prefix(options.game, "_"), PAPER[options.game]
    game = replace(UNPROTECTED[options.game], paper=NO_NUMBERS)  # which are for heads without noise
    data = game.data(options)
    clip = chosen_clip(game, data, options.seed)
    what = f"{prefix(options.game, ': ')}clip norm, the least that costs no more than {COST} of accuracy"
    write(__file__, [Row(f"{before}clip", what, clip, paper=paper.clip)], options)
    unprotected = prepared(options.game, game, data, options)
    played = score(unprotected, Victims.of(game, data, options))
    rows = rows_of(f"{before}unprotected", game, played, data, options)
    results = write(__file__, rows, options)
    for name in options.rows:
        noise = NOISE[options.game][EPSILONS.index(GAMES[name])]
        play(f"{before}{name}", private(game, noise, clip), unprotected, data, options)
    write(__file__, safe_rows(options.game, results), options)


def safe_rows(game: str, results: Path) -> list[Row]:
    """The largest epsilon that is safe, from all that was measured of the game; its curve is drawn."""
    before, words, theirs = prefix(game, "_"), prefix(game, ": "), PAPER[game].safe
    every = [row for row in read_rows(results) if row.id.startswith(before)]
    rows = [replace(row, id=row.id.removeprefix(before)) for row in every]
    draw_privacy(Path(__file__).resolve().parent.parent / "docs" / "figures" / f"s2_{before}dp.png", rows, GAMES, GAMMA)
    epsilons = ", ".join(str(point.epsilon) for point in measured(rows))
    what = f"{words}largest epsilon with a TPR of at most {GAMMA} at FPR 1 %, between {epsilons}"
    tuned = f"{words}the same by reconstructors that were tuned alone, as S2's"
    both, alone = (
        [largest_safe(measured(rows, kinds, end=end)) for end in ("value", "high", "low")]  # a high rate is less safe
        for kinds in (("", "_chance"), ("",))
    )
    return [Row(f"{before}safe", what, *both, paper=theirs), Row(f"{before}safe.tuned", tuned, *alone, paper=theirs)]


if __name__ == "__main__":
    main()
