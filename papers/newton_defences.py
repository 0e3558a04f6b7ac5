"""What an owner can do short of differential privacy: exact inversion of training against defended releases, on MNIST.

    python papers/newton_defences.py --device cuda [--rows none float16 ...] [--data FOLDER]

S1's default victims (10,000 known records), trained in float32. Each release is rounded, quantised or made noisy
(`lostwax.defences`), and `Newton`, given the label and the defence but not its noise, finds the record that explains it
best; what the release does not determine is set to the prior's mean. What the defence takes from the attack is the
error of the record; what it takes from the owner is accuracy on records of no training set.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from s1_mnist import VICTIM, Game, Split, cohort, knowledge, mean_row, median_row, parser, rate_row, squared_errors
from torch import nn

import lostwax as lw
from lostwax.defences import Defence, Defended, Quantised, Rounded, WeightNoise
from lostwax.games import Hints, Records, Release
from lostwax.metrics import nearest_neighbour
from lostwax_dev.results import Row, read_rows, write_rows

GAME = Game(trainer=replace(VICTIM, tf32=False))
DEFENCES: dict[str, Defence | None] = {
    "none": None,
    "float16": Rounded(torch.float16),
    "bfloat16": Rounded(torch.bfloat16),
    "int8": Quantised(8),
    **{f"noise_1e{power}": WeightNoise(10.0**power) for power in range(-6, 0)},
}
SIZES = {
    "known": (10_000, "records that the adversary knows"),
    "prior": (1_000, "more of its records, to begin with"),
    "targets": (25, "victims, each with a secret record"),
    "test": (10_000, "records that accuracy is measured on"),
    "jacobians": (6, "of training, at most, from each start of a game"),
    "seed": (0, "of everything drawn"),
}
# of Okabe and Ito: the colour-blind can tell them apart
LOOKS = {"none": ("*", "#000000"), "float16": ("s", "#D55E00"), "bfloat16": ("^", "#009E73"), "int8": ("D", "#CC79A7")}
NOISE = "#0072B2"


def split(options: argparse.Namespace) -> tuple[Split, Records]:
    """The game's parts, and test records that are in no training set."""
    sizes = options.known, options.prior, options.targets, options.test
    parts = lw.records.mnist("all", root=options.data).split(*sizes, seed=options.seed)
    known, prior, secrets, test = (part.to(options.device) for part in parts)
    pool = torch.cat([prior.x, known.x]).double()
    nearest = nearest_neighbour(secrets.x.double(), pool, percentiles=()).errors
    return Split(known, prior, secrets, len(pool), nearest, squared_errors(pool.mean(0), secrets.x)), test


def accuracy(net: nn.Module, release: Release, test: Records) -> NDArray[np.float64]:
    """(targets,) of each released model."""
    answers = lw.access.Logits(test.x)(net, release).view(len(release), len(test), -1).argmax(2)
    right: NDArray[np.float64] = (answers == test.y).double().mean(1).cpu().numpy()
    return right


def draw(rows: Iterable[Row], path: Path) -> None:
    """Error against accuracy lost, for all defences that were ever run."""
    row = {one.id: one for one in rows}
    done = [name for name in DEFENCES if name in row]
    points = {name: (100 * row[f"{name}.lost"].value, row[name].value) for name in done}
    figure = Figure(figsize=(6.4, 4.4), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    noises = np.array([points[name] for name in done if name not in LOOKS]).reshape(-1, 2)
    axes.plot(*noises.T, color=NOISE, linewidth=1, label="weight noise, σ times each tensor's size")
    for name in done:
        marker, color = LOOKS.get(name, ("o", NOISE))
        up, across = _arms(row[name]), 100 * _arms(row[f"{name}.lost"])
        axes.errorbar(*points[name], up, across, marker, color=color, linewidth=0.8, capsize=2)
        words, aside = name.replace("noise_", "σ = "), (5, -5) if name in LOOKS else (-5, 5)
        place = {"ha": "left", "va": "top"} if name in LOOKS else {"ha": "right", "va": "bottom"}
        axes.annotate(words, points[name], aside, textcoords="offset points", fontsize=8, color=color, **place)
    for name, style in (("blind", "--"), ("oracle", ":")):
        axes.axhline(row[name].value, color="#666666", linewidth=0.9, linestyle=style, label=row[name].quantity)
    axes.set_xscale("symlog", linthresh=0.01, linscale=0.6)
    axes.set_xticks([-0.01, 0, 0.01, 0.1, 1, 10], ["-0.01", "0", "0.01", "0.1", "1", "10"])
    axes.set(xlim=(-0.05, 100), yscale="log")
    axes.set_xlabel("accuracy lost, percentage points (linear within ±0.01)")
    axes.set_ylabel("median squared error of the record")
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)


def _arms(row: Row) -> NDArray[np.float64]:
    """How far an interval reaches below its value, and above, (2, 1); nowhere where there is none."""
    ends = (row.value, row.value) if row.low is None or row.high is None else (row.low, row.high)
    return np.array([[row.value - ends[0]], [ends[1] - row.value]])


def main() -> None:
    options = parser(__doc__, DEFENCES, SIZES).parse_args()
    data, test = split(options)
    facts, dealt = knowledge(GAME, data), cohort(data)
    attack = lw.Newton(bank=len(data.prior), jacobians=options.jacobians)
    before, hints = accuracy(facts.net, GAME.trainer(facts.net, dealt, seed=0), test), Hints(labels=dealt.own.y)
    sizes = f"{len(data.known):,} known, {len(data.secrets):,} targets"
    rows = [
        median_row("blind", "median MSE of the mean record", data.blind),
        median_row("oracle", f"median MSE of the nearest of {data.pool:,} available records", data.nearest),
        mean_row("accuracy", f"accuracy on {len(test):,} records, undefended", before),
    ]
    write_rows(__file__, [replace(row, seed=options.seed) for row in rows], keep_others=True, options=options)
    for name in options.rows:
        defence = DEFENCES[name]
        trainer = GAME.trainer if defence is None else Defended(GAME.trainer, by=defence)
        release = trainer(facts.net, dealt, seed=options.seed)
        prepared = attack.inverter(replace(facts, trainer=trainer), seed=options.seed + 1)
        errors = squared_errors(prepared(release, hints).records.x[:, 0], data.secrets.x)
        lost = before - accuracy(facts.net, release, test)
        beats = errors < np.minimum(data.nearest, data.blind)
        rows = [
            median_row(name, f"{name}: median MSE ({sizes})", errors),
            rate_row(f"{name}.beats", f"{name}: share nearer than the mean and all available records", beats),
            mean_row(f"{name}.lost", f"{name}: accuracy lost", lost),
        ]
        print(
            f"{name:12s} median MSE {np.median(errors):.1e}, closer than both baselines {beats.mean():.0%}, "
            f"accuracy lost {lost.mean():.2%}"
        )
        written = write_rows(
            __file__, [replace(row, seed=options.seed) for row in rows], keep_others=True, options=options
        )
        draw(read_rows(written), written.with_suffix(".png"))


if __name__ == "__main__":
    main()
