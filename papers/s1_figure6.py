"""S1 Figure 6, on MNIST: shadow models on records of another kind than the victim's.

    python papers/s1_figure6.py --device cuda [--rows digits letters ...] [--data FOLDER]

S1 attacks CIFAR-10 with shadows from CIFAR-100, and sees a negligible difference. CIFAR-100 is not available: here the
victims are trained on MNIST, and the prior is MNIST, EMNIST letters, notMNIST (letters of typefaces) or Quick, Draw!
(doodles), 10,000 records each. The net has ten outputs and S1 does not say which labels such records get: here each
gets a digit at random.
"""

from pathlib import Path

import torch
from s1_mnist import Game, arguments, oracle_row, play, rows_of, split, write

import lostwax as lw
from lostwax.games import Records
from lostwax.records.datasets import find_directory

ARCHIVES = {"letters": "emnist_letters_part.npz", "typefaces": "notmnist_part.npz", "doodles": "quickdraw28.npz"}
GAME = Game(copies=1)


def other_records(archive: Path, count: int, seed: int) -> Records:
    """`count` images that show no digit, each called one at random."""
    (images,) = lw.records.npz(archive).split(count, seed=seed)
    return Records(images.x, torch.randint(10, (count,), generator=torch.Generator().manual_seed(seed)))


def main() -> None:
    options = arguments(__doc__, ["digits", *ARCHIVES], shadows=10_000)
    folder = find_directory("s1_figure6", list(ARCHIVES.values()), options.data)
    digits = split(options)
    write(__file__, [oracle_row(digits)], options)
    for name in options.rows:
        data = digits
        if name in ARCHIVES:
            prior = other_records(folder / ARCHIVES[name], options.shadows, options.seed).to(options.device)
            data = digits._replace(prior=prior)
        write(__file__, rows_of(name, GAME, play(GAME, data, options), data), options)


if __name__ == "__main__":
    main()
