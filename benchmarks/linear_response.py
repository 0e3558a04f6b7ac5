"""How many shadow models per second by linear response and by training, and do both teach the same attack?

    python benchmarks/linear_response.py --device cuda --data FOLDER [--rows mnist cifar ...] [--known 1000 5000 ...]
    python benchmarks/linear_response.py --data FOLDER --rows mnist --known 500 1000 2000 4000 --directions 32
    python benchmarks/linear_response.py --data FOLDER --rows mnist --known 10000 --directions 32 --parts 5000 2000 1000

Rows `mnist` (S1's MLP, 7,960 parameters), `mnist_slow` (the same at learning rate 0.01), `cifar` (S1's CNN, 55,208) and
`million` (an MLP of 1,068,810 on MNIST), for each number of known records: models trained per second; seconds of the
sweep over the directions; models computed per second after that; the steps of the sum; R² on trained models. Directions
are the principal ones of as many trained models. The cost of a computed model should not grow with the known records:
log-log slope within 0.1 of 0. Goal on one H200: >= 20,000 CIFAR models per second. With `--rank`, the same of the
semi-linear response; with `--parts`, R² of Hessians of that many known records at every step, and of all; with
`--sets`, R² on models trained with that many secret records, of the sum of their linear responses.

Rows that end in `_attack`: KernelRidge taught by computed and by trained models, on the same victims. Goal: errors
within 5 %.

Models are trained in float32, without TF32. On a CPU seconds are processor time, so that neighbours count little.
"""

import argparse
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Knowledge
from lostwax.shadows.linear_response import SAMPLED_RECORDS
from lostwax.trainers.linear_response import BaseTrajectory
from lostwax.trainers.responses import Adjoints, LeadingHessians, SemiLinear
from lostwax.trainers.stacked import flat
from lostwax_dev.results import Row, parse, write_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "papers"))
import s1_cifar
import s1_mnist

REPETITIONS = 3
DEFAULT = ("mnist", "cifar", "million", "mnist_attack")


class Setting(NamedTuple):
    """A net, and how it is trained."""

    title: str
    records: str  # a function of lw.records
    net: nn.Module
    trainer: lw.GD

    def split(self, known, options):
        """Known records and all others, on the device."""
        records = getattr(lw.records, self.records)("all", root=options.data)
        return (part.to(options.device) for part in records.split(known, len(records) - known, seed=options.seed))

    def knowledge(self, known, prior):
        return Knowledge(self.net, self.trainer, lw.Informed(known), lw.access.Weights(), prior)


SETTINGS = {
    "mnist": Setting("S1's MNIST MLP", "mnist", lw.nets.mlp(784, 10, 10), replace(s1_mnist.VICTIM, tf32=False)),
    "mnist_slow": Setting(
        "S1's MNIST MLP at learning rate 0.01",
        "mnist",
        lw.nets.mlp(784, 10, 10),
        replace(s1_mnist.VICTIM, lr=0.01, tf32=False),
    ),
    "cifar": Setting("S1's CIFAR-10 CNN", "cifar10", s1_cifar.NET, replace(s1_cifar.GD, tf32=False)),
    "million": Setting(
        "MLP of 1,068,810 parameters",
        "mnist",
        lw.nets.mlp(784, 1_024, 256, 10),
        lw.GD(lr=0.02, momentum=0.9, steps=100, init=s1_mnist.START),
    ),
}
ROWS = (*SETTINGS, *(f"{name}_attack" for name in SETTINGS))


def timed(work, device):
    """The answer, and seconds; of the processor where there is no GPU."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begin = clock()
    answer = work()
    if device == "cuda":
        torch.cuda.synchronize()
    return answer, clock() - begin


def cohort(known, records):
    index = torch.arange(len(records), device=records.x.device)
    return lw.games.Cohort(known, records[index.unsqueeze(1)], index)


def r_squared(seen, predicted):
    """(r,) in each direction, of models (c, r), a constant shift aside."""
    off = seen - predicted
    return 1 - (off - off.mean(0)).square().sum(0) / (seen - seen.mean(0)).square().sum(0)


def rates(setting, known, options, name):
    """The seconds per linear model, the steps of the sum, and all rows of one net and number of known records."""
    known, pool = setting.split(known, options)
    few = pool[: options.directions + options.checked]
    setting.trainer(setting.net, cohort(known, few[:1]), seed=0)  # warm up
    release, training = timed(lambda: setting.trainer(setting.net, cohort(known, few), seed=0), options.device)
    base, alone = timed(lambda: BaseTrajectory.of(setting.trainer, setting.net, known), options.device)
    far = (release.flat().double() - flat(base.end).double()).float()  # (directions + checked, p)
    principal, checked = far[: options.directions], far[options.directions :]
    directions = torch.linalg.svd(principal - principal.mean(0), full_matrices=False).Vh  # (directions, p)
    adjoints, sweep = timed(
        lambda: Adjoints.at_few_steps(base.quick().by_parts(), directions, pool[:SAMPLED_RECORDS]), options.device
    )
    steps, where = len(adjoints.swept), f"{setting.title}, {len(known):,} known"
    goal = "goal >= 20000" if options.device == "cuda" and setting.records == "cifar10" else None

    def row(part, what, value, low=None, high=None, paper=None):
        row_id = f"{name} {len(known)} {options.directions} {part}"
        return Row(row_id, f"{where}: {what}", float(value), low, high, paper, seed=options.seed)

    rows = [
        row("trained", f"models trained per second ({len(few)} models)", len(few) / training),
        row("base", "seconds of the base trajectory", alone),
        row("sweep", f"seconds of the sweep, {len(directions)} directions", sweep),
        row("steps", f"steps of the sum, of {setting.trainer.steps}", steps),
    ]
    kinds = {"linear": adjoints}
    if options.rank:
        kinds["semi-linear"] = SemiLinear(adjoints, LeadingHessians.of(base.quick().by_parts(), options.rank))
    many, seconds = pool[torch.arange(options.shadows, device=pool.x.device) % len(pool)], {}
    for kind, responses in kinds.items():
        predicted = responses(few[options.directions :])  # warms up, too
        taken = [timed(lambda of=responses: of(many), options.device)[1] / len(many) for _ in range(REPETITIONS)]
        seconds[kind] = each = statistics.median(taken)
        r2 = r_squared(checked @ directions.mT, predicted)
        what = f"{kind} models per second, {len(directions)} directions"
        rows += [
            row(kind, what, 1 / each, 1 / max(taken), 1 / min(taken), goal if kind == "linear" else None),
            row(f"{kind} ratio", f"{kind} / trained models per second, after the sweep", training / len(few) / each),
            row(f"{kind} r2", f"{kind}, R² in the median direction ({len(checked)} trained models)", r2.median()),
            row(f"{kind} r2 low", f"{kind}, R² at the tenth percentile of directions", r2.quantile(0.1)),
        ]
    for part in (len(known), *options.parts) if options.parts else ():
        some = base.quick().by_parts(part)
        predicted, taken = timed(
            lambda some=some: Adjoints.of(some, directions)(few[options.directions :]), options.device
        )
        r2, what = r_squared(checked @ directions.mT, predicted), f"Hessians of {part:,} known records at every step"
        rows += [
            row(f"part {part} r2", f"{what}, R² in the median direction ({len(checked)} trained models)", r2.median()),
            row(f"part {part} r2 low", f"{what}, R² at the tenth percentile of directions", r2.quantile(0.1)),
            row(f"part {part} sweep", f"{what}, seconds of the sweep, {len(directions)} directions", taken),
        ]
    for count in options.sets:
        secrets = torch.arange(options.checked * count, device=pool.x.device).view(-1, count)
        together = lw.games.Cohort(known, pool[secrets], secrets[:, 0])
        trained = setting.trainer(setting.net, together, seed=0).flat().double() - flat(base.end).double()
        sums = adjoints(pool[secrets.flatten()]).view(*secrets.shape, -1).sum(1)
        r2, what = r_squared(trained.float() @ directions.mT, sums), f"sums of {count} linear responses"
        models = f"{len(trained)} models trained with {count} secret records"
        rows.append(row(f"set {count} r2", f"{what}, R² in the median direction ({models})", r2.median()))
    return seconds["linear"], steps, rows


def engine_of(options):
    return lw.shadows.LinearResponse(directions=options.directions, checked=options.checked, rank=options.rank)


def slope_rows(setting, measured, options, name):
    """How the cost of a linear model grows with the known records: n -> seconds per model, and steps of the sum."""
    known, (seconds, steps) = list(measured), np.array(list(measured.values())).T
    span = f"from {min(known):,} to {max(known):,} known"
    kinds = {"slope": ("linear model", seconds), "step slope": ("step of a linear model", seconds / steps)}
    return [
        Row(
            f"{name} {options.directions} {kind}",
            f"{setting.title}: log-log slope of seconds per {what}, {span}",
            float(np.polyfit(np.log(known), np.log(values), 1)[0]),
            paper="goal within 0.1 of 0" if kind == "slope" else None,
            seed=options.seed,
        )
        for kind, (what, values) in kinds.items()
    ]


def attack_rows(setting, options, name):
    """KernelRidge from computed and from trained models, on the same victims; no rows where responses do not hold."""
    known, pool = setting.split(options.attack_known, options)
    prior, secrets = pool[: options.attack_shadows], pool[-options.targets :]
    attacks = {
        "computed": lw.KernelRidge(engine=engine_of(options), validation=validation(options)),
        "trained": lw.KernelRidge(validation=validation(options)),
    }
    errors, rows = {}, []
    sizes = f"{len(known):,} known, {len(prior):,} shadow models, {len(secrets):,} targets"
    for kind, attack in attacks.items():
        knowledge = setting.knowledge(known, prior)
        reconstruct, seconds = timed(lambda attack=attack, of=knowledge: attack.prepare(of, seed=1), options.device)
        for note in reconstruct.notes:
            print(f"  {note}")
        if kind == "computed" and reconstruct.access is knowledge.access:  # it was taught by trained models
            return []
        victims = setting.trainer(setting.net, cohort(known, secrets), seed=0)
        guesses = reconstruct(victims).records.x[:, 0]
        errors[kind] = (guesses - secrets.x).double().square().flatten(1).mean(1).cpu().numpy()
        mean, half = errors[kind].mean(), 1.96 * errors[kind].std(ddof=1) / math.sqrt(len(secrets))
        what = f"{setting.title}: mean MSE of KernelRidge, shadow models {kind} ({sizes})"
        rows.append(Row(f"{name} {kind}", what, mean, mean - half, mean + half, seed=options.seed))
        what = f"{setting.title}: seconds to prepare KernelRidge, shadow models {kind}"
        rows.append(Row(f"{name} {kind} seconds", what, seconds, seed=options.seed))
    drawn = np.random.default_rng(0).integers(0, len(secrets), (2_000, len(secrets)))  # bootstrap over targets
    ratios = errors["computed"][drawn].mean(1) / errors["trained"][drawn].mean(1)
    value, (low, high) = errors["computed"].mean() / errors["trained"].mean(), np.quantile(ratios, (0.025, 0.975))
    what = f"{setting.title}: error, computed / trained, {options.directions} directions"
    return [*rows, Row(f"{name} ratio", what, value, low, high, "goal <= 1.05", seed=options.seed)]


def validation(options):
    """At least the models that check the response are held out."""
    return max(0.05, options.checked / options.attack_shadows)


def show(rows):
    for row in rows:
        interval = "" if row.low is None else f" ({row.low:.4g} to {row.high:.4g})"
        print(f"{row.value:11.4g}{interval:24s} {row.quantity}", flush=True)
    write_rows(__file__, rows, keep_others=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of mnist.npz and cifar10.npz; else LOSTWAX_DATA")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=DEFAULT, metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--known", nargs="+", type=int, default=[1_000, 5_000, 10_000, 50_000])
    parser.add_argument("--directions", type=int, default=256)
    parser.add_argument("--checked", type=int, default=64)
    parser.add_argument("--rank", type=int, default=0, help="leading Hessian directions of the semi-linear response")
    parser.add_argument("--parts", nargs="+", type=int, default=[], help="known records that have a step's Hessian")
    parser.add_argument("--sets", nargs="+", type=int, default=[], help="secret records of one model")
    parser.add_argument("--shadows", type=int, default=32_768, help="models whose computation is timed")
    parser.add_argument("--attack_known", type=int, default=1_000)
    parser.add_argument("--attack_shadows", type=int, default=2_000)
    parser.add_argument("--targets", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser)
    torch.set_num_threads(options.threads)
    prefix = "gpu " if options.device == "cuda" else ""
    for name in options.rows:
        setting = SETTINGS[name.removesuffix("_attack")]
        if name.endswith("_attack"):
            show(attack_rows(setting, options, prefix + name.replace("_", " ")))
            continue
        measured = {}
        for known in options.known:
            *measured[known], rows = rates(setting, known, options, prefix + name)
            show(rows)
        if len(measured) > 1:
            show(slope_rows(setting, measured, options, prefix + name))


if __name__ == "__main__":
    main()
