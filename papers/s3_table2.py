"""S3 Table 2: advantage of one full-batch step for uniform priors of 10 and 100, exact and by Fano's inequality.

To reach: the exact row with no sampling (the printed one comes from 100,000 samples), Guo et al.'s to three decimals.
"""

from lostwax.bounds import bound, fano_advantage
from lostwax.reports.results import Row, write_rows

NOISES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
OURS = {10: (0.737, 0.322, 0.189, 0.128, 0.099, 0.080), 100: (0.362, 0.077, 0.035, 0.024, 0.018, 0.012)}
GUO = {10: (0.976, 0.593, 0.380, 0.274, 0.213, 0.174), 100: (0.861, 0.346, 0.195, 0.131, 0.097, 0.076)}


def main() -> None:
    rows = []
    for size in OURS:
        ceilings = [bound(noise_multiplier=noise, baseline=1 / size) for noise in NOISES]
        fano = [fano_advantage([1 / size] * size, noise) for noise in NOISES]
        exact = [ceiling.advantage for ceiling in ceilings]
        print(f"prior size {size}" + "".join(f"{f'sigma {noise}':>12}" for noise in NOISES))
        for title, values, digits in (
            ("exact", exact, 6),
            ("S3, printed", OURS[size], 3),
            ("difference", [a - b for a, b in zip(OURS[size], exact, strict=True)], 4),
            ("Fano", fano, 3),
            ("Guo, printed", GUO[size], 3),
        ):
            print(f"{title:<13}" + "".join(f"{value:12.{digits}f}" for value in values))
        for noise, ceiling, by_fano, ours, guo in zip(NOISES, ceilings, fano, OURS[size], GUO[size], strict=True):
            low = (ceiling.lower - ceiling.baseline) / (1 - ceiling.baseline)
            name = f"advantage, prior {size}, noise {noise}"
            rows.append(Row(f"exact-{size}-{noise}", f"exact {name}", ceiling.advantage, low, ceiling.advantage, ours))
            rows.append(Row(f"fano-{size}-{noise}", f"Fano {name}", by_fano, paper=guo))
    write_rows(__file__, rows)


if __name__ == "__main__":
    main()
