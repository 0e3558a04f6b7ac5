"""How wide should the next cloud of Ensemble be: by a constant, or by what the regression expects of the release?

    python benchmarks/ensemble_inflation.py [--targets 20] [--members 110]

S1's ReLU victim on digits (64 pixels, 100 known records, GD, 100 steps). The covariance of the errors on members left
out is inflated by a constant 1, 3 or 6, or by the margin 2, 3 or 4 times the expected error of the release itself over
theirs ("novelty"). Same targets, first ensembles, draws, and answer (the least expected error) for all; six rounds, no
restarts. Members are few on purpose, under twice the number of pixels: with many, every rule finds every record.
"""

import argparse
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from torch import nn

import lostwax as lw
from lostwax.attacks import ensemble as reconstructor
from lostwax.attacks.ensemble import inflation
from lostwax.games import Knowledge
from lostwax_dev.results import Row, parse, write_rows

ROUNDS = 6
FOUND = 1e-6  # a mean squared error: a record right to a thousandth of the pixels' range


RULES = {
    "constant": (lambda novelty, margin: margin, (1, 3, 6)),
    "novelty": (inflation, (2, 3, 4)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", type=int, default=20)
    parser.add_argument("--members", type=int, default=110)
    options = parse(parser)
    known, prior, secrets = lw.records.digits().split(100, 1_200, options.targets, seed=0)
    net = lw.nets.mlp(64, 10, 10, activation=nn.ReLU)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=100, init=lw.inits.LeCunNormal())
    threat = lw.Informed(known)
    attack = lw.Ensemble(members=options.members, rounds=ROUNDS, tolerance=1e-10, restarts=0)
    prepared = attack.prepare(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=0)
    cohort = threat.deal(secrets, options.targets, seed=1)
    release, truth = trainer(net, cohort, seed=1), cohort.own.x.flatten(1).double()
    hints = lw.games.Hints(labels=cohort.own.y)
    rows = []
    for name, (rule, margins) in RULES.items():
        for margin in margins:
            with patch.object(reconstructor, "inflation", rule):
                found = prepared._replace(attack=replace(attack, margin=margin)).invert(release, hints)
            errors = np.array([best_so_far(one, record) for one, record in zip(found, truth, strict=True)])
            print(f"{name} {margin}: median by round", " ".join(f"{value:.0e}" for value in np.median(errors, 0)))
            rows += summary(f"{name}_{margin}", f"{name} x {margin}", errors, options)
    write_rows(__file__, rows)


def best_so_far(found, truth):
    """(rounds,) mean squared error of the answer, had the game ended after each round."""
    kept = [min(found.rounds[:turn], key=lambda one: one.predicted) for turn in range(1, ROUNDS + 1)]
    return [float((one.estimate - truth).square().mean()) for one in kept]


def summary(name, words, errors, options):
    sizes = f"{options.targets} targets, {options.members} members"
    last = errors[:, -1]
    return [
        Row(f"{name}.4", f"{words}: median MSE after 4 rounds ({sizes})", float(np.median(errors[:, 3])), seed=0),
        Row(f"{name}.median", f"{words}: median MSE after {ROUNDS} rounds", float(np.median(last)), seed=0),
        Row(f"{name}.mean", f"{words}: mean MSE after {ROUNDS} rounds", float(last.mean()), seed=0),
        Row(f"{name}.found", f"{words}: share found, MSE up to {FOUND:g}", float((last <= FOUND).mean()), seed=0),
    ]


if __name__ == "__main__":
    main()
