"""S1 Figure 7, MNIST: mini-batches in an order that the adversary knows, or does not.

    python papers/s1_figure7.py --device cuda [--rows 0.01_64_public ...] [--data FOLDER]

Batch sizes at two learning rates, no momentum, 100 epochs. For speed 1,000 records are known rather than 10,000, so
batches go up to 512 where S1's go up to 1,024, and there are 5,000 shadow models. S1 in words: with a known order all
attacks succeed; with an unknown one they get harder, the more so the larger the learning rate.
"""

from s1_mnist import START, Game, arguments, split, table

import lostwax as lw

GAMES = {}
for lr in (0.01, 0.2):
    for size in (64, 128, 256, 512):
        for order, seed in (("public", 0), ("private", None)):
            trainer = lw.SGD(lr=lr, batch_size=size, epochs=100, order_seed=seed, init=START, tf32=True)
            GAMES[f"{lr}_{size}_{order}"] = Game(trainer=trainer, copies=1)
    GAMES[f"{lr}_full"] = Game(trainer=lw.GD(lr=lr, steps=100, init=START, tf32=True), copies=1)

if __name__ == "__main__":
    options = arguments(__doc__, GAMES, known=1_000, shadows=5_000)
    table(__file__, GAMES, split(options), options)
