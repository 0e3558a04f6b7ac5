"""How much memory does an attack take, and how much was predicted?

    python benchmarks/memory.py [NAME ...]

Every attack runs in a process of its own, after the same attack on a small game, on random images of 28 x 28 pixels in
ten classes. Measured is the peak of the resident memory from `prepare` to the last guess, above what the process held
before; victims and records are held before. Predicted is `learning.costs.predicted`, by which an audit leaves out what
does not fit. Goal: each prediction within a factor of 1.5 of the peak.
"""

import argparse
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks import CalibratedLosses, Ensemble, Refit, Secant
from lostwax.games import Attack, Knowledge
from lostwax.games.protocols import accepted
from lostwax.learning.costs import Rate, predicted
from lostwax_dev.results import Row, write_rows

CLASSES, SIDE = 10, 28
FACTOR = 1.5


class Case(NamedTuple):
    """An attack, and the size of its game."""

    attack: Attack
    small: Attack  # the same kind, which loads its code before anything is measured
    hidden: int  # units: 794 weights each
    games: int
    prior: int
    threat: dict = {}
    side: int = SIDE


RECONN = {"epochs": 1, "batch_size": 256}
MEMBERSHIP = {"candidates": 4}
CASES = {
    "KernelRidge, 10,000 shadow models of a small net": Case(
        lw.KernelRidge(), lw.KernelRidge(), hidden=2, games=100, prior=10_000
    ),
    "KernelRidge, 1,000 shadow models of a large net": Case(
        lw.KernelRidge(), lw.KernelRidge(), hidden=64, games=50, prior=1_000
    ),
    "KernelRidge, 1,000 large victims": Case(lw.KernelRidge(), lw.KernelRidge(), hidden=64, games=1_000, prior=200),
    "RecoNN, 2,000 shadow models": Case(lw.RecoNN(**RECONN), lw.RecoNN(**RECONN), hidden=16, games=50, prior=2_000),
    "RecoNN, 1,000 large victims": Case(lw.RecoNN(**RECONN), lw.RecoNN(**RECONN), hidden=64, games=1_000, prior=200),
    "Newton": Case(lw.Newton(bank=100), lw.Newton(bank=20), hidden=16, games=2, prior=200, side=12),
    "Newton, matrix-free": Case(
        lw.Newton(bank=500, products=2), lw.Newton(bank=20, products=2), hidden=32, games=2, prior=600
    ),
    "Ensemble": Case(Ensemble(members=100, rounds=2), Ensemble(members=20, rounds=2), hidden=32, games=2, prior=300),
    "Secant": Case(
        Secant(lw.KernelRidge(shadows=100)), Secant(lw.KernelRidge(shadows=40)), hidden=16, games=2, prior=100, side=16
    ),
    "Refit": Case(Refit(), Refit(), hidden=32, games=100, prior=200, threat=MEMBERSHIP),
    "CalibratedLosses": Case(CalibratedLosses(models=64), CalibratedLosses(models=16), 32, 500, 600, MEMBERSHIP),
}


def resident(name: str) -> int:
    """Bytes: VmRSS, what the process holds now, or VmHWM, its peak."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[name].split()[0])


def played(attack: Attack, case: Case, *, hidden: int, games: int, prior: int) -> tuple[float, float]:
    """Predicted and measured bytes."""
    draw = torch.Generator().manual_seed(0)
    count = 20 + prior + games
    x, y = torch.rand(count, 1, case.side, case.side, generator=draw), torch.arange(count) % CLASSES
    known, pool, secrets = lw.Records(x, y).split(20, prior, games, seed=0)
    net = lw.nets.mlp(case.side**2, hidden, CLASSES)
    trainer, threat = lw.GD(lr=0.1, steps=4, init=lw.inits.LeCunNormal()), lw.Informed(known, **case.threat)
    knowledge = Knowledge(net, trainer, threat, Weights(), pool)
    cohort = threat.deal(secrets, games, seed=1)
    release, hints = trainer(net, cohort, seed=1), threat.hints(cohort, secrets, seed=1)
    rate = Rate.unknown(knowledge, release)
    expected = predicted(attack, knowledge, games, rate).bytes
    accepted(attack, knowledge)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = resident("VmRSS")
    guess = attack.prepare(knowledge, seed=0)(release, hints)
    peak = resident("VmHWM") - before
    assert len(guess.records) == games
    return expected, float(peak)


def measure(name: str, cases: dict[str, Case] = CASES) -> tuple[float, float]:
    """Predicted and measured bytes of one case, in this process."""
    torch.set_num_threads(1)
    case = cases[name]
    played(case.small, case, hidden=2, games=2, prior=40)
    return played(case.attack, case, hidden=case.hidden, games=case.games, prior=case.prior)


def in_a_process(name: str) -> tuple[float, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--here", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    expected, peak = json.loads(done.stdout.splitlines()[-1])
    return expected, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--here", action="store_true", help="measure in this process and print two numbers")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.names[0])))
        return
    rows = []
    for name in options.names:
        expected, peak = in_a_process(name)
        print(f"{name:55} predicted {expected / 1e6:8.0f} MB  peak {peak / 1e6:8.0f} MB  ratio {expected / peak:.2f}")
        slug = name.lower().replace(",", "").replace(" ", "-")
        rows += [
            Row(f"{slug}-predicted", f"{name}: memory predicted, MB", round(expected / 1e6)),
            Row(f"{slug}-peak", f"{name}: peak of memory, MB", round(peak / 1e6)),
            Row(f"{slug}-ratio", f"{name}: predicted over peak (goal: {1 / FACTOR:.2f} to {FACTOR})", expected / peak),
        ]
    if options.names == list(CASES):
        print(f"written to benchmarks/results/{write_rows(__file__, rows).name}")


if __name__ == "__main__":
    main()
