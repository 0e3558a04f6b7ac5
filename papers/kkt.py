"""Whole training sets from nets trained to the margin: the KKT conditions, and what a public start adds.

    python papers/kkt.py --data FOLDER [--rows mnist_10 ...] [--attacks kkt ...] [--nets FOLDER] [--keep FOLDER]

The setting of Haim et al. (2022, arXiv:2206.07758). Two classes (MNIST: odd or even; CIFAR-10: vehicles or animals),
n / 2 pictures of each less their mean, which counts as published with the net. ReLU nets D-1000-1 (`mnist_10`) and
D-1000-1000-1 (`mnist_10_deep`, theirs) with biases in the first layer only, which starts from N(0, 1e-4^2); full-batch
descent on the logistic loss in float64. The learning rate is divided by the loss (Lyu and Li 2020), because their
million steps at 0.01 take hours, and lowered as the margin grows: we stop at a loss of 1e-40.

- `kkt`: theirs. Nothing is known but the weights. Minimise  |theta - 1/m sum_i l_i y_i grad Phi(x_i)|^2  over m = 2n
  pictures x_i and multipliers l_i, by SGD with momentum from random starts. Candidates of several runs are pooled, as
  theirs are: two with the settings they publish for n = 500, others drawn from the ranges of their search. Theirs has
  50,000 steps in float64, and settings chosen by the true pictures; ours float32, and as many steps as fit in
  `--seconds`.
- `span`: the same, in the space of the first layer's rows that stand out of the noise of a small private start.
- `corners`: the start is known as well, not the steps. The layer moved within the span of the records, in which
  pictures with many pixels at a bound are corners: the first part of `lw.Newton` on whole sets, from random templates.
  Corners that a few pixels alone hold in place are doubtful: they are counted apart, and are no answers.
- `neurons`: with one hidden layer, the same with the roles exchanged: see `records_by_neurons`.
- `null`: as many other pictures as `kkt` has candidates. `weights`: the first layer's rows.

The score is theirs: for each training picture the candidate with the nearest normalised pixels (CIFAR-10: at half the
size), mean added, stretched to [0, 1], and the SSIM in windows of 3. A picture counts as rebuilt above 0.4.

With `--keep`, each attack on a net is written to a file when it is done, and those that are there are not run again;
`--merge` only writes the rows and the figure of what is there. With `--nets`, the trained nets are kept, so that
attacks can run side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from kkt_attacks import (
    GAMES,
    Candidates,
    Game,
    Pictures,
    Trained,
    by_corners,
    by_kkt,
    by_neurons,
    by_span,
    pictures,
    trained,
)
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from s1_mnist import mean_row, parser, rate_row, write
from torch import Tensor
from torch.nn.functional import interpolate, pad

import lostwax as lw
from lostwax.provenance import machine
from lostwax_dev.freshness import Code, as_code, code_of, commit_of
from lostwax_dev.results import Row

GOOD, CLOSE = 0.4, 1e-4  # SSIM; mean squared error
SIZES = {
    "steps": (60_000, "of training, at most"),
    "iterations": (50_000, "of the KKT attack, at most"),
    "seconds": (60.0, "of the KKT attack, at most"),
    "search": (240.0, "seconds of the search for corners of neurons, at most"),
    "runs": (4, "of the KKT attack: two published settings, and drawn ones"),
    "seed": (0, "of everything drawn"),
}


class Score(NamedTuple):
    """Of the candidates of one attack."""

    alike: list[float]  # (n,) SSIM of each picture
    errors: list[float]  # (n,) mean squared
    right: int  # candidates within CLOSE of a picture


def scores(found: Tensor, own: Pictures, *, halved: bool) -> Score:
    """SSIM and error of each picture's nearest candidate, the SSIM by Haim et al.'s measure (appendix B.3).

    The candidate that is nearest in normalised pixels is compared; the error is that of the nearest as it is.
    """
    if len(found) == 0:  # the mean is the answer then
        return Score([0.0] * len(own.x), own.x.sub(own.mean).square().flatten(1).mean(1).tolist(), 0)
    shape = own.x.shape[1:]
    found = found.to(own.x).unflatten(1, shape)
    sought, among = _normalised(own.x - own.mean, halved=halved), _normalised(found, halved=halved)
    nearest = torch.cdist(sought, among, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    picked = found[nearest] + own.mean
    low, high = picked.flatten(1).amin(1), picked.flatten(1).amax(1)
    stretched = (picked - low.view(-1, 1, 1, 1)) / (high - low).clamp_min(1e-12).view(-1, 1, 1, 1)
    framed = [pad(images, (1, 1, 1, 1), mode="reflect") for images in (stretched, own.x)]  # windows at every pixel
    far = torch.cdist(own.x.flatten(1), (found + own.mean).flatten(1), compute_mode="donot_use_mm_for_euclid_dist")
    errors = far.square() / shape.numel()  # (n, c)
    right = int((errors.amin(0) < CLOSE).sum())
    return Score(lw.metrics.SSIM(window=3)(*framed).tolist(), errors.amin(1).tolist(), right)


def _normalised(images: Tensor, *, halved: bool) -> Tensor:
    """(n, numbers) each channel with mean 0 and deviation 1."""
    if halved:
        images = interpolate(images, scale_factor=0.5, mode="bicubic", align_corners=False)
    flat = images.flatten(2)
    return ((flat - flat.mean(2, keepdim=True)) / flat.std(2, keepdim=True).clamp_min(1e-12)).flatten(1)


ATTACKS = {
    "kkt": "KKT conditions",
    "span": "KKT conditions in the span of the first layer",
    "corners": "corners of pixels, public start",
    "neurons": "corners of neurons, public start",
    "weights": "rows of the first layer",
    "null": "other pictures",
}
EXACT = {"corners", "neurons"}  # answers rather than candidates


@dataclass(frozen=True)
class Outcome:
    """One attack on one net."""

    row: str
    attack: str
    alike: list[float]  # SSIM of each picture
    errors: list[float]
    right: int
    seconds: float
    candidates: int
    steps: int
    trained: tuple[float, float, float]  # loss, alignment, seconds
    seed: int
    doubtful: int = 0  # further candidates that are no answers
    doubtful_right: int = 0
    command: str = ""
    machine: str = field(default_factory=machine)
    commit: str | None = field(default_factory=lambda: commit_of(Path(__file__)))
    code: Code = field(default_factory=lambda: code_of(Path(__file__)))


def attack(kind: str, game: Game, own: Pictures, nets: Trained, options: argparse.Namespace) -> Candidates:
    """The candidates of one attack."""
    start, end = nets.start, nets.end
    attacks: dict[str, Callable[[], Candidates]] = {
        "kkt": lambda: by_kkt(end, game, options),
        "span": lambda: by_span(end, game, options),
        "corners": lambda: by_corners(end.first - start.first, game, own.mean, options.seed),
        "neurons": lambda: by_neurons(start, end, game, options),
        "weights": lambda: Candidates(end.first[:, :-1]),
        "null": lambda: Candidates((own.others - own.mean).flatten(1)),
    }
    return attacks[kind]()


def play(name: str, options: argparse.Namespace) -> list[Outcome]:
    """Train a net, or read it, and run the attacks that are not kept."""
    game, folder = GAMES[name], None if options.keep is None else Path(options.keep)
    kinds = [kind for kind in options.attacks if not (kind == "neurons" and game.deep)]
    paths = {} if folder is None else {kind: folder / f"{name}.{options.seed}.{kind}.json" for kind in kinds}
    done = [kept(path) for path in paths.values() if path.exists()]
    asked = [kind for kind in kinds if kind not in {one.attack for one in done}]
    if not asked or options.merge:
        return done
    own = pictures(game, options)
    nets = trained(name, own, options)
    print(f"{name}: loss {nets.loss:.1e}, alignment {nets.alignment:.4f}, {nets.seconds:.1f} s", flush=True)
    for kind in asked:
        begun = time.perf_counter()
        found = attack(kind, game, own, nets, options)
        seconds = time.perf_counter() - begun
        score = scores(found.x, own, halved=game.data == "cifar10")
        doubtful = found.x[:0] if found.doubtful is None else found.doubtful
        apart = len(doubtful), scores(doubtful, own, halved=game.data == "cifar10").right
        one = Outcome(name, kind, *score, seconds, len(found.x), found.steps, nets[2:], options.seed, *apart)
        done.append(replace(one, command=command(options, name)))
        print(
            f"  {kind}: {np.mean(np.array(one.alike) > GOOD):.0%} above {GOOD}, mean SSIM {np.mean(one.alike):.3f}, "
            f"{np.mean(np.array(one.errors) < CLOSE):.0%} within {CLOSE:g}, {one.right} of {one.candidates} right, "
            f"{one.doubtful_right} of {one.doubtful} doubtful right, {found.steps} steps, {seconds:.1f} s",
            flush=True,
        )
        if kind in paths:
            paths[kind].parent.mkdir(parents=True, exist_ok=True)
            paths[kind].write_text(json.dumps(vars(done[-1])))
    return done


def command(options: argparse.Namespace, name: str) -> str:
    """That gives this outcome again."""
    sizes = " ".join(f"--{size} {getattr(options, size):g}" for size in SIZES)
    return f"python papers/kkt.py --data DATA --device {options.device} --rows {name} {sizes}"


def kept(path: Path) -> Outcome:
    """From the file of an attack on a game."""
    one = json.loads(path.read_text())
    return Outcome(**{**one, "code": as_code(one["code"])})


def rows_of(played: Sequence[Outcome]) -> list[Row]:
    """Share of pictures that are rebuilt, SSIM, share that is exact, and time."""
    rows: list[Row] = []
    others = {one.row: np.array(one.alike) for one in played if one.attack == "null"}
    for one in played:
        game, name = GAMES[one.row], f"{one.row}.{one.attack}"
        alike, errors = np.array(one.alike), np.array(one.errors)
        steps = f", {one.steps:,} steps" if one.steps else ""
        words = f"{one.row}, {ATTACKS[one.attack]}"
        rows += [
            rate_row(
                name,
                f"{words}: share of pictures with SSIM > {GOOD} ({game.words}; {one.candidates:,} candidates{steps})",
                alike > GOOD,
            ),
            mean_row(f"{name}.ssim", f"{words}: mean SSIM", alike),
            rate_row(f"{name}.close", f"{words}: share of pictures within MSE {CLOSE:g}", errors < CLOSE),
            Row(f"{name}.error", f"{words}: median MSE", float(np.median(errors))),
            Row(f"{name}.seconds", f"{words}: seconds", one.seconds),
        ]
        if one.attack in EXACT and one.candidates:
            right = np.arange(one.candidates) < one.right
            rows.append(rate_row(f"{name}.right", f"{words}: share of answers within MSE {CLOSE:g}", right))
        if one.doubtful:
            right = np.arange(one.doubtful) < one.doubtful_right
            rows.append(
                rate_row(f"{name}.doubtful", f"{words}: share of doubtful ones, no answers, within {CLOSE:g}", right)
            )
        if one.row in others and one.attack != "null":
            beats = f"{words}: share of pictures with a larger SSIM than that of other pictures"
            rows.append(rate_row(f"{name}.beats", beats, alike > others[one.row]))
        if one.attack == "kkt":
            loss, alignment, seconds = one.trained
            rows += [
                Row(f"{one.row}.loss", f"{one.row}: loss of training, {seconds:.0f} s", loss),
                Row(f"{one.row}.alignment", f"{one.row}: cosine of the weights and the loss's descent", alignment),
            ]
        made = {"command": one.command, "machine": one.machine, "commit": one.commit, "code": one.code}
        rows = [row if row.command else replace(row, version=lw.__version__, **made) for row in rows]
    return rows


def draw(played: Sequence[Outcome], path: Path) -> None:
    """Sorted SSIM of each net, one line per attack."""
    names = [name for name in GAMES if any(one.row == name for one in played)]
    columns = min(4, len(names))
    figure = Figure(figsize=(3.0 * columns, 2.4 * math.ceil(len(names) / columns)), dpi=100)
    FigureCanvasAgg(figure)
    panels = figure.subplots(math.ceil(len(names) / columns), columns, squeeze=False, sharey=True)
    colours = dict(zip(ATTACKS, ("#D55E00", "#CC79A7", "#0072B2", "#009E73", "#E69F00", "#888888"), strict=True))
    for panel, name in zip(panels.flat, names, strict=False):
        for one in (each for each in played if each.row == name):
            ranked = np.sort(one.alike)[::-1]
            place = np.arange(1, len(ranked) + 1)
            panel.plot(place, ranked, color=colours[one.attack], linewidth=1.2, label=ATTACKS[one.attack])
        panel.axhline(GOOD, color="#666666", linewidth=0.7, linestyle="--")
        panel.set_title(f"{name}", fontsize=8)
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels.flat[len(names) :]:
        panel.set_visible(False)
    lines = {line.get_label(): line for panel in panels.flat for line in panel.get_lines()}
    shown = {label: line for label, line in lines.items() if label in ATTACKS.values()}
    figure.supylabel("SSIM", fontsize=8)
    figure.supxlabel("training pictures, best first", fontsize=8)
    figure.legend(shown.values(), shown.keys(), loc="upper center", ncols=3, fontsize=7, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.92))
    figure.savefig(path)


def main() -> None:
    made = parser(__doc__ or "", GAMES, SIZES)
    made.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS), metavar="ATTACK")
    made.add_argument("--nets", help="folder of the trained nets")
    made.add_argument("--keep", help="folder with a file for each attack that is done")
    made.add_argument("--merge", action="store_true", help="run nothing: rows and figure of what is kept")
    options = made.parse_args()
    played = [one for name in options.rows for one in play(name, options)]
    if played and (options.merge or options.keep is None):
        draw(played, write(__file__, rows_of(played), options).with_suffix(".png"))


if __name__ == "__main__":
    main()
