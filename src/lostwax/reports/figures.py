"""Stand-alone figures: ceilings against noise or epsilon, and originals beside reconstructions."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lostwax import files
from lostwax.bounds import bound, from_dp, from_rdp
from lostwax.bounds.inequalities import ADJACENCY, epsilon_of, renyi_epsilons

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lostwax.audits import Audit

ORDERS = [1 + float(excess) for excess in np.geomspace(0.05, 63, 60)]
COARSE = 1e-3  # dp-accounting's grid: epsilon stays an upper bound, ten times faster


def draw_ceilings(
    path: str | Path,
    *,
    baselines: Sequence[float],
    sample_rate: float = 1.0,
    steps: int = 1,
    noise_multipliers: Sequence[float] | None = None,
    against: Literal["noise", "epsilon"] = "epsilon",
    delta: float = 1e-5,
) -> Path:
    """Plot the ceiling of each baseline against noise or epsilon, with those from RDP and (epsilon, delta) dashed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    noises = np.array(noise_multipliers) if noise_multipliers is not None else _noises(sample_rate, steps)
    epsilons = [epsilon_of(float(noise), sample_rate, steps, delta, COARSE) for noise in noises]
    across = noises if against == "noise" else np.array(epsilons)
    figure = Figure(figsize=(6.4, 4.2), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, baseline in enumerate(baselines):
        exact, renyi, pair = [], [], []
        for noise, epsilon in zip(noises.tolist(), epsilons, strict=True):
            ceiling = bound(noise_multiplier=noise, sample_rate=sample_rate, steps=steps, baseline=baseline)
            exact.append(ceiling.upper)
            curve = renyi_epsilons(noise, sample_rate, steps, ORDERS)
            renyi.append(from_rdp(math.log(baseline), ORDERS, curve).upper)
            pair.append(from_dp(math.log(baseline), epsilon, delta).upper)
        color = f"C{number}"
        axes.plot(across, exact, color=color, label=f"exact, blind guess {baseline:g}")
        axes.plot(across, renyi, "--", color=color, linewidth=1, label="from RDP" if number == 0 else None)
        axes.plot(across, pair, ":", color=color, linewidth=1, label="from (ε, δ)" if number == 0 else None)
    label = "noise multiplier" if against == "noise" else f"ε at δ = {delta:g} ({ADJACENCY})"
    axes.set(xscale="log", xlabel=label, ylabel="ceiling on the success of any attack", ylim=(0, 1.02))
    axes.set_title(f"Poisson sampling at {sample_rate:g}, {steps:,} steps", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    target, content = files.named("draw_ceilings", path), io.BytesIO()
    figure.savefig(content, format=target.suffix.removeprefix(".") or "png")
    return files.write(target, content.getvalue(), source="draw_ceilings")


def _noises(sample_rate: float, steps: int) -> np.ndarray:
    """Noise multipliers over which ceilings range from near the blind guess to near 1."""
    middle = math.sqrt(steps) * sample_rate  # noise at which sqrt(steps) * rate / noise = 1
    return np.geomspace(max(0.3, 0.15 * middle), max(3.0, 6 * middle), 15)


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
