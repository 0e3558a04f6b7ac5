"""Is lostwax still as fast as README and docs say? Ten claims, each a ratio against a reference in the same run.

    python benchmarks/guard.py [--quick] [--strict] [--device cuda] [--claims NAME ...] [--record]

A ratio is the reference's seconds per unit over ours: larger is better, and it hardly depends on the machine. Ours and
the reference take turns, after one that warms up; the least time of each counts. Times are of the processor, on one
thread; on a GPU, by the clock. With `--device cuda`, the three claims about many models are run there, at its sizes.

The expected ratios are the rows of `results/guard.json`, with the machine and commit that measured them (`--record`, on
a quiet machine). The threshold is four fifths of them. The exit status is 1 if a ratio is less than half of what is
expected; with `--strict`, if it is below its threshold. About two minutes on one core, three on a GPU; `--quick`, which
`make test` runs, takes fewer turns of the same work, within a minute.
"""

import argparse
import contextlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by numpy's and torch's libraries when they are loaded

import heads_per_second
import numpy as np
import own_training
import shadows_per_second
import store_scales
import torch
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from torch import nn

import lostwax as lw
from bounds import by_accounting
from lostwax import demo
from lostwax.adapters.sklearn import released
from lostwax.attacks import ClosedForm
from lostwax.attacks.trees import revealed_by_trees
from lostwax.bounds.random_batches import subsampled
from lostwax.games import Cohort, Informed, Records
from lostwax.seeds import generator
from lostwax.shadows import Game, Local, Store
from lostwax.shadows.linear_response import SAMPLED_RECORDS
from lostwax.trainers.linear_response import BaseTrajectory
from lostwax.trainers.responses import Adjoints
from lostwax.trainers.stacked import flat
from lostwax_dev.results import Row, parse, read_rows, write_rows

RESULTS = Path(__file__).parent / "results" / "guard.json"
THRESHOLD, HALVED = 0.8, 0.5
LEAST, MOST = 2, 40  # turns
SECONDS, QUICK_SECONDS = 10.0, 2.0  # per claim, after which no turn begins


class Work(NamedTuple):
    """Something to time: how many units of it one call does."""

    call: Callable[[], object]
    units: int = 1


class Contest(NamedTuple):
    """Ours against the reference."""

    ours: Work
    reference: Work
    clock: Callable[[], float] = time.process_time


class Claim(NamedTuple):
    """What is claimed, and where."""

    name: str
    quantity: str
    where: str
    contest: Callable[[str], Contest]  # of a device


def clock_of(device):
    """Processor time; on a GPU the clock's, when all work there is done."""
    if device == "cpu":
        return time.process_time

    def synchronised():
        torch.cuda.synchronize()
        return time.perf_counter()

    return synchronised


def stacked(device):
    """S1's MNIST net, as in shadows_per_second.py."""
    n = 10_000 if device == "cuda" else 500
    known = Records(torch.rand(n, 1, 28, 28), torch.arange(n) % 10).to(device)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=100 if device == "cuda" else 10, init=lw.inits.LeCunNormal())
    net, threat = lw.nets.mlp(784, shadows_per_second.HIDDEN, 10), Informed(known)
    tile = trainer.tile_size(net, threat.deal(known, 1, seed=0))
    cohort, few = threat.deal(known, tile, seed=0), 2
    return Contest(
        Work(lambda: trainer(net, cohort, seed=0), tile),
        Work(lambda: shadows_per_second.one_by_one(trainer, cohort, few), few),
        clock_of(device),
    )


def gram_space(device):
    """S2's heads on ten records, as in heads_per_second.py."""
    heads, few, width = heads_per_second.HEADS[device], heads_per_second.FEW, heads_per_second.FEATURES
    features = torch.randn(10_000, width).relu()
    pool = Records(features[:, :1], torch.arange(10_000) % 10, features).to(device)
    cohort = lw.Weak(size=10).deal(pool, heads, seed=0)
    starts = heads_per_second.Starts(heads_per_second.SIGMA * torch.randn(heads, 10, width, device=device))
    trainer = lw.GD(lr=0.01, weight_decay=1e-5, steps=32, init=starts, tile=heads_per_second.TILE[device])
    net, some = nn.Linear(width, 10), cohort[:few]
    return Contest(
        Work(lambda: trainer(net, cohort, seed=0), heads),
        Work(lambda: heads_per_second.one_by_one(trainer, some, few), few),
        clock_of(device),
    )


def linear_response(device):
    """A computed model against a trained one, after the sweep; 32 directions."""
    width, known = (784, 10_000) if device == "cuda" else (64, 1_000)
    records = Records(torch.rand(2 * known, width), torch.arange(2 * known) % 10).to(device)
    known, pool = records[:known], records[known:]
    trainer, net = lw.GD(lr=0.2, momentum=0.9, steps=50, init=lw.inits.LeCunNormal()), lw.nets.mlp(width, 10, 10)
    base = BaseTrajectory.of(trainer, net, known)
    directions = torch.linalg.qr(torch.randn(flat(base.end).numel(), 32)).Q.mT.contiguous().to(device)
    adjoints = Adjoints.at_few_steps(base.quick().by_parts(), directions, pool[:SAMPLED_RECORDS])
    index = torch.arange(64, device=device)
    cohort = Cohort(known, pool[index.unsqueeze(1)], index)
    return Contest(
        Work(lambda: [adjoints(pool) for _ in range(5)], 5 * len(pool)),
        Work(lambda: trainer(net, cohort, seed=0), len(cohort)),
        clock_of(device),
    )


def closed_form(device):
    """One record of a logistic regression on digits against one fit of it."""
    X, y = load_digits(return_X_y=True)
    X = X / 16
    model = LogisticRegression(max_iter=1_000).fit(X, y)
    fitted = released(model, (X, y)).equation
    games = torch.arange(len(fitted.table))
    return Contest(
        Work(lambda: ClosedForm().leave_one_out(fitted, games), len(games)),
        Work(lambda: LogisticRegression(max_iter=1_000).fit(X, y)),
    )


def ceilings(device):
    """A certified ceiling of relative width 1e-4 against dp-accounting's at an interval of 1e-3."""
    run = 1.0, 0.01, 1_000
    return Contest(
        Work(lambda: [subsampled(np.log(0.01), *run) for _ in range(10)], 10),
        Work(lambda: by_accounting(*run, 0.01, 1e-3)),
    )


def trees(device):
    """One row of a random forest, the model read anew, against one prediction for one row."""
    X, y = load_diabetes(return_X_y=True)
    model = RandomForestRegressor(random_state=0).fit(X, y)

    def attack():
        table = released(model, (X, y))
        return [revealed_by_trees(part, torch.arange(len(X))) for part in table.parts if part.fitted.forest]

    return Contest(Work(attack, len(X)), Work(lambda: [model.predict(X[:1]) for _ in range(20)], 20))


def store(device):
    """Heads trained and stored against heads trained, as in store_scales.py."""
    known, prior = (store_scales.through_squares(part) for part in lw.records.digits().split(9, 1_500, seed=0))
    trainer = lw.GD(lr=0.5, steps=16, init=lw.inits.LeCunNormal(), tile=store_scales.TILE)
    game = Game(nn.Linear(store_scales.FEATURES, store_scales.CLASSES), trainer, Informed(known), prior, 0)
    models = 4 * store_scales.TILE

    def stored():
        with tempfile.TemporaryDirectory() as folder:
            Store(folder).simulate(game, models=models, engine=Local())

    def trained():
        store_scales.read(Local(store_scales.TILE)(game, models))

    return Contest(Work(stored, models), Work(trained, models))


def own_loop(device):
    """OwnTraining against the loop that it calls, as in own_training.py."""
    digits = lw.records.digits()
    known, secrets = digits[digits.y < 3].split(60, 60, seed=0)
    net, models = own_training.convolutional(), 40
    cohort = Informed(known).deal(secrets, models, seed=0)
    seeds = [int(generator(0, "own training", index).integers(2**31)) for index in range(models)]

    def bare():
        for index, seed in enumerate(seeds):
            x, y = torch.cat([known.x, cohort.own.x[index]]), torch.cat([known.y, cohort.own.y[index]])
            torch.manual_seed(seed)
            own_training.train(own_training.convolutional(), x, y, seed)

    trainer = lw.OwnTraining(own_training.train, processes=1)
    return Contest(Work(lambda: trainer(net, cohort, seed=0), models), Work(bare, models))


def processor_time_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def import_time(device):
    """`import lostwax`, which loads torch only when it is needed, against `import torch`, in new processes."""

    def python(code):
        return Work(lambda: subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True))

    return Contest(python("import lostwax"), python("import torch"), processor_time_of_children)


def small_demo(device):
    """The demo, made smaller, against twenty S1 nets trained one by one on 500 records."""
    known = Records(torch.rand(500, 1, 28, 28), torch.arange(500) % 10)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=20, init=lw.inits.LeCunNormal())
    cohort = Informed(known).deal(known, 20, seed=0)

    def ours():
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            demo.run(Path(folder), shadows=200, victims=20, epochs=1, inverted=1)

    return Contest(Work(ours), Work(lambda: shadows_per_second.one_by_one(trainer, cohort, 20)))


CLAIMS = [
    Claim("stacked", "stacked / one by one, S1's MNIST net", "docs/gpu.md", stacked),
    Claim("gram", "in Gram space / one by one, heads on ten records", "docs/gpu.md", gram_space),
    Claim("linear", "linear / trained models", "docs/linear_response.md", linear_response),
    Claim("closed form", "closed form per record / a fit, digits", "docs/overview.md", closed_form),
    Claim("ceilings", "ceilings / dp-accounting", "docs/bounds.md", ceilings),
    Claim("trees", "forest per row / a prediction", "docs/trees.md", trees),
    Claim("store", "stored / not stored heads", "docs/scaling.md", store),
    Claim("own training", "OwnTraining / the bare loop", "docs/nets.md", own_loop),
    Claim("import", "import of lostwax / of torch", "README.md", import_time),
    Claim("demo", "a small demo / twenty nets one by one", "README.md", small_demo),
]
ON_GPU = ("stacked", "gram", "linear")


def measured(contest, seconds):
    """The reference's seconds per unit over ours: the least of each, in turns; and the ratios of single turns."""
    times = {work: [] for work in ("ours", "reference")}
    begin = time.perf_counter()
    for turn in range(MOST + 1):
        for name in times:
            work = getattr(contest, name)
            start = contest.clock()
            work.call()
            taken = contest.clock() - start
            if turn > 0:
                times[name].append(taken / work.units)
        if turn >= LEAST and time.perf_counter() - begin > seconds:
            break
    ratios = [theirs / ours for ours, theirs in zip(times["ours"], times["reference"], strict=True)]
    return min(times["reference"]) / min(times["ours"]), ratios


def verdict(ratio, expected):
    """How a ratio stands to what is expected."""
    if expected is None:
        return "not recorded"
    share = ratio / expected
    return "halved" if share < HALVED else "below the threshold" if share < THRESHOLD else "ok"


def expected_ratios(device):
    """By name of the claim, as recorded on this kind of device."""
    rows = read_rows(RESULTS) if RESULTS.exists() else []
    return {row.id.partition(" on ")[0]: float(row.value) for row in rows if row.id.endswith(f" on {device}")}


def failed(verdicts, *, strict):
    return any(word == "halved" or (strict and word == "below the threshold") for word in verdicts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--claims", nargs="+", choices=[claim.name for claim in CLAIMS], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--strict", action="store_true", help="fail at the threshold, not only at half")
    parser.add_argument("--record", action="store_true", help="these ratios are what is expected from now on")
    options = parse(parser)
    torch.set_num_threads(1)
    seconds = QUICK_SECONDS if options.quick else SECONDS
    names = options.claims or [claim.name for claim in CLAIMS if options.device == "cpu" or claim.name in ON_GPU]
    expected, rows, verdicts = expected_ratios(options.device), [], []
    print(f"{'claim':<52}{'measured':>10}{'expected':>10}{'threshold':>11}  verdict")
    for claim in [claim for claim in CLAIMS if claim.name in names]:
        torch.manual_seed(0)
        with contextlib.redirect_stderr(io.StringIO()):  # progress
            ratio, ratios = measured(claim.contest(options.device), seconds)
        usual = expected.get(claim.name)
        verdicts.append(verdict(ratio, usual))
        columns = [f"{value:.3g}" if value else "" for value in (ratio, usual, usual and THRESHOLD * usual)]
        print(f"{claim.quantity:<52}{columns[0]:>10}{columns[1]:>10}{columns[2]:>11}  {verdicts[-1]}", flush=True)
        quantity = f"{claim.quantity} ({claim.where})"
        rows.append(Row(f"{claim.name} on {options.device}", quantity, ratio, min(ratios), max(ratios), seed=0))
    if options.record:
        write_rows(__file__, rows, keep_others=True)
    elif failed(verdicts, strict=options.strict):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
