"""A picture of ceilings: exact ones against the looser ones that come from RDP and from (epsilon, delta)."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from lostwax import files
from lostwax.bounds import bound, from_dp, from_rdp
from lostwax.bounds.epsilon import ADJACENCY, epsilon_of
from lostwax.bounds.rdp import renyi_epsilons

ORDERS = [1 + float(excess) for excess in np.geomspace(0.05, 63, 60)]
COARSE = 1e-3  # of dp-accounting's grid: its epsilon stays an upper bound, and comes in a tenth of the time


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
    """Draw the ceiling of each baseline against noise or epsilon, with the RDP and (epsilon, delta) ones dashed."""
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
    words = "noise multiplier" if against == "noise" else f"ε at δ = {delta:g} ({ADJACENCY})"
    axes.set(xscale="log", xlabel=words, ylabel="success of any attack, at most", ylim=(0, 1.02))
    axes.set_title(f"Poisson sampling at {sample_rate:g}, {steps:,} steps", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    target, content = files.named("draw_ceilings", path), io.BytesIO()
    figure.savefig(content, format=target.suffix.removeprefix(".") or "png")
    return files.write(target, content.getvalue(), source="draw_ceilings")


def _noises(sample_rate: float, steps: int) -> np.ndarray:
    """A range of noises over which ceilings go from near the blind guess to near 1."""
    middle = math.sqrt(steps) * sample_rate  # where full batches of this rate's signal have a distance of 1
    return np.geomspace(max(0.3, 0.15 * middle), max(3.0, 6 * middle), 15)
