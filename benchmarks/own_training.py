"""What does OwnTraining cost beside the bare loop, and how many retrainings per second do processes add?

    python benchmarks/own_training.py [--models 60] [--processes 2] [--repetitions 40]

A small convolutional net with batch norm and dropout, trained by Adam on shuffled mini-batches of 60 digits, 3 epochs,
each model on one thread. The bare loop puts the records together, seeds torch, copies the net and calls the same
function with the same seed. OwnTraining also checks and copies the weights, and trains one of the models twice as a
check: all of this counts. A first turn warms up, starts the processes, and compares the models of all ways to the last
bit. Then the bare loop and OwnTraining take turns, in either order; several processes follow every fourth time. Rates
are medians.

The overhead is OwnTraining's CPU time over the bare loop's in the same turn, less one: the median over turns, with a
95 % interval of the median (order statistics). A shared machine changes its speed within seconds, so the overhead is
also given in units of a training: both times divided by the mean CPU time of their own calls of the function. That
hardly depends on other work, but assumes that the function itself is as fast in both.
Goals: both below 10 %, the same models for every way.
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
from lostwax.seeds import generator
from lostwax_dev.results import Row, parse, write_rows

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
    options = parse(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = lw.records.digits()
    known, secrets = digits[digits.y < 3].split(60, 60, seed=0)
    net, cohort = convolutional(), lw.Informed(known).deal(secrets, options.models, seed=0)
    seeds = [int(generator(0, "own training", index).integers(2**31)) for index in range(options.models)]
    calls = []  # CPU seconds of each call of the function

    def timed(net, x, y, seed):
        start = time.process_time()
        trained = train(net, x, y, seed)
        calls.append(time.process_time() - start)
        return trained

    def bare():
        trained = []
        for index, seed in enumerate(seeds):
            x, y = torch.cat([known.x, cohort.own.x[index]]), torch.cat([known.y, cohort.own.y[index]])
            torch.manual_seed(seed)
            trained.append(timed(deepcopy(net), x, y, seed))
        return trained

    alone, together = lw.OwnTraining(timed, processes=1), lw.OwnTraining(train, processes=options.processes)
    ways = {
        "bare loop": bare,
        "OwnTraining, one after the other": lambda: alone(net, cohort, seed=0),
        f"OwnTraining, {options.processes} processes": lambda: together(net, cohort, seed=0),
    }
    first, one, two = (way() for way in ways.values())
    states = [trained.state_dict() for trained in first]
    by_hand = torch.stack([torch.cat([state[name].flatten() for name in one.params]) for state in states])
    same = torch.equal(by_hand, one.flat()) and torch.equal(one.flat(), two.flat())
    rates, spent, inside = ({name: [] for name in ways} for _ in range(3))
    for turn in range(options.repetitions):
        pair = list(ways)[:2]
        for name in [*pair[:: -1 if turn % 2 else 1], *([] if turn % FOURTH else list(ways)[2:])]:
            calls.clear()
            start, cpu = time.perf_counter(), time.process_time()
            ways[name]()
            spent[name].append(time.process_time() - cpu)
            rates[name].append(options.models / (time.perf_counter() - start))
            inside[name].append(statistics.mean(calls) if calls else None)
    rows, middle = [], {name: statistics.median(of) for name, of in rates.items()}
    for name, of in rates.items():
        print(f"{name:<36}{middle[name]:8.1f} models/s   ({min(of):.1f} to {max(of):.1f})")
        rows.append(Row(name, f"models/s, {name}", middle[name], min(of), max(of), seed=0))
    bare_time, own_time = (np.array(spent[name]) for name in list(ways)[:2])
    bare_call, own_call = (np.array(inside[name]) for name in list(ways)[:2])
    overheads = {"share of CPU time": own_time / bare_time - 1}
    overheads["in units of a training"] = (own_time / own_call) / (bare_time / bare_call) - 1
    for name, (unit, values) in zip(("overhead", "overhead in trainings"), overheads.items(), strict=True):
        overhead, (low, high) = float(np.median(values)), median_interval(values) or (None, None)
        what = f"OwnTraining's overhead beside the bare loop, {unit}"
        rows.append(Row(name, what, overhead, low, high, paper="goal < 0.1", seed=0))
        ends = "" if low is None else f" ({low:.1%} to {high:.1%})"
        print(f"overhead beside the bare loop, {unit}: {overhead:.1%}{ends} (goal < 10 %)")
    rows.append(Row("same", "the same models for every way", str(same), paper="goal True", seed=0))
    print(f"{options.processes} processes: {list(middle.values())[2] / list(middle.values())[1]:.2f} times one process")
    print(f"the same models: {same}")
    print(f"written to {write_rows(__file__, rows)}")


if __name__ == "__main__":
    main()
