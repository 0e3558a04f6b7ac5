"""What the S4 scripts share: the data, the victims, the reconstructor, and a clock.

S4 section 2: a net of 4 layers and width 10, 40 steps of full-batch gradient descent with momentum, 10,000 known
records, 40,000 shadow models, a transposed CNN that learns from MAE + MSE, 1,000 targets. A row is one initialisation,
which is public; S4 does not give its own, so its runs do not correspond to ours row by row.

S4 does not name the learning rate, the momentum or the initialisation. Momentum and start are S1's (0.9, LeCun-normal).
Of the rates 0.02, 0.05 and 0.1 we took the largest at which all of the first four ReLU nets learn (loss after 40 steps
2.22, 2.09, 2.22, 2.21; chance is 2.30): at 0.1 the second ends at 2.49 and the third at 2.30. S4's own nets seem to do
worse: its rows store less and less (Fig. 5), and its largest errors are those of a blind guess. At 0.2, S1's rate for
MNIST, ours are like that (papers/s4_starts.py): these nets are the rows dying_1, dying_2, ...
The rows one_1, one_2, ... are the ReLU nets after a single step, as in S4's Figure 7.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from s1_mnist import parser
from torch import Tensor, nn

import lostwax as lw
from lostwax.games import Cohort, Knowledge, Reconstructor, Records, Release
from lostwax.learning.shadow_tables import ShadowTable, shadow_tables

BEGUN = time.perf_counter()
RUNS = 20  # initialisations, S4 Fig. 1
LEARNING_RATE = 0.05
STEPS = 40
VALIDATION = 0.05  # of the shadow models
EXPLAINED = 200  # of these
FIRST_LAYER = "1"


@dataclass(frozen=True, kw_only=True)
class Game:
    """One initialisation."""

    activation: Callable[[], nn.Module]
    run: int
    lr: float = LEARNING_RATE
    steps: int = STEPS
    paper: dict[str, float] = field(default_factory=dict)  # S4's MAE + MSE, by attack

    @property
    def net(self) -> nn.Module:
        return lw.nets.mlp(3_072, 10, 10, 10, 10, activation=self.activation)

    @property
    def trainer(self) -> lw.GD:
        return lw.GD(lr=self.lr, momentum=0.9, steps=self.steps, init=lw.inits.LeCunNormal(seed=self.run), tf32=True)


TABLE_3 = {1: (0.2040, 0.1738), 2: (0.2705, 0.2385), 3: (0.0908, 0.0730), 4: (0.1315, 0.1158)}
PAPER = {run: dict(zip(("reconn", "mnemonist"), losses, strict=True)) for run, losses in TABLE_3.items()}
EVERY = range(1, RUNS + 1)
GAMES = {
    **{f"relu_{run}": Game(activation=nn.ReLU, run=run, paper=PAPER.get(run, {})) for run in EVERY},
    **{f"sigmoid_{run}": Game(activation=nn.Sigmoid, run=run, paper={"reconn": 0.03}) for run in EVERY},
    **{f"dying_{run}": Game(activation=nn.ReLU, run=run, lr=0.2, paper=PAPER.get(run, {})) for run in EVERY},
    **{f"one_{run}": Game(activation=nn.ReLU, run=run, steps=1) for run in EVERY},
}


class Split(NamedTuple):
    known: Records
    prior: Records
    secrets: Records


class Shadows(NamedTuple):
    """What all attacks on one initialisation learn from."""

    knowledge: Knowledge
    learn_from: ShadowTable
    test_on: ShadowTable


class Victims(NamedTuple):
    cohort: Cohort
    release: Release

    def losses(self, reconstruct: Reconstructor) -> NDArray[np.float64]:
        """(targets,) of the attack's answers."""
        return losses_of(reconstruct(self.release).records.x, self.cohort.own.x)


def losses_of(answers: Tensor, truth: Tensor) -> NDArray[np.float64]:
    """(targets,) MAE + MSE, S4's measure."""
    missed = (answers - truth).double().flatten(1)
    total: NDArray[np.float64] = (missed.abs().mean(1) + missed.square().mean(1)).cpu().numpy()
    return total


def arguments(doc: str, rows: list[str], *, among: Iterable[str] = GAMES, **defaults: float) -> argparse.ArgumentParser:
    """The options of every script that runs Table 3's game; `defaults` are the script's sizes."""
    sizes = {
        "known": (10_000, "records that the adversary knows"),
        "shadows": (40_000, "records of the prior, each with a shadow model"),
        "targets": (1_000, "victims, each with a secret record"),
        "epochs": (20, "of each decoder's training"),
        "masks": (500, "of each explained shadow model"),
        "minutes": (60.0, "after which no row begins"),
        "seed": (0, "of everything drawn but the initialisations"),
    }
    options = parser(doc, among, {name: (defaults.get(name, size), what) for name, (size, what) in sizes.items()})
    options.set_defaults(rows=rows)
    return options


def in_time(names: list[str], options: argparse.Namespace, *, least: int = 1) -> Iterator[str]:
    """At least the first few, and the others within the time limit."""
    for number, name in enumerate(names):
        if number >= least and time.perf_counter() - BEGUN > 60 * options.minutes:
            print(f"{options.minutes:g} minutes are over. Left out: {', '.join(names[number:])}.", flush=True)
            return
        yield name


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print the seconds that it takes, the device's included."""
    start = time.perf_counter()
    yield
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    print(f"  {time.perf_counter() - start:6.1f} s: {what}", flush=True)


def split(options: argparse.Namespace) -> Split:
    records = lw.records.cifar10("all", root=options.data)
    parts = records.split(options.known, options.shadows, options.targets, seed=options.seed)
    return Split(*(part.to(options.device) for part in parts))


def recipe(options: argparse.Namespace) -> lw.RecoNN:
    """S4's reconstructor, except for the number of steps, which S4 says are 200."""
    return lw.RecoNN(
        decoder=lw.decoders.ConvDecoder(),
        epochs=options.epochs,
        batch_size=256,
        lr=1e-3,
        patience=None,
        validation=VALIDATION,
    )


def trained(game: Game, data: Split, options: argparse.Namespace) -> tuple[Shadows, Victims]:
    """The shadow models and the victims of one initialisation."""
    torch.set_float32_matmul_precision("high")  # for the decoder; the trainer says what it uses
    threat = lw.Informed(data.known)
    knowledge = Knowledge(game.net, game.trainer, threat, lw.access.Weights(), data.prior)
    with timed("models"):
        shadows = Shadows(*shadow_tables(recipe(options), knowledge, options.seed))
        cohort = threat.deal(data.secrets, len(data.secrets), seed=options.seed)
        victims = Victims(cohort, game.trainer(knowledge.net, cohort, seed=options.seed))
    return shadows, victims
