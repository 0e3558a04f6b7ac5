"""What the S3 scripts draw, into docs/figures."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from lostwax.reports.results import Row

FIGURES = Path(__file__).parent.parent / "docs" / "figures"


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
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"s3_{name.replace('.', '_')}.png")


def draw_curves(row: str, rows: list[Row]) -> None:
    """Success, the best possible and the ceiling against epsilon."""
    figure = Figure(figsize=(5.2, 3.6), dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for line, style in (("ceiling", "k-"), ("best", "k--"), ("attack", "C0o-"), ("sum", "C1.-"), ("top", "C2.-")):
        points = [one for one in rows if one.id.endswith(f".{line}")]
        if points:
            epsilons = [float(one.id.split("epsilon_")[1].split(".")[0]) for one in points]
            axes.plot(epsilons, [float(one.value) for one in points], style, label=line, markersize=4)
    axes.set(xscale="log", xlabel="ε at δ = 1e-5", ylabel="success, 10 candidates", ylim=(0, 1.03), title=row)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    FIGURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURES / f"s3_{row.replace('.', '_')}.png")
