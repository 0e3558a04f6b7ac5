"""What more workers of a cluster gain, and what the driver takes.

    python benchmarks/cluster.py [--part scaling|heads]

All on this machine: models that are trained for about 0.1 s each (a training function, an MLP on 200 digits) by 1, 2
and 4 workers; processor time of workers per model, which should stay the same, and of this process, which deals,
receives and hands on all models. Wall times are the best of several runs, since other processes share the cores; the
range is that of all runs. Workers have the priority of this process, Ray's default is nice 15.

On paper, from what linear heads cost that are trained by two workers and written to a store: how long a billion of them
take by up to 1,000 workers, and what limits it. One driver writes all; without Ray, `lw.simulate(..., part=(i, n))`
has n writers.
"""

import argparse
import os
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray's workers give way to all others, which would be measured

import psutil
import ray
import torch

import lostwax as lw
from lostwax.shadows import Game, Ray, Store
from lostwax_dev.results import Row, parse, write_rows

WORKERS, MODELS, STEPS, RUNS = (1, 2, 4), 32, 380, 4
HEAD = "a linear head of 650 parameters, stored"
HEADS = 40 * 2_048
BILLION, DISK = 1e9, 1e9  # models; bytes per second of a shared file system


def own(net, x, y, seed):
    """About 0.1 s of one core."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    order = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        optimiser.zero_grad()
        rows = torch.randint(len(x), (64,), generator=order)
        torch.nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
    return net


def workers():
    """The processes of the cluster that have trained."""
    every = psutil.Process().children(recursive=True)
    return [process for process in every if any("ray::" in part for part in process.cmdline()[:1])]


def processor_time():
    return sum(sum(process.cpu_times()[:2]) for process in workers())


def measured(train, models):
    """Wall seconds, processor seconds of all workers, and of this process, until all models are here."""
    before, driver, start = processor_time(), time.process_time(), time.perf_counter()
    assert sum(len(cohort) for cohort, _ in train()) == models
    wall, driver = time.perf_counter() - start, time.process_time() - driver
    return wall, processor_time() - before, driver


def trained(engine, game, models, seed):
    return engine(game._replace(seed=seed), models)


def scaling(known, prior):
    game = Game(lw.nets.mlp(64, 128, 10), lw.OwnTraining(own), lw.Informed(known), prior, 0)
    rows, alone = [], []
    for count in WORKERS:
        engine = Ray(workers=count)
        list(trained(engine, game, 16 * count, RUNS))  # every worker imports what it needs
        runs = [measured(partial(trained, engine, game, MODELS, seed), MODELS) for seed in range(RUNS)]
        ray.shutdown()
        walls, theirs, drivers = zip(*runs, strict=True)
        alone = alone or walls
        ratios = [wall / one for wall, one in zip(walls, alone, strict=True)]
        share = sum(drivers) / (sum(drivers) + sum(theirs))
        cpu = [each / MODELS for each in theirs]
        goal = "goal <= 0.6" if count == 2 else None
        rows += [
            Row(f"own.{count}.wall", f"{count} workers: s for {MODELS} models", min(walls), min(walls), max(walls)),
            Row(
                f"own.{count}.ratio",
                f"{count} workers: time over that of one worker, the best of {RUNS} runs each",
                min(walls) / min(alone),
                min(ratios),
                max(ratios),
                paper=goal,
            ),
            Row(f"own.{count}.cpu", f"{count} workers: processor s per model", sum(cpu) / RUNS, min(cpu), max(cpu)),
            Row(f"own.{count}.driver", f"{count} workers: the driver's share of all processor time", share),
        ]
        shown(rows[-4:])
    feeds = sum(theirs) / sum(drivers)
    rows.append(Row("own.feeds", "workers that one driver can feed with models of 0.1 s, on paper", feeds))
    shown(rows[-1:])
    return rows


def on_paper(known, prior):
    """A billion heads: by the processor time of workers, of the driver, and by bytes."""
    trainer = lw.GD(lr=0.1, steps=20, tile=2_048, init=lw.inits.LeCunNormal())
    flat = [lw.Records(part.x.flatten(1), part.y) for part in (known, prior)]
    game = Game(torch.nn.Linear(64, 10), trainer, lw.Informed(flat[0]), flat[1], 0)
    engine = Ray(workers=2)
    list(trained(engine, game, 16 * 2_048, 1))
    with tempfile.TemporaryDirectory() as folder:
        _, theirs, driver = measured(partial(Store(folder).simulate, game, models=HEADS, engine=engine), HEADS)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()) / HEADS
    ray.shutdown()
    rows = [
        Row("heads.cpu", f"us of processor time of the workers per model, {HEAD}", 1e6 * theirs / HEADS),
        Row("heads.driver", f"us of processor time of the driver per model, {HEAD}", 1e6 * driver / HEADS),
        Row("heads.bytes", f"bytes per model, {HEAD}", size),
        Row("heads.feeds", f"workers that one driver can feed, on paper, {HEAD}", theirs / driver),
    ]
    for count in (1, 10, 100, 1_000):
        limits = {"workers": theirs / HEADS / count, "the driver": driver / HEADS, "a disk of 1 GB/s": size / DISK}
        parts = {"workers": (theirs + driver) / HEADS / count, "a disk of 1 GB/s": size / DISK}
        for name, limit, how in (("ray", limits, "on Ray"), ("parts", parts, "in parts")):
            slowest = max(limit, key=limit.__getitem__)
            hours = BILLION * limit[slowest] / 3_600
            words = f"h for a billion heads {how} by {count:,} workers, on paper; limited by {slowest}"
            rows.append(Row(f"billion.{name}.{count}", words, hours))
    shown(rows)
    return rows


def shown(rows):
    for row in rows:
        between = "" if row.low is None else f" ({row.low:.3g} to {row.high:.3g})"
        print(f"{row.quantity}: {row.value:.3g}{between}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("scaling", "heads"), help="only this one, beside earlier rows")
    part = parse(parser).part
    torch.set_num_threads(1)
    known, prior = lw.records.digits().split(200, 500, seed=0)
    load = os.getloadavg()[0]
    rows = []
    if part != "heads":
        rows.append(Row("load", "processes that want a core when the run begins", load))
        shown(rows)
        rows += scaling(known, prior)
    if part != "scaling":
        rows += on_paper(known, prior)
    rows = [replace(row, seed=0) for row in rows]
    print(f"written to {write_rows(__file__, rows, keep_others=part is not None)}")


if __name__ == "__main__":
    main()
