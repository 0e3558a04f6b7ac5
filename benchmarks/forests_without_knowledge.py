"""How much of a whole table does a random forest reveal to an attacker who knows no row of it?

    python benchmarks/forests_without_knowledge.py [--tables FOLDER] [--study rows depths trees] [--rows N ...]

The setting of DRAFT (Ferry et al., ICML 2024): RandomForestClassifier on binary columns, 100 trees, with bootstraps and
without. The attacker has the fitted model, and knows that columns are binary and which of them are one-hot groups.
`FOLDER` holds DRAFT's own tables (compas.csv, adult.csv and default_credit.csv of github.com/vidalt/DRAFT, folder
`data`), sampled with its seeds. Tables of scikit-learn are binarised at the medians of their columns: breast cancer
(its ten means; all 30 columns were stopped after a minute without a result) and digits (the 16 pixels with most
variance). Without `--tables` only these run.

The error is DRAFT's: rows are paired by `linear_sum_assignment` on the share of columns that differ, whose mean is the
error. "Blind" is the error of rows drawn from the frequencies of the columns, independently. Exact cells are those
that the attack proves; false ones are counted. DRAFT's numbers are the means of the runs in its repository (16 threads,
at most five hours each); it did not have the bootstraps, which scikit-learn stores as seeds of the trees. Given these
("known counts"), it needs 299 s (COMPAS), 445 s (Adult) and 339 s (Default Credit), with errors 0, 0.0006 and 0.036.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import RandomForestClassifier

from lostwax.adapters.sklearn.trees import forest_alone
from lostwax.attacks.whole_table import Search, TooManyCellsError, WholeTable
from lostwax_dev.results import Row, parse, write_rows

SECONDS = 20  # of the search for a solution, and again for others
SAMPLE = 1500  # DRAFT samples as many rows, and takes the first of them
BINARY = np.array([0.0, 1.0])
ONE_HOT = {
    "compas": [[1, 2, 3, 4, 5], [9, 10, 11, 12]],
    "adult": [[3, 4, 5, 6, 7, 8]],
    "default_credit": [[0, 1, 2, 3], [5, 6, 7]],
}
ROWS = {"compas": [50, 100, 200, 300, 400, 500, 1500]}
OTHER_ROWS = [50, 100, 200, 300, 400, 500]
DEPTHS, TREES = [2, 3, 4, 5, 10], [1, 5, 10, 20, 50]
# error and seconds of DRAFT: (table, rows, bootstraps, depth, trees)
DRAFT = {
    ("compas", 50, False, None, 100): (0.00114, 30.5),
    ("compas", 100, False, None, 100): (0.0, 100.8),
    ("compas", 200, False, None, 100): (0.0, 260.9),
    ("compas", 300, False, None, 100): (0.0, 467.9),
    ("compas", 400, False, None, 100): (0.0, 699.9),
    ("compas", 500, False, None, 100): (0.0, 1071.9),
    ("compas", 1500, False, None, 100): (0.0, 7362.2),
    ("adult", 50, False, None, 100): (0.00547, 37.0),
    ("adult", 100, False, None, 100): (0.00032, 196.3),
    ("adult", 200, False, None, 100): (0.00011, 631.7),
    ("adult", 300, False, None, 100): (0.0927, 4860.4),
    ("adult", 400, False, None, 100): (0.1389, 6119.3),
    ("adult", 500, False, None, 100): (0.09308, 6523.6),
    ("default_credit", 50, False, None, 100): (0.00019, 42.1),
    ("default_credit", 100, False, None, 100): (0.0, 165.0),
    ("default_credit", 200, False, None, 100): (0.0, 905.6),
    ("default_credit", 300, False, None, 100): (0.0, 2369.8),
    ("default_credit", 400, False, None, 100): (0.0, 2733.2),
    ("default_credit", 500, False, None, 100): (0.04787, 6119.9),
    ("compas", 100, True, None, 100): (0.04686, 6721.5),
    ("adult", 100, True, None, 100): (0.11675, 12462.5),
    ("default_credit", 100, True, None, 100): (0.22499, 10152.8),
    ("adult", 100, False, None, 1): (0.13842, 0.8),
    ("adult", 100, False, None, 5): (0.07358, 8.2),
    ("adult", 100, False, None, 10): (0.03211, 74.2),
    ("adult", 100, False, None, 20): (0.01516, 57.4),
    ("adult", 100, False, None, 50): (0.00263, 85.1),
    ("adult", 100, False, 2, 100): (0.09684, 20.2),
    ("adult", 100, False, 3, 100): (0.05011, 81.5),
    ("adult", 100, False, 4, 100): (0.02021, 1943.5),
    ("adult", 100, False, 5, 100): (0.00642, 1290.7),
    ("adult", 100, False, 10, 100): (0.00074, 346.4),
    ("compas", 100, False, None, 1): (0.08171, 0.7),
    ("compas", 100, False, None, 5): (0.00571, 4.1),
    ("compas", 100, False, None, 10): (0.00286, 8.4),
    ("compas", 100, False, None, 20): (0.0, 33.3),
    ("compas", 100, False, None, 50): (0.0, 53.0),
    ("compas", 100, False, 2, 100): (0.03086, 9.5),
    ("compas", 100, False, 3, 100): (0.00171, 36.5),
    ("compas", 100, False, 4, 100): (0.0, 45.7),
    ("compas", 100, False, 5, 100): (0.0, 70.0),
    ("compas", 100, False, 10, 100): (0.0, 110.9),
    ("default_credit", 100, False, None, 1): (0.22314, 0.9),
    ("default_credit", 100, False, None, 5): (0.09571, 35.1),
    ("default_credit", 100, False, None, 10): (0.02895, 129.7),
    ("default_credit", 100, False, None, 20): (0.00629, 52.2),
    ("default_credit", 100, False, None, 50): (0.00029, 66.2),
    ("default_credit", 100, False, 2, 100): (0.126, 35.5),
    ("default_credit", 100, False, 3, 100): (0.09531, 3842.3),
    ("default_credit", 100, False, 4, 100): (0.11006, 10830.5),
    ("default_credit", 100, False, 5, 100): (0.00038, 1358.5),
    ("default_credit", 100, False, 10, 100): (0.00019, 382.8),
    ("adult", 100, True, None, 1): (0.19968, 10802.7),
    ("adult", 100, True, None, 5): (0.12989, 10808.3),
    ("adult", 100, True, None, 10): (0.12053, 10822.6),
    ("adult", 100, True, None, 20): (0.09253, 10846.4),
    ("adult", 100, True, None, 50): (0.08095, 10901.7),
    ("adult", 100, True, 2, 100): (0.15326, 10845.5),
    ("adult", 100, True, 3, 100): (0.13653, 10870.4),
    ("adult", 100, True, 4, 100): (0.12663, 10881.6),
    ("adult", 100, True, 5, 100): (0.11579, 10904.7),
    ("adult", 100, True, 10, 100): (0.1178, 13907.9),
    ("compas", 100, True, None, 1): (0.15871, 3601.9),
    ("compas", 100, True, None, 5): (0.06343, 3610.4),
    ("compas", 100, True, None, 10): (0.055, 3619.5),
    ("compas", 100, True, None, 20): (0.04486, 3634.4),
    ("compas", 100, True, None, 50): (0.04071, 3702.0),
    ("compas", 100, True, 2, 100): (0.09814, 3646.5),
    ("compas", 100, True, 3, 100): (0.083, 3644.0),
    ("compas", 100, True, 4, 100): (0.06671, 3680.3),
    ("compas", 100, True, 5, 100): (0.06271, 3713.3),
    ("compas", 100, True, 10, 100): (0.04157, 8150.5),
    ("default_credit", 100, True, None, 1): (0.30724, 7202.7),
    ("default_credit", 100, True, None, 5): (0.17171, 7213.2),
    ("default_credit", 100, True, None, 10): (0.14476, 7225.0),
    ("default_credit", 100, True, None, 20): (0.12419, 7253.2),
    ("default_credit", 100, True, None, 50): (0.17307, 11634.9),
    ("default_credit", 100, True, 2, 100): (0.19105, 7240.8),
    ("default_credit", 100, True, 3, 100): (0.16933, 7267.0),
    ("default_credit", 100, True, 4, 100): (0.15495, 7309.8),
    ("default_credit", 100, True, 5, 100): (0.14476, 7333.9),
    ("default_credit", 100, True, 10, 100): (0.26819, 11748.0),
}


class Case(NamedTuple):
    """One forest."""

    table: str
    rows: int
    bootstrap: bool
    depth: int | None = None
    trees: int = 100
    groups: bool = True  # the attacker knows the one-hot groups

    @property
    def title(self):
        depth = "" if self.depth is None else f", depth {self.depth}"
        unknown = "" if self.groups else ", one-hot groups not known"
        drawn = "with bootstraps" if self.bootstrap else "without bootstraps"
        return f"{self.table}, {self.rows:,} rows, {self.trees} trees{depth}, {drawn}{unknown}"

    @property
    def key(self):
        drawn = "bootstraps" if self.bootstrap else "whole"
        columns = "" if self.groups else ".groups-unknown"
        return f"{self.table}.{self.rows}.{drawn}.depth-{self.depth}.trees-{self.trees}{columns}"


def binary_table(name, rows, seed, folder):
    """(rows, d) columns of 0 and 1, and (rows,) labels."""
    if name in ONE_HOT:
        frame = pd.read_csv(folder / f"{name}.csv").sample(n=SAMPLE, random_state=seed, ignore_index=True)
        values = frame.to_numpy()[:rows]
        return values[:, :-1].astype(float), values[:, -1]
    x, y = {"breast cancer": load_breast_cancer, "digits": load_digits}[name](return_X_y=True)
    x = x[:, :10] if name == "breast cancer" else x[:, np.argsort(-x.var(0), kind="stable")[:16]]
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    return (x > np.median(x, axis=0)).astype(float)[chosen], y[chosen]


def matched_error(guess, x):
    """The mean share of wrong columns of rows that are paired as well as possible."""
    distance = (guess[:, None, :] != x[None]).mean(2)
    return float(distance[linear_sum_assignment(distance)].mean())


def blind_error(x, seed):
    """The error of rows drawn from the frequencies of the columns."""
    return matched_error((np.random.default_rng(seed).random(x.shape) < x.mean(0)).astype(float), x)


def false_cells(found, x, y):
    """Cells and labels that are claimed, but wrong: by row, or after the best matching where the order is not known."""
    claimed = np.c_[found.exact, found.label_certain]
    ours, theirs = np.c_[found.x, found.labels], np.c_[x, y]
    if found.ordered:
        return int((claimed & (ours != theirs)).sum())
    wrong = (claimed[:, None] & (ours[:, None] != theirs[None])).sum(2)
    return int(wrong[linear_sum_assignment(wrong)].sum())


def measure(case, seed, folder):
    x, y = binary_table(case.table, case.rows, seed, folder)
    model = RandomForestClassifier(case.trees, bootstrap=case.bootstrap, max_depth=case.depth, random_state=seed).fit(
        x, y
    )
    start, processor = time.perf_counter(), time.process_time()
    found = WholeTable(Search(SECONDS))(
        forest_alone(model),
        x.shape[1],
        values=dict.fromkeys(range(x.shape[1]), BINARY),
        one_hot=ONE_HOT.get(case.table, []) if case.groups else [],
    )
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    codes = np.unique(y, return_inverse=True)[1]
    return {
        "error": matched_error(found.x, x),
        "blind": blind_error(x, seed),
        "exact": float(found.exact.mean()),
        "false": false_cells(found, x, codes),
        "solved": float(found.solves),
        "seconds": seconds,
        "processor": processor,
    }


def rows_of(case, seeds, folder):
    try:
        runs = [measure(case, seed, folder) for seed in seeds]
    except TooManyCellsError as error:
        print(f"{case.title}: {error}", flush=True)
        return []
    mean = {what: statistics.mean(run[what] for run in runs) for what in runs[0]}
    error, seconds = DRAFT.get(case[:5], (None, None)) if case.groups else (None, None)
    false = sum(run["false"] for run in runs)
    spread = [run["error"] for run in runs]
    beside = "" if error is None else f"; DRAFT {error:.4f} in {seconds:,.0f} s"
    print(
        f"{case.title}: error {mean['error']:.5f} (blind {mean['blind']:.3f}) in {mean['seconds']:.1f} s "
        f"({mean['processor']:.1f} s of processor time), exact {mean['exact']:.1%}, false {false}, all counts "
        f"explained in {mean['solved']:.0%}{beside}",
        flush=True,
    )
    first, count = seeds[0], f"mean of {len(seeds)}"
    return [
        Row(
            f"{case.key}.error",
            f"{case.title}: error, {count}",
            mean["error"],
            min(spread),
            max(spread),
            paper=None if error is None else f"DRAFT {error:.4f}",
            seed=first,
        ),
        Row(
            f"{case.key}.seconds",
            f"{case.title}: s",
            mean["seconds"],
            paper=None if seconds is None else f"DRAFT {seconds:,.0f}",
            seed=first,
        ),
        Row(f"{case.key}.processor", f"{case.title}: s of processor time", mean["processor"], seed=first),
        Row(f"{case.key}.blind", f"{case.title}: error of a blind guess", mean["blind"], seed=first),
        Row(f"{case.key}.exact", f"{case.title}: share of cells proven", mean["exact"], seed=first),
        Row(f"{case.key}.false", f"{case.title}: cells claimed that are wrong", false, seed=first),
        Row(f"{case.key}.solved", f"{case.title}: share of runs with all counts explained", mean["solved"], seed=first),
    ]


def cases_of(study, names):
    for name in names:
        for bootstrap in (False, True):
            if study == "rows":
                yield from (Case(name, rows, bootstrap) for rows in ROWS.get(name, OTHER_ROWS))
                if name in ONE_HOT:
                    yield Case(name, 100, bootstrap, groups=False)
            if study == "depths":
                yield from (Case(name, 100, bootstrap, depth=depth) for depth in DEPTHS)
            if study == "trees":
                yield from (Case(name, 100, bootstrap, trees=trees) for trees in TREES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="folder of DRAFT's tables")
    parser.add_argument("--study", nargs="+", choices=["rows", "depths", "trees"], default=["rows", "depths", "trees"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--rows", nargs="+", type=int, help="numbers of rows; all by default")
    parser.add_argument("--whole", action="store_true", help="without bootstraps only")
    options = parse(parser)
    names = [*(ONE_HOT if options.tables is not None else []), "breast cancer", "digits"]
    names = [name for name in names if options.only is None or name in options.only]
    for study in options.study:
        for case in cases_of(study, names):
            if (options.whole and case.bootstrap) or (options.rows is not None and case.rows not in options.rows):
                continue
            if rows := rows_of(case, options.seeds, options.tables):
                write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
