"""How many rows may an insider miss, and still rebuild them? The share that comes back over k missing rows.

    python benchmarks/knowledge.py [--games N] [--nets N] [--cases NAME ...]

Every model is at its optimum, of 600 rows of digits (pixels over 16) or the whole of a smaller table; in each game k
rows drawn by the seed are missing, with their labels, and all others are known. A row counts as rebuilt if it is
within 0.05 standard deviations of the columns (root mean square) and its label is right; guesses and rows are paired
by least squared error. Intervals are Clopper-Pearson's with games as units, since rows of one game come back together.
"False" certificates are rows that are certified and not rebuilt. Seconds are of one core. "Continuous digits" are 30
principal components, without pixels that are black in many pictures: then rows are found by their equations alone, at
most half as many as there are classes. "Flags" say whether a column is above its median. Forests have 100 trees: one
without bootstraps on 100 rows of the flags of breast cancer's ten means, where all rows may be unknown too, and one of
regressions on diabetes, with bootstraps; of these rows labels are not compared. Nets (64-12-3 on three classes of
digits, ELU, 30 steps of gradient descent, 60 rows) are inverted exactly by Newton (`lw.Informed(known, secrets=k)`).
"S1's MNIST nets" in the picture are the victims of Balle et al. with 10,000 records and more, of which
`papers/s1_partly_informed.py` learns from shadow models: a record counts there if the guess is nearer than the mean of
its class and than every record that the attacker has. Rows of cases that are not run stay as they are.
"""

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from lostwax.adapters.sklearn import released
from lostwax.attacks.closed_form.missing_rows import missing_rows, most_missing
from lostwax.attacks.trees import several_missing
from lostwax.attacks.whole_table import NoTableError, Search, TooManyCellsError, WholeTable
from lostwax.audits.climb import Public
from lostwax.metrics.estimate import clopper_pearson
from lostwax.seeds import generator
from lostwax.trainers.optimum import polish
from lostwax_dev.results import Row, parse, read_rows, write_rows

ROOT = Path(__file__).resolve().parent.parent
REBUILT = 0.05  # deviations
MNIST = ROOT / "papers" / "results" / "s1_partly_informed.json"
FIGURE = ROOT / "docs" / "figures" / "knowledge.svg"


def digits(rows=600):
    X, y = load_digits(return_X_y=True)
    some = generator(0, "digits").permutation(len(X))[:rows]
    return X[some] / 16, y[some]


def continuous_digits():
    X, y = digits()
    return PCA(30).fit_transform(X), y


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def logistic():
    return LogisticRegression(max_iter=50_000)


def flags(load):
    X, y = load(return_X_y=True)
    return (np.median(X, 0) < X).astype(float), y


def five_flags(load):
    x, y = flags(load)
    return x[:, [0, 1, 5, 8, 9]], y


def with_scaler(model):
    return make_pipeline(StandardScaler(), model)


CASES = {  # model, data, numbers of missing rows
    "softmax": (logistic(), digits, (1, 2, 4, 6, 8, 9, 10, 12, 32)),
    "softmax, continuous": (logistic(), continuous_digits, (1, 2, 4, 5, 6, 8)),
    "softmax, scaler": (with_scaler(logistic()), digits, (1, 4, 8, 9, 10, 11)),
    "softmax, wine": (logistic(), lambda: standardised(load_wine), (1, 2, 3, 4)),
    "binary": (logistic(), lambda: standardised(load_breast_cancer), (1, 2, 4)),
    "binary, scaler": (with_scaler(logistic()), lambda: load_breast_cancer(return_X_y=True), (1, 2, 3, 4)),
    "binary, flags": (logistic(), lambda: flags(load_breast_cancer), (1, 2, 3, 4, 5, 6)),
    "binary, five flags": (logistic(), lambda: five_flags(load_breast_cancer), (1, 2, 4, 6, 8)),
    "ridge": (Ridge(), lambda: standardised(load_diabetes), (1, 2, 4)),
    "ridge, flags": (Ridge(), lambda: flags(load_diabetes), (1, 2, 3, 4)),
    "naive Bayes": (GaussianNB(), digits, (1, 2, 4, 8, 16, 32, 64)),
}
BEYOND = 20  # games per point beyond the count, which take up to a second
NETS = (1, 2, 4, 6)


def at_optimum(model, X, y):
    fitted = released(model.fit(X, y), (X, y)).equation
    if fitted.model is None:
        return fitted
    polished = polish(fitted.model, fitted.table, fitted.weight)
    assert polished.converged
    return replace(fitted, model=polished.model)


def rebuilt(fitted, games, answer):
    """(g, k) whether a guess is one of the missing rows, paired with them by least squared error."""
    spread = fitted.table.x.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    right = torch.zeros(games.shape, dtype=torch.bool)
    for game, rows in enumerate(games):
        truth, guess = fitted.table[rows], answer.records[game]
        apart = ((guess.x[:, None] - truth.x) / spread).square().mean(2).sqrt()
        at, to = linear_sum_assignment(apart)
        labels = torch.isclose(guess.y[at].double(), truth.y[to].double(), atol=1e-6)
        right[game, at] = (apart[at, to] < REBUILT) & labels
    return right


def curve(name, games_asked):
    """Rows of each point."""
    model, load, numbers = CASES[name]
    fitted = at_optimum(model, *load())
    rows = [Row(f"{name}.count", f"{name}: rows that the equations can determine", most_missing(fitted))]
    for k in numbers:
        games = games_asked if k <= most_missing(fitted) or "flags" in name else min(games_asked, BEYOND)
        if name == "softmax, continuous" and k > 5:
            games = min(games, BEYOND)
        rng = generator(0, "missing", k)
        missing = torch.from_numpy(np.stack([rng.choice(len(fitted.table), k, replace=False) for _ in range(games)]))
        start = time.process_time()
        answer = missing_rows(fitted, missing, seed=0)
        seconds = (time.process_time() - start) / games
        right = rebuilt(fitted, missing, answer)
        share, false = float(right.double().mean()), int((answer.certified & ~right).sum())
        low, high = clopper_pearson(round(share * games), games)
        sure, certified = answer.certified.double().mean(), f"{name}, {k} missing"
        rows += [
            Row(f"{name}.{k}.rebuilt", f"{certified}: share rebuilt ({games} games)", share, low, high),
            Row(f"{name}.{k}.certified", f"{certified}: share certified", float(sure)),
            Row(f"{name}.{k}.false", f"{certified}: false certificates of {right.numel():,} rows", false),
            Row(f"{name}.{k}.seconds", f"{certified}: seconds per game on one core", seconds),
        ]
        print(f"{certified:36s} rebuilt {share:.3f} certified {sure:.3f} false {false} {seconds:.3f} s", flush=True)
    return rows


def small_flags(rows=100):
    X, y = flags(load_breast_cancer)
    some = generator(0, "forest").permutation(len(X))[:rows]
    return X[some, :10], y[some]


FORESTS = {  # model, data, numbers of missing rows
    "forest": (RandomForestClassifier(100, bootstrap=False, random_state=0), small_flags, (1, 2, 4, 8, 16, 32, 64)),
    "regression forest": (
        RandomForestRegressor(100, random_state=0),
        lambda: load_diabetes(return_X_y=True),
        (1, 2, 4, 8, 16, 32),
    ),
}


def forest(name, games_asked):
    """The same for trees; where all rows are unknown, the audit of the whole table."""
    model, load, numbers = FORESTS[name]
    X, y = load()
    model.fit(X, y)
    (part,) = released(model, (X, y)).parts
    public, spread, result = Public.of(X), X.std(0), []
    solver = WholeTable(Search(5.0, 1), 20_000)
    for k in numbers:
        games = games_asked if k < BEYOND else min(games_asked, BEYOND)
        rng, right, sure, false, unsolved = generator(0, "missing", k), 0, 0, 0, 0
        start = time.process_time()
        for _ in range(games):
            rows = rng.choice(len(X), k, replace=False)
            try:
                bounds, proven = several_missing(part.fitted, rows, public.values, public.one_hot, solver=solver)
            except (TooManyCellsError, NoTableError):
                unsolved += 1
                continue
            known = np.delete(X, rows, 0)
            low = np.where(np.isfinite(bounds.low), bounds.low, np.minimum(known.min(0), bounds.high))
            high = np.where(np.isfinite(bounds.high), bounds.high, np.maximum(known.max(0), low))
            apart = np.sqrt(((((low + high) / 2)[:, None] - X[rows]) ** 2 / spread**2).mean(2))
            back = apart[linear_sum_assignment(apart)] < REBUILT
            exact = proven & (bounds.low.astype(np.float32) == bounds.high.astype(np.float32)).all(1)
            right, sure, false = right + back.sum(), sure + exact.sum(), false + (exact & ~back).sum()
        seconds, share = (time.process_time() - start) / games, float(right) / (games * k)
        low, high = clopper_pearson(round(share * games), games)
        missing = f"{name}, {k} missing"
        result += [
            Row(f"{name}.{k}.rebuilt", f"{missing}: share rebuilt ({games} games)", share, low, high),
            Row(f"{name}.{k}.certified", f"{missing}: share certified", float(sure) / (games * k)),
            Row(f"{name}.{k}.false", f"{missing}: false certificates of {games * k:,} rows", int(false)),
            Row(f"{name}.{k}.unsolved", f"{missing}: games in which too much is left open", unsolved),
            Row(f"{name}.{k}.seconds", f"{missing}: seconds per game on one core", seconds),
        ]
        print(
            f"{missing:36s} rebuilt {share:.3f} certified {sure / games / k:.3f} false {false} {seconds:.2f} s",
            flush=True,
        )
    if name == "forest":
        start = time.process_time()
        audit = lw.audit(model, (X, y), threat=lw.Weak(size=len(y)))
        share = float(np.mean(audit.findings[0].rebuilt))
        result += [
            Row(f"{name}.{len(y)}.rebuilt", f"{name}, all missing: share of {len(y)} rows rebuilt", share),
            Row(f"{name}.{len(y)}.seconds", f"{name}, all missing: seconds of the audit", time.process_time() - start),
        ]
        print(f"{name}, all missing: rebuilt {share:.3f}", flush=True)
    return result


def nets(games):
    """The same for nets."""
    data = lw.records.digits()
    data = data[data.y < 3]
    known, prior, secrets = data.split(60, 200, max(NETS) * games, seed=0)
    net = lw.nets.mlp(64, 12, 3)
    rows = []
    for k in NETS:
        start = time.process_time()
        audit = lw.audit(
            net,
            trainer=lw.GD(lr=0.3, momentum=0.9, steps=30, init=lw.inits.LeCunNormal()),
            threat=lw.Informed(known, secrets=k),
            prior=prior,
            secrets=secrets,
            attack=lw.Newton(),
            games=games,
        )
        seconds = (time.process_time() - start) / games
        share = float(np.mean(audit.findings[0].rebuilt))
        low, high = clopper_pearson(round(share * games), games)
        rows += [
            Row(f"net.{k}.rebuilt", f"net, {k} missing: share rebuilt ({games} games)", share, low, high),
            Row(f"net.{k}.seconds", f"net, {k} missing: seconds per game, training of the victims included", seconds),
        ]
        print(f"net, {k} missing: rebuilt {share:.3f} {seconds:.1f} s", flush=True)
    return rows


def curves_of(rows):
    """Name -> (k, share, low, high) of each point."""
    curves = {}
    for row in rows:
        if row.id.endswith(".rebuilt"):
            name, k, _ = row.id.rsplit(".", 2)
            low, high = (row.value, row.value) if row.low is None else (row.low, row.high)
            curves.setdefault(name, []).append((int(k), row.value, low, high))
    return {name: sorted(points) for name, points in curves.items()}


def mnist_nets():
    """The curve of Balle et al.'s victims, as `papers/s1_partly_informed.py` measured it."""
    rows = read_rows(MNIST) if MNIST.exists() else []
    points = [row for row in rows if row.id.endswith(".kernel.beats")]
    return sorted((int(row.id.partition(".")[0]), row.value, row.low, row.high) for row in points)


def draw(curves, path):
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "lostwax"
    figure = Figure((6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, points in curves.items():
        k, share, low, high = map(np.array, zip(*points, strict=True))
        axes.errorbar(k, share, [share - low, high - share], marker="o", markersize=4, capsize=2, label=name)
    axes.set(xscale="log", xlabel="rows that the insider misses", ylabel="share rebuilt", ylim=(-0.03, 1.03))
    ticks = [1, 2, 4, 8, 16, 32, 64, 100, 1_000]
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=200, help="per point within the count; fewer beyond it")
    parser.add_argument("--nets", type=int, default=10, help="games per point with nets; 0: none")
    parser.add_argument("--forests", nargs="*", choices=FORESTS, default=list(FORESTS))
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    options = parse(parser)
    warnings.simplefilter("ignore")
    rows = []
    for name in options.cases:
        rows += curve(name, options.games)
    if options.nets:
        rows += nets(options.nets)
    for name in options.forests:
        rows += forest(name, options.games)
    path = write_rows(__file__, rows, keep_others=True)
    curves = curves_of(read_rows(path)) | {"S1's MNIST nets": mnist_nets()}
    draw(curves, FIGURE if options.out is None else options.out / "knowledge.svg")
    print("written to", path)


if __name__ == "__main__":
    main()
