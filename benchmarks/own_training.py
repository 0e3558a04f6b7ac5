"""What does OwnTraining cost beside the bare loop, and how many retrainings per second do processes add?

    python benchmarks/own_training.py [--models 60] [--processes 2] [--repetitions 40]

A small convolutional net with batch norm and dropout, trained by Adam on shuffled mini-batches of 60 digits, 3 epochs,
each model on one thread. The bare loop copies the net and calls the same function. Processes are started before the
clock runs. Ways take turns, several processes every fourth time; rates are medians. The overhead is of CPU time, which
other work on the machine changes little: the median over repetitions of OwnTraining's time over the bare loop's, the
two next to each other and in either order, with a 95 % interval of the median (order statistics). One of the models is
trained twice, as a check: this is part of it. The models of all ways are compared, to the last bit.
Goals: OwnTraining's overhead below 10 %, the same models for every number of processes.
"""

import argparse
import statistics
import time
from copy import deepcopy

import numpy as np
import torch
from torch import nn

import lostwax as lw
from lostwax.metrics.estimate import median_interval
from lostwax.reports.results import Row, write_rows

FOURTH = 4  # turn in which several processes take part


def convolutional():
    """827 numbers are released: 795 weights and 32 running averages."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 3)),
    )


def train(net, x, y, seed):
    """An ordinary loop."""
    net.train()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(3):
        for batch in torch.randperm(len(x)).split(16):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimiser.step()
    return net


def main():
    """Print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = lw.records.digits()
    known, secrets = digits[digits.y < 3].split(60, 60, seed=0)
    net, cohort = convolutional(), lw.Informed(known).deal(secrets, options.models, seed=0)

    def bare():
        for index in range(len(cohort)):
            x, y = torch.cat([known.x, cohort.own.x[index]]), torch.cat([known.y, cohort.own.y[index]])
            torch.manual_seed(index)
            train(deepcopy(net), x, y, index)

    released = {}

    def own(count):
        released[count] = lw.OwnTraining(train, processes=count)(net, cohort, seed=0).flat()

    ways = {"bare loop": bare, "OwnTraining, one after the other": lambda: own(1)}
    ways[f"OwnTraining, {options.processes} processes"] = lambda: own(options.processes)
    rates, spent = {name: [] for name in ways}, {name: [] for name in ways}
    for turn in range(options.repetitions + 1):  # the first warms up
        for name in list(ways)[: 2 if turn > 1 and turn % FOURTH else 3][:: 1 if turn % 2 else -1]:
            work = ways[name]
            start, cpu = time.perf_counter(), time.process_time()
            work()
            if turn:
                spent[name].append(time.process_time() - cpu)
                rates[name].append(options.models / (time.perf_counter() - start))
    middle = {name: statistics.median(of) for name, of in rates.items()}
    for name, of in rates.items():
        print(f"{name:<36}{middle[name]:8.1f} models/s   ({min(of):.1f} to {max(of):.1f})")
    one, two = list(middle.values())[1:]
    bare_times, own_times = (np.array(of) for of in list(spent.values())[:2])
    overheads = own_times / bare_times - 1
    overhead, (low, high) = float(np.median(overheads)), median_interval(overheads) or (None, None)
    same = torch.equal(released[1], released[options.processes])
    rows = [Row(name, f"models/s, {name}", middle[name], min(of), max(of), seed=0) for name, of in rates.items()]
    what = "OwnTraining's overhead beside the bare loop, share of CPU time"
    rows.append(Row("overhead", what, overhead, low, high, paper="goal < 0.1", seed=0))
    rows.append(Row("same", "the same models for every number of processes", str(same), paper="goal True", seed=0))
    ends = "" if low is None else f" ({low:.1%} to {high:.1%})"
    print(f"overhead beside the bare loop: {overhead:.1%}{ends} of CPU time (goal < 10 %)")
    print(f"{options.processes} processes: {two / one:.2f} times one after the other")
    print(f"the same models: {same}")
    print(f"written to benchmarks/results/{write_rows(__file__, rows).name}")


if __name__ == "__main__":
    main()
