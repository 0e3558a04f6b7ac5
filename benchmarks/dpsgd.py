"""How many DP-SGD models per second, stacked, and by Opacus one after the other?

    python benchmarks/dpsgd.py [--data FOLDER] [--repetitions 5] [--threads 2]

The victim of S3: MNIST, 784-10-10, ELU, C = 0.1; full batches of 1,000 records, and Poisson batches at a rate of 0.02
of 500 records. Rates are of steps: all take `--steps` of them. Opacus as its tutorials have it (PrivacyEngine, a data
loader), and, faster, its optimiser alone on batches that are handed to it as tensors, clipping by the gradient of every
record or by ghost norms. All take turns; ratios are of medians. Run it on a quiet machine.
Goals on two CPU cores: >= 50 times Opacus with full batches, >= 10 times with Poisson batches.
"""

import argparse
import statistics
import time
import warnings
from functools import partial
from itertools import chain, islice, repeat

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw
from lostwax.games import Records
from lostwax.nets import mlp
from lostwax_dev.results import Row, parse, write_rows

CLIP, NOISE = 0.1, 4.0
SETTINGS = {"full batches": (999, 1.0, 50), "Poisson batches": (499, 0.02, 10)}  # known records, rate, goal


def images(folder):
    """Real MNIST where there is a folder that holds it, else the embedded digits enlarged to 28 x 28."""
    try:
        return "MNIST", lw.records.mnist(root=folder)
    except FileNotFoundError:
        small = lw.records.digits()
        x = torch.nn.functional.interpolate(small.x.reshape(-1, 1, 8, 8), size=28, mode="bilinear")
        return "digits enlarged to 28 x 28", Records(x, small.y)


def by_opacus(cohort, trainer):
    """One model as Opacus trains it."""
    x, y = training_set(cohort)
    net, loss = mlp(784, 10, 10), torch.nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(x, y), batch_size=round(trainer.sample_rate * len(x)))
    model, private, loader = PrivacyEngine().make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=trainer.lr),
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        poisson_sampling=trainer.sample_rate < 1,
    )
    for inputs, labels in islice(chain.from_iterable(repeat(loader)), trainer.steps):
        private.zero_grad()
        loss(model(inputs), labels).backward()
        private.step()


def training_set(cohort):
    """Of the first model."""
    return torch.cat([cohort.shared.x, cohort.own.x[0]]), torch.cat([cohort.shared.y, cohort.own.y[0]])


def by_its_optimiser(cohort, trainer, ghost):
    """One model by Opacus's optimiser alone."""
    x, y = training_set(cohort)
    net = mlp(784, 10, 10)
    expected = trainer.sample_rate * len(x)
    sgd = torch.optim.SGD(net.parameters(), lr=trainer.lr)
    settings = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "expected_batch_size": expected}
    loss = torch.nn.CrossEntropyLoss()
    if ghost:
        model = GradSampleModuleFastGradientClipping(net, max_grad_norm=CLIP, use_ghost_clipping=True)
        private = DPOptimizerFastGradientClipping(sgd, **settings)
        loss = DPLossFastGradientClipping(model, private, loss)
    else:
        model, private = GradSampleModule(net), DPOptimizer(sgd, **settings)
    for _ in range(trainer.steps):
        rows = slice(None) if trainer.sample_rate == 1 else torch.rand(len(x)) < trainer.sample_rate
        private.zero_grad()
        loss(model(x[rows]), y[rows]).backward()
        private.step()


def contest(work, repetitions):
    """Steps of one model per second of each, in turns; the first turn warms up."""
    rates = {name: [] for name in work}
    for turn in range(repetitions + 1):
        for name, (steps, run) in work.items():
            begin = time.perf_counter()
            run()
            if turn > 0:
                rates[name].append(steps / (time.perf_counter() - begin))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of mnist.npz; else LOSTWAX_DATA")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")  # Opacus: a secure generator is off, as it is for all here
    source, records = images(options.data)
    net, rows = mlp(784, 10, 10), []
    for setting, (known, rate, goal) in SETTINGS.items():
        core, pool = records.split(known, 500, seed=0)
        start = lw.inits.LeCunNormal()
        fields = {"noise_multiplier": NOISE, "steps": options.steps, "sample_rate": rate, "init": start}
        trainer = lw.DPSGD(lr=1.0, clip=CLIP, **fields)
        threat = lw.Informed(core)
        models = trainer.tile_size(net, threat.deal(pool, 1, seed=0))
        cohort = threat.deal(pool, models, seed=0)
        work = {
            "stacked": (models * options.steps, partial(trainer, net, cohort, seed=0)),
            "Opacus": (options.steps, partial(by_opacus, cohort, trainer)),
            "its optimiser": (options.steps, partial(by_its_optimiser, cohort, trainer, ghost=False)),
            "its optimiser, ghost norms": (options.steps, partial(by_its_optimiser, cohort, trainer, ghost=True)),
        }
        rates = contest(work, options.repetitions)
        rate_of = {name: statistics.median(values) for name, values in rates.items()}
        print(f"{setting}: {source}, {known + 1:,} records, {options.threads} threads, {models} models a tile")
        for name, values in rates.items():
            print(f"  {name:<27}{rate_of[name]:9.1f} steps/s   ({min(values):.1f} to {max(values):.1f})")
            what = f"{setting}: steps of one model per second, {name} ({source}, {known + 1:,} records)"
            rows.append(Row(f"{setting} {name}", what, rate_of[name], min(values), max(values), seed=0))
        for name in list(work)[1:]:
            ratio = rate_of["stacked"] / rate_of[name]
            wanted = f"goal >= {goal}" if name == "Opacus" else None
            print(f"  {ratio:.1f} times {name}")
            rows.append(Row(f"{setting} over {name}", f"{setting}: stacked / {name}", ratio, paper=wanted, seed=0))
    print(f"written to {write_rows(__file__, rows)}")


if __name__ == "__main__":
    main()
