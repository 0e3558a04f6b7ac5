"""How accurate are S1's MNIST victims? By what S1's Table V leaves open, and by what it would take to exceed 94 %.

    python papers/s1_victims.py [--rows default lr_0.3 ...] [--data FOLDER]

S1 (section V-A): over 94 % on average, with a gap below 1 % between training and test. The victims are those of
`s1_mnist.py`, MLP 784-10-10 trained on 10,000 records, each from --starts public starts; the test records are in no
training set. About a quarter of an hour on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from s1_mnist import VICTIM, parser, write

import lostwax as lw
from lostwax.games import Cohort, Records
from lostwax.inits import Init
from lostwax_dev.results import Row

KNOWN, ALL = 10_000, 59_000
SIZES = {
    "known": (KNOWN, "records to train on"),
    "test": (10_000, "other records"),
    "starts": (5, "initialisations"),
    "seed": (0, "of the split; starts are 0, 1, ..."),
}


@dataclass(frozen=True)
class Victim:
    """One row: S1's victim, except the fields that are set."""

    what: str
    trainer: lw.GD = VICTIM
    hidden: int = 10
    standardised: bool = False  # pixels less their mean over their deviation, one pair for all pixels
    records: int | None = None  # to train on, None for --known


VICTIMS = {
    "default": Victim("as in Table V"),
    "he": Victim("start by He et al.", replace(VICTIM, init=lw.inits.He())),
    "glorot": Victim("start by Glorot and Bengio", replace(VICTIM, init=lw.inits.Glorot())),
    **{
        f"standardised_{lr}": Victim(f"pixels standardised, lr {lr}", replace(VICTIM, lr=lr), standardised=True)
        for lr in (0.05, 0.1, 0.2)
    },
    **{f"lr_{lr}": Victim(f"lr {lr}", replace(VICTIM, lr=lr)) for lr in (0.1, 0.3, 0.5)},
    **{f"epochs_{steps}": Victim(f"{steps} epochs", replace(VICTIM, steps=steps)) for steps in (150, 200, 500)},
    **{f"width_{hidden}": Victim(f"width {hidden}", hidden=hidden) for hidden in (20, 100)},
    "records_59000": Victim(f"{ALL:,} records", records=ALL),
}


def accuracy(victim: Victim, init: Init, train: Records, test: Records) -> tuple[float, float]:
    """On the training set, and on other records."""
    net = lw.nets.mlp(train.x[0].numel(), victim.hidden, 10, activation=torch.nn.ELU)
    own = torch.tensor([[len(train) - 1]], device=train.x.device)  # the last record is the victim's own
    cohort = Cohort(train[:-1], train[own], own[0])
    release = replace(victim.trainer, init=init)(net, cohort, seed=0)
    right = [
        float((lw.access.Logits(part.x)(net, release).view(len(part), -1).argmax(1) == part.y).double().mean())
        for part in (train, test)
    ]
    return right[0], right[1]


def main() -> None:
    options = parser(__doc__ or "", VICTIMS, SIZES).parse_args()
    for name in options.rows:
        victim = VICTIMS[name]
        sizes = options.test, victim.records or options.known
        test, train = lw.records.mnist("all", root=options.data).split(*sizes, seed=options.seed)
        if victim.standardised:
            deviation, mean = torch.std_mean(train.x)
            test, train = (replace(part, x=(part.x - mean) / deviation) for part in (test, train))
        test, train = test.to(options.device), train.to(options.device)
        starts = [replace(victim.trainer.init, seed=seed) for seed in range(options.starts)]
        found = torch.tensor([accuracy(victim, init, train, test) for init in starts])  # (starts, 2)
        what = f"{victim.what} ({len(train):,} records, {options.starts} starts, and their range)"
        rows = [
            Row(
                f"{name}.{part}",
                f"{part} accuracy, {what}",
                float(numbers.mean()),
                float(numbers.min()),
                float(numbers.max()),
                paper,
            )
            for part, numbers, paper in zip(("train", "test"), found.T, (None, 0.94), strict=True)
        ]
        write(__file__, rows, options)


if __name__ == "__main__":
    main()
