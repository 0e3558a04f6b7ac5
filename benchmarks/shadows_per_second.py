"""How many shadow models a second, stacked and one by one, beside what this machine's matrix products allow?

    python benchmarks/shadows_per_second.py [--data FOLDER] [--repetitions 7] [--threads 2]

The victim of S1: MNIST, 784-10-10, ELU, 1,000 known records and one secret, full-batch gradient descent, lr 0.2,
momentum 0.9, 100 epochs. The limit is the two large products alone, (m h, d) (d, n) forward and (m h, n) (n, d)
backward, at the shapes of the stacked training. The three take turns; ratios are of medians. Run it on a quiet machine:
threads that wait for each other lose many times what a neighbour takes.
Goals on two CPU cores: >= 60 % of the limit, >= 3 times one by one.
"""

import argparse
import statistics
import time

import torch

import lostwax as lw
from lostwax.nets import mlp
from lostwax.records import digits
from lostwax.reports.results import Row, write_rows
from lostwax.threats import Informed
from lostwax.trainers import GD
from lostwax.types import Records

KNOWN, HIDDEN, STEPS = 1_000, 10, 100


def images(folder):
    """Real MNIST where there is a folder that holds it, else the embedded digits enlarged to 28 x 28."""
    try:
        return "MNIST", lw.records.mnist(root=folder)
    except FileNotFoundError:
        small = digits()
        x = torch.nn.functional.interpolate(small.x.reshape(-1, 1, 8, 8), size=28, mode="bilinear")
        return "digits enlarged to 28 x 28", Records(x, small.y)


def one_by_one(trainer, cohort, models):
    """What one writes by hand: a module, torch.optim, a loop."""
    for row in range(models):
        x = torch.cat([cohort.shared.x, cohort.own.x[row]]).flatten(1)
        y = torch.cat([cohort.shared.y, cohort.own.y[row]])
        net = mlp(784, HIDDEN, 10)
        optimiser = torch.optim.SGD(net.parameters(), lr=trainer.lr, momentum=trainer.momentum)
        for _ in range(trainer.steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()


def products(weights, deltas, x):
    for _ in range(STEPS):
        weights @ x.mT  # (m h, n)
        deltas @ x  # (m h, d)


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of mnist.npz; else LOSTWAX_DATA")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    source, records = images(options.data)
    known, pool = records.split(KNOWN, 700, seed=0)
    net, trainer, threat = mlp(784, HIDDEN, 10), GD(lr=0.2, momentum=0.9, steps=STEPS), Informed(known)
    tile = trainer.tile_size(net, threat.deal(pool, 1, seed=0))
    cohort, few = threat.deal(pool, tile, seed=0), 2
    x = known.x.flatten(1)
    weights, deltas = torch.randn(tile * HIDDEN, x.shape[1]), torch.randn(tile * HIDDEN, len(x))

    contests = {
        "stacked": (tile, lambda: trainer(net, cohort, seed=0)),
        "one by one": (few, lambda: one_by_one(trainer, cohort, few)),
        "limit": (tile, lambda: products(weights, deltas, x)),
    }
    rates = {name: [] for name in contests}
    for turn in range(options.repetitions + 1):
        for name, (models, work) in contests.items():
            taken = seconds(work)
            if turn > 0:  # the first turn warms up
                rates[name].append(models / taken)

    rate = {name: statistics.median(values) for name, values in rates.items()}
    of_limit, speedup = rate["stacked"] / rate["limit"], rate["stacked"] / rate["one by one"]
    setting = f"{source}, {options.threads} threads, {tile} models a tile"
    print(f"{setting}, medians of {options.repetitions}")
    for name, values in rates.items():
        print(f"  {name:<11}{rate[name]:8.2f} models/s   ({min(values):.2f} to {max(values):.2f})")
    print(f"  {of_limit:.0%} of the limit (goal 60 %), {speedup:.1f} times one by one (goal 3)")

    quantities = {
        "stacked": f"models/s, stacked ({setting})",
        "one by one": "models/s, one by one with torch.optim",
        "limit": "models/s, the two large products alone",
    }
    rows = [
        Row(id=name, quantity=text, value=rate[name], low=min(rates[name]), high=max(rates[name]), seed=0)
        for name, text in quantities.items()
    ]
    rows.append(Row(id="of limit", quantity="stacked / products alone", value=of_limit, paper="goal >= 0.6", seed=0))
    rows.append(Row(id="speedup", quantity="stacked / one by one", value=speedup, paper="goal >= 3", seed=0))
    print(f"written to benchmarks/results/{write_rows(__file__, rows).name}")


if __name__ == "__main__":
    main()
