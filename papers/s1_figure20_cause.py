"""S1 Figure 20, its cause: sharpness, growth of tangents and linear response along the training of S1's victims.

    python papers/s1_figure20_cause.py --rows mnist_10000 mnist_1000 [--data FOLDER]
    python papers/s1_figure20_cause.py --device cuda --rows cifar_5000 cifar_5000_half [--data FOLDER]

S1 (appendix K) finds that reconstructions of CIFAR-10 fail suddenly when the victim is trained for more than 240 to 250
epochs, and leaves the cause open. Measured here along the training on the known records alone, in full batches with
momentum mu:

- the sharpness, the largest eigenvalue of the Hessian, and the lowest, by Lanczos. Gradient descent with momentum is
  unstable where the sharpness exceeds 2 (1 + mu) / lr (the edge of stability), and where there is negative curvature;
- the exponent: by how much the logarithm of a tangent of the training map grows per step (the largest Lyapunov
  exponent; a tangent that starts along the ends of the spectrum turns to where it grows fastest). Beside it, what the
  sharpness alone and the lowest eigenvalue alone would give, if the Hessian did not change;
- explained: with one of --targets secrets more, how much of what it really changes in the weights the linear response
  predicts, 1 - |error|^2 / |change|^2, median over secrets. Where it is low, weights are no smooth function of a record
  any more, and shadow models cannot teach it.

"half" has half the learning rate and twice the steps: the edge of stability is then twice as sharp. If it is the cause,
the failure comes at another epoch times learning rate; if not, at the same.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from s1_cifar import GD, NET
from s1_mnist import START, VICTIM, parser, write
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp

import lostwax as lw
from lostwax.games import Records
from lostwax_dev.results import Row, read_rows

FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "s1_figure20_cause.png"
SIZES = {
    "targets": (4, "secrets, each with a model of its own"),
    "every": (10, "steps between two measurements of the Hessian's spectrum"),
    "products": (20, "Hessian products of such a measurement"),
    "seed": (0, "of the split, and of where Lanczos starts"),
}
KEPT = 20  # epochs at the default learning rate between two rows


@dataclass(frozen=True, kw_only=True)
class Victim:
    """One of S1's victims, and how long it is trained here."""

    trainer: lw.GD
    known: int
    steps: int
    net: nn.Module = NET
    data: Callable[..., Records] = lw.records.cifar10


MLP = {"net": lw.nets.mlp(784, 10, 10, activation=nn.ELU), "data": lw.records.mnist, "trainer": VICTIM}
HALF = lw.GD(lr=GD.lr / 2, momentum=GD.momentum, init=START)
VICTIMS = {
    "mnist_10000": Victim(known=10_000, steps=500, **MLP),
    "mnist_1000": Victim(known=1_000, steps=500, **MLP),
    "cifar_1000": Victim(known=1_000, steps=300, trainer=GD),
    "cifar_1000_half": Victim(known=1_000, steps=600, trainer=HALF),
    "cifar_5000": Victim(known=5_000, steps=400, trainer=GD),
    "cifar_5000_half": Victim(known=5_000, steps=800, trainer=HALF),
}


CURVES = {
    "sharpness": "sharpness",
    "lowest": "lowest eigenvalue of the Hessian",
    "exponent": "growth of a tangent per epoch, in logarithms, mean since the row before",
    "explained": "share of a secret's effect that the linear response explains, median",
    "change": "norm of a secret's effect over that of the weights, median",
}


class Measured(NamedTuple):
    """At one step."""

    step: int
    loss: float
    sharpness: float
    lowest: float
    exponent: float  # mean over the steps since the last measurement
    explained: float
    change: float  # how far a secret moves the weights, over their norm, median


class Loss:
    """Of flat weights: the mean cross-entropy over the known records, all divided by one record more."""

    def __init__(self, net: nn.Module, known: Records, device: str) -> None:
        self.net, self.known = net, known
        self.shapes = {name: value.shape for name, value in net.named_parameters()}
        self.sizes = [shape.numel() for shape in self.shapes.values()]
        self.start = torch.cat([value.flatten() for value in START(net, range(1), seed=0).values()]).to(
            device, torch.float32
        )

    def of(self, weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """The sum over these records, over n."""
        parts = weights.split(self.sizes)
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        logits = functional_call(self.net, named, (x,))
        return nn.functional.cross_entropy(logits, y, reduction="sum") / (len(self.known) + 1)

    def __call__(self, weights: Tensor) -> Tensor:
        return self.of(weights, self.known.x, self.known.y)

    def product(self, weights: Tensor, tangent: Tensor) -> Tensor:
        """The Hessian of the known records' loss times this tangent."""
        product: Tensor = jvp(grad(self), (weights,), (tangent,))[1]
        return product


def ends(product: Callable[[Tensor], Tensor], start: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The largest and the lowest Ritz value, and a vector that holds both of their directions: Lanczos."""
    basis, diagonal, beside = [start / start.norm()], [], []
    for _ in range(count):
        image = product(basis[-1])
        diagonal.append(image @ basis[-1])
        for vector in basis:  # orthogonal to all, twice, for rounding
            image = image - (image @ vector) * vector
        for vector in basis:
            image = image - (image @ vector) * vector
        beside.append(image.norm())
        if beside[-1] < 1e-6 * max(abs(value) for value in diagonal):
            break
        basis.append(image / beside[-1])
    size = len(diagonal)
    matrix = torch.diag(torch.stack(diagonal))
    if size > 1:
        off = torch.stack(beside[: size - 1])
        matrix = matrix + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(matrix.double().cpu())
    both = (vectors[:, 0] + vectors[:, -1]).to(start)
    return values[-1], values[0], torch.stack(basis[:size]).T @ both


def rate(curvature: float, lr: float, momentum: float) -> float:
    """The growth per step, in logarithms, of the faster mode along a direction of this constant curvature."""
    middle = 1 + momentum - lr * curvature
    return math.log(max(abs(np.roots([1, -middle, momentum]))))


def measure(victim: Victim, options: argparse.Namespace) -> Iterator[list[Measured]]:
    """Along the training, so far."""
    records = victim.data("all", root=options.data)
    parts = records.split(min(victim.known, len(records) // 2), options.targets, seed=options.seed)
    known, secrets = (part.to(options.device) for part in parts)
    loss, lr, momentum = Loss(victim.net, known, options.device), victim.trainer.lr, victim.trainer.momentum
    slope, count = grad(loss), len(secrets)
    weights, velocity = loss.start, torch.zeros_like(loss.start)
    models, speeds = [weights] * count, [velocity] * count  # trained with a secret too
    changes, change_speeds = [velocity] * count, [velocity] * count  # as the linear response has them
    generator = torch.Generator().manual_seed(options.seed)
    ritz = torch.randn(len(weights), generator=generator).to(weights)
    tangent, tangent_speed, logs, measured = ritz, velocity, 0.0, []
    for step in range(victim.steps + 1):
        if step % options.every == 0:
            top, bottom, ritz = ends(lambda vector, at=weights: loss.product(at, vector), ritz, options.products)
            if step == 0:  # along the ends of the spectrum, or it would take long to turn to where tangents grow
                tangent = ritz / ritz.norm()
            real = torch.stack(models) - weights  # (targets, p)
            error = (real - torch.stack(changes)).square().sum(1)
            explained = 1 - error / real.square().sum(1).clamp_min(1e-30)
            measured.append(
                Measured(
                    step,
                    float(loss(weights)),
                    float(top),
                    float(bottom),
                    logs / options.every if step else math.nan,
                    float(explained.median()) if step else 1.0,
                    float((real.norm(dim=1) / weights.norm()).median()),
                )
            )
            logs = 0.0
            print("  " + " ".join(f"{value:.4g}" for value in measured[-1]), flush=True)
            yield measured
        for row in range(count):
            own = (secrets.x[row : row + 1], secrets.y[row : row + 1])
            with_own = slope(models[row]) + grad(loss.of)(models[row], *own)
            speeds[row] = momentum * speeds[row] + with_own
            models[row] = models[row] - lr * speeds[row]
            force = loss.product(weights, changes[row]) + grad(loss.of)(weights, *own)
            change_speeds[row] = momentum * change_speeds[row] + force
            changes[row] = changes[row] - lr * change_speeds[row]
        tangent_speed = momentum * tangent_speed + loss.product(weights, tangent)
        tangent = tangent - lr * tangent_speed
        length = torch.sqrt(tangent.square().sum() + lr**2 * tangent_speed.square().sum())
        logs += float(length.log())
        tangent, tangent_speed = tangent / length, tangent_speed / length
        velocity = momentum * velocity + slope(weights)
        weights = weights - lr * velocity


def rows_of(name: str, victim: Victim, measured: Sequence[Measured], targets: int) -> list[Row]:
    """So far: when the edge is reached, when the response is lost; and the last point of the curves."""
    lr, momentum = victim.trainer.lr, victim.trainer.momentum
    edge = 2 * (1 + momentum) / lr
    what = f"{name} ({victim.known:,} known, {targets} targets, lr {lr:g}, momentum {momentum:g})"

    epochs = {
        "at_edge": ("a sharpness of at least 0.9 times the edge", lambda one: one.sharpness >= 0.9 * edge),
        "lost": ("a response that explains less than 0.9", lambda one: one.explained < 0.9),
        "gone": ("a response that explains nothing", lambda one: one.explained < 0),
    }
    peak = max(one.sharpness for one in measured) / edge
    rows = [
        Row(f"{name}.edge", f"{what}: edge of stability, 2 (1 + momentum) / lr", edge),
        Row(f"{name}.peak", f"{what}: largest sharpness over the edge", peak),
    ]
    for key, (words, holds) in epochs.items():
        first = next((one.step for one in measured if holds(one)), None)
        if first is not None:
            rows.append(Row(f"{name}.{key}", f"{what}: first epoch with {words}", float(first)))
    one, kept = measured[-1], kept_every(name)
    if one.step == 0:
        return rows
    since = [other.exponent for other in measured if one.step - kept < other.step <= one.step]
    values = one._replace(exponent=float(np.mean(since)))._asdict()
    return rows + [
        Row(f"{name}.{one.step}.{key}", f"{what}: {words} after {one.step} epochs", values[key])
        for key, words in CURVES.items()
    ]


def kept_every(name: str) -> int:
    """Epochs between two rows of this victim."""
    return KEPT * (2 if name.endswith("_half") else 1)


def draw(rows: Sequence[Row]) -> None:
    """A column for each victim: spectrum, growth, and what the linear response explains."""
    points: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        name, _, place = row.id.partition(".")
        step, _, key = place.partition(".")
        if key in CURVES:
            points.setdefault(name, {}).setdefault(key, {})[int(step)] = float(row.value)
    names = [name for name in VICTIMS if name in points]
    figure = Figure(figsize=(2.9 * len(names), 6), dpi=100)
    FigureCanvasAgg(figure)
    columns = figure.subplots(3, len(names), sharex="col", sharey="row", squeeze=False).T
    for name, (spectrum, growth, share) in zip(names, columns, strict=True):
        lr, momentum = VICTIMS[name].trainer.lr, VICTIMS[name].trainer.momentum
        edge, steps = 2 * (1 + momentum) / lr, sorted(points[name]["sharpness"])
        curves = {key: np.array([curve[step] for step in steps]) for key, curve in points[name].items()}
        spectrum.plot(steps, curves["sharpness"] / edge, label="sharpness")
        spectrum.plot(steps, -curves["lowest"] / edge, label="lowest, negated")
        spectrum.axhline(1, color="k", linestyle="--", linewidth=0.8)
        spectrum.set(yscale="log", ylim=(1e-4, 10))
        spectrum.set_title(f"{name}, lr {lr:g}", fontsize=9)
        growth.plot(steps, curves["exponent"], "k", label="tangent, measured")
        for key in ("sharpness", "lowest"):
            growth.plot(steps, [rate(value, lr, momentum) for value in curves[key]], label=f"by the {key} alone")
        growth.axhline(0, color="k", linestyle="--", linewidth=0.8)
        share.plot(steps, curves["explained"].clip(-1), "k")
        share.axhline(0, color="k", linestyle="--", linewidth=0.8)
        share.set(ylim=(-1.05, 1.05), xlabel="epochs")
    labels = ("over the edge of stability", "growth per epoch, log", "explained by the response")
    for axes, label in zip(columns[0], labels, strict=True):
        axes.set_ylabel(label, fontsize=9)
    for axes in columns[0][:2]:
        axes.legend(frameon=False, fontsize=7)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE)


def main() -> None:
    made = parser(__doc__ or "", VICTIMS, SIZES)
    made.add_argument("--draw", action="store_true", help="run nothing: draw the rows of the results file")
    options = made.parse_args()
    if options.draw:
        draw(read_rows((options.out or Path(__file__).parent / "results") / f"{Path(__file__).stem}.json"))
        return
    torch.backends.cudnn.allow_tf32 = False  # a record moves the weights by less than TF32 rounds
    torch.set_float32_matmul_precision("highest")
    for name in options.rows:
        start = time.perf_counter()
        for measured in measure(VICTIMS[name], options):
            if measured[-1].step % kept_every(name) == 0:  # a long run may be cut
                path = write(__file__, rows_of(name, VICTIMS[name], measured, options.targets), options)
        print(f"  {time.perf_counter() - start:.0f} s", flush=True)
    draw(read_rows(path))


if __name__ == "__main__":
    main()
