"""How many transfer-learned heads per second, in Gram space, stacked, and as S2 trains them: one after the other?

    python benchmarks/heads_per_second.py [--records 10] [--repetitions 7]
    python benchmarks/heads_per_second.py --device cuda

The heads of S2, Table 3, MNIST: Linear(256, 10) on N records, equally many of each class; gradient descent on all of
them, lr 0.01, weight decay 1e-5, 26 + 3 N / 5 epochs. Features are made up (the time does not depend on them), of about
the size of a ReLU layer's. All ways begin at the same weights, given to them, and take turns; ratios are of medians, of
CPU time or, on a GPU, of the clock's. The weights after training are compared. "dealt and drawn" is the whole of a
shadow: its records drawn from a pool of 10,000, its own random start, training.
Goals at N = 10: on one core >= 100 times one by one, weights equal to 1e-6; on one H200 >= 1,000,000 heads per second.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, replace

import torch
from torch import nn

import lostwax as lw
from lostwax.games import Records
from lostwax.inits import Normal
from lostwax.trainers import GD
from lostwax_dev.results import Row, parse, write_rows

FEATURES, CLASSES, SIGMA = 256, 10, 0.002
FEW = 20  # heads, one by one
HEADS, TILE = {"cpu": 2_048, "cuda": 131_072}, {"cpu": 512, "cuda": 16_384}


@dataclass(frozen=True)
class Starts:
    """Weights to begin at, one a model, where the training takes place."""

    weight: torch.Tensor  # (m, c, d)

    def __call__(self, net, numbers, *, seed):
        """Those of the models with these numbers."""
        weight = self.weight[numbers]
        return {"weight": weight, "bias": weight.new_zeros(weight.shape[:2])}


def one_by_one(trainer, cohort, heads):
    """S2's way: a module, torch.optim, a loop. The heads it trained."""
    trained = []
    for row in range(heads):
        x, y, start = cohort.own.inputs[row], cohort.own.y[row], trainer.init.weight[row]
        head = nn.Linear(FEATURES, CLASSES, device=x.device)
        with torch.no_grad():
            head.weight.copy_(start)
            head.bias.zero_()
        optimiser = torch.optim.SGD(head.parameters(), lr=trainer.lr, weight_decay=trainer.weight_decay)
        loss = nn.CrossEntropyLoss()
        for _ in range(trainer.steps):
            optimiser.zero_grad()
            loss(head(x), y).backward()
            optimiser.step()
        trained.append(head)
    return trained


def seconds(work, device):
    """On a GPU by the clock; on one core of a machine that may have other work, what the work itself took of it."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begin = clock()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - begin


def contest(contests, repetitions, device):
    """Heads per second of each, in turns; the first turn warms up."""
    rates = {name: [] for name in contests}
    for turn in range(repetitions + 1):
        for name, (heads, work) in contests.items():
            taken = seconds(work, device)
            if turn > 0:
                rates[name].append(heads / taken)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--records", type=int, default=10, help="N, a multiple of 10")
    parser.add_argument("--repetitions", type=int, default=7)
    options = parse(parser)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    device, n, heads = options.device, options.records, HEADS[options.device]

    features = torch.randn(10_000, FEATURES).relu()
    pool = Records(features[:, :1], torch.arange(10_000) % CLASSES, features).to(device)
    net, threat = nn.Linear(FEATURES, CLASSES), lw.Weak(size=n)
    cohort = threat.deal(pool, heads, seed=0)
    starts = Starts(SIGMA * torch.randn(heads, CLASSES, FEATURES, device=device))
    given = GD(lr=0.01, weight_decay=1e-5, steps=26 + 3 * n // 5, init=starts, tile=TILE[device])
    drawn = replace(given, init=Normal(SIGMA, seed=None))
    few = cohort[:FEW]
    contests = {
        "Gram space": (heads, lambda: given(net, cohort, seed=0)),
        "stacked": (heads, lambda: given.differentiable(net, cohort, seed=0)),
        "one by one": (FEW, lambda: one_by_one(given, few, FEW)),
        "dealt and drawn": (heads, lambda: drawn(net, threat.deal(pool, heads, seed=0), seed=0)),
    }
    rates = contest(contests, options.repetitions, device)
    rate = {name: statistics.median(values) for name, values in rates.items()}

    release, alone = given(net, cohort, seed=0), one_by_one(given, few, FEW)
    apart = max(
        float((release.params[name][row] - value.detach()).abs().max())
        for row, head in enumerate(alone)
        for name, value in head.named_parameters()
    )
    where = torch.cuda.get_device_name() if device == "cuda" else "one core"
    setting = f"N = {n}, {given.steps} epochs, {where}, {given.tile_size(net, few)} heads a tile"
    print(f"{setting}, medians of {options.repetitions}")
    for name, values in rates.items():
        print(f"  {name:<16}{rate[name]:12.1f} heads/s   ({min(values):.1f} to {max(values):.1f})")
    print(f"  Gram space is {rate['Gram space'] / rate['one by one']:.0f} times one by one, weights {apart:.1e} apart")

    ways = {
        "Gram space": f"heads/s, in Gram space ({setting})",
        "stacked": "heads/s, stacked",
        "one by one": "heads/s, one by one with torch.optim, as S2",
        "dealt and drawn": "heads/s, in Gram space, with records dealt and private starts drawn",
    }
    prefix = f"{'gpu ' if device == 'cuda' else ''}N={n} "
    rows = [Row(prefix + name, ways[name], rate[name], min(of), max(of), seed=0) for name, of in rates.items()]
    if device == "cuda" and n == CLASSES:
        rows[0] = replace(rows[0], paper="goal >= 1000000")
    goal = "goal >= 100" if device == "cpu" and n == CLASSES else None
    speedup = rate["Gram space"] / rate["one by one"]
    rows.append(Row(prefix + "speedup", f"Gram space / one by one, N = {n}", speedup, paper=goal, seed=0))
    what = f"largest difference of a weight, Gram space and one by one, N = {n}"
    rows.append(Row(prefix + "apart", what, apart, paper="goal <= 1e-6", seed=0))
    print(f"written to {write_rows(__file__, rows, keep_others=True)}")


if __name__ == "__main__":
    main()
