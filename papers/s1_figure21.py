"""S1 Figure 21, MNIST: are records that pull harder at the model in training easier to rebuild?

    python papers/s1_figure21.py --device cuda [--data FOLDER]

For each target the sum over training of the norm of its own gradient, beside the error of the attack (20,000 shadow
models, without changed copies). S1 in words: weakly correlated, and positively: targets with large gradients are
outliers for the reconstructor too.
"""

from lib.traces import own_gradients
from s1_mnist import Game, arguments, cohort, correlation_rows, knowledge, split, table, write

GAMES = {"default": Game(copies=1)}


def main() -> None:
    options = arguments(__doc__, GAMES, shadows=20_000)
    data = split(options)
    game = table(__file__, GAMES, data, options)["default"]
    trainer, net = GAMES["default"].trainer, knowledge(GAMES["default"], data).net
    norms = own_gradients(trainer, net, cohort(data), seed=options.seed).norm  # (targets, steps)
    pull = norms.sum(1).double().cpu().numpy()  # (targets,)
    rows = correlation_rows("summed gradient norms", game.errors, pull, game.sizes, seed=options.seed)
    write(__file__, rows, options)


if __name__ == "__main__":
    main()
