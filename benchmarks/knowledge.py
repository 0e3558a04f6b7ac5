"""How many rows may an insider miss, and still rebuild them? The share that comes back over k missing rows.

    python benchmarks/knowledge.py [--games N] [--nets N] [--cases NAME ...]

Every model is at its optimum, of 600 rows of digits (pixels over 16) or the whole of a smaller table; in each game k
rows drawn by the seed are missing, with their labels, and all others are known. A row counts as rebuilt if it is
within 0.05 standard deviations of the columns (root mean square) and its label is right; guesses and rows are paired
by least squared error. Intervals are Clopper-Pearson's with games as units, since rows of one game come back together.
"False" certificates are rows that are certified and not rebuilt. Seconds are of one core. "Continuous digits" are 30
principal components, without pixels that are black in many pictures: then rows are found by their equations alone, at
most half as many as there are classes. "Flags" say whether a column is above its median. Of the forest (100 trees
without bootstraps, 100 rows of the flags of breast cancer's ten means) both ends are tried: one row unknown, and all;
what comes back to somebody who knows no row comes back to all others. Nets (64-12-3 on three classes of digits, ELU,
30 steps of gradient descent, 60 rows) are inverted exactly by Newton (`lw.Informed(known, secrets=k)`).
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
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from lostwax.adapters.sklearn import released
from lostwax.attacks.closed_form.missing_rows import missing_rows, most_missing
from lostwax.metrics.estimate import clopper_pearson
from lostwax.seeds import generator
from lostwax.trainers.optimum import polish
from lostwax_dev.results import Row, parse, write_rows

ROOT = Path(__file__).resolve().parent.parent
REBUILT = 0.05  # deviations
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
    """Rows, and (k, share, low, high) of each point."""
    model, load, numbers = CASES[name]
    fitted = at_optimum(model, *load())
    rows, points = [Row(f"{name}.count", f"{name}: rows that the equations can determine", most_missing(fitted))], []
    for k in numbers:
        games = games_asked if k <= most_missing(fitted) or "flags" in name else min(games_asked, BEYOND)
        if name == "softmax, continuous" and k > 5:
            games = min(games, BEYOND)
        rng = generator(0, "missing", k)
        missing = torch.from_numpy(np.stack([rng.choice(len(fitted.table), k, replace=False) for _ in range(games)]))
        start = time.process_time()
        answer = missing_rows(fitted, missing, seed=0, rehearsals=0)
        seconds = (time.process_time() - start) / games
        right = rebuilt(fitted, missing, answer)
        share, false = float(right.double().mean()), int((answer.certified & ~right).sum())
        low, high = clopper_pearson(round(share * games), games)
        points.append((k, share, low, high))
        sure, certified = answer.certified.double().mean(), f"{name}, {k} missing"
        rows += [
            Row(f"{name}.{k}.rebuilt", f"{certified}: share rebuilt ({games} games)", share, low, high),
            Row(f"{name}.{k}.certified", f"{certified}: share certified", float(sure)),
            Row(f"{name}.{k}.false", f"{certified}: false certificates of {right.numel():,} rows", false),
            Row(f"{name}.{k}.seconds", f"{certified}: seconds per game on one core", seconds),
        ]
        print(f"{certified:36s} rebuilt {share:.3f} certified {sure:.3f} false {false} {seconds:.3f} s", flush=True)
    return rows, points


def forest(rows=100):
    """The two ends: all rows but one known, and none."""
    X, y = flags(load_breast_cancer)
    some = generator(0, "forest").permutation(len(X))[:rows]
    X, y = X[some, :10], y[some]
    model = RandomForestClassifier(100, bootstrap=False, random_state=0).fit(X, y)
    result, points = [], []
    for k, options in ((1, {"attackers": ["insider"]}), (rows, {"threat": lw.Weak(size=rows)})):
        start = time.process_time()
        audit = lw.audit(model, (X, y), **options)
        seconds, share = time.process_time() - start, float(np.mean(audit.findings[0].rebuilt))
        points.append((k, share, share, share))
        result += [
            Row(f"forest.{k}.rebuilt", f"forest, {k} missing: share of all {rows} rows rebuilt", share),
            Row(f"forest.{k}.seconds", f"forest, {k} missing: seconds of the audit", seconds),
        ]
        print(f"forest, {k} missing: rebuilt {share:.3f} {seconds:.1f} s", flush=True)
    return result, points


def nets(games):
    """The same for nets."""
    data = lw.records.digits()
    data = data[data.y < 3]
    known, prior, secrets = data.split(60, 200, max(NETS) * games, seed=0)
    net = lw.nets.mlp(64, 12, 3)
    rows, points = [], []
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
        points.append((k, share, low, high))
        rows += [
            Row(f"net.{k}.rebuilt", f"net, {k} missing: share rebuilt ({games} games)", share, low, high),
            Row(f"net.{k}.seconds", f"net, {k} missing: seconds per game, training of the victims included", seconds),
        ]
        print(f"net, {k} missing: rebuilt {share:.3f} {seconds:.1f} s", flush=True)
    return rows, points


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
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--games", type=int, default=200, help="per point within the count; fewer beyond it")
    parser.add_argument("--nets", type=int, default=10, help="games per point with nets; 0: none")
    parser.add_argument("--forest", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    options = parse(parser)
    warnings.simplefilter("ignore")
    rows, curves = [], {}
    for name in options.cases:
        more, curves[name] = curve(name, options.games)
        rows += more
    if options.nets:
        more, curves["net"] = nets(options.nets)
        rows += more
    if options.forest:
        more, curves["forest"] = forest()
        rows += more
    path = write_rows(__file__, rows)
    draw(curves, FIGURE if options.out is None else options.out / "knowledge.svg")
    print("written to", path)


if __name__ == "__main__":
    main()
