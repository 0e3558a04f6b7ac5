"""Which settings of trees hide rows, and what do they cost?

    python benchmarks/trees_protection.py [--models NAME ...] [--seeds 0 1 2]

Settings of forests and of boosting are varied one at a time, the others are defaults. For each: the share of cells that
come back exactly, the mean width of what is left of all cells (0 for an exact one, else that of its interval, in
standard deviations of the column), rows with all cells exact, and the score by 5-fold cross-validation: R^2 on
diabetes, accuracy on breast cancer. The adversary is that of trees.py. Values are means over seeds of the model.

Two protections are applied to a fitted forest, before its release. Thresholds rounded to some significant digits are
attacked with intervals of that width; nodes in which a known row is so close to the threshold that its side is not
known, and the nodes below them, are not used, so that a better attack may get more. Noise on the values of leaves (in
standard deviations of the target) changes no threshold and no count, and so no cell: the error of the rebuilt label is
given instead.
Writes `results/trees_protection.json`, `.md` and `.png`; `--models` without names only draws.
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np
import torch
from lightgbm import LGBMRegressor
from sklearn.base import clone, is_regressor
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from table_pipelines import breast_cancer, diabetes
from trees import measured, revealed_rows

from lostwax.adapters.sklearn import released
from lostwax.attacks.trees.paths import Narrowing, descend
from lostwax.games.trees import Bounds
from lostwax.reports.charts import COLOURS, DASHES, style
from lostwax_dev.results import Row, parse, read_rows, write_rows

LEAVES = (1, 2, 5, 10, 20, 50)
BINS = (255, 127, 63, 31, 15, 7)
FOREST = {
    "max_depth": (None, 16, 8, 6, 4, 2),
    "min_samples_leaf": LEAVES,
    "n_estimators": (300, 100, 30, 10, 3),
}
SUBJECTS = {  # data, model, and the values of each setting
    "random forest, diabetes": (diabetes, RandomForestRegressor(), FOREST | {"max_features": (1.0, 0.5, 0.3, 0.1)}),
    "random forest, breast cancer": (
        breast_cancer,
        RandomForestClassifier(),
        FOREST | {"max_features": (1.0, 0.5, "sqrt", 0.03)},
    ),
    "gradient boosting, diabetes": (
        diabetes,
        GradientBoostingRegressor(),
        {"max_depth": (6, 3, 2, 1), "min_samples_leaf": LEAVES, "n_estimators": (300, 100, 30, 10)},
    ),
    "histogram boosting, diabetes": (
        diabetes,
        HistGradientBoostingRegressor(),
        {"max_bins": BINS, "min_samples_leaf": (5, 20, 50), "max_iter": (300, 100, 30, 10)},
    ),
    "LightGBM, diabetes": (
        diabetes,
        LGBMRegressor(verbose=-1, n_jobs=1),
        {"max_bin": BINS, "min_child_samples": (5, 20, 50), "n_estimators": (300, 100, 30, 10)},
    ),
}
ROUNDED = "threshold digits"
NOISE = "noise on leaves"
AFTER = {ROUNDED: (6, 4, 3, 2, 1), NOISE: (0.1, 1.0)}  # what is done to a fitted forest: the first subject only
QUANTITIES = {
    "exact": "share of cells exact",
    "left": "mean width left of all cells, SD",
    "rows": "share of rows with all cells exact",
    "score": "score, cross-validated",
    "label": "median error of the rebuilt label, SD",
}
LEGENDS = ("lower left", "upper left", "lower left")
PANELS = ("random forest, diabetes", "random forest, breast cancer", "histogram boosting, diabetes")


def scores(model, X, y, after=lambda fitted: fitted):
    """R^2 or accuracy on the rows of each fold."""
    folds = KFold(5, shuffle=True, random_state=0) if is_regressor(model) else StratifiedKFold(5)
    score = r2_score if is_regressor(model) else accuracy_score
    for train, test in folds.split(X, y):
        fitted = after(clone(model).fit(X.iloc[train], y[train]))
        yield score(y[test], fitted.predict(X.iloc[test]))


def by_setting(model, X, y):
    """All quantities of a model with some settings."""
    fitted = clone(model).fit(X, y)
    found = revealed_rows(fitted, X, y)
    shares = measured(fitted, X, y, found)
    low, high = found.cells.every_bound()[:2]
    return {
        "exact": shares["exact"],
        "left": left(low, high, found.truth),
        "rows": shares["rows"],
        "score": np.mean(list(scores(model, X, y))),
    }


def left(low, high, truth):
    """Mean width of intervals, cut to the range of the column."""
    least, most = truth.min(0), truth.max(0)
    return ((np.minimum(high, most) - np.maximum(low, least)).clip(0) / truth.std(0)).mean()


def rounded(values, digits):
    """Numbers of so many significant digits."""
    unit = step(values, digits)
    return np.round(values / unit) * unit


def step(values, digits):
    """The unit of the last of so many significant digits."""
    size = np.abs(np.where(values == 0, 1, values))
    return 10.0 ** (np.floor(np.log10(size)) - digits + 1)


class WithinDigits(Narrowing):
    """Bounds from thresholds that were rounded to some digits."""

    def __init__(self, forest, bounds, digits):
        super().__init__(forest, bounds)
        self.digits = digits

    def neighbours(self, threshold, other):
        low, high = ends(threshold, self.digits)
        return 2 * low - other, 2 * high - other


def ends(threshold, digits):
    """Between which numbers a threshold lay before it was rounded."""
    half = 0.5 * step(threshold, digits) * (1 + 1e-9)
    return threshold - half, threshold + half


def by_digits(model, X, y, digits):
    """The same after the thresholds of a fitted forest were rounded."""
    fitted = clone(model).fit(X, y)
    forest = released(fitted, (X, y)).parts[0].fitted.forest
    x = forest.cast(X.to_numpy(dtype=np.float64))
    anything = np.full(x.shape, np.inf)
    found = WithinDigits(forest, Bounds(-anything, anything, np.zeros(x.shape, dtype=bool)), digits)
    for tree in forest.trees:
        public = replace(tree, threshold=rounded(tree.threshold, digits))
        low, high = ends(public.threshold, digits)
        sure = np.ones(len(x), dtype=bool)  # the path of each row is known so far, if it is the missing one
        for one in descend(forest, tree, x):
            close = (one.value >= low[one.node]) & (one.value <= high[one.node])
            others = np.bincount(one.node, close, len(tree.feature))[one.node] - close
            sure[one.rows[others > 0]] = False
            shown = one.shown & sure[one.rows]
            for side, end in ((one.left, high), (~one.left, low)):
                found.by_sides(replace(tree, threshold=end), one._replace(shown=shown & side), np.arange(len(x)))
            found.by_neighbours(public, one._replace(shown=shown), np.arange(len(x)))
    bounds = found.bounds()
    held = (forest.cast(bounds.low) <= x) & (x <= forest.cast(bounds.high))
    if not held.all():
        raise ValueError(f"{(~held).sum()} intervals from thresholds of {digits} digits do not hold the true value.")
    exact = forest.cast(bounds.low) == forest.cast(bounds.high)

    def round_all(fitted):
        for one in fitted.estimators_:
            one.tree_.threshold[:] = rounded(one.tree_.threshold, digits)
        return fitted

    return {
        "exact": exact.mean(),
        "left": left(bounds.low, bounds.high, x),
        "rows": exact.all(1).mean(),
        "score": np.mean(list(scores(model, X, y, round_all))),
    }


def by_noise(model, X, y, noise):
    """The same after noise was added to the values of leaves: only labels change.

    The label is the value of a leaf that holds no other row, the mean over all trees that have one.
    """
    draw = np.random.default_rng(0)

    def add(fitted):
        for one in fitted.estimators_:
            one.tree_.value[:] += draw.normal(0, noise * y.std(), one.tree_.value.shape)
        return fitted

    fitted = clone(model).fit(X, y)
    forest = released(fitted, (X, y)).parts[0].fitted.forest
    add(fitted)
    total, count = np.zeros(len(X)), np.zeros(len(X))
    for one, tree in zip(fitted.estimators_, forest.trees, strict=True):
        leaf = one.apply(X.to_numpy())
        alone = (tree.share > 0) & (one.tree_.n_node_samples[leaf] == 1)
        total[alone] += one.tree_.value[leaf[alone], 0, 0]
        count += alone
    error = np.abs(total[count > 0] / count[count > 0] - y[count > 0]) / y.std()
    unchanged = by_setting(model, X, y)
    return unchanged | {"score": np.mean(list(scores(model, X, y, add))), "label": float(np.median(error))}


def rows_of(subject, seeds):
    load, model, settings = SUBJECTS[subject]
    X, y = load()
    runs = {(name, value): (by_setting, {name: value}, ()) for name, values in settings.items() for value in values}
    if subject == next(iter(SUBJECTS)):
        runs |= {(ROUNDED, digits): (by_digits, {}, (digits,)) for digits in AFTER[ROUNDED]}
        runs |= {(NOISE, noise): (by_noise, {}, (noise,)) for noise in AFTER[NOISE]}
    rows = []
    for (name, value), (run, changed, more) in runs.items():
        got = [run(clone(model).set_params(random_state=seed, **changed), X, y, *more) for seed in seeds]
        mean = {quantity: float(np.mean([one[quantity] for one in got])) for quantity in got[0]}
        print(f"{subject}, {name}={value}: " + ", ".join(f"{key} {mean[key]:.4g}" for key in mean), flush=True)
        for quantity, number in mean.items():
            values = [one[quantity] for one in got]
            words = f"{subject}, {name} {value}: {QUANTITIES[quantity]}"
            key = f"{subject}.{name}.{value}.{quantity}"
            rows.append(Row(key, words, number, float(min(values)), float(max(values)), seed=max(seeds)))
    return rows


def points(rows):
    """(subject, setting) -> value -> quantities."""
    found = {}
    for row in rows:
        subject, rest = row.id.split(".", 1)
        name, rest = rest.split(".", 1)
        value, quantity = rest.rsplit(".", 1)
        found.setdefault((subject, name), {}).setdefault(value, {})[quantity] = row.value
    return found


def as_table(rows):
    """One line per setting and value, in Markdown."""
    head = ("model", "setting", "value", "cells exact", "width left, SD", "rows exact", "R^2 or accuracy")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (subject, name), values in points(rows).items():
        for value, got in values.items():
            shares = f"{100 * got['exact']:.1f} % | {got['left']:.2g} | {100 * got['rows']:.1f} % | {got['score']:.3f}"
            note = f" (label off by {got['label']:.2g} SD)" if "label" in got else ""
            lines.append(f"| {subject} | {name} | {value}{note} | {shares} |")
    return "\n".join(lines) + "\n"


def draw(rows, path):
    """Exact cells over the score, the defaults as a star: a setting protects for free if it goes down and not left."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = points(rows)
    colours = (COLOURS["accent"], COLOURS["ink"], COLOURS["muted"], "#0072b2", "#009e73")
    with style():
        figure = Figure(figsize=(12.2, 4.6), dpi=72)
        FigureCanvasAgg(figure)
        for place, (axes, subject) in enumerate(zip(figure.subplots(1, len(PANELS)), PANELS, strict=True)):
            lines = [(name, values) for (one, name), values in found.items() if one == subject and name not in AFTER]
            default = SUBJECTS[subject][1].get_params()
            for (name, values), colour in zip(lines, colours, strict=False):
                x, y = ([got[quantity] for got in values.values()] for quantity in ("score", "exact"))
                dashes = DASHES[colours.index(colour) % len(DASHES)]
                axes.plot(x, y, color=colour, linestyle=dashes, marker="o", markersize=4, label=name)
                for value, *at in zip(values, x, y, strict=True):
                    if value == str(default[name]):
                        axes.plot(*at, color=COLOURS["ink"], marker="*", markersize=13, zorder=3)
                    else:
                        axes.annotate(value, at, (5, 3), textcoords="offset points", fontsize=9, color=colour)
            axes.set_title(subject, fontsize=12, color=COLOURS["ink"], loc="left")
            axes.set_xlabel("accuracy" if "cancer" in subject else "R²")
            axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
            axes.set_ylim(bottom=-0.02 * axes.get_ylim()[1])
            if not place:
                axes.set_ylabel("cells that come back exactly")
            axes.legend(frameon=False, fontsize=9, labelcolor=COLOURS["ink"], loc=LEGENDS[place])
        figure.tight_layout(pad=0.8)
        figure.savefig(path, dpi=110, facecolor=COLOURS["paper"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=SUBJECTS, default=list(SUBJECTS), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1, 2))
    options = parse(parser)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for subject in options.models:
        written = write_rows(__file__, rows_of(subject, options.seeds), keep_others=True)
        print("written to", written)
    rows = sorted(read_rows(written), key=lambda row: list(SUBJECTS).index(row.id.split(".")[0]))
    written.with_suffix(".md").write_text(as_table(rows))
    draw(rows, written.with_suffix(".png"))


if __name__ == "__main__":
    main()
