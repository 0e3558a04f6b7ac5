"""What the S3 scripts draw, into docs/figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from lostwax_dev.results import Row

FIGURES = Path(__file__).parent.parent / "docs" / "figures"
SUCCESS = {"ceiling": "k-", "best": "k--", "attack": "C0o-", "sum": "C1.-", "top": "C2.-"}
ERRORS = {"none": "C0o-", "normal": "C1s-", "blind": "k--"}


def draw_pictures(name: str, truth: Tensor, found: Tensor, errors: NDArray[np.float64]) -> None:
    """Secrets above, what was made of them below, with the mean squared error."""
    figure = Figure(figsize=(len(truth), 2.3), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(truth), squeeze=False)
    for row, images in enumerate((truth, found)):
        for axis, image in zip(axes[row], images.cpu(), strict=True):
            axis.imshow(image[0].numpy(), cmap="gray_r", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
    for axis, error in zip(axes[1], errors, strict=False):
        axis.set_xlabel(f"{error:.3f}", fontsize=7)
    figure.suptitle(name.replace("_", " "), fontsize=9)
    _save(figure, name)


def draw_curves(row: str, rows: list[Row]) -> None:
    """Success, the best possible and the ceiling against epsilon."""
    figure, axes = _frame()
    _lines(axes, rows, SUCCESS)
    axes.set(ylabel="success, 10 candidates", ylim=(0, 1.03), title=row)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, row)


def draw_errors(name: str, rows: list[Row]) -> None:
    """Mean squared errors against epsilon, with their intervals, for each prior."""
    figure, axes = _frame()
    _lines(axes, [one for one in rows if one.id.count(".") == 1], ERRORS)
    axes.set(ylabel="mean squared error", yscale="log")
    axes.legend(frameon=False, fontsize=8, title="prior")
    _save(figure, name)


def _frame() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.2, 3.6), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(xscale="log", xlabel="ε at δ = 1e-5")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _lines(axes: Axes, rows: list[Row], styles: dict[str, str]) -> None:
    """One for each last part of the rows' ids, with its interval, by the epsilon that the ids name."""
    epsilons: set[float] = set()
    for line, style in styles.items():
        found = {_epsilon(one): one for one in rows if one.id.endswith(f".{line}")}
        points = [found[epsilon] for epsilon in sorted(found)]
        if points:
            (drawn,) = axes.plot(sorted(found), [float(one.value) for one in points], style, label=line, markersize=4)
            low, high = ([getattr(one, end) or one.value for one in points] for end in ("low", "high"))
            axes.fill_between(sorted(found), low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
        epsilons |= set(found)
    axes.set_xticks(sorted(epsilons), [f"{epsilon:g}" for epsilon in sorted(epsilons)])
    axes.set_xticks([], minor=True)


def _epsilon(row: Row) -> float:
    return float(row.id.split("epsilon_")[1].split(".")[0])


def _save(figure: Figure, name: str) -> None:
    if len(figure.axes) == 1:
        figure.tight_layout()
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"s3_{name.replace('.', '_')}.png")
