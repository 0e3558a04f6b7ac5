"""How much of a row comes back from trees: cells exact, within an interval or unknown, and are the claims true?

    python benchmarks/trees.py [--models NAME ...] [--tables NAME ...] [--seeds 0 1 2]

Default settings of the tree models of scikit-learn, XGBoost, LightGBM and CatBoost, on diabetes (regression), breast
cancer, wine, digits, and the mixed table of tables.py in two pipelines: imputers, a scaler and one-hot codes ("mixed"),
and ordinal codes with missing values left to the model ("mixed, gaps"). All rows are attacked. The adversary knows all
other rows and their order; "order unknown" is the same without the order, for models that draw bootstraps.

A cell counts as exact if it is claimed to be exact; as an interval if some values of the column's range, or some
categories, are excluded; and as unknown otherwise. Widths are those of intervals, cut to the range of the column, in
its standard deviations. Only trees are counted here: an imputer or a scaler tells more (see tables.py).

Every claim is checked. A false exact claim is a cell that, put in place of the true one, gives the model other inputs
after its cast to float32 (where the library casts), another category, or a value in place of a missing one. An interval
or a set that does not hold the true value is false too. Both must be 0.

Seed 0 is the table as it is; other seeds draw 90 % of its rows, in another order. Intervals are the range over seeds.
Milliseconds are of processor time, for reading the model and for the attack. Goals: RandomForest on diabetes >= 97 % of
cells exact in < 20 ms per row; no false claim in at least 100,000 cells.
Writes `results/trees.json`, and `results/trees.md` with one line per model and table.
"""

import argparse
import time
import warnings
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import numpy as np
import torch
import xgboost
from sklearn import ensemble, tree
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils import get_tags
from table_pipelines import ONE_HOT, breast_cancer, by_kind, diabetes, digits, mixed, wine, with_missing

from lostwax.adapters.sklearn import released
from lostwax.attacks.trees import revealed_by_trees
from lostwax.games import Cells, Kept
from lostwax_dev.results import Row, parse, read_rows, write_rows

RESULTS = Path(__file__).resolve().parent / "results" / "trees.json"
SEEDS = (0, 1, 2)
KEPT_ROWS = 0.9  # of the rows, for seeds other than 0
SAME_TARGET = 1e-6  # standard deviations
GOALS = {("RandomForest", "diabetes", "exact"): ">= 0.97", ("RandomForest", "diabetes", "ms"): "< 20"}
FEWEST_CELLS = 100_000
ORDER_UNKNOWN = ", order unknown"
ORDINAL = by_kind("passthrough", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1))


@dataclass(frozen=True)
class Model:
    """A kind of model, for classes and for numbers; the same type twice if it is fitted without labels."""

    classifier: Any
    regressor: Any
    settings: dict[str, Any] = field(default_factory=dict)  # none of which changes the model

    def __call__(self, seed, *, classes):
        return (self.classifier if classes else self.regressor)(random_state=seed, **self.settings)


MODELS = {
    "DecisionTree": Model(tree.DecisionTreeClassifier, tree.DecisionTreeRegressor),
    "ExtraTree": Model(tree.ExtraTreeClassifier, tree.ExtraTreeRegressor),
    "RandomForest": Model(ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
    "ExtraTrees": Model(ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    "Bagging": Model(ensemble.BaggingClassifier, ensemble.BaggingRegressor),
    "IsolationForest": Model(ensemble.IsolationForest, ensemble.IsolationForest),
    "AdaBoost": Model(ensemble.AdaBoostClassifier, ensemble.AdaBoostRegressor),
    "GradientBoosting": Model(ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor),
    "HistGradientBoosting": Model(ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor),
    "XGBoost": Model(xgboost.XGBClassifier, xgboost.XGBRegressor, {"n_jobs": 1}),
    "LightGBM": Model(lightgbm.LGBMClassifier, lightgbm.LGBMRegressor, {"n_jobs": 1, "verbose": -1}),
    "CatBoost": Model(
        catboost.CatBoostClassifier,
        catboost.CatBoostRegressor,
        {"thread_count": 1, "verbose": False, "allow_writing_files": False},
    ),
}
TABLES = {  # each with the steps before the model
    "diabetes": (diabetes, []),
    "breast cancer": (breast_cancer, []),
    "wine": (wine, []),
    "digits": (digits, []),
    "mixed": (mixed, [with_missing(ONE_HOT)]),
    "mixed, gaps": (mixed, [ORDINAL]),
}
QUANTITIES = {
    "exact": "share of cells exact",
    "interval": "share of cells within an interval or a set",
    "unknown": "share of cells unknown",
    "width": "mean width of intervals in SD",
    "rows": "share of rows with all cells exact",
    "labels": "share of labels right",
    "ms": "ms per row",
    "cells": "cells",
    "false exact": "false exact claims",
    "false intervals": "intervals and sets without the true value",
    "false labels": "classes claimed and wrong",
}
COUNTS = ("cells", "false exact", "false intervals", "false labels")  # summed over seeds


def data(name, seed):
    load, steps = TABLES[name]
    X, y = load()
    if seed:
        rows = np.random.default_rng(seed).permutation(len(X))[: int(KEPT_ROWS * len(X))]
        X, y = X.iloc[rows].reset_index(drop=True), y[rows]
    return X, y, steps


def fitted(model, name, seed):
    """The model on a table, behind its steps; None if it refuses missing values."""
    X, y, steps = data(name, seed)
    estimator = MODELS[model](seed, classes=not _is_regression(y))
    if name == "mixed, gaps" and not _takes_gaps(estimator):
        return None
    return make_pipeline(*steps, estimator).fit(X, y) if steps else estimator.fit(X, y), X, y


def _is_regression(y):
    return np.issubdtype(y.dtype, np.floating)


def _takes_gaps(estimator):
    return isinstance(estimator, catboost.CatBoost) or get_tags(estimator).input_tags.allow_nan


class RefusedError(Exception):
    """The audit does not read this model, and says why."""


@dataclass(frozen=True)
class RevealedRows:
    """What the trees of a model tell of each row of its table."""

    cells: Cells  # (n, d)
    truth: np.ndarray  # (n, d) numbers, codes, NaN
    categorical: np.ndarray  # (d,)
    cast: Any  # values as the trees compare them
    labels: np.ndarray | None  # (n,) NaN: not known
    seconds: float


def revealed_rows(model, X, y, *, ordered=True):
    """Attack every row; None if nothing in the trees depends on an order that `ordered=False` would hide."""
    start = time.process_time()
    table = released(model, (X, y))
    parts = [part for part in table.parts if part.fitted.forest is not None]
    if not parts:
        raise RefusedError(" ".join(table.unread))
    if not ordered:
        if not any(part.fitted.forest.ordered for part in parts):
            return None
        parts = [replace(part, fitted=_without_order(part.fitted)) for part in parts]
    games = torch.arange(len(table.table))
    answers = [revealed_by_trees(part, games) for part in parts]
    seconds = time.process_time() - start
    labels = np.full(len(games), np.nan)
    for answer in answers:
        if answer.labels is not None:
            known = answer.labels_known.numpy() & np.isnan(labels)
            labels[known] = answer.labels.double().numpy()[known]
    return RevealedRows(
        reduce(Cells.or_else, (answer.candidates[0] for answer in answers)),
        table.table.x.numpy(),
        table.columns.categorical.numpy(),
        parts[0].fitted.forest.cast,
        labels if any(answer.labels is not None for answer in answers) else None,
        seconds,
    )


def _without_order(fitted):
    return replace(fitted, forest=fitted.forest.without_order())


def measured(model, X, y, found):
    """All quantities of one fit."""
    kept, (low, high, maybe_missing, possible) = found.cells.kept, found.cells.every_bound()
    exact = kept == Kept.EXACT
    least, most = np.nanmin(found.truth, axis=0), np.nanmax(found.truth, axis=0)
    width = (np.minimum(high, most) - np.maximum(low, least)).clip(0) / np.nanstd(found.truth, axis=0)
    narrower = ((low > least) | (high < most)) & ~found.categorical
    for column, codes in possible.items():
        narrower[:, column] = ~codes.all(1)
    some = ~exact & narrower
    numbers = np.isnan(y).any() or _is_regression(y)
    quantities = {
        "exact": exact.mean(),
        "interval": some.mean(),
        "unknown": (~exact & ~some).mean(),
        "width": width[some & ~found.categorical].mean() if (some & ~found.categorical).any() else np.nan,
        "rows": exact.all(1).mean(),
        "ms": 1e3 * found.seconds / len(X),
        "cells": exact.size,
        "false exact": false_exact(model, X, found, exact),
        "false intervals": false_intervals(found, some, low, high, maybe_missing),
    }
    if found.labels is not None:
        names = y if numbers else np.unique(y, return_inverse=True)[1]
        right = np.abs(found.labels - names) <= (SAME_TARGET * y.std() if numbers else 0)
        quantities["labels"] = right.mean()
        quantities["false labels"] = 0 if numbers else (~right & ~np.isnan(found.labels)).sum()
    return {name: float(quantities[name]) for name in QUANTITIES if np.isfinite(quantities.get(name, np.nan))}


def false_exact(model, X, found, exact):
    """Exact claims that give the model other inputs than the true cells, or another kind of cell."""
    values, truth = found.cells.values, found.truth
    wrong = np.isnan(values) != np.isnan(truth)
    wrong |= found.categorical & (values != truth) & ~np.isnan(truth)
    count = (exact & wrong).sum()
    claimed = exact & ~wrong & ~found.categorical & ~np.isnan(truth)
    for column in np.flatnonzero(claimed.any(0)):
        rows = claimed[:, column]
        changed = X.copy()
        changed[X.columns[column]] = np.where(rows, values[:, column], truth[:, column])
        before, after = (found.cast(inputs(model, frame)) for frame in (X, changed))
        count += ((before != after) & ~(np.isnan(before) & np.isnan(after))).any(1).sum()
    return count


def inputs(model, X):
    """(n, D) what the model itself sees."""
    seen = model[:-1].transform(X) if isinstance(model, Pipeline) else X
    return np.asarray(seen.toarray() if hasattr(seen, "toarray") else seen, dtype=np.float64)


def false_intervals(found, some, low, high, maybe_missing):
    """Cells whose true value is excluded."""
    truth, gap = found.truth, np.isnan(found.truth)
    single = found.cast(np.nan_to_num(truth))
    held = np.where(gap, maybe_missing, (np.minimum(single, truth) <= high) & (np.maximum(single, truth) >= low))
    for column, codes in found.cells.every_bound().codes.items():
        own = np.nan_to_num(truth[:, column]).astype(int)
        held[:, column] = np.where(gap[:, column], maybe_missing[:, column], codes[np.arange(len(truth)), own])
    return (some & ~held).sum()


def rows_of(model, name, seeds):
    """The rows of one model on one table: with the order of rows known, and not."""
    lines = {"": [], ORDER_UNKNOWN: []}
    for seed in seeds:
        if (fit := fitted(model, name, seed)) is None:
            return []
        for words, runs in lines.items():
            try:
                found = revealed_rows(*fit, ordered=not words)
            except RefusedError as error:
                return [Row(f"{model}.{name}.refused", f"{model} on {name}: not read", str(error))]
            if found is not None:
                runs.append(measured(*fit, found))
    rows = []
    for words, runs in lines.items():
        for quantity, title in QUANTITIES.items() if runs else ():
            values = [run[quantity] for run in runs if quantity in run]
            if not values:
                continue
            key, title = f"{model}.{name}{words}.{quantity}", f"{model} on {name}{words}: {title}"
            if quantity in COUNTS:
                rows.append(Row(key, title, sum(values)))
            else:
                goal = None if words else GOALS.get((model, name, quantity))
                rows.append(Row(key, title, float(np.mean(values)), min(values), max(values), paper=goal))
    return rows


def totals(rows):
    """How many cells were claimed over all runs, and how many falsely."""
    for quantity in COUNTS:
        total = sum(row.value for row in rows if row.id.endswith(f".{quantity}") and not row.id.startswith("all."))
        goal = f">= {FEWEST_CELLS}" if quantity == "cells" else "0"
        yield Row(f"all.{quantity}", f"all runs: {QUANTITIES[quantity]}", total, paper=goal)


def as_table(rows):
    """One line per model and table, in Markdown."""
    value = {row.id: row.value for row in rows}
    head = ("model", "table", "exact", "interval", "width", "unknown", "rows", "labels", "ms per row", "false claims")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for start in dict.fromkeys(key.rpartition(".")[0] + "." for key in value if not key.startswith("all.")):
        model, table = start.removesuffix(".").split(".")
        if start + "refused" in value:
            lines.append(f"| {model} | {table} | not read {'| ' * 8}|")
            continue
        got = {quantity: value.get(start + quantity) for quantity in QUANTITIES}
        false = sum(got[quantity] or 0 for quantity in COUNTS[1:])
        shares = {name: "" if got[name] is None else f"{100 * got[name]:.1f} %" for name in got}
        width = "" if got["width"] is None else f"{got['width']:.2g}"
        cells = (shares["exact"], shares["interval"], width, shares["unknown"], shares["rows"], shares["labels"])
        lines.append(f"| {model} | {table} | {' | '.join(cells)} | {got['ms']:.2g} | {false:.0f} |")
    return "\n".join(lines) + "\n"


def _case(row):
    """Model and table, with the order of rows known or not."""
    return row.id.rpartition(".")[0].removesuffix(ORDER_UNKNOWN)


def merged(rows):
    """With the rows of earlier runs for other models and tables, in the order of models and tables."""
    earlier = [row for row in read_rows(RESULTS) if not row.id.startswith("all.")] if RESULTS.exists() else []
    new = {_case(row) for row in rows}
    every = [row for row in earlier if _case(row) not in new] + rows
    places = [f"{model}.{name}{words}." for model in MODELS for name in TABLES for words in ("", ORDER_UNKNOWN)]
    ordered = [row for place in places for row in every if row.id.rpartition(".")[0] + "." == place]
    return [*ordered, *totals(ordered)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES), metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    options = parse(parser)
    warnings.simplefilter("ignore")
    for name in options.tables:
        rows = []
        for model in options.models:
            found = rows_of(model, name, options.seeds)
            print(as_table(found).partition("|\n")[2].partition("|\n")[2], end="", flush=True)
            rows += [replace(row, seed=max(options.seeds)) for row in found]
        every = merged(rows)
        written = write_rows(__file__, every)
        print("written to", written, flush=True)
        written.with_suffix(".md").write_text(as_table(every))


if __name__ == "__main__":
    main()
