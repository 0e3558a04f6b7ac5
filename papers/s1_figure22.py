"""S1 Figure 22, on MNIST: how much of a target's own gradient is exactly zero, under ReLU and under ELU.

    python papers/s1_figure22.py --device cuda [--data FOLDER]

The share of each parameter's entries, over training and targets. S1 shows it for the CNN on CIFAR-10, with over 80 %
zeros in convolutions under ReLU; this is the MLP. A weight of the first layer has no gradient where its pixel is black,
whatever the activation; what ReLU adds shows in the bias of that layer, whose zeros are the silent units.
"""

from lib.traces import own_gradients
from s1_mnist import Game, arguments, cohort, knowledge, mean_row, split, write
from torch import nn

GAMES = {"elu": Game(), "relu": Game(activation=nn.ReLU)}


def main() -> None:
    options = arguments(__doc__, GAMES, shadows=1)  # no attack
    data = split(options)
    sizes = f"{len(data.known):,} known, {len(data.secrets):,} targets"
    for name in options.rows:
        game = GAMES[name]
        zeros = own_gradients(game.trainer, knowledge(game, data).net, cohort(data), seed=options.seed).zeros
        for tensor, share in zeros.items():  # (targets, steps)
            quantity = f"{name}: zeros in the gradient of {tensor} ({sizes})"
            row = mean_row(f"{name}.{tensor}", quantity, share.double().mean(1).cpu().numpy())
            write(__file__, [row], options)


if __name__ == "__main__":
    main()
