"""S3 Figures 5, 14 and 15: at one epsilon the ceiling still depends on the sampling rate.

T = 100 steps, delta = 1e-5, uniform priors of 2, 10 and 100; the noise is set for each rate so that dp-accounting
reports the given epsilon (add or remove one record, Poisson sampling). To reach, from the caption of Figure 15: at
epsilon 32 and prior 100 the ceiling is 0.4 at q = 0.01 and 1 at q = 0.99.
"""

import argparse
import math
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lostwax.bounds import Ceiling, bound
from lostwax.bounds.closed_forms import epsilon_of
from lostwax_dev.results import Row, add_options, write_rows

STEPS, DELTA = 100, 1e-5
EPSILONS = (1, 2, 4, 8, 16, 32)
RATES = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.99)
SIZES = (2, 10, 100)
PAPER = {(32, 100, 0.01): 0.4, (32, 100, 0.99): 1.0}
FIGURE = Path(__file__).parent.parent / "docs" / "figures" / "s3_fixed_epsilon.png"


def noise_for(epsilon: float, rate: float) -> float:
    """The noise multiplier at which dp-accounting reports this epsilon, by bisection on its log."""
    low, high = 0.05, 60.0
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of(middle, rate, STEPS, DELTA, 1e-3) > epsilon else (low, middle)
    return high


def draw(ceilings: dict[tuple[int, int, float], Ceiling]) -> None:
    figure = Figure(figsize=(8, 4.4), dpi=110)
    FigureCanvasAgg(figure)
    for axes, epsilon in zip(figure.subplots(2, 3, sharex=True, sharey=True).flat, EPSILONS, strict=True):
        for size in SIZES:
            values = [ceilings[epsilon, size, rate].upper for rate in RATES]
            axes.plot(RATES, values, marker=".", label=f"{size} candidates")
        axes.set_title(f"ε = {epsilon}", fontsize=9)
        axes.set(ylim=(0, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].legend(frameon=False, fontsize=7)
    figure.supxlabel("sampling rate q (100 steps, noise set for ε at δ = 1e-5, add or remove one record)", fontsize=9)
    figure.supylabel("ceiling on success", fontsize=9)
    figure.tight_layout()
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, {})
    options = parser.parse_args()
    ceilings: dict[tuple[int, int, float], Ceiling] = {}
    rows = []
    for epsilon in EPSILONS:
        print(f"epsilon {epsilon}: q, noise, ceilings for {SIZES} candidates")
        for rate in RATES:
            noise = noise_for(epsilon, rate)
            for size in SIZES:
                ceiling = bound(noise_multiplier=noise, sample_rate=rate, steps=STEPS, baseline=1 / size)
                ceilings[epsilon, size, rate] = ceiling
                name = f"ceiling at epsilon {epsilon}, q {rate}, prior {size} (noise {noise:.4g})"
                paper = PAPER.get((epsilon, size, rate))
                rows.append(Row(f"{epsilon}-{size}-{rate}", name, ceiling.upper, ceiling.lower, ceiling.upper, paper))
            values = " ".join(f"{ceilings[epsilon, size, rate].upper:.4f}" for size in SIZES)
            print(f"  {rate:<5} {noise:<8.4f} {values}")
    draw(ceilings)
    write_rows(__file__, rows, options=options)


if __name__ == "__main__":
    main()
