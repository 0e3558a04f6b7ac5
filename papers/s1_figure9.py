"""S1 Figure 9, MNIST: RecoNN against DP-GD, error and test accuracy by epsilon, and the ceiling.

    python papers/s1_figure9.py --device cuda [--rows epsilon_10 ...] [--data FOLDER]

S1 section VI-D: the victim of the other scripts, but with gradients clipped at C = 1 and noise for (epsilon, 1e-5)-DP,
100 full-batch steps; the adversary sees the last weights and knows the noise's size, and its shadow models are trained
alike. There are 20,000 of them, where S1 has 59,000. The ceiling is for a blind guess that succeeds once in 1,000, such
as naming one of 1,000 records. S1 in words: even a large epsilon stops the attack, and costs next to no accuracy.
"""

from dataclasses import replace

import numpy as np
from s1_mnist import VICTIM, Game, Split, arguments, cohort, knowledge, rate_row, split, table, write

import lostwax as lw
from lostwax.games import Trainer
from lostwax_dev.results import Row

KAPPA, DELTA, STEPS = 1e-3, 1e-5, 100
EPSILONS = (1, 10, 100, 1_000, 10_000)


def private(epsilon: float) -> lw.DPSGD:
    fields = {"lr": VICTIM.lr, "momentum": VICTIM.momentum, "init": VICTIM.init, "clip": 1.0, "tf32": True}
    return lw.DPSGD.for_epsilon(epsilon, DELTA, steps=STEPS, publish_steps=False, **fields)


GAMES = {f"epsilon_{epsilon}": Game(trainer=private(epsilon), copies=1) for epsilon in EPSILONS}
GAMES["no_noise"] = Game(trainer=replace(private(1), noise_multiplier=0.0), copies=1)


def accuracy_row(name: str, game: Game, data: Split, seed: int) -> Row:
    """How often some victims are right about the targets that they were not trained on."""
    facts, few = knowledge(game, data), cohort(data)[:20]
    logits = lw.access.Logits(data.secrets.x)(facts.net, game.trainer(facts.net, few, seed=seed))
    right = (logits.view(len(few), len(data.secrets), -1).argmax(2) == data.secrets.y).cpu().numpy()
    others = few.index.cpu().numpy()[:, None] != np.arange(len(data.secrets))
    return rate_row(f"{name}.accuracy", f"{name}: test accuracy ({len(few)} victims)", right[others])


def ceiling_rows(name: str, trainer: Trainer) -> list[Row]:
    """What no attack exceeds, if there is noise."""
    if not isinstance(trainer, lw.DPSGD) or trainer.noise_multiplier == 0:
        return []
    ceiling = lw.bound(**trainer.mechanism(), baseline=KAPPA)
    what = f"{name}: ceiling on success, blind guess {KAPPA:g} (noise {trainer.noise_multiplier:.3g})"
    return [Row(f"{name}.ceiling", what, ceiling.upper, ceiling.lower, ceiling.upper)]


def more_rows(name: str, game: Game, data: Split, seed: int) -> list[Row]:
    """Accuracy and ceiling."""
    return [accuracy_row(name, game, data, seed), *ceiling_rows(name, game.trainer)]


def main() -> None:
    options = arguments(__doc__, GAMES, shadows=20_000)
    data = split(options)
    for name in options.rows:
        write(__file__, more_rows(name, GAMES[name], data, options.seed), options)
    table(__file__, GAMES, data, options)


if __name__ == "__main__":
    main()
