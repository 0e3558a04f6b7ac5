"""What more workers of a cluster gain, and what the driver takes.

    python benchmarks/cluster.py

All on this machine: models that are trained for about 0.1 s each (a training function, an MLP on 200 digits) by 1, 2
and 4 workers; processor time of workers per model, which should stay the same, and of this process, which deals,
receives and hands on all models. What the driver can feed at most follows from it, on paper: workers that train without
pause = (workers' processor time) / (driver's).
"""

import argparse
import os
import time

import psutil
import ray
import torch

import lostwax as lw
from lostwax.shadows import Game, Ray
from lostwax_dev.results import Row, parse, write_rows

WORKERS, MODELS, STEPS = (1, 2, 4), 32, 110
HEAD = "a linear head of 650 parameters"


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


def measured(game, models, count):
    """Wall seconds, processor seconds of all workers, and of this process, for one game on warm workers."""
    engine = Ray(workers=count)
    warm = game._replace(seed=1)
    list(engine(warm.trainer, warm.net, warm.threat, warm.pool, models=4 * count, seed=1))
    before, driver, start = processor_time(), time.process_time(), time.perf_counter()
    chunks = list(engine(game.trainer, game.net, game.threat, game.pool, models=models, seed=game.seed))
    wall, driver = time.perf_counter() - start, time.process_time() - driver
    assert sum(len(cohort) for cohort, _ in chunks) == models
    return wall, processor_time() - before, driver, len(chunks)


def scaling():
    known, prior = lw.records.digits().split(200, 500, seed=0)
    net = lw.nets.mlp(64, 128, 10)
    game = Game(net, lw.OwnTraining(own), lw.Informed(known), prior, 0)
    load = os.getloadavg()[0]
    rows, alone = [Row("load", "processes that want a core when the run begins", load, seed=0)], None
    for count in WORKERS:
        wall, theirs, driver, _ = measured(game, MODELS, count)
        ray.shutdown()
        alone = alone or wall
        for name, quantity, value, goal in (
            ("wall", "s for 32 models", wall, None),
            ("ratio", "time over that of one worker", wall / alone, "goal <= 0.6" if count == 2 else None),
            ("cpu", "processor s of the workers per model", theirs / MODELS, None),
            ("driver", "share of all processor time that is the driver's", driver / (driver + theirs), None),
            ("feeds", "workers that the driver can feed, on paper", theirs / driver, None),
        ):
            print(f"{count} workers: {quantity}: {value:.3g}", flush=True)
            rows.append(Row(f"own.{count}.{name}", f"{count} workers: {quantity}", value, paper=goal, seed=0))
    heads = Game(torch.nn.Linear(64, 10), lw.GD(lr=0.1, steps=20, tile=2_048, init=lw.inits.LeCunNormal()), *game[2:])
    flat = heads._replace(
        threat=lw.Informed(lw.Records(known.x.flatten(1), known.y)), pool=lw.Records(prior.x.flatten(1), prior.y)
    )
    models = 20 * 2_048
    _, theirs, driver, _ = measured(flat, models, 2)
    ray.shutdown()
    for name, quantity, value in (
        ("cpu", f"us of processor time of the workers per model, {HEAD}", 1e6 * theirs / models),
        ("driver", f"us of processor time of the driver per model, {HEAD}", 1e6 * driver / models),
        ("feeds", f"workers that the driver can feed, on paper, {HEAD}", theirs / driver),
        ("billion", f"h of the driver for a billion models, on paper, {HEAD}", 1e9 * driver / models / 3_600),
    ):
        print(f"{quantity}: {value:.3g}", flush=True)
        rows.append(Row(f"heads.{name}", quantity, value, seed=0))
    return rows


def main():
    parse(argparse.ArgumentParser(description=__doc__.splitlines()[0]))
    torch.set_num_threads(1)
    print(f"written to {write_rows(__file__, scaling())}")


if __name__ == "__main__":
    main()
