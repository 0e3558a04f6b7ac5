"""How fast and how exact: the certified ceiling against dp-accounting's and against a million samples.

Each setting is answered by all of them in one run. The error is relative to the middle of an interval of width 1e-7
or the narrowest reached; dp-accounting's loss distribution (remove direction) goes through the same duality.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from lostwax.bounds.random_batches import subsampled
from lostwax_dev.results import Row, parse, write_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "papers"))
from lib.other_bounds import monte_carlo

SETTINGS = (  # noise, rate, steps, baseline
    (1.05507, 0.02, 1000, 0.1),
    (1.0, 0.01, 1000, 0.01),
    (0.5, 0.005, 3000, 1e-3),
    (4.0, 0.2, 2000, 0.1),
    (0.7, 0.001, 10_000, 1e-9),
)


def by_accounting(noise: float, rate: float, steps: int, kappa: float, interval: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution  # guard.py runs on machines without it

    law = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=interval
    )
    remove = law.self_compose(steps)._pmf_remove
    levels = np.linspace(-5, 30, 20_001)
    return float(np.min(remove.get_delta_for_epsilon(levels) + np.exp(levels) * kappa))


def timed(call: Callable[[], float], repeats: int) -> tuple[float, float]:
    """The value and the median of its times in seconds of processor time."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        value = call()
        times.append(time.process_time() - start)
    return value, float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000, help="of the Monte Carlo estimates")
    parser.add_argument("--random", type=int, default=400, help="random settings for the spread of times")
    options = parse(parser)
    rows = []
    for noise, rate, steps, kappa in SETTINGS:
        run = (math.log(kappa), noise, rate, steps)
        truth = subsampled(*run, tolerance=1e-7)
        middle = math.exp((truth.log_lower + truth.log_upper) / 2)
        name = f"noise {noise}, q {rate}, T {steps}, baseline {kappa:g}"
        print(f"{name}: {middle:.8g} (relative width {truth.relative_width:.1e})")
        methods: list[tuple[str, Callable[[], float], int]] = [
            ("certified, width 1e-4", lambda run=run: subsampled(*run).upper, 5),
            ("certified, width 1e-6", lambda run=run: subsampled(*run, tolerance=1e-6).upper, 3),
        ]
        for interval in (1e-3, 1e-4):
            arguments = (noise, rate, steps, kappa, interval)
            methods.append((f"dp-accounting, {interval:g}", lambda a=arguments: by_accounting(*a), 1))
        if kappa * options.samples >= 10:
            for words, repaired in (("S3 Algorithm 1", False), ("repaired", True)):
                methods.append(
                    (
                        f"Monte Carlo, {words}",
                        lambda run=run, repaired=repaired: (
                            monte_carlo(*run, samples=options.samples, repaired=repaired).estimate or math.nan
                        ),
                        1,
                    )
                )
        for method, call, repeats in methods:
            value, seconds = timed(call, repeats)
            error = value / middle - 1
            print(f"  {method:<26} {value:.8g}  error {error:+.1e}  {seconds:.3f} s")
            rows.append(Row(f"error-{method}-{name}", f"relative error of {method}: {name}", error, seed=0))
            rows.append(Row(f"time-{method}-{name}", f"seconds of {method}: {name}", seconds, seed=0))
    rows += spread_of_times(options.random)
    write_rows(__file__, rows)


def spread_of_times(count: int) -> list[Row]:
    """Random settings over the promised range: q 0.001 to 1, T to 10,000, noise 0.3 to 30, baseline 1e-12 to 0.9."""
    generator = np.random.default_rng(0)
    times, widths = [], []
    for _ in range(count):
        low, high = np.log([0.001, 1, 0.3, 1e-12]), np.log([1, 10_000, 30, 0.9])
        rate, steps, noise, kappa = np.exp(generator.uniform(low, high)).tolist()
        start = time.process_time()
        ceiling = subsampled(math.log(kappa), noise, rate, round(steps))
        times.append(time.process_time() - start)
        widths.append(ceiling.relative_width)
    print(
        f"{count} random settings: median {np.median(times):.4f} s, worst {max(times):.3f} s, widest {max(widths):.1e}"
    )
    return [
        Row("median", f"median seconds of {count} random settings", float(np.median(times)), paper="goal 0.3", seed=0),
        Row("worst", f"worst seconds of {count} random settings", max(times), paper="goal 2", seed=0),
        Row("width", f"largest relative width of {count} random settings", max(widths), paper="goal 1e-4", seed=0),
    ]


if __name__ == "__main__":
    main()
