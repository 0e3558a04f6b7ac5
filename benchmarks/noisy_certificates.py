"""Under noise on the weights, how many of Newton's certificates are wrong?

    python benchmarks/noisy_certificates.py [--cases "few outputs, noise 0.01" ...] [--sets 16] [--out FOLDER]
    python benchmarks/noisy_certificates.py --merge FOLDER/*/noisy_certificates.json    # parts, run side by side

A certificate promises an expected squared error of at most 1 % of a blind guess's, the prior mean's; it counts as wrong
above 2 %. A set has eight games: a net is trained on 30 known digits and a secret one, full batches, ten steps, and
released with noise or rounded. Records, starts and noise of every set are new. Outputs start up to 100 times as large
as by default: training is then so sensitive to the record that records far apart lead to similar weights. Labels are
given. Each set is attacked twice: with the test of what an answer leaves unexplained (`misfit.py`), and without it.
Writes `results/noisy_certificates.json`; with `--out`, the rows alone, into that folder. Intervals are of 95 %.
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.newton import inverter
from lostwax.defences import Defended, Quantised, Rounded, WeightNoise
from lostwax.games import Hints, Knowledge
from lostwax.inits import LeCunNormal
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, read_rows, write_rows

GAMES = 8
WRONG = 0.02  # of a blind guess's error: twice what is promised
COUNTS = {"certified": "certified", "wrong": "certified and wrong", "rebuilt": "within 2 %, certified or not"}


@dataclass(frozen=True)
class LargeOutputs:
    """LeCun's start with an output layer `times` as large."""

    times: float
    seed: int

    def __call__(self, net, numbers, *, seed):
        start = LeCunNormal(seed=self.seed)(net, numbers, seed=seed)
        last = list(start)[-2]
        return {**start, last: self.times * start[last]}


DIGITS = lw.records.digits()
TWO = DIGITS[DIGITS.y < 2]
SMALL = replace(DIGITS, x=nn.functional.avg_pool2d(DIGITS.x, 2))  # 4 x 4 pixels
NETS = {  # records, net, how much larger than by default the outputs start
    "few outputs": (TWO, lw.nets.mlp(64, 40, 2), 100.0),
    "few outputs, tanh": (TWO, lw.nets.mlp(64, 40, 2, activation=nn.Tanh), 100.0),
    "ten outputs": (DIGITS, lw.nets.mlp(64, 24, 10), 30.0),
    "ten outputs, tanh": (DIGITS, lw.nets.mlp(64, 24, 10, activation=nn.Tanh), 30.0),
    "small pictures": (SMALL, lw.nets.mlp(16, 12, 10), 10.0),
    "small pictures, tanh": (SMALL, lw.nets.mlp(16, 12, 10, activation=nn.Tanh), 1.0),
    "two hidden layers": (DIGITS, lw.nets.mlp(64, 16, 16, 10, activation=nn.Tanh), 10.0),
}
DEFENCES = {f"noise {sigma}": WeightNoise(sigma) for sigma in (1e-3, 3e-3, 1e-2, 2e-2)}
DEFENCES |= {"8 bits": Quantised(8), "bfloat16": Rounded(torch.bfloat16)}
CASES = {f"{net}, {defence}": (*NETS[net], DEFENCES[defence]) for net in NETS for defence in DEFENCES}


def played(case, number):
    """Of each game of one set: certified, and squared error in shares of a blind guess's."""
    records, net, times, defence = CASES[case]
    known, prior, secrets = records.split(30, 200, GAMES, seed=1_000 + number)
    gd = lw.GD(lr=0.2 / times, momentum=0.9, steps=10, init=LargeOutputs(times, seed=number))
    trainer, threat = Defended(gd, by=defence), lw.Informed(known)
    cohort = threat.deal(secrets, GAMES, seed=number)
    release = trainer(net, cohort, seed=1_000 + number)
    knowledge = Knowledge(net, trainer, threat, lw.access.Weights(), prior)
    found = lw.Newton(bank=60).prepare(knowledge, seed=number).invert(release, Hints(labels=cohort.own.y))
    truth = cohort.own.x.flatten(1).double()
    errors = [float((one.record - x).square().mean()) / one.blind for one, x in zip(found, truth, strict=True)]
    return [one.certified for one in found], errors


def without_test(*_):
    """Whatever is left over counts as noise."""
    return True


def measured(case, options):
    """The rows of one case, with and without the test."""
    rows, test = [], inverter.is_noise
    for way, passes in (("without", without_test), ("with", test)):
        inverter.is_noise = passes
        games = []
        for number in range(options.first, options.first + options.sets):
            games += zip(*played(case, number), strict=True)
        inverter.is_noise = test
        certified = [error for sure, error in games if sure]
        counts = {
            "certified": len(certified),
            "wrong": sum(error > WRONG for error in certified),
            "rebuilt": sum(error <= WRONG for _, error in games),
        }
        of = {"certified": len(games), "wrong": len(certified), "rebuilt": len(games)}
        for name, words in COUNTS.items():
            low, high = clopper_pearson(counts[name], of[name]) if of[name] else (None, None)
            share = counts[name] / of[name] if of[name] else 0.0
            what = f"share of {'certificates that are wrong' if name == 'wrong' else 'games ' + words}"
            rows.append(Row(f"{case} {way} {name}", f"{what}, {way} the test, of {of[name]}", share, low, high, seed=0))
        worst = max(certified, default=0.0)
        rows.append(Row(f"{case} {way} worst", f"largest certified error, {way} the test", worst, seed=0))
        print(f"{case}, {way} the test: {counts} of {len(games)} games, largest {worst:.3f}", flush=True)
    return rows


def totals(rows):
    """Over all cases of a net, and over all."""
    value, found = {row.id: row for row in rows}, []
    for group in (*NETS, "all"):
        cases = [case for case in CASES if f"{case} with wrong" in value and group in ("all", case.rpartition(", ")[0])]
        for way in ("without", "with") if cases else ():
            count = {"certified": 0, "wrong": 0, "rebuilt": 0, "games": 0}
            for case in cases:
                for name in COUNTS:
                    row = value[f"{case} {way} {name}"]
                    of = int(row.quantity.split(" of ")[-1])
                    count[name] += round(row.value * of)
                    count["games"] += of if name == "rebuilt" else 0
            worst = max(value[f"{case} {way} worst"].value for case in cases)
            ends = clopper_pearson(count["wrong"], count["certified"])
            what = f"share of certificates that are wrong, {way} the test, of {count['certified']}"
            found.append(Row(f"{group} {way} wrong", what, count["wrong"] / count["certified"], *ends, seed=0))
            print(f"{group}, {len(cases)} cases, {way} the test: {count}, largest {worst:.3f}, {ends}")
    return found


def main():
    """Print and store a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--sets", type=int, default=16)
    parser.add_argument("--first", type=int, default=0, help="number of the first set")
    parser.add_argument("--merge", nargs="+", type=Path, help="play nothing: write the rows of these files and totals")
    options = parse(parser)
    if options.merge:
        rows = [row for path in options.merge for row in read_rows(path)]
        rows = [replace(row, command=row.command.split(" --into")[0]) for row in rows]
    else:
        rows = [row for case in options.cases for row in measured(case, options)]
    if options.out is None:
        rows += totals(rows)
    print(f"written to {write_rows(__file__, rows).name}")


if __name__ == "__main__":
    main()
