"""How do time and memory of `lw.audit(model, (X, y))` grow with the size of the table?

    python benchmarks/table_sizes.py [--shape rows narrow one-hot categories texts] [--games ROWS] [--smallest]

Each size is fitted and audited in a process of its own. Tables are made from a seed: independent normal columns
("rows", 100 of them, and "narrow", 20) and 50 categorical columns with 100 categories each, one-hot encoded as a dense
matrix ("one-hot"). Two more are sparse: ten columns of 500 categories each as strings, in a pipeline with a
OneHotEncoder ("categories"), and texts of 20 to 80 words with Zipf's frequencies in a pipeline with a TfidfVectorizer
("texts"). The model is a LogisticRegression with default settings. All rows are attacked, unless `--games` names a
number; of the sparse tables 1,000 at most, as by default. Seconds are those of the audit alone; memory is the peak of
the whole process, with the table and the fit in it. The slope is that of log(seconds) over log(rows), by least squares.
Goals on two cores: 200,000 x 100 in 60 s and 3 GB; 1,000,000 x 20 in 120 s; 4,000 x 5,000 one-hot in 30 s.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import lostwax as lw
from lostwax_dev.results import Row, parse, write_rows

SEED = 0
CATEGORIES = 100
SHAPES = {  # the sizes of each, growing by factors of two
    "rows": [(25_000, 100), (50_000, 100), (100_000, 100), (200_000, 100)],
    "narrow": [(125_000, 20), (250_000, 20), (500_000, 20), (1_000_000, 20)],
    "one-hot": [(500, 600), (1_000, 1_300), (2_000, 2_500), (4_000, 5_000)],
    "categories": [(12_500, 5_000), (25_000, 5_000), (50_000, 5_000), (100_000, 5_000)],
    "texts": [(2_500, 50_000), (5_000, 50_000), (10_000, 50_000)],
}
SPARSE = ("categories", "texts")
GOALS = {(200_000, 100): (60, 3), (1_000_000, 20): (120, None), (4_000, 5_000): (30, None)}  # seconds, GB


def normal_table(n, d, rng):
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=d) / np.sqrt(d)


def one_hot_table(n, d, rng):
    columns = d // CATEGORIES
    places = rng.integers(CATEGORIES, size=(n, columns)) + CATEGORIES * np.arange(columns)
    X = np.zeros((n, d))
    np.put_along_axis(X, places, 1.0, axis=1)
    return X, X @ rng.normal(size=d) / np.sqrt(columns)


def categories_table(n, d, rng):
    values = rng.integers(d // 10, size=(n, 10))
    return pd.DataFrame(values.astype(str)).add_prefix("column "), (values % 7 - 3).sum(1) / 10


def texts_table(n, d, rng):
    """Some words occur in no text: the vocabulary is a little smaller than d."""
    share = 1 / np.arange(1, d + 1)
    words = [rng.choice(d, rng.integers(20, 80), p=share / share.sum()) for _ in range(n)]
    return [" ".join(f"w{word}" for word in text) for text in words], np.array(
        [np.mean(text % 2 - 0.5) for text in words]
    )


TABLES = {
    "rows": normal_table,
    "narrow": normal_table,
    "one-hot": one_hot_table,
    "categories": categories_table,
    "texts": texts_table,
}
STEPS = {"categories": [OneHotEncoder()], "texts": [TfidfVectorizer()]}


def measure(shape, n, d, games):
    """Fit and audit one table in this process."""
    rng = np.random.default_rng(SEED)
    X, signal = TABLES[shape](n, d, rng)
    y = (signal + rng.normal(size=n) > 0).astype(int)
    model = make_pipeline(*STEPS.get(shape, []), LogisticRegression()).fit(X, y)
    played = n if games is None else min(n, games)
    before, start, processor = peak(), time.perf_counter(), time.process_time()
    audit = lw.audit(model, (X, y), games=None if shape in SPARSE and games is None else played)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    summary = audit.summary()
    return {
        "seconds": seconds,
        "processor": processor,
        "peak": peak(),
        "before": before,
        "games": len(audit.games),
        "released": summary["as released"]["rebuilt"],
        "converged": summary["as converged"]["rebuilt"] if "as converged" in summary else None,
    }


def peak():
    """GB (10^9 bytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def elsewhere(shape, n, d, games):
    """The same in a new process."""
    command = [sys.executable, __file__, "--alone", shape, str(n), str(d), str(games or 0)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def rows_of(shape, games, smallest):
    rows, found = [], []
    for n, d in SHAPES[shape][: 1 if smallest else None]:
        one = elsewhere(shape, n, d, games)
        found.append((n, one))
        name, key = f"{n:,} x {d:,} ({shape}), {one['games']:,} rows attacked", f"{shape}.{n}.{games or 'all'}"
        seconds, memory = GOALS.get((n, d), (None, None))
        rows += [
            Row(f"{key}.seconds", f"{name}: s", one["seconds"], paper=seconds and f"goal <= {seconds}", seed=SEED),
            Row(f"{key}.processor", f"{name}: s of processor time", one["processor"], seed=SEED),
            Row(
                f"{key}.peak", f"{name}: peak memory, GB", one["peak"], paper=memory and f"goal <= {memory}", seed=SEED
            ),
            Row(f"{key}.before", f"{name}: peak memory before the audit, GB", one["before"], seed=SEED),
            Row(f"{key}.converged", f"{name}: share rebuilt at the optimum", one["converged"], seed=SEED),
        ]
        print(
            f"{name}: {one['seconds']:.1f} s, {one['processor']:.1f} s of processor time, peak {one['peak']:.2f} GB "
            f"({one['before']:.2f} before); rebuilt {one['released']:.1%} as released, {one['converged']:.1%} at the "
            "optimum",
            flush=True,
        )
    if len(found) > 1:
        sizes = np.log([n for n, _ in found])
        for what in ("seconds", "processor"):
            slope = float(np.polyfit(sizes, np.log([one[what] for _, one in found]), 1)[0])
            rows.append(
                Row(f"{shape}.{games or 'all'}.slope.{what}", f"{shape}: log-log slope of {what}", slope, seed=SEED)
            )
            print(f"{shape}: {what} grow as rows^{slope:.2f}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--games", type=int, help="rows attacked; all by default")
    parser.add_argument("--smallest", action="store_true", help="only the smallest size of each shape")
    parser.add_argument("--alone", nargs=4, help=argparse.SUPPRESS)
    options = parse(parser)
    if options.alone is not None:
        shape, (n, d, games) = options.alone[0], map(int, options.alone[1:])
        print(json.dumps(measure(shape, n, d, games or None)))
        return
    rows = [row for shape in options.shape for row in rows_of(shape, options.games, options.smallest)]
    print(f"written to {write_rows(__file__, rows, keep_others=True)}")


if __name__ == "__main__":
    main()
