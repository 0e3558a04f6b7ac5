"""S1 Figures 7 and 23, MNIST: mini-batches in an order that the adversary knows, or does not.

    python papers/s1_figure7.py --device cuda [--rows 0.01_64_public ...] [--data FOLDER]
    python papers/s1_figure7.py --device cuda --judges --known 10000 --shadows 59000 [--rows 0.2_momentum_64_public ...]

Batch sizes at two learning rates, 100 epochs, without momentum (Figure 7) and with it; `--judges` adds Figure 23's
LPIPS and KL. For speed 1,000 records are known rather than 10,000, so batches go up to 512 where S1's go up to 1,024,
and there are 5,000 shadow models. S1 in words: with a known order all attacks succeed; with an unknown one they get
harder, the more so the larger the learning rate.
"""

from itertools import product

from s1_mnist import START, Game, arguments, split, table

import lostwax as lw

GAMES = {}
for lr, momentum in product((0.01, 0.2), (0.0, 0.9)):
    column = f"{lr}{'_momentum' if momentum else ''}"
    fields = {"lr": lr, "momentum": momentum, "init": START, "tf32": True}
    for size, (order, seed) in product((64, 128, 256, 512), (("public", 0), ("private", None))):
        trainer = lw.SGD(batch_size=size, epochs=100, order_seed=seed, **fields)
        GAMES[f"{column}_{size}_{order}"] = Game(trainer=trainer, copies=1)
    GAMES[f"{column}_full"] = Game(trainer=lw.GD(steps=100, **fields), copies=1)

if __name__ == "__main__":
    options = arguments(__doc__, GAMES, known=1_000, shadows=5_000)
    table(__file__, GAMES, split(options), options)
