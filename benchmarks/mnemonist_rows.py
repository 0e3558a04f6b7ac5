"""Must rows be chosen? RecoNN from all weights, from the rows that Mnemonist chooses, and row by row.

    python benchmarks/mnemonist_rows.py [--runs 3] [--targets 200]

ReLU nets of three layers on digits, one initialisation a run, the same shadow models and victims for all. Mean squared
errors over all targets and runs, and how much less than RecoNN's from all weights, target by target.
"""

import argparse
from dataclasses import replace

import numpy as np
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Knowledge
from lostwax.learning.shadow_tables import shadow_tables
from lostwax_dev.results import Row, parse, write_rows

RECONN = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=300), epochs=20, batch_size=32)
WORDS = {
    "blind": "the prior's mean",
    "reconn": "RecoNN, all weights",
    "mnemonist": "Mnemonist-RecoNN, rows put back to the start",
    "mnemonist_mean": "Mnemonist-RecoNN, rows put back to the mean",
    "rows": "RecoNN, row by row",
    "kernel": "KernelRidge, all weights",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--targets", type=int, default=200)
    options = parse(parser)
    known, prior, secrets = lw.records.digits().split(300, 600, options.targets, seed=0)
    net, threat = lw.nets.mlp(64, 10, 10, 10, activation=nn.ReLU), lw.Informed(known)
    cohort = threat.deal(secrets, options.targets, seed=1)
    played = []
    for run in range(options.runs):
        trainer = lw.GD(lr=0.1, momentum=0.9, steps=40, init=lw.inits.LeCunNormal(seed=run))
        played.append(errors(Knowledge(net, trainer, threat, lw.access.Weights(), prior), cohort))
    found = {name: np.concatenate([one[name] for one in played]) for name in WORDS}  # (runs * targets,)
    rows = [row(name, f"{what}: mean squared error", found[name]) for name, what in WORDS.items()]
    rows += [
        row(f"{name}.gain", f"{what}: how much less than RecoNN from all weights", found["reconn"] - found[name])
        for name, what in WORDS.items()
        if name not in ("blind", "reconn")
    ]
    write_rows(__file__, rows)


def errors(game, cohort):
    """(targets,) of every attack."""
    release = game.trainer(game.net, cohort, seed=1)
    tables = shadow_tables(RECONN, game, 0)
    first = RECONN.learn(*tables, seed=0)

    def focused(erase):
        attack = lw.attacks.MnemonistRecoNN(attack=RECONN, mnemonist=lw.attacks.Mnemonist(masks=300, erase=erase))
        return attack.focus(first, *tables, seed=0)

    learnt = {
        "reconn": first,
        "mnemonist": focused(lw.attacks.mnemonist.ToStart()),
        "mnemonist_mean": focused(lw.attacks.mnemonist.ToMean()),
        "rows": replace(RECONN, decoder=lw.decoders.RowDecoder()).learn(*tables, seed=0),
        "kernel": lw.KernelRidge().learn(*tables),
    }
    guesses = {name: reconstruct(release).records.x for name, reconstruct in learnt.items()}
    guesses["blind"] = game.prior.x.mean(0).expand_as(cohort.own.x)
    return {name: squared(guess - cohort.own.x) for name, guess in guesses.items()}


def squared(missed: torch.Tensor):
    return missed.double().square().flatten(1).mean(1).numpy()


def row(name, words, values):
    """The mean, with its 95 % interval over targets and runs."""
    mean, half = values.mean(), 1.96 * values.std(ddof=1) / len(values) ** 0.5
    print(f"{mean:.4f} ({mean - half:.4f} to {mean + half:.4f}) {words}", flush=True)
    return Row(name, words, float(mean), float(mean - half), float(mean + half), seed=0)


if __name__ == "__main__":
    main()
