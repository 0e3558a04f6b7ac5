"""Which explanation tells what training did: rows put back to the start, or to the mean of the models?

    python benchmarks/mnemonist_agreement.py [--runs 12] [--targets 40]

ReLU nets on digits, one initialisation a run, read by KernelRidge. Mnemonist's coefficients of the first layer's rows
are held against the mean size of what training stored in them (S4 Fig. 7), by Spearman's correlation: -1 is best, and 0
says that the coefficients have nothing to do with it. Intervals are of the mean over runs.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch import nn

import lostwax as lw
from lostwax.games import Knowledge
from lostwax_dev.results import Row, parse, write_rows

sys.path.insert(0, str(Path(__file__).parent.parent / "papers"))
from lib.traces import agreement, row_scales

NETS = {"2 layers": (64, 10, 10), "4 layers": (64, 10, 10, 10, 10)}
ERASURES = {"start": lw.attacks.mnemonist.ToStart(), "mean": lw.attacks.mnemonist.ToMean()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--targets", type=int, default=40)
    options = parse(parser)
    known, prior, secrets = lw.records.digits().split(300, 300, options.targets, seed=0)
    trainer, threat = lw.GD(lr=0.1, momentum=0.9, steps=40), lw.Informed(known)
    cohort = threat.deal(secrets, options.targets, seed=1)
    rows = []
    for layers, sizes in NETS.items():
        net = lw.nets.mlp(*sizes, activation=nn.ReLU)
        starts = [replace(trainer, init=lw.inits.LeCunNormal(seed=run)) for run in range(options.runs)]
        games = [Knowledge(net, each, threat, lw.access.Weights(), prior) for each in starts]
        agreed = np.array([agreements(game, cohort) for game in games])  # (runs, ways)
        named = {**dict(zip(ERASURES, agreed.T, strict=True)), "difference": agreed[:, 1] - agreed[:, 0]}
        for name, values in named.items():
            mean, half = values.mean(), 1.96 * values.std(ddof=1) / len(values) ** 0.5
            words = f"{layers}, {name}: Spearman's correlation with the scales, mean of {options.runs} initialisations"
            print(f"{mean:+.2f} ({mean - half:+.2f} to {mean + half:+.2f}) {words}", flush=True)
            key = f"{layers.replace(' ', '_')}.{name}"
            rows.append(Row(key, words, float(mean), float(mean - half), float(mean + half), seed=0))
    write_rows(__file__, rows)


def agreements(game, cohort):
    """One correlation for each way to put rows back."""
    reconstruct = lw.KernelRidge().prepare(game, seed=0)
    release = game.trainer(game.net, cohort, seed=1)
    scales = row_scales(game.trainer, game.net, cohort, seed=1).of("1")
    return [
        agreement(
            lw.attacks.Mnemonist(masks=100, erase=erase)(reconstruct, game, release, cohort.own, seed=0), scales
        ).spearman.value
        for erase in ERASURES.values()
    ]


if __name__ == "__main__":
    main()
