"""Pictures of an audit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lostwax import files

if TYPE_CHECKING:
    from lostwax.audits import Audit

Picture = NDArray[np.float64]


def draw_rebuilt(audit: Audit, path: str | Path, games: Sequence[int]) -> Path:
    """Write `rebuilt_picture` to a file, for the owner alone to read; its ending names the format."""
    target = files.named("draw_rebuilt", path)
    content = rebuilt_picture(audit, games, ending=target.suffix.removeprefix(".") or "png")
    return files.write(target, content, source="draw_rebuilt", private=True)


def rebuilt_picture(audit: Audit, games: Sequence[int], *, ending: str = "png") -> bytes:
    """Originals in the first row, then one row a line of the audit: what was rebuilt, with its error below.

    `games` are places in the audit's list of games. For records that are images.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if audit.truth.x.ndim < 3:
        raise ValueError(
            f"draw_rebuilt: expected records that are images, got rows of shape {tuple(audit.truth.x.shape[1:])}."
        )
    rows: list[tuple[str, Picture, Picture | None]] = [("training record", audit.truth.x.numpy(), None)]
    for finding in audit.findings:
        guess = finding.guess.records.x[:, 0].reshape(audit.truth.x.shape).numpy()
        rows.append((f"rebuilt from the model\n{finding.name}", guess, finding.errors[audit.metric]))
    figure = Figure(figsize=(1.05 * len(games) + 1.9, 1.32 * len(rows)), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(games), squeeze=False)
    for row, (title, images, errors) in enumerate(rows):
        for column, game in enumerate(games):
            axis = axes[row][column]
            axis.imshow(_picture(images[game]), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            if errors is not None:
                axis.set_xlabel(f"{errors[game]:.0e}", fontsize=7, labelpad=2)
        axes[row][0].set_ylabel(title, rotation=0, ha="right", va="center", fontsize=8, labelpad=8)
    figure.tight_layout(pad=0.4)
    content = io.BytesIO()
    figure.savefig(content, format=ending)
    return content.getvalue()


def _picture(image: Picture) -> Picture:
    """(channels, h, w) or (h, w) in [0, 1] as matplotlib wants it."""
    clipped = np.clip(image, 0, 1)
    return clipped if clipped.ndim == 2 else clipped[0] if len(clipped) == 1 else np.moveaxis(clipped, 0, -1)
