"""Does a shadow model cost the same among a million as among ten thousand, stored and read back in bounded memory?

    python benchmarks/store_scales.py [--models 1000000] [--store FOLDER]
    python benchmarks/store_scales.py --ray

Linear heads on digits: 16 features (the 8 x 8 pixels averaged in squares of four), 10 classes, 170 parameters, trained
on one secret and 9 known records by gradient descent, 16 steps, lr 0.5, 2,048 heads a tile. One store is topped up to
10,000, 100,000 and 1,000,000 models by `simulate`, and read back in order and shuffled. The cost is the processor time
of this process, which a busy machine disturbs less than the clock does; one thread, for two that wait for each other
on a busy machine burn several times the work.
`--ray` asks what a cluster of two workers on this machine takes to start, and how much faster it then is than one.
Goals: peak memory <= 2 GB; cost per shadow model within 25 % from 10 thousand to a million.
"""

import argparse
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import lostwax as lw
from lostwax.shadows import Game, Local, Ray, Store
from lostwax_dev.results import Row, parse, write_rows

TILE, CLASSES, FEATURES = 2_048, 10, 16


def through_squares(records):
    """A stand-in for a backbone: the mean of every square of 2 x 2 pixels."""
    return replace(records, features=nn.functional.avg_pool2d(records.x, 2).flatten(1))


def cost(work):
    """What work() returns, processor seconds and seconds."""
    start, processor = time.perf_counter(), time.process_time()
    result = work()
    return result, time.process_time() - processor, time.perf_counter() - start


def read(chunks):
    """How many models come, and the largest number of models at a time."""
    total, largest = 0, 0
    for cohort, release in chunks:
        assert release.flat().isfinite().all()
        total, largest = total + len(cohort), max(largest, len(cohort))
    return total, largest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=1_000_000)
    parser.add_argument("--store", help="folder to keep the store in; else it is thrown away")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    known, prior = (through_squares(part) for part in lw.records.digits().split(9, 1_500, seed=0))
    trainer = lw.GD(lr=0.5, steps=16, init=lw.inits.LeCunNormal(), tile=TILE)
    game = Game(nn.Linear(FEATURES, CLASSES), trainer, lw.Informed(known), prior, 0)
    list(Local().parts(game, [range(TILE)]))  # to warm up
    if options.ray:
        print(f"written to {write_rows(__file__, measure_ray(game), keep_others=True)}")
        return
    sizes = [size for size in (10_000, 100_000) if size < options.models] + [options.models]
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(game, options.store or folder, sizes)
    print(f"written to {write_rows(__file__, rows, keep_others=True)}")


def measure(game, where, sizes):
    store, rows, done, costs = Store(where), [], 0, {}
    for size in sizes:
        before = len(store.open(game).present()) * TILE
        _, processor, seconds = cost(lambda size=size: store.simulate(game, models=size, engine=Local()))
        done = len(store.open(game).present()) * TILE
        costs[size] = 1e6 * processor / (done - before)
        print(f"to {size:>9,}: {costs[size]:6.1f} us per shadow model, {(done - before) / seconds:8,.0f} shadows/s")
        what = f"topped up from {before:,} to {done:,}"
        rows.append(
            Row(
                f"cost.{size}",
                f"us of processor time per shadow model, trained and stored, {what}",
                costs[size],
                seed=0,
            )
        )
        rows.append(Row(f"rate.{size}", f"shadows/s, {what}", (done - before) / seconds, seed=0))
    most, ratio = max(sizes), costs[max(sizes)] / costs[min(sizes)]
    rows.append(
        Row("flat", f"cost per shadow model, {most:,} / {min(sizes):,}", ratio, paper="goal 0.75 to 1.25", seed=0)
    )

    alone = min(most, 50 * TILE)
    _, processor, _ = cost(lambda: read(Local(TILE)(game._replace(seed=0), alone)))
    share = 1 - 1e6 * processor / alone / costs[most]
    rows.append(Row("store share", "share of the cost that is the store's, not training's", share, seed=0))

    stored = store.open(game)
    for name, chunks in (("in order", stored.read(most)), ("shuffled", stored.shuffled(most, batch=1_024, seed=0))):
        (total, _), processor, seconds = cost(lambda chunks=chunks: read(chunks))
        assert total == most
        rows.append(
            Row(f"read {name}", f"us of processor time per shadow model, read {name}", 1e6 * processor / most, seed=0)
        )
        print(f"read {name}: {1e6 * processor / most:.2f} us per shadow model, {most / seconds:,.0f} shadows/s")

    files = [path for path in Path(where).rglob("*") if path.is_file()]
    size, peak = sum(path.stat().st_size for path in files), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"flat: {ratio:.2f}; the store's share {share:.0%}; {size / done:.0f} bytes per model in {len(files)} files")
    print(f"peak memory {peak / 1e9:.2f} GB")
    rows.append(
        Row(
            "bytes",
            f"bytes per shadow model on disk (170 parameters, float32; {len(files)} files)",
            size / done,
            seed=0,
        )
    )
    rows.append(Row("peak", "peak memory, GB (10^9 bytes)", peak / 1e9, paper="goal <= 2", seed=0))
    return rows


def measure_ray(game):
    """How long until the first chunk comes, and the rate of two workers beside that of this process."""
    many = [range(number * TILE, (number + 1) * TILE) for number in range(50)]
    cluster = Ray(workers=2)
    _, _, start = cost(lambda: read(cluster.parts(game, many[:2])))
    _, _, there = cost(lambda: read(cluster.parts(game, many)))
    _, _, here = cost(lambda: read(Local().parts(game, many)))
    print(f"Ray starts in {start:.1f} s; two workers are {here / there:.2f} times as fast as one process")
    return [
        Row("ray start", "s until the first chunk from a new cluster of two workers", start, seed=0),
        Row("ray speedup", f"two workers / this process, {50 * TILE:,} heads", here / there, seed=0),
    ]


if __name__ == "__main__":
    main()
