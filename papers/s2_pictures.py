"""Pictures of the S2 scripts: pairs of a guess and the record it is nearest to, ROC, logits, rates against epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from lib.gaussian_roc import gaussian_roc
from numpy.typing import NDArray
from torch import Tensor

from lostwax.metrics import Null, roc
from lostwax_dev.results import Row

COLUMNS, ROWS = 12, 2
RATES = np.logspace(-3, 0, 200)


def draw_pairs(path: Path, guesses: Tensor, truth: Tensor, errors: NDArray[np.float64], tau: float) -> None:
    """The guesses (n, ...) that come nearer than tau to a record: that record above, the guess and its error below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    hits = np.flatnonzero(errors <= tau)[: COLUMNS * ROWS]  # in the order of the games, not the best ones
    figure = Figure(figsize=(COLUMNS * 0.8, ROWS * 2.0), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(2 * ROWS, COLUMNS, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[], frame_on=False)
    for place, number in enumerate(hits.tolist()):
        row, column = divmod(place, COLUMNS)
        for below, images in enumerate((truth, guesses)):
            image = (images[number].movedim(0, -1).float().cpu().numpy() + 1) / 2  # (h, w, channels) in [0, 1]
            axes[2 * row + below][column].imshow(image.clip(0, 1), cmap="gray_r", vmin=0, vmax=1)
        axes[2 * row + 1][column].set_xlabel(f"{errors[number]:.3f}", fontsize=6, labelpad=1)
    figure.tight_layout(pad=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_roc(
    path: Path, errors: NDArray[np.float64], nulls: Mapping[Null, NDArray[np.float64]], largest: float
) -> None:
    """Counted, and by normal laws of the logit (S2 Eq. 6), under each null."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for colour, (null, chance) in zip(("C0", "C1"), nulls.items(), strict=False):
        curve, fitted = roc(errors, chance, null=null), gaussian_roc(errors, chance, null=null, largest=largest)
        axes.plot(curve.fpr, curve.tpr, colour, label=str(null))
        axes.plot(RATES[:-1], [fitted.tpr(rate) for rate in RATES[:-1]], colour, linestyle=":", label="by normal laws")
    axes.plot(RATES, RATES, "0.7", label="chance")
    axes.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1), xlabel="FPR", ylabel="TPR")
    axes.legend(fontsize=6)
    figure.tight_layout(pad=0.4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_logits(path: Path, logits: Mapping[str, NDArray[np.float64]]) -> None:
    """S2 Figure 7: histograms of the errors' logits, and the normal laws fitted to them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for colour, (name, each) in zip(("C0", "C1"), logits.items(), strict=True):
        axes.hist(each, bins=60, density=True, color=colour, alpha=0.4, label=name)
        at = np.linspace(each.min(), each.max(), 200)
        axes.plot(at, np.exp(-(((at - each.mean()) / each.std()) ** 2) / 2) / (each.std() * np.sqrt(2 * np.pi)), colour)
    axes.set(xlabel="logit of the error", ylabel="density")
    axes.legend(fontsize=7, frameon=False)
    figure.tight_layout(pad=0.4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_privacy(path: Path, rows: Sequence[Row], epsilons: Mapping[str, float], criterion: float) -> None:
    """S2 Figure 4: true positives at 1 % false ones above, the accuracy of the head below, against epsilon."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_id = {row.id: row for row in rows}
    figure = Figure(figsize=(5.2, 5.0), dpi=120)
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    lines = (
        (above, "", "C1s-", "tuned"),
        (above, "_chance", "C0o-", "then taught to beat chance"),
        (below, ".accuracy", "k^-", ""),
    )
    for axes, suffix, style, label in lines:
        held = [(epsilon, by_id[f"{name}{suffix}"]) for name, epsilon in epsilons.items() if f"{name}{suffix}" in by_id]
        if not held:
            continue
        x, y = ([epsilon for epsilon, _ in held], np.array([float(row.value) for _, row in held]))
        ends = np.array([[float(row.low or row.value), float(row.high or row.value)] for _, row in held])
        axes.errorbar(x, y, yerr=np.abs(ends.T - y), fmt=style, capsize=3, label=label)
    for axes, suffix in ((above, ""), (below, ".accuracy")):
        if (free := by_id.get(f"unprotected{suffix}")) is not None:
            axes.axhline(float(free.value), color="0.5", linestyle=":", label="without noise")
    above.axhline(criterion, color="C3", linestyle="--", label=f"S2's criterion, {criterion}")
    above.set(yscale="log", ylabel="TPR at FPR 1 %")
    above.legend(fontsize=7, frameon=False)
    below.set(xscale="log", xlabel="ε", ylabel="accuracy of the head", ylim=(0, 1))
    below.set_xticks(list(epsilons.values()), [f"{epsilon:g}" for epsilon in epsilons.values()], minor=False)
    below.set_xticks([], minor=True)
    figure.tight_layout(pad=0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def draw_ceilings(path: Path, rows: Sequence[Row], names: Sequence[str], ceilings: Sequence[float]) -> None:
    """Accuracy of heads over the ceiling that is certified, by all steps and by the last weights."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_id = {row.id: row for row in rows}
    names = [name for name in names if f"{name}.{ceilings[-1]:g}.last" in by_id]  # that were measured
    columns = max(1, min(4, len(names)))
    figure = Figure(figsize=(2.4 * columns + 0.4, 2.2 * math.ceil(len(names) / columns) + 0.4), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(math.ceil(len(names) / columns), columns, sharex=True, sharey=True, squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        for seen, style, label in (("all", "C1s-", "all steps"), ("last", "C0o-", "last weights alone")):
            points = [(ceiling, by_id.get(f"{name}.{ceiling:g}.{seen}")) for ceiling in ceilings]
            known = [(ceiling, row) for ceiling, row in points if row is not None]
            y = np.array([float(row.value) for _, row in known])
            ends = np.array([[float(row.low or 0), float(row.high or 1)] for _, row in known]).reshape(-1, 2)
            x = [ceiling for ceiling, _ in known]
            axis.errorbar(x, y, yerr=np.abs(ends.T - y), fmt=style, capsize=2, markersize=4, label=label)
        if (free := by_id.get(name)) is not None:
            axis.axhline(float(free.value), color="0.5", linestyle=":", label="without noise")
        kind, size = name.split("_")
        axis.set_title(f"{kind.upper()}, N = {int(size):,}", fontsize=9)
        axis.set(ylim=(0, 1), xlim=(0.1, 1))
    axes[0][0].legend(fontsize=7, frameon=False)
    figure.supxlabel("certified ceiling, one of ten candidates", fontsize=9)
    figure.supylabel("accuracy of the head", fontsize=9)
    figure.tight_layout(pad=0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
