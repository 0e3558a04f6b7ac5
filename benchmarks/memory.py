"""How much memory does an attack take, and how much was predicted?

    python benchmarks/memory.py [NAME ...]

Every attack runs after the same attack on a small game, on random images in ten classes. Measured is the peak of the
resident memory from `prepare` to the last guess, above what the process held before, less the code that was read again
meanwhile; victims and records are held before. Predicted is `learning.costs.predicted`, by which an audit leaves out
what does not fit. Goal: each prediction within a factor of 1.5 of the peak.
"""

import argparse
import ctypes
import gc
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks import CalibratedLosses, Ensemble, Refit
from lostwax.games import Attack, Knowledge
from lostwax.games.protocols import accepted
from lostwax.learning.costs import Rate, predicted
from lostwax_dev.results import Row, parse, write_rows

CLASSES, SIDE = 10, 28
FACTOR = 1.5


class Case(NamedTuple):
    """An attack, and the size of its game."""

    attack: Attack
    small: Attack  # the same kind, which loads its code before anything is measured
    hidden: int  # units: 794 weights each
    games: int
    prior: int
    threat: Mapping[str, int] = MappingProxyType({})
    side: int = SIDE


RECONN = {"epochs": 1, "batch_size": 256}
MEMBERSHIP = {"candidates": 4}
CASES = {
    "KernelRidge, 3,000 shadow models of a small net": Case(
        lw.KernelRidge(), lw.KernelRidge(), hidden=2, games=100, prior=3_000
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
    "Ensemble": Case(Ensemble(members=50, rounds=2), Ensemble(members=20, rounds=2), 16, 2, prior=200, side=16),
    "Refit": Case(Refit(), Refit(), hidden=32, games=100, prior=200, threat=MEMBERSHIP),
    "CalibratedLosses": Case(CalibratedLosses(models=64), CalibratedLosses(models=16), 32, 500, 600, MEMBERSHIP),
    # sizes and attacks by which no prediction was calibrated
    "Refit, a larger net": Case(Refit(), Refit(), hidden=64, games=300, prior=200, threat={"candidates": 8}),
    "CalibratedLosses, more models of a smaller net": Case(
        CalibratedLosses(models=200), CalibratedLosses(models=16), 8, 150, 500, {"candidates": 8}
    ),
    "RecoNN, 1,500 shadow models of a large net": Case(
        lw.RecoNN(**RECONN), lw.RecoNN(**RECONN), hidden=48, games=100, prior=1_500
    ),
}


def resident(name: str) -> int:
    """Bytes: VmRSS, what the process holds now, RssFile, what of it are pages of files, or VmHWM, its peak."""
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
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back to the system
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, pages = resident("VmRSS"), resident("RssFile")
    guess = attack.prepare(knowledge, seed=0)(release, hints)
    read_again = max(resident("RssFile") - pages, 0)  # code that the system had taken from memory
    peak = resident("VmHWM") - before - read_again
    assert len(guess.records) == games
    return expected, float(peak)


def measure(case: Case) -> tuple[float, float]:
    """Predicted and measured bytes of one case, after a small game."""
    played(case.small, case, hidden=2, games=10, prior=40)
    return played(case.attack, case, hidden=case.hidden, games=case.games, prior=case.prior)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(CASES))
    options = parse(parser)
    torch.set_num_threads(1)
    rows = []
    for name in options.names:
        expected, peak = measure(CASES[name])
        sizes = f"predicted {expected / 1e6:6,.0f} MB  peak {peak / 1e6:6,.0f} MB"
        print(f"{name:50} {sizes}  ratio {expected / peak:.2f}", flush=True)
        slug = name.lower().replace(",", "").replace(" ", "-")
        rows += [
            Row(f"{slug}-predicted", f"{name}: memory predicted, MB", round(expected / 1e6)),
            Row(f"{slug}-peak", f"{name}: peak of memory, MB", round(peak / 1e6)),
            Row(f"{slug}-ratio", f"{name}: predicted over peak (goal: {1 / FACTOR:.2f} to {FACTOR})", expected / peak),
        ]
    if options.names == list(CASES):
        print(f"written to {write_rows(__file__, rows)}")


if __name__ == "__main__":
    main()
