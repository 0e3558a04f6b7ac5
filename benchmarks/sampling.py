"""The loops people run: the certified ceiling of each sampling, its width and time, beside others' in one run.

Poisson sampling is compared with dp-accounting's loss distribution, sent through the same duality, and balls-in-bins
with sampled ratios and, with `--peer`, with Feldman and Shenfeld's PLD_accounting in an environment of its own. Of
shuffling, the best test between the pair of Chua et al. 2024 is sampled: its power is what a lower end could reach.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from dp_accounting.pld import privacy_loss_distribution

import lostwax as lw
from lostwax.bounds.random_batches import balls_in_bins
from lostwax_dev.results import Row, parse, write_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "papers"))
from lib.other_bounds import limits

SETTINGS = ((1.0, 100, 10, 0.1), (0.5, 1000, 1, 0.1))  # noise, steps per epoch, epochs, baseline
RECORDS = 50_000  # of the data set; a batch holds RECORDS / steps per epoch
AT_ONCE = 2_000_000  # normal numbers
LIMIT = 600  # seconds for a peer


def samplings(steps: int, epochs: int) -> dict[str, lw.bounds.Sampling]:
    rate, batch = 1 / steps, RECORDS // steps
    return {
        "Poisson": lw.bounds.Poisson(rate),
        "truncated Poisson": lw.bounds.TruncatedPoisson(rate, RECORDS, batch + math.ceil(7 * math.sqrt(batch))),
        "balls-in-bins": lw.bounds.BallsInBins(epochs),
        "balls-in-bins, drawn once": lw.bounds.BallsInBins(epochs, redrawn=False),
        "fixed size": lw.bounds.FixedSize(RECORDS, batch),
        "shuffled": lw.bounds.Shuffled(epochs),
        "cyclic": lw.bounds.Cyclic(epochs),
        "full batches": lw.bounds.FullBatch(),
    }


def by_accounting(noise: float, rate: float, steps: int, kappa: float) -> float:
    """Poisson sampling by dp-accounting, remove direction."""
    law = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=1e-4
    )
    levels = np.linspace(-5, 30, 20_001)
    deltas = law.self_compose(steps)._pmf_remove.get_delta_for_epsilon(levels)
    return float(np.min(deltas + np.exp(levels) * kappa))


def beside_peer(
    python: str, setting: str, noise: float, steps: int, epochs: int, kappa: float, grids: list[float]
) -> list[Row]:
    """Balls-in-bins by PLD_accounting: both ends, on finer and finer grids of losses until time is up."""
    script, rows = Path(__file__).parent / "peers" / "random_allocation.py", []
    for grid in grids:
        question = {"noise": noise, "steps": steps, "epochs": epochs, "baseline": kappa, "grid": grid}
        words = f"PLD_accounting (grid {grid:g}), balls-in-bins: {setting}"
        try:
            asked = subprocess.run(
                [python, str(script), json.dumps(question)], capture_output=True, text=True, check=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            print(f"  {words}: not within {LIMIT} s")
            rows.append(Row(f"peer-{grid:g}-{setting}", f"seconds, more than, {words}", float(LIMIT)))
            break
        found = json.loads(asked.stdout)
        seconds = found["seconds low"] + found["seconds high"]
        print(f"  {words}: {found['low']:.5f} to {found['high']:.5f}  {seconds:.1f} s")
        rows.append(Row(f"peer-{grid:g}-{setting}", words, found["high"], low=found["low"], high=found["high"]))
        rows.append(Row(f"time-peer-{grid:g}-{setting}", f"seconds, both ends, {words}", seconds))
    return rows


def sampled_losses(noise: float, steps: int, epochs: int, samples: int, *, of_pair: float | None = None) -> np.ndarray:
    """Log ratios of balls-in-bins under the noise alone; or of the pair of Chua et al., a step being moved by this."""
    generator = np.random.default_rng(0 if of_pair is None else round(of_pair))
    losses = np.zeros(samples)
    at_once = AT_ONCE // steps
    for _ in range(epochs):
        for first in range(0, samples, at_once):
            z = generator.standard_normal((min(at_once, samples - first), steps), dtype=np.float32)
            if of_pair is not None:
                z[:, 0] += of_pair / noise
            ratio = np.exp(z / noise - 1 / (2 * noise**2))
            loss = np.log(ratio.mean(1, dtype=float))
            if of_pair is not None:  # shifts of 2 against shifts of 1
                loss = np.log((ratio**2).mean(1, dtype=float)) - 1 / noise**2 - loss
            losses[first : first + at_once] += loss
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000_000, help="of the sampled comparisons")
    parser.add_argument("--random", type=int, default=300, help="random settings for the spread of times")
    parser.add_argument("--peer", help="the Python of an environment with PLD_accounting, to compare with")
    parser.add_argument("--grids", type=float, nargs="+", default=[0.1, 0.03], help="widths of its cells, ever finer")
    options = parse(parser)
    rows = []
    for noise, steps, epochs, kappa in SETTINGS:
        setting = f"noise {noise:g}, {steps} steps per epoch, {epochs} epochs, baseline {kappa:g}"
        print(setting)
        for name, sampling in samplings(steps, epochs).items():
            start = time.process_time()
            ceiling = lw.bound(noise_multiplier=noise, steps=steps * epochs, baseline=kappa, sampling=sampling)
            seconds = time.process_time() - start
            print(f"  {name:<20} {ceiling.lower:.5f} to {ceiling.upper:.5f}  {seconds:.3f} s")
            ends = {"low": ceiling.lower, "high": ceiling.upper}
            rows.append(Row(f"{name}-{setting}", f"certified ceiling, {name}: {setting}", ceiling.upper, **ends))
            rows.append(Row(f"width-{name}-{setting}", f"relative width, {name}: {setting}", ceiling.relative_width))
            rows.append(Row(f"time-{name}-{setting}", f"seconds, {name}: {setting}", seconds))
        start = time.process_time()
        value = by_accounting(noise, 1 / steps, steps * epochs, kappa)
        seconds = time.process_time() - start
        print(f"  dp-accounting, Poisson {value:.5f}  {seconds:.3f} s")
        rows.append(Row(f"accounting-{setting}", f"dp-accounting (1e-4), Poisson: {setting}", value))
        rows.append(Row(f"time-accounting-{setting}", f"seconds, dp-accounting (1e-4), Poisson: {setting}", seconds))

        if options.peer is not None:
            rows += beside_peer(options.peer, setting, noise, steps, epochs, kappa, options.grids)
        if options.samples == 0:
            continue
        start = time.process_time()
        ratios = np.exp(sampled_losses(noise, steps, epochs, options.samples))
        low, high = limits(ratios, kappa, 0.05 / 3)
        top = round(kappa * options.samples)
        value = 1 - float(np.sort(ratios)[:-top].sum()) / options.samples
        seconds = time.process_time() - start
        words = f"Monte Carlo of {options.samples:,}"
        print(f"  {words}, balls-in-bins {value:.5f} ({low:.5f} to {high:.5f})  {seconds:.1f} s")
        rows.append(Row(f"samples-{setting}", f"{words}, balls-in-bins: {setting}", value, low=low, high=high, seed=0))
        rows.append(Row(f"time-samples-{setting}", f"seconds, {words}, balls-in-bins: {setting}", seconds))

        few = options.samples // 4
        null, moved = (sampled_losses(noise, steps, epochs, few, of_pair=shift) for shift in (1.0, 2.0))
        power = float((moved > np.quantile(null, 1 - kappa)).mean())
        print(f"  best test of the pair of Chua et al., {few:,} samples: {power:.4f}")
        rows.append(
            Row(f"pair-{setting}", f"best test of Chua et al.'s pair, {few:,} samples: {setting}", power, seed=1)
        )
    write_rows(__file__, rows + (spread_of_times(options.random) if options.random else []), keep_others=True)


def spread_of_times(count: int) -> list[Row]:
    """Balls-in-bins over the promised range: T to 10,000, epochs to 100, noise 0.5 to 30, baseline 1e-6 to 0.9."""
    generator = np.random.default_rng(0)
    times, widths = [], []
    for _ in range(count):
        low, high = np.log([2, 1, 0.5, 1e-6]), np.log([10_000, 100, 30, 0.9])
        steps, epochs, noise, kappa = np.exp(generator.uniform(low, high)).tolist()
        start = time.process_time()
        ceiling = balls_in_bins(math.log(kappa), noise, round(steps), round(epochs))
        times.append(time.process_time() - start)
        widths.append(ceiling.relative_width)
    worst = {"worst": max(times), "width": max(widths)}
    print(f"{count} random settings: median {np.median(times):.3f} s, {worst}")
    of = f"of {count} random settings, balls-in-bins"
    return [
        Row("median", f"median seconds {of}", float(np.median(times)), seed=0),
        Row("worst", f"worst seconds {of}", max(times), paper="goal 2", seed=0),
        Row("width", f"largest relative width {of}", max(widths), paper="goal 1e-4", seed=0),
    ]


if __name__ == "__main__":
    main()
