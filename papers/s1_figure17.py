"""S1 Figure 17, MNIST: the same attack on ten public starts.

    python papers/s1_figure17.py --device cuda [--rows start_0 ...] [--data FOLDER]

10,000 shadow models per start, where S1 has 59,000. S1 in words: the error varies little, and no start is easier for
all targets. So the start with the least mean error is best for a share of targets that is not far above 1 in 10.
"""

from dataclasses import replace

import numpy as np
from s1_mnist import VICTIM, Game, arguments, rate_row, split, table, write

import lostwax as lw
from lostwax_dev.results import Row

GAMES = {
    f"start_{seed}": Game(trainer=replace(VICTIM, init=lw.inits.LeCunNormal(seed=seed)), copies=1) for seed in range(10)
}


def main() -> None:
    options = arguments(__doc__, GAMES, shadows=10_000)
    played = table(__file__, GAMES, split(options), options)
    errors = np.stack([game.errors for game in played.values()])  # (starts, targets)
    means = errors.mean(1)  # (starts,)
    mean, low, high = (float(number) for number in (means.mean(), means.min(), means.max()))
    best = errors.argmin(0) == means.argmin()  # (targets,)
    rows = [
        Row("mean", f"mean MSE over {len(means)} starts, and the range of the starts", mean, low, high),
        rate_row("best", f"share of targets for which the start best on average, of {len(means)}, is the best", best),
    ]
    write(__file__, rows, options)


if __name__ == "__main__":
    main()
