"""How much of a whole table do boosted trees reveal to an attacker who knows no row of it?

    python benchmarks/boosting_without_knowledge.py [--tables FILE] [--study timberstrike libraries proofs ...]
        [--names diabetes_0 stroke_1 ...] [--models xgboost-8 lightgbm ...] [--binary FOLDER] [--out FOLDER]

`FILE` is an .npz with the training tables of TimberStrike's experiments (github.com/necst/TimberStrike, folder `data`):
`diabetes_{0,1,2}_{x,y}` and `stroke_{0..4}_{x,y}`. `FOLDER` of `--binary` holds DRAFT's tables (compas.csv, adult.csv
and default_credit.csv of github.com/vidalt/DRAFT, folder `data`). Without them only tables of scikit-learn run.

The score is TimberStrike's: the share of cells within 0.319 standard deviations of the row that they are matched with.
The matching favours every guess, so others are matched in the same way: a *blind table* (the true columns, shuffled),
the rebuilt table with its columns shuffled (what the file tells of each column alone), and values drawn from the boxes
of the true rows (what the thresholds in the model allow). Certified cells are proven to lie on one side of a threshold;
false ones are counted, after the best matching of rows. Seconds are those of a processor.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import lightgbm as lgb
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import xgboost as xgb
from forests_without_knowledge import ONE_HOT
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_classification
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier

from lostwax.adapters.sklearn.boosting import released_sums
from lostwax.adapters.xgboost import XGBoostModel, model_of
from lostwax.attacks.whole_table import BoostedTable, NotTheseRowsError
from lostwax.attacks.whole_table.boosting import CodedLeaves
from lostwax.attacks.whole_table.guesses import values_of
from lostwax.attacks.whole_table.places import Boxes, Grid
from lostwax.games.trees import Forest
from lostwax.reports.charts import COLOURS, style
from lostwax_dev.results import Row, parse, write_rows

TOLERANCE = 0.319  # standard deviations
BINARY = np.array([0.0, 1.0])
CONFIGURED = {"learning_rate": 0.3, "reg_lambda": 1, "gamma": 0, "n_estimators": 100}  # TimberStrike's
PICTURE = Path(__file__).resolve().parent / "results" / "boosting_without_knowledge.png"
DEPTHS, RATES, DIGITS = (2, 3, 4, 6, 8), (1.0, 0.3, 0.1, 0.03), (8, 6, 4, 2)
ROWS = (50, 100, 200, 500, 1_000, 2_000)


class Measured(NamedTuple):
    """One model."""

    score: float
    blind: float
    columns: float  # score of the rebuilt table with its columns shuffled
    most: float  # score of values drawn from the boxes of the true rows
    certified: float
    exact: float
    false: int
    labels: float
    proven: int
    fits: int
    trees: int
    seconds: float
    processor: float
    cells: int


def public_of(x):
    return {column: BINARY for column in range(x.shape[1]) if np.isin(x[:, column], BINARY).all()}


def ends_of(x):
    return x.mean(0) - 2 * x.std(0), x.mean(0) + 2 * x.std(0)


def score(x, guess):
    """The share of cells within the tolerance, after the matching that makes it largest; and the matching."""
    deviation = np.where(x.std(0) > 0, x.std(0), 1.0)
    cost = np.zeros((len(x), len(guess)))
    for column, unit in enumerate(deviation):
        off = np.abs(x[:, None, column] - guess[None, :, column]) / unit
        cost += (off > TOLERANCE) + 1e-3 * np.minimum(off, 3.0)
    rows, others = linear_sum_assignment(cost)
    return float((np.abs(x[rows] - guess[others]) / deviation <= TOLERANCE).mean()), others


def reachable(sums, x, seed):
    """Values drawn from the boxes in which the trees put the true rows."""
    grid = Grid.of(Forest(tuple(each.tree for each in sums.trees), strict=sums.strict), x.shape[1], public_of(x))
    single, side = x.astype(np.float32), "right" if sums.strict else "left"
    codes = np.stack(
        [
            np.searchsorted(cuts, single[:, column], side) if values is None else x[:, column].astype(int)
            for column, (values, cuts) in enumerate(zip(grid.values, grid.cuts, strict=True))
        ],
        axis=1,
    )
    low, high = np.zeros_like(codes), np.tile(grid.codes - 1, (len(x), 1))
    for boosted in sums.trees:
        leaves = CodedLeaves.of(boosted, grid)
        inside = (leaves.boxes.low[None] <= codes[:, None]) & (codes[:, None] <= leaves.boxes.high[None])
        leaf = inside.all(2).argmax(1)
        low, high = np.maximum(low, leaves.boxes.low[leaf]), np.minimum(high, leaves.boxes.high[leaf])
    drawn = values_of(sums, grid, Boxes(low, high), ends_of(x), np.random.default_rng(seed))
    return np.where(np.isnan(drawn), np.median(x, 0), drawn)


def false_rows(table, x, y):
    """Rows whose proof no true row fits, in the best matching."""
    low, high = (np.where(table.certain, end, far) for end, far in ((table.low, -np.inf), (table.high, np.inf)))
    single = x.astype(np.float32)
    most, least = np.maximum(x, single), np.minimum(x, single)
    wrong = np.zeros((len(x), len(x)), dtype=bool)
    for column in range(x.shape[1]):
        wrong |= (low[None, :, column] > most[:, None, column]) | (least[:, None, column] > high[None, :, column])
    wrong |= table.label_certain[None] & (y[:, None] != table.labels[None])
    rows, others = linear_sum_assignment(wrong)
    return int(wrong[rows, others].sum())


def measure(model, x, y, seconds, seed=0, one_hot=()):
    sums = released_sums(model)
    start, processor = time.perf_counter(), time.process_time()
    table = BoostedTable(seconds, clock=time.process_time)(
        sums, x.shape, values=public_of(x), one_hot=one_hot, ends=ends_of(x), seed=seed
    )
    taken, processor = time.perf_counter() - start, time.process_time() - processor
    guess = np.where(np.isnan(table.x), np.median(x, 0), table.x)
    random = np.random.default_rng(seed)
    shuffled, dealt = (np.stack([random.permutation(column) for column in part.T], 1) for part in (x, guess))
    reached, order = score(x, guess)
    return Measured(
        reached,
        score(x, shuffled)[0],
        score(x, dealt)[0],
        score(x, reachable(sums, x, seed))[0],
        float(table.certain.mean()),
        float(table.exact.mean()),
        false_rows(table, x, y),
        float((table.labels[order] == y).mean()),
        table.trees.proven,
        table.trees.fits,
        len(sums.trees),
        taken,
        processor,
        int(table.certain.sum()),
    )


def report(key, title, found, seed=0, paper=None):
    print(
        f"{title}: {found.score:.1%} of cells (blind {found.blind:.1%}, columns {found.columns:.1%}, reachable "
        f"{found.most:.1%}), certified {found.certified:.0%}, exact {found.exact:.0%}, false {found.false}, labels "
        f"{found.labels:.0%}, trees {found.proven} proven, {found.fits} fit, of {found.trees}; {found.seconds:.0f} s "
        f"({found.processor:.0f} s of a processor)",
        flush=True,
    )
    names = {
        "score": "share of cells within 0.319 SD",
        "blind": "the same of a blind table",
        "columns": "the same of the rebuilt table with its columns shuffled",
        "most": "the same of values drawn from the boxes of the true rows",
        "certified": "share of cells certified",
        "exact": "share of cells certified and exact",
        "false": "rows certified that are in no matching",
        "labels": "share of labels right",
        "proven": "trees solved with proof",
        "fits": "trees whose sums the rebuilt rows have",
        "seconds": "s",
        "processor": "s of processor time",
    }
    rows = [
        Row(f"{key}.{field}", f"{title}: {what}", getattr(found, field), seed=seed)
        for field, what in names.items()
        if field != "score"
    ]
    write_rows(
        __file__,
        [Row(f"{key}.score", f"{title}: {names['score']}", found.score, paper=paper, seed=seed), *rows],
        keep_others=True,
    )


def changed(model, change):
    """What a file holds after its trees were changed; the attacker knows the learning rate and lambda."""
    document = json.loads(model.get_booster().save_raw("json"))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        change(tree)
    known = model_of(model)
    return replace(XGBoostModel.of(json.dumps(document).encode(), "a file"), rate=known.rate, ridge=known.ridge)


def without_curvatures(tree):
    del tree["sum_hessian"]


def timberstrike(options):
    """Their tables and configuration."""
    if options.tables is None:
        return
    tables = np.load(options.tables)
    makers = {
        f"xgboost-{depth}": lambda depth=depth: xgb.XGBClassifier(**CONFIGURED, max_depth=depth) for depth in (8, 6, 3)
    } | {"bare-8": lambda: xgb.XGBClassifier(**CONFIGURED, max_depth=8), "lightgbm": LIBRARIES["LightGBM"]}
    for name in options.names or [name[:-2] for name in tables if name.endswith("_x")]:
        x, y = tables[f"{name}_x"], tables[f"{name}_y"].ravel()
        paper = "TimberStrike 0.73 to 0.96 on Stroke; 0.66 on Diabetes (NVIDIA FLARE)"
        for kind in options.models or makers:
            model = makers[kind]().fit(x, y)
            if kind.startswith("bare"):
                model = changed(model, without_curvatures)
            library, _, depth = kind.partition("-")
            said = {"xgboost": f"XGBoost of depth {depth}", "bare": f"XGBoost of depth {depth}, sum_hessian removed"}
            title = f"{name}, {len(x):,} rows, {said.get(library, 'LightGBM')}"
            found = measure(model, x, y, options.seconds)
            report(f"{name}.{kind}", title, found, paper=paper if library == "xgboost" else None)


LIBRARIES = {
    "XGBoost": lambda: xgb.XGBClassifier(),
    "LightGBM": lambda: lgb.LGBMClassifier(verbose=-1),
    "HistGradientBoosting": lambda: HistGradientBoostingClassifier(early_stopping=False),
    "GradientBoosting": lambda: GradientBoostingClassifier(),
}


def some_rows(load, rows, seed, binary=False):
    x, y = load(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(x))[:rows]
    x = x[:, :10]
    return ((x > np.median(x, 0)).astype(float) if binary else x)[chosen], y[chosen]


def libraries(options):
    """Defaults of each library, by the number of rows."""
    for binary in (False, True):
        for rows in (50, 100, 200, 500):
            x, y = some_rows(load_breast_cancer, rows, 0, binary)
            for name, make in LIBRARIES.items():
                kind = "binary columns, " if binary else ""
                key = f"breast-cancer.{'binary.' if binary else ''}{rows}.{name.lower()}"
                found = measure(make().fit(x, y), x, y, options.seconds)
                report(key, f"breast cancer, {kind}{rows} rows, {name}", found)


def curves(options):
    """Score and seconds by the number of rows."""
    breast, diabetes = (load(return_X_y=True) for load in (load_breast_cancer, load_diabetes))
    tables = {"breast cancer": (breast[0][:, :10], breast[1]), "diabetes": diabetes}
    for name in ONE_HOT if options.binary is not None else ():
        values = pd.read_csv(options.binary / f"{name}.csv").to_numpy()
        tables[name] = values[:, :-1].astype(float), values[:, -1]
    points = {}
    for name, (x, y) in tables.items():
        order = np.random.default_rng(0).permutation(len(x))
        for rows in [size for size in ROWS if size <= len(x)]:
            some = x[order[:rows]], y[order[:rows]]
            boost = (xgb.XGBRegressor if name == "diabetes" else xgb.XGBClassifier)(**CONFIGURED, max_depth=6)
            found = measure(boost.fit(*some), *some, options.seconds, one_hot=ONE_HOT.get(name, ()))
            title = f"{name}, {rows:,} rows, XGBoost of depth 6"
            report(f"curves.{name.replace(' ', '-')}.{rows}", title, found)
            points.setdefault(name, []).append((rows, found.score, found.blind, found.processor))
    draw_curves(points)


def draw_curves(points):
    """Name of the table -> rows, score, that of a blind table (dotted), and seconds."""
    with style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
        for name, curve in points.items():
            rows, scores, blind, seconds = zip(*curve, strict=True)
            (line,) = left.plot(rows, scores, "o-", label=name.replace("_", " "))
            left.plot(rows, blind, ":", color=line.get_color())
            right.plot(rows, seconds, "o-")
        left.set(ylabel="cells within 0.319 SD", ylim=(0, 1.02))
        right.set(yscale="log", ylabel="seconds of a processor")
        right.set_yticks([0.1, 1.0, 4.0], ["0.1", "1", "4"])
        for axis in (left, right):
            axis.set(xscale="log", xlabel="rows")
            axis.set_xticks(ROWS, [f"{rows:,}" for rows in ROWS])
            axis.minorticks_off()
        left.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(PICTURE.with_name("boosting_curves.png"), dpi=110, facecolor=COLOURS["paper"])


def proofs(options):
    """Random models of all options: certified cells, and false ones."""
    random, cells, false, models = np.random.default_rng(0), 0, 0, 0
    while cells < options.cells:
        load = (load_breast_cancer, load_wine, load_diabetes)[models % 3]
        x, y = some_rows(load, int(random.integers(20, 250)), models)
        x = x[:, : int(random.integers(2, 11))]
        if random.random() < 0.5:
            x = np.round((x - x.mean(0)) / x.std(0))
        trees, depth, rate = int(random.integers(1, 40)), int(random.integers(1, 9)), float(random.uniform(0.02, 0.6))
        ridge, leaf, kind = float(random.uniform(0, 3)), int(random.integers(1, 25)), int(random.integers(5))
        boost, numbers = {"n_estimators": trees, "max_depth": depth, "learning_rate": rate}, load is load_diabetes
        if kind < 2:
            model = (xgb.XGBRegressor if numbers else xgb.XGBClassifier)(
                **boost,
                reg_lambda=ridge,
                tree_method=str(random.choice(["hist", "exact", "approx"])),
                colsample_bytree=float(random.choice([0.6, 1.0])),
                min_child_weight=float(random.choice([0, 1, 3])),
                scale_pos_weight=2.0 if kind == 0 and load is load_breast_cancer and random.random() < 0.3 else None,
            )
        elif kind == 2:
            model = (lgb.LGBMRegressor if numbers else lgb.LGBMClassifier)(
                **boost, reg_lambda=ridge, min_child_samples=leaf, verbose=-1
            )
        elif kind == 3:
            hist = {"max_iter": trees, "max_depth": depth, "learning_rate": rate, "min_samples_leaf": leaf}
            model = HistGradientBoostingClassifier(**hist, early_stopping=False, l2_regularization=ridge)
            y = (y > np.median(y)).astype(int) if numbers else y
        else:
            model = GradientBoostingClassifier(**boost, min_samples_leaf=leaf)
            y = (y > np.median(y)).astype(int) if numbers else y
        models += 1
        try:
            sums = released_sums(model.fit(x, y))
            if kind == 1 and not numbers:
                sums = changed(model, without_curvatures).sums()
            table = BoostedTable(0.5, clock=time.process_time)(sums, x.shape, ends=ends_of(x))
        except (TypeError, NotTheseRowsError) as error:
            print(f"model {models}, {type(model).__name__}, was not read: {type(error).__name__} {error}", flush=True)
            continue
        cells, false = cells + int(table.certain.sum()), false + false_rows(table, x, y)
        if models % 20 == 0 or false:
            print(f"{models} models, {cells:,} certified cells, {false} false rows", flush=True)
    rows = [
        Row("proofs.models", "random models", models, seed=0),
        Row("proofs.cells", "certified cells", cells, seed=0),
        Row("proofs.false", "rows with a certified cell that is false", false, seed=0),
    ]
    write_rows(__file__, rows, keep_others=True)


def rounded(digits):
    def change(tree):
        for part in ("sum_hessian", "base_weights", "split_conditions"):
            leaf = np.array(tree["left_children"]) < 0
            numbers = np.array(tree[part])
            near = np.array([float(f"{number:.{digits}g}") for number in numbers])
            tree[part] = np.where(leaf | (part != "split_conditions"), near, numbers).tolist()

    return change


def protection(options):
    """One setting at a time, XGBoost on breast cancer."""
    curves = {"depth": [], "learning rate": [], "digits": []}
    for seed in range(2):
        x, y = some_rows(load_breast_cancer, 60, seed)
        base = {"n_estimators": 50, "max_depth": 4, "learning_rate": 0.3}
        for what, setting, values in (("depth", "max_depth", DEPTHS), ("learning rate", "learning_rate", RATES)):
            for value in values:
                model = xgb.XGBClassifier(**(base | {setting: value})).fit(x, y)
                curves[what].append((seed, value, certified(model, x, y, options)))
        model = xgb.XGBClassifier(**base).fit(x, y)
        for digits in DIGITS:
            curves["digits"].append((seed, digits, certified(changed(model, rounded(digits)), x, y, options)))
    rows = []
    with style():
        figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True)
        for axis, (what, points) in zip(axes, curves.items(), strict=True):
            values = sorted({value for _, value, _ in points})
            means = [float(np.mean([share for _, at, share in points if at == value])) for value in values]
            axis.plot(values, means, "o-")
            axis.set_xlabel({"digits": "significant digits of weights"}.get(what, what))
            axis.set_xscale("log" if what == "learning rate" else "linear")
            for value, mean in zip(values, means, strict=True):
                print(f"{what} {value}: certified {mean:.1%}", flush=True)
                title = f"breast cancer, 60 rows, XGBoost, {what} {value}: share of cells certified"
                rows.append(Row(f"protection.{what.replace(' ', '-')}-{value}", title, mean, seed=0))
        axes[0].set_ylabel("share of cells certified")
        axes[0].set_ylim(0, 1)
        figure.tight_layout()
        figure.savefig(PICTURE, dpi=110, facecolor=COLOURS["paper"])
    write_rows(__file__, rows, keep_others=True)


def certified(model, x, y, options):
    try:
        table = BoostedTable(options.seconds)(released_sums(model), x.shape, ends=ends_of(x))
    except NotTheseRowsError:
        return 0.0
    assert false_rows(table, x, y) == 0
    return float(table.certain.mean())


def scale(options):
    """1,000 rows of 20 columns, 100 trees."""
    x, y = make_classification(1_000, 20, random_state=0)
    model = xgb.XGBClassifier(**CONFIGURED).fit(x, y)
    found = measure(model, x, y, options.seconds)
    report("scale", "1,000 rows of 20 columns, XGBoost, 100 trees", found)


STUDIES = {
    "timberstrike": timberstrike,
    "libraries": libraries,
    "curves": curves,
    "proofs": proofs,
    "protection": protection,
    "scale": scale,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, help="an .npz with the tables of TimberStrike")
    parser.add_argument("--binary", type=Path, help="a folder with the tables of DRAFT")
    parser.add_argument("--study", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--names", nargs="+", help="tables of TimberStrike; all by default")
    parser.add_argument("--models", nargs="+", help="models that they are rebuilt from; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each table, of a processor")
    parser.add_argument("--cells", type=int, default=100_000, help="certified cells to check")
    options = parse(parser)
    for study in options.study:
        STUDIES[study](options)


if __name__ == "__main__":
    main()
