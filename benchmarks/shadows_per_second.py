"""How many shadow models per second, stacked and one by one, beside what this machine's matrix products allow?

    python benchmarks/shadows_per_second.py [--data FOLDER] [--repetitions 7] [--threads 2]
    python benchmarks/shadows_per_second.py --device cuda [--attack 20000]

The victim of S1: MNIST, 784-10-10, ELU, full-batch gradient descent, lr 0.2, momentum 0.9, 100 epochs, on one secret
and 1,000 known records (on a GPU 10,000, as in S1). The limit is the two large products alone, (m h, d) (d, n) forward
and (m h, n) (n, d) backward, at the shapes of the stacked training. All take turns; ratios are of medians. Run it on a
quiet machine: threads that wait for each other lose many times what a neighbour takes.
Goals on two CPU cores: >= 60 % of the limit, >= 3 times one by one. On one H200: >= 3,000 models per second in TF32,
aiming at 5,000, with the same attack error as in float32: `--attack N` runs S1's game with N shadows of either kind.
"""

import argparse
import math
import statistics
import time
from dataclasses import replace

import torch

import lostwax as lw
from lostwax.games import Informed, Records
from lostwax.nets import mlp
from lostwax.records import digits
from lostwax.trainers import GD
from lostwax_dev.results import Row, parse, write_rows

HIDDEN, STEPS = 10, 100


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
        net = mlp(784, HIDDEN, 10).to(x.device)
        optimiser = torch.optim.SGD(net.parameters(), lr=trainer.lr, momentum=trainer.momentum)
        for _ in range(trainer.steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()


def products(weights, deltas, x):
    for _ in range(STEPS):
        weights @ x.mT  # (m h, n)
        deltas @ x  # (m h, d)


def seconds(work, device):
    begin = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def contest(contests, repetitions, device):
    """Models per second of each, in turns; the first turn warms up."""
    rates = {name: [] for name in contests}
    for turn in range(repetitions + 1):
        for name, (models, work) in contests.items():
            taken = seconds(work, device)
            if turn > 0:
                rates[name].append(models / taken)
    return rates


def attack_errors(records, known, shadows, trainer):
    """S1's game with this many shadow models of this trainer: the error of each of 1,000 targets."""
    known, prior, secrets = records.split(known, shadows, 1_000, seed=1)
    decoder = lw.decoders.MLPDecoder(width=2_048)
    attack = lw.RecoNN(decoder=decoder, mae=0.0, epochs=40, batch_size=256, lr=1e-3, patience=None, validation=0.05)
    net = mlp(784, HIDDEN, 10)
    return lw.audit(net, trainer=trainer, threat=Informed(known), attack=attack, prior=prior, secrets=secrets).errors


def compare_attacks(records, known, shadows, trainers):
    """The attack's mean error with either kind of shadow, and the paired difference."""
    errors = {name: attack_errors(records, known, shadows, trainer) for name, trainer in trainers.items()}
    tf32, float32 = errors["stacked"], errors["stacked, float32"]
    rows = []
    for name, values in {"TF32": tf32, "float32": float32, "TF32 minus float32": tf32 - float32}.items():
        mean, half = values.mean(), 1.96 * values.std(ddof=1) / math.sqrt(len(values))
        print(f"  attack MSE, {name}: {mean:.5f} ({mean - half:.5f} to {mean + half:.5f})")
        what = f"attack MSE, {name} ({shadows:,} shadows, {known:,} known, 1,000 targets)"
        rows.append(Row(f"gpu attack {name}", what, float(mean), float(mean - half), float(mean + half), seed=1))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of mnist.npz; else LOSTWAX_DATA")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--attack", type=int, metavar="SHADOWS", help="on a GPU: compare the attack in TF32 and float32"
    )
    options = parse(parser)
    torch.set_num_threads(options.threads)
    on_gpu, prefix = options.device == "cuda", "gpu " if options.device == "cuda" else ""

    source, records = images(options.data)
    records = records.to(options.device)
    n = 10_000 if on_gpu else 1_000
    known, pool = records.split(n, len(records) - n, seed=0)
    victim = {"lr": 0.2, "momentum": 0.9, "steps": STEPS, "init": lw.inits.LeCunNormal()}
    trainers = {"stacked": GD(**victim, tf32=on_gpu)} | ({"stacked, float32": GD(**victim)} if on_gpu else {})
    net, threat, few = mlp(784, HIDDEN, 10), Informed(known), 2
    tile = trainers["stacked"].tile_size(net, threat.deal(pool, 1, seed=0))
    cohort, x = threat.deal(pool, tile, seed=0), known.x.flatten(1)
    weights, deltas = (torch.randn(tile * HIDDEN, size, device=x.device) for size in (x.shape[1], n))
    torch.set_float32_matmul_precision("high" if on_gpu else "highest")  # of the limit; a trainer says what it uses
    contests = {name: (tile, lambda by=trainer: by(net, cohort, seed=0)) for name, trainer in trainers.items()} | {
        "one by one": (few, lambda: one_by_one(trainers["stacked"], cohort, few)),
        "limit": (tile, lambda: products(weights, deltas, x)),
    }
    rates = contest(contests, options.repetitions, options.device)

    rate = {name: statistics.median(values) for name, values in rates.items()}
    of_limit, speedup = rate["stacked"] / rate["limit"], rate["stacked"] / rate["one by one"]
    where = torch.cuda.get_device_name() if on_gpu else f"{options.threads} threads"
    setting = f"{source}, {n:,} known, {where}, {tile} models a tile"
    print(f"{setting}, medians of {options.repetitions}")
    for name, values in rates.items():
        print(f"  {name:<17}{rate[name]:9.2f} models/s   ({min(values):.2f} to {max(values):.2f})")
    print(f"  {of_limit:.0%} of the limit, {speedup:.1f} times one by one")

    goals = ("goal >= 3000", None, None) if on_gpu else (None, "goal >= 0.6", "goal >= 3")
    quantities = {
        "stacked": f"models/s, stacked{' in TF32' if on_gpu else ''} ({setting})",
        "stacked, float32": "models/s, stacked in float32",
        "one by one": "models/s, one by one with torch.optim",
        "limit": "models/s, the two large products alone",
    }
    rows = [
        Row(prefix + name, quantities[name], rate[name], min(rates[name]), max(rates[name]), seed=0) for name in rates
    ]
    rows[0] = replace(rows[0], paper=goals[0])
    rows.append(Row(prefix + "of limit", "stacked / products alone", of_limit, paper=goals[1], seed=0))
    rows.append(Row(prefix + "speedup", "stacked / one by one", speedup, paper=goals[2], seed=0))
    if options.attack:
        rows += compare_attacks(records, n, options.attack, trainers)
    print(f"written to {write_rows(__file__, rows, keep_others=True)}")


if __name__ == "__main__":
    main()
