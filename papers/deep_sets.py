"""Whole training sets of deep nets, all layers trained and no record known: exact, recognisable or not, and the time.

    python papers/deep_sets.py [--rows ROW ...] [--sets 0:2] [--data FOLDER] [--device cuda] [--keep FOLDER]

Convolutional and residual nets are trained from a public start on n records of a pool, drawn regardless of their
classes; the adversary has 500 other records, knows the training except where the row says otherwise, and gets labels
where it says so. A record is *exact* if `Newton` certifies its set, and *recognisable* if its guess has an SSIM above
0.6 and is nearer than the nearest of the 500 records. Rows that start with `gpu`
are ResNet-18 on CIFAR-10 (`--data`), for a GPU; the others take digits of 8 x 8 or
4 x 4 pixels, and minutes on one core.

With `--keep`, each set is written to a file of its own when it is done, and is not played again. `--picture` draws
originals, guesses and nearest records of the first set of digits of 8 x 8 pixels.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from s1_mnist import parser, rate_row, write
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

import lostwax as lw
from lostwax.games import Cohort, Hints, Knowledge, Records, Trainer
from lostwax.metrics import SSIM
from lostwax.seeds import generator
from lostwax_dev.results import Row

POOL = 1_000
ALIKE = 0.6  # SSIM
CLOSE = 1e-3
SIZES = {"prior": (500, "records that the adversary has"), "seed": (0, "of everything drawn")}
Module = Callable[[], nn.Module]


class Residual(nn.Module):
    """Two convolutions beside a shortcut (He et al. 2016)."""

    def __init__(self, before: int, after: int, norm: Callable[[int], nn.Module], activation: Module) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.inner = nn.Sequential(
            *(nn.Conv2d(before, after, 3, stride, 1, bias=False), norm(after), activation()),
            *(nn.Conv2d(after, after, 3, 1, 1, bias=False), norm(after)),
        )
        projected = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), norm(after))
        self.shortcut = nn.Identity() if before == after else projected
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """(n, before, ...) -> (n, after, ...)."""
        after: Tensor = self.activation(self.inner(x) + self.shortcut(x))
        return after


def group_norm(channels: int) -> nn.Module:
    """In groups of four channels or more."""
    return nn.GroupNorm(min(32, channels // 4), channels)


def batch_norm(channels: int) -> nn.Module:
    """By the statistics of the batch, which are not kept."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


def no_norm(_: int) -> nn.Module:
    """None."""
    return nn.Identity()


def resnet(
    channels: int,
    widths: Sequence[int],
    blocks: int,
    norm: Callable[[int], nn.Module] = group_norm,
    activation: Module = nn.ELU,
) -> nn.Sequential:
    """A ResNet for small pictures: `resnet(3, (64, 128, 256, 512), 2, batch_norm, nn.ReLU)` is ResNet-18."""
    stem = (nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False), norm(widths[0]), activation())
    steps = [widths[0], *(width for width in widths for _ in range(blocks))]
    residual = [Residual(before, after, norm, activation) for before, after in pairwise(steps)]
    return nn.Sequential(*stem, *residual, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def cnn(depth: int = 2, activation: Module = nn.ELU, side: int = 4) -> nn.Sequential:
    """Convolutions with eight channels each, and a head on all of 4 x 4 positions."""
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [nn.Conv2d(8 if number else 1, 8, 3, padding=1), activation()]
        layers += [nn.AvgPool2d(2)] if number == 0 and side == 8 else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 8, 10))


ATTACK = lw.Newton(jacobians=6)
INIT = lw.inits.TorchDefault()
TRAINER = lw.GD(lr=0.1, steps=10, dtype=torch.float64, init=INIT)
ORDERED = lw.SGD(lr=0.1, batch_size=2, epochs=5, dtype=torch.float64, init=INIT)
ADAMW = lw.AdamW(lr=1e-3, epochs=10, dtype=torch.float64, init=INIT)


@dataclass(frozen=True, kw_only=True)
class Game:
    """One row."""

    net: Callable[[], nn.Module] = cnn
    trainer: Trainer = TRAINER
    size: int = 3  # n
    sets: int = 2
    given: bool = True  # the labels
    data: str = "digits"
    side: int = 4  # pixels
    attack: lw.Newton = ATTACK

    @property
    def words(self) -> str:
        """What is played."""
        return f"{self.size} records, labels {'given' if self.given else 'unknown'}"


def small_resnet(norm: Callable[[int], nn.Module] = group_norm, activation: Module = nn.ELU) -> Callable[[], nn.Module]:
    """ResNets of two stages."""
    return lambda: resnet(1, (8, 16), 1, norm, activation)


def resnet18(norm: Callable[[int], nn.Module]) -> Callable[[], nn.Module]:
    """For CIFAR-10."""
    return lambda: resnet(3, (64, 128, 256, 512), 2, norm, nn.ReLU)


OPTIMISERS: dict[str, Trainer] = {
    "gd": TRAINER,
    "momentum": replace(TRAINER, lr=0.05, momentum=0.9),
    "decay": replace(TRAINER, weight_decay=0.01),
    "order": ORDERED,
    "adamw": ADAMW,
}
NETS = {"cnn2": cnn, "cnn4": lambda: cnn(4), "resnet": small_resnet(), "resnet_batch": small_resnet(batch_norm)}
GAMES = {
    **{
        f"{net}_{name}": Game(net=made, trainer=trainer)
        for net, made in NETS.items()
        for name, trainer in OPTIMISERS.items()
    },
    "cnn2_labels": Game(given=False),
    "cnn2_rate": Game(
        attack=replace(ATTACK, assumed=tuple(replace(TRAINER, lr=1.0, steps=steps) for steps in (5, 10)))
    ),
    "cnn2_50_steps": Game(trainer=replace(TRAINER, steps=50)),
    "cnn2_relu": Game(net=lambda: cnn(activation=nn.ReLU)),
    "cnn2_6_records": Game(size=6),
    "cnn2_digits": Game(net=lambda: cnn(side=8), side=8, size=4),
    "cnn4_digits": Game(net=lambda: cnn(4, side=8), side=8, size=4),
    "cnn2_private_start": Game(trainer=replace(TRAINER, init=lw.inits.TorchDefault(seed=None))),
    "cnn2_private_order": Game(trainer=replace(ORDERED, order_seed=None)),
    **{
        f"gpu_resnet18_{name}_{size}": Game(
            net=resnet18(norm), trainer=replace(TRAINER, lr=0.01, steps=20), size=size, data="cifar10", side=32, sets=3
        )
        for name, norm in (("group", group_norm), ("batch", batch_norm))
        for size in (10, 20)
    },
}


@dataclass(frozen=True)
class Outcome:
    """One set."""

    row: str
    number: int
    certified: bool
    errors: list[float]  # of each record, mean squared
    similarities: list[float]  # SSIM
    nearest: list[float]  # mean squared error of the nearest of the adversary's records
    seconds: float
    refused: str | None = None

    @property
    def recognisable(self) -> list[bool]:
        """Of each record."""
        parts = zip(self.errors, self.similarities, self.nearest, strict=True)
        return [similarity > ALIKE and error < nearest for error, similarity, nearest in parts]


def play(row: str, number: int, options: argparse.Namespace) -> tuple[Outcome, Tensor]:
    """Train on one set and rebuild it; originals, guesses and nearest records (3, n, ...)."""
    game = GAMES[row]
    every = lw.records.cifar10("all", root=options.data) if game.data == "cifar10" else lw.records.digits()
    if game.side < every.x.shape[-1]:
        every = Records(nn.functional.adaptive_avg_pool2d(every.x, game.side), every.y)
    prior, pool = (part.to(torch.float64) for part in every.split(options.prior, POOL, seed=options.seed))
    prior, pool = prior.to(options.device), pool.to(options.device)
    drawn = generator(options.seed, "deal", number).choice(len(pool), game.size, replace=False)
    own = pool[torch.from_numpy(drawn).to(options.device)]
    cohort = Cohort(pool[:0], own[torch.arange(game.size)[None]], torch.tensor([number], device=options.device))
    far = torch.cdist(own.x.flatten(1), prior.x.flatten(1)).square() / own.x[0].numel()
    neighbours = prior.x[far.argmin(1)]
    net = game.net()
    facts = Knowledge(net, game.trainer, lw.Weak(game.size), lw.access.Weights(), prior)
    refused, certified, guesses, begun = game.attack.objection(facts), False, prior.x[: game.size], time.perf_counter()
    if refused is None:
        release = game.trainer(net, cohort, seed=options.seed)
        begun = time.perf_counter()
        hints = Hints(labels=cohort.own.y) if game.given else None
        (inversion,) = game.attack.prepare(facts, seed=options.seed + 1).invert(release, hints)
        guesses, certified = inversion.record.view_as(own.x), inversion.certified
    errors = torch.cdist(guesses.flatten(1), own.x.flatten(1)).square() / own.x[0].numel()
    places = linear_sum_assignment(errors.cpu().numpy().T)[1]
    guesses = guesses[torch.from_numpy(places)].clamp(0, 1)
    outcome = Outcome(
        row,
        number,
        certified,
        (guesses - own.x).square().flatten(1).mean(1).tolist(),
        SSIM()(guesses, own.x).tolist(),
        far.amin(1).tolist(),
        time.perf_counter() - begun,
        refused,
    )
    return outcome, torch.stack([own.x, guesses, neighbours]).cpu()


def outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    """Of all sets asked for; kept ones are read."""
    first, last = (int(part) if part else None for part in options.sets.split(":"))
    for row in options.rows:
        for number in list(range(GAMES[row].sets))[first:last]:
            path = None if options.keep is None else Path(options.keep) / f"{row}.{number}.json"
            if path is not None and path.exists():
                yield Outcome(**json.loads(path.read_text()))
                continue
            outcome, pictures = play(row, number, options)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(vars(outcome)))
                np.save(path.with_suffix(".npy"), pictures.numpy())
            print(
                row,
                number,
                "certified" if outcome.certified else "",
                f"{max(outcome.errors):.1e}",
                outcome.refused or "",
                flush=True,
            )
            yield outcome


def rows_of(name: str, played: Sequence[Outcome]) -> list[Row]:
    """The shares, and the time."""
    words, sets = GAMES[name].words, f"{len(played)} sets"
    errors = np.concatenate([outcome.errors for outcome in played])
    recognisable = np.concatenate([outcome.recognisable for outcome in played])
    rows = [
        rate_row(f"{name}.exact", f"{name}: sets certified ({sets}; {words})", np.array([o.certified for o in played])),
        rate_row(f"{name}.recognisable", f"{name}: records recognisable", recognisable),
        rate_row(f"{name}.close", f"{name}: records within MSE {CLOSE:g}", errors < CLOSE),
        Row(f"{name}.median", f"{name}: median MSE", float(np.median(errors))),
        Row(
            f"{name}.nearest",
            f"{name}: median MSE of the nearest prior record",
            float(np.median([o.nearest for o in played])),
        ),
        Row(f"{name}.seconds", f"{name}: median seconds per set", float(np.median([o.seconds for o in played]))),
    ]
    certified = [max(outcome.errors) for outcome in played if outcome.certified]
    if certified:
        rows.append(Row(f"{name}.worst", f"{name}: largest MSE of a certified record", max(certified)))
    if (refused := played[0].refused) is not None:
        rows.append(Row(f"{name}.refused", f"{name}: refused. {refused}", 1.0))
    return rows


def draw(row: str, folder: Path, path: Path) -> None:
    """Originals, guesses and nearest records of the first set of a row."""
    pictures = np.load(folder / f"{row}.0.npy")
    figure = Figure(figsize=(1.2 * pictures.shape[1], 4.0), dpi=100)
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, pictures.shape[1])
    for line, (words, records) in enumerate(zip(("original", "rebuilt", "nearest"), pictures, strict=True)):
        for column, record in enumerate(records):
            grid[line, column].imshow(record.transpose(1, 2, 0).squeeze(), cmap="gray", vmin=0, vmax=1)
            grid[line, column].axis("off")
        grid[line, 0].set_title(words, fontsize=8, loc="left", pad=2)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    arguments = parser(__doc__ or "", GAMES, SIZES)
    arguments.set_defaults(rows=[name for name in GAMES if not name.startswith("gpu")])
    arguments.add_argument("--sets", default=":", help="numbers of the sets of each row, first:last")
    arguments.add_argument("--keep", help="folder with a file for each set that is done")
    arguments.add_argument("--picture", action="store_true", help="draw the first set of each row, from --keep")
    options = arguments.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    done: dict[str, list[Outcome]] = {}
    for outcome in outcomes(options):
        done.setdefault(outcome.row, []).append(outcome)
    for name, played in done.items():
        written = write(__file__, rows_of(name, played), options)
    if options.picture and options.keep is not None:
        draw("cnn2_digits", Path(options.keep), written.with_suffix(".png"))


if __name__ == "__main__":
    main()
