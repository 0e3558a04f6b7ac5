"""S1 Figure 5, MNIST: the error over the number of shadow models, and whether other metrics tell the same story.

    python papers/s1_figure5.py --device cuda [--rows 100 1000 ...] [--data FOLDER]

(c, d) mean squared error and KL under a judge, a LeNet trained on the prior, for 100 to 59,000 shadow models, without
changed copies; (a, b) correlations over the targets of the mean squared error with LPIPS and with KL, at the most
shadows. S1 in words: better than the oracle from 8,000 shadows; MSE and LPIPS strongly correlated; a small MSE implies
a small KL, but not the converse.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from s1_mnist import Game, Played, Split, arguments, correlation_rows, mean_row, split, table, write

from lostwax.games import Metric
from lostwax.metrics import KL, LPIPS, Classifier
from lostwax.records.datasets import find_directory
from lostwax.reports.results import Row

COUNTS = (100, 300, 1_000, 3_000, 8_000, 20_000, 59_000)
GAMES = {str(count): Game(prior=count, copies=1) for count in COUNTS}
WEIGHTS = "lpips_alex.safetensors"


@torch.no_grad()
def scores(metric: Metric, game: Played, data: Split) -> NDArray[np.float64]:
    """(targets,)."""
    numbers: NDArray[np.float64] = metric(game.guesses, data.secrets.x).double().cpu().numpy()
    return numbers


def main() -> None:
    options = arguments(__doc__, GAMES)
    data = split(options)
    judge = Classifier.trained(data.prior, seed=options.seed)
    lpips = LPIPS(find_directory("s1_figure5", [WEIGHTS], options.data) / WEIGHTS)
    accuracy = Row("judge", "accuracy of the judge on held-out prior records", judge.accuracy or 0.0, paper=0.994)
    write(__file__, [accuracy], options)
    played = table(__file__, GAMES, data, options)
    divergences = {name: scores(KL(judge), game, data) for name, game in played.items()}
    for name, numbers in divergences.items():
        write(__file__, [mean_row(f"{name}.kl", f"{name}: mean KL in nats ({played[name].sizes})", numbers)], options)
    most = max(played, key=int)
    for metric, numbers in (("LPIPS", scores(lpips, played[most], data)), ("KL", divergences[most])):
        rows = correlation_rows(metric, played[most].errors, numbers, played[most].sizes, seed=options.seed)
        write(__file__, rows, options)


if __name__ == "__main__":
    main()
