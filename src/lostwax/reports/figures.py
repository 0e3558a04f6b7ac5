"""Figures to keep or to show: `audit.plot`, originals beside reconstructions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax import files
from lostwax.reports.charts import COLOURS, draw_ceiling, draw_errors, draw_knowledge, draw_roc
from lostwax.reports.gallery import are_pictures, has_records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lostwax.audits import Audit

Picture = NDArray[np.float64]


def draw_rebuilt(audit: Audit, path: str | Path, games: Sequence[int]) -> Path:
    """Write `rebuilt_picture` to a file that only the owner can read; the suffix sets the format."""
    target = files.named("draw_rebuilt", path)
    content = rebuilt_picture(audit, games, ending=target.suffix.removeprefix(".") or "png")
    return files.write(target, content, source="draw_rebuilt", private=True)


def rebuilt_picture(audit: Audit, games: Sequence[int], *, ending: str = "png") -> bytes:
    """The content of a file with `rebuilt_figure`."""
    content = io.BytesIO()
    rebuilt_figure(audit, games).savefig(content, format=ending)
    return content.getvalue()


def rebuilt_figure(audit: Audit, games: Sequence[int]) -> Figure:
    """Originals in the first row, then one row of reconstructions per line of the audit, with errors. For images only.

    `games` are indices into the audit's list of games.
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
    return figure


def _picture(image: Picture) -> Picture:
    """(channels, h, w) or (h, w) in [0, 1], in matplotlib's layout."""
    clipped = np.clip(image, 0, 1)
    return clipped if clipped.ndim == 2 else clipped[0] if len(clipped) == 1 else np.moveaxis(clipped, 0, -1)


SHOWN = 6  # pairs, unless games are named


class Plots(NamedTuple):
    """The figures of an audit. Each returns a matplotlib figure, which a notebook shows and `savefig` keeps."""

    audit: Audit

    def __call__(self) -> Figure:
        """The errors; where a candidate was to be named, the ceiling if there is one, else pairs."""
        if self.audit.chance is None:
            return self.errors()
        return self.pairs() if self.audit.ceiling is None else self.ceiling()

    def errors(self) -> Figure:
        """Histogram of the errors of all games, beside the baselines."""
        if self.audit.chance is not None:
            raise ValueError("plot.errors: a candidate is named in this audit, and has no error. Use plot.pairs().")
        return _on_paper(draw_errors(self.audit).figure)

    def roc(self) -> Figure:
        """True positives against false positives, on log scales."""
        if not self.audit.findings[0].null_errors:
            raise ValueError(
                f"plot.roc: this audit of {self.audit.kind} holds no scores of chance. Audits of a way of training, "
                "with two different secrets or more, do."
            )
        return _on_paper(draw_roc(self.audit).figure)

    def knowledge(self) -> Figure:
        """The share of missing records that come back, over how many the attacker does not know."""
        if not self.audit.attackers.by_missing:
            raise ValueError("plot.knowledge: this audit does not state how many records its attackers know.")
        return _on_paper(draw_knowledge(self.audit).figure)

    def ceiling(self) -> Figure:
        """The success of the attack below that of every attack, where training is differentially private."""
        if self.audit.ceiling is None:
            raise ValueError("plot.ceiling: this audit has no ceiling, because training is not differentially private.")
        return _on_paper(draw_ceiling(self.audit).figure)

    def pairs(self, games: Sequence[int] | None = None) -> Figure:
        """Pictures beside guesses, the best, the median and the worst; or `games`, by place in `audit.games`."""
        if not has_records(self.audit):
            raise ValueError("plot.pairs: this audit was read from a file that holds no records.")
        if not are_pictures(self.audit):
            raise ValueError("plot.pairs: expected records that are images. lw.report shows the rows of a table.")
        order = np.argsort(self.audit.errors, kind="stable")
        places = np.unique(np.linspace(0, len(order) - 1, min(SHOWN, len(order))).round().astype(int))
        chosen = order[places].tolist() if games is None else [int(game) for game in games]
        if not chosen or not all(0 <= game < len(order) for game in chosen):
            raise ValueError(f"plot.pairs: expected games from 0 to {len(order) - 1}, one or more, got {chosen}.")
        return _on_paper(rebuilt_figure(self.audit, chosen))


def _on_paper(figure: Figure) -> Figure:
    """With a background, for it is dark in some notebooks, and shown by a notebook that has not loaded pyplot."""
    figure.patch.set(facecolor=COLOURS["paper"], alpha=1.0)
    setattr(figure, "_repr_png_", partial(_as_png, figure))  # noqa: B010
    return figure


def _as_png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100)
    return content.getvalue()
