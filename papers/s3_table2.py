"""S3 Table 2 and Figure 11: advantage of one full-batch step for uniform priors of 10 and 100, by three ceilings.

    python papers/s3_table2.py [--samples 1000000]

Exact, with no sampling (S3's own row comes from samples); Guo et al.'s by Fano's inequality, to three decimals; and by
Fano's inequality with the mutual information of candidate and release by Monte Carlo, which S3 takes from 100,000
samples. S3 does not give the candidates' distances: all its numbers are those of orthonormal ones.
"""

import argparse
import math

import numpy as np
from lib.other_bounds import fano_advantage
from scipy.special import logsumexp

from lostwax.bounds import bound
from lostwax.seeds import generator
from lostwax_dev.results import Row, add_options, write_rows

NOISES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
OURS = {10: (0.737, 0.322, 0.189, 0.128, 0.099, 0.080), 100: (0.362, 0.077, 0.035, 0.024, 0.018, 0.012)}
GUO = {10: (0.976, 0.593, 0.380, 0.274, 0.213, 0.174), 100: (0.861, 0.346, 0.195, 0.131, 0.097, 0.076)}
SAMPLED = {10: (0.771, 0.397, 0.257, 0.184, 0.144, 0.118), 100: (0.549, 0.210, 0.120, 0.081, 0.062, 0.049)}
CHUNK = 20_000  # samples at once


def information(size: int, noise: float, samples: int, seed: int) -> tuple[float, float]:
    """Mutual information of a uniform candidate and its noisy gradient, orthonormal gradients; and 1.96 errors."""
    random, found = generator(seed, f"information-{size}-{noise}"), []
    for first in range(0, samples, CHUNK):
        products = random.standard_normal((min(CHUNK, samples - first), size))  # of the release and each candidate
        products[:, 0] += 1 / noise  # the one that was trained on
        found.append(math.log(size) + products[:, 0] / noise - logsumexp(products / noise, axis=1))
    every = np.concatenate(found)  # (samples,) log p(release | candidate) / p(release)
    return float(every.mean()), 1.96 * float(every.std()) / math.sqrt(samples)


def advantage(size: int, noise: float, nats: float) -> float:
    """By Fano's inequality: Guo et al.'s ceiling at the distance where their closed form has this much information."""
    nats = min(max(nats, 0.0), math.log(size) * (1 - 1e-12))
    distance = -2 * noise**2 * math.log((size * math.exp(-nats) - 1) / (size - 1))
    return fano_advantage([1 / size] * size, noise, squared_distance=max(distance, 0.0))


def rows_of(size: int, place: int, samples: int, seed: int) -> list[Row]:
    """One column of the table."""
    noise = NOISES[place]
    ceiling, by_fano = bound(noise_multiplier=noise, baseline=1 / size), fano_advantage([1 / size] * size, noise)
    low = (ceiling.lower - ceiling.baseline) / (1 - ceiling.baseline)
    nats, error = information(size, noise, samples, seed)
    sampled, *ends = (advantage(size, noise, one) for one in (nats, nats - error, nats + error))
    name = f"advantage, prior {size}, noise {noise}"
    by_samples = f"Fano {name}, information by Monte Carlo ({samples:,} samples)"
    paper = SAMPLED[size][place]
    return [
        Row(f"exact-{size}-{noise}", f"exact {name}", ceiling.advantage, low, ceiling.advantage, OURS[size][place]),
        Row(f"fano-{size}-{noise}", f"Fano {name}", by_fano, by_fano, by_fano, GUO[size][place]),
        Row(f"sampled-{size}-{noise}", by_samples, sampled, *ends, paper, seed=seed),
    ]


def main() -> None:
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("--samples", type=int, default=100_000, help="for the information by Monte Carlo")
    made.add_argument("--seed", type=int, default=0, help="of the samples")
    add_options(made, {"samples": 100_000})
    options = made.parse_args()
    rows = [
        row
        for size in OURS
        for place in range(len(NOISES))
        for row in rows_of(size, place, options.samples, options.seed)
    ]
    for row in rows:
        print(f"{row.value:9.6f}  S3: {row.paper:5.3f}  {row.quantity}")
    write_rows(__file__, rows, options=options)


if __name__ == "__main__":
    main()
