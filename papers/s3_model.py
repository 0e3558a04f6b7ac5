"""S3 Figure 1 a, MNIST: a record rebuilt from the last weights of DP-SGD alone (the model-based attack).

    python papers/s3_model.py --device cuda [--rows epsilon_10 ...] [--attack kernel] [--data FOLDER]

S3 appendix A: MLP 784-10-10, ELU, 999 known records and one secret, 100 full-batch steps, C = 0.1, delta = 1e-5, no
momentum; the adversary sees the last weights, and learns from 40,000 shadow models, as S1's reconstructor. The victims
are those of papers/s3_gradient.py, at a small learning rate, where all gradients are clipped (S3 sweeps it); its rows
"none" and "normal" are the gradient-based attack on 1,000 such victims. S3's numbers are only drawn. The reconstructor
is that of papers/s1_mnist.py, `--attack printed --width 1000 --epochs 100` is S1's own recipe.
"""

from dataclasses import replace

from s1_figure9 import more_rows
from s1_mnist import Game, arguments, split, table, write
from s3_attacks import private
from s3_gradient import GAMES as SETTINGS

GAMES = {
    name: Game(trainer=replace(private(setting, setting.speeds[0]), publish_steps=False), copies=1)
    for name, setting in SETTINGS.items()
}


def main() -> None:
    options = arguments(__doc__, GAMES, known=999, shadows=40_000)
    data = split(options)
    for name in options.rows:
        write(__file__, more_rows(name, GAMES[name], data, options.seed), options)
    table(__file__, GAMES, data, options)


if __name__ == "__main__":
    main()
