"""Kills, damaged files and hostile inputs: is anything lost, silently changed, raised raw, or Python ended?

    python benchmarks/hard_to_break.py [--part kills|damages|inputs] [--seed SEED]

- 300 kills: at every kind of change to a folder (tests/operations.py: the process dies before it opens, renames, makes
  or deletes a file, or amid a write), and by SIGKILL at random moments of `lw.simulate`. Afterwards the same is run
  again, and must end as if nothing had happened.
- 1,500 damages to what lostwax keeps for later: stores, checkpoints, saved reconstructors, records of reports.
- 6,000 hostile inputs of every kind, those of `make fuzz` by another seed: settings, arguments, arrays, files, model
  files of other libraries, objects that are almost models.

A crash of Python would end this script. The tests make some of each; kills on a cluster: `cluster_kills.py`.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import torch

from fuzz import kept
from fuzz.outcomes import BUGS, Found, Outcome, play
from fuzz.suite import describe, run
from lostwax_dev.results import Row, parse, write_rows
from operations import OPERATIONS, kill
from shadows.game import CHUNK, begin, tree
from shadows.warm import children

KILLS, DAMAGES, INPUTS, SEED = 300, 1_500, 6_000, 43
MODELS = 30 * CHUNK


def killed_at_changes(kills: int) -> Row:
    """Each operation is killed at so many of its changes; one that fails afterwards is reported by its traceback."""
    lost = 0
    for name in OPERATIONS:
        with tempfile.TemporaryDirectory() as folder:
            child = children().Process(target=kill, args=(name, Path(folder), False, kills))
            child.start()
            child.join()
            lost += child.exitcode != 0
            print(f"{name}: {kills} kills, {'something was lost' if child.exitcode else 'nothing lost'}", flush=True)
    count = kills * len(OPERATIONS)
    words = f"{count} kills at changes to a folder, {len(OPERATIONS)} operations: operations that lost something"
    return Row("kills.changes", words, lost)


def simulated(folder: Path, after: float | None = None) -> float:
    """Train models into a store, in a process that is killed after these seconds; how long it ran."""
    started = children().Event()
    child = children().Process(target=begin, args=(folder, started, MODELS, {"steps": 5}))
    child.start()
    started.wait(60)
    start = time.perf_counter()
    child.join(after)
    if child.is_alive():
        child.kill()
    child.join()
    return time.perf_counter() - start


def killed_at_random(kills: int, seed: int) -> list[Row]:
    draws, changed, amid = random.Random(seed), 0, 0
    with tempfile.TemporaryDirectory() as space:
        whole = Path(space) / "whole"
        seconds = simulated(whole)
        expected = tree(whole)
        for number in range(kills):
            store = Path(space) / str(number)
            if (took := simulated(store, after := draws.uniform(0, seconds))) < after:  # over before: kill earlier
                seconds = took
            amid += 0 < len(tree(store)) < len(expected)
            simulated(store)
            changed += tree(store) != expected
    print(f"{kills} kills of simulate, {amid} of them amid the store: {changed} stores changed", flush=True)
    return [
        Row(
            "kills.random", f"{kills} SIGKILLs of lw.simulate: stores with other bytes once resumed", changed, seed=seed
        ),
        Row("kills.amid", "of these, kills that left a store in part", amid, seed=seed),
    ]


def table(name: str, played: list[Found], seed: int) -> list[Row]:
    print(describe(played), flush=True)
    number, outcomes = Counter(one.case.kind for one in played), Counter((one.case.kind, one.outcome) for one in played)
    rows = []
    for kind in sorted(number):
        refused = outcomes[kind, Outcome.REFUSED]
        words = f"{kind}: {number[kind]:,} inputs, {refused:,} refused by name; raw, slow or silently wrong"
        rows.append(Row(f"{name}.{kind}", words, sum(outcomes[kind, bug] for bug in BUGS), seed=seed))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--smaller", type=int, default=1, help="a share of everything, to try this script")
    parser.add_argument("--part", choices=("kills", "damages", "inputs"), help="only this one, beside earlier rows")
    parser.add_argument("--seed", type=int, default=SEED, help="another one gives other kills, damages and inputs")
    options = parse(parser)
    by, part, seed, rows = options.smaller, options.part, options.seed, list[Row]()
    torch.set_num_threads(1)
    if part in (None, "kills"):
        rows.append(killed_at_changes(max(2 * KILLS // 3 // len(OPERATIONS) // by, 1)))
        rows += killed_at_random(KILLS // 3 // by, seed)
    if part in (None, "damages"):
        damages = islice(kept.cases(np.random.default_rng(seed)), DAMAGES // by)
        rows += table("damages", [play(case) for case in damages], seed)
    if part in (None, "inputs"):
        rows += table("inputs", run(INPUTS // by, seed, progress=True), seed)
    if by == 1:
        print(f"written to {write_rows(__file__, rows, keep_others=part is not None)}")
    sys.exit(any(row.value for row in rows if row.id != "kills.amid"))


if __name__ == "__main__":
    main()
