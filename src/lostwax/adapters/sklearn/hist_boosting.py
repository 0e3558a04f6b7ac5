"""Histogram gradient boosting of scikit-learn as facts about the rows it was fitted on.

The model keeps every bin edge of every column, used or not: half-way between any two neighbouring values, or quantiles
where there are more values than bins. Its nodes have the numbers of their rows, its baseline is the mean of the labels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.estimators import Array
from lostwax.adapters.sklearn.grown import Targets, root_sums
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.adapters.sklearn.trees import boosted_sums, forest_of
from lostwax.adapters.trees import EPSILON, Grown, refuse
from lostwax.games.boosting import BoostedLoss, BoostedSums, BoostedTree
from lostwax.games.trees import LEAF, Bools, Cuts, Floats, Forest, LabelSums, Method, Quantiles, Tree, half_way

SUMS_ERROR = 1e-13  # of sums in double, of one per row
NO_LIMIT = 1e300  # scikit-learn writes infinite edges as this number
MEANS, LOG_MEANS = ("squared_error",), ("poisson", "gamma")  # losses that start at the mean, or at its logarithm
METHODS: tuple[Method, ...] = ("averaged_inverted_cdf", "midpoint")  # of quantiles: since version 1.9, and before


def own_encoder(estimator: Any) -> Any | None:
    """What encodes the columns before the trees of a model see them: categories by code, and before all numbers."""
    return getattr(estimator, "_preprocessor", None)


@forest_of.register(HistGradientBoostingClassifier)
@forest_of.register(HistGradientBoostingRegressor)
def forest_of_hist(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """The trees of a model whose `own_encoder` gave rows x (n, d)."""
    seen = x.astype(np.float64)
    first = estimator._predictors[0][0].nodes
    inside = _grown_on(estimator, labels, weight, count=int(first["count"][0]))
    trees = [_tree(predictor, estimator, inside) for stage in estimator._predictors for predictor in stage]
    for number, tree in enumerate(trees):
        Grown.of(tree, seen, inside=inside).check_counts(type(estimator).__name__, number)
    sums = _baseline_sums(estimator, labels, np.where(inside, weight, 0.0), len(first))
    trees[0] = replace(trees[0], labels=sums)
    cuts, quantiles = _edges(estimator, seen, inside & (weight != 0))
    return Forest(tuple(trees), tuple(cuts), tuple(quantiles), single=False, ordered=not inside.all())


@boosted_sums.register(HistGradientBoostingClassifier)
@boosted_sums.register(HistGradientBoostingRegressor)
def _(estimator: Any) -> BoostedSums:
    """The sums of a model, from the weights of all its nodes."""
    name, mapper = type(estimator).__name__, estimator._bin_mapper
    classes = len(estimator.classes_) if is_classifier(estimator) else 0
    refuse(
        name,
        {
            f"loss={estimator.loss!r}": estimator.loss not in ("log_loss", "squared_error"),
            "sample_weight": bool(getattr(estimator, "_fitted_with_sw", False)),
            "class_weight": attributes(estimator).get("class_weight") is not None,
            "monotonic_cst": estimator.monotonic_cst is not None,
            "early stopping on rows that are held out": bool(
                estimator.do_early_stopping_ and estimator.validation_fraction is not None
            ),
            "a column of categories": bool(np.any(mapper.is_categorical_)),
        },
    )
    loss, trees = BoostedLoss(classes), []
    start = estimator._baseline_prediction.astype(np.float64).ravel()
    inside = np.ones(int(estimator._predictors[0][0].nodes["count"][0]), dtype=np.bool_)
    for stage in estimator._predictors:
        for output, predictor in enumerate(stage):
            nodes, tree = predictor.nodes, _tree(predictor, estimator, inside)
            leaf, unknown = tree.feature == LEAF, np.full(len(tree.feature), np.nan)
            weight = np.where(leaf, nodes["value"] / estimator.learning_rate, nodes["value"])
            error = SUMS_ERROR * tree.size[0] * (1 + np.abs(weight))
            step = np.where(leaf, nodes["value"], 0.0)
            trees.append(BoostedTree(tree, step, output, weight, error, unknown, unknown))
    ridge = float(estimator.l2_regularization)
    return BoostedSums(name, loss, tuple(trees), start, ridge, starts_at_mean=True)


def _grown_on(estimator: Any, labels: Array, weight: Floats, count: int) -> Bools:
    """(n,) the rows that trees were grown on, `count` in all: not those held out for early stopping.

    These are drawn again. The draw depends on classes: an adversary draws once for each class that the missing row can
    have, and keeps those where the counts of nodes add up.
    """
    every = np.arange(len(labels))
    for fitted_on in (every, every[weight > 0]):  # a model inside another was fitted on rows with a weight
        rows = fitted_on
        if len(rows) > count and estimator.do_early_stopping_ and estimator.validation_fraction is not None:
            rows = train_test_split(
                fitted_on,
                test_size=estimator.validation_fraction,
                stratify=labels[fitted_on] if is_classifier(estimator) else None,
                random_state=estimator._random_seed,
            )[0]
        if len(rows) == count:
            return np.isin(every, rows)
    too = " (were test rows passed too?)" if len(labels) > count else ""
    raise other_data(type(estimator).__name__, f"it was fitted on {count:,} rows, these are {len(labels):,}{too}")


def _tree(predictor: Any, estimator: Any, inside: Bools) -> Tree:
    """What the nodes of one tree say."""
    nodes, bins = predictor.nodes, estimator._bin_mapper.n_bins_non_missing_
    inner = ~nodes["is_leaf"].astype(np.bool_)
    categories = {}
    for node in map(int, np.flatnonzero(inner & nodes["is_categorical"].astype(np.bool_))):
        words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]  # of 32 bits
        bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").astype(np.bool_)
        categories[node] = bits[: int(bins[nodes["feature_idx"][node]])]
    return Tree(
        feature=np.where(inner, nodes["feature_idx"], LEAF).astype(np.intp),
        threshold=nodes["num_threshold"].astype(np.float64),
        left=np.where(inner, nodes["left"].astype(np.intp), LEAF),
        right=np.where(inner, nodes["right"].astype(np.intp), LEAF),
        missing_left=nodes["missing_go_to_left"].astype(np.bool_),
        size=nodes["count"].astype(np.float64),
        share=inside.astype(np.float64),
        rounding=np.zeros(len(nodes)),
        categories=categories,
    )


def _baseline_sums(estimator: Any, labels: Array, weight: Floats, nodes: int) -> LabelSums | None:
    """The sum of the labels of all rows, from the prediction before the first tree."""
    if (targets := Targets.of(estimator, labels)) is None or attributes(estimator).get("class_weight") is not None:
        return None
    raw = estimator._baseline_prediction.astype(np.float64).ravel()
    error = 16 * EPSILON * (1 + np.abs(raw).max())  # of a prediction; and of a mean, relative to the largest label:
    summing = 4 * EPSILON * (np.count_nonzero(weight) + 2)
    if is_classifier(estimator):
        if len(targets.columns) == 2:
            raw = np.array([0.0, raw[0]])  # log odds
        odds = np.exp(raw - raw.max())
        mean, bound = odds / odds.sum(), error + summing
    elif estimator.loss in (*MEANS, *LOG_MEANS):
        mean = np.exp(raw) if estimator.loss in LOG_MEANS else raw
        slope = float(np.abs(mean).max()) if estimator.loss in LOG_MEANS else 1.0  # of the mean by the prediction
        bound = slope * error + summing * np.abs(targets.values).max()
    else:
        return None
    return root_sums(type(estimator).__name__, mean, targets, weight, weight.sum() * bound, nodes)


def _edges(estimator: Any, x: Floats, rows: Bools) -> tuple[list[Cuts], list[Quantiles]]:
    """The bin edges of each column of numbers, where the rule that made them is known whatever the missing value."""
    mapper, bins = estimator._bin_mapper, estimator._bin_mapper.n_bins - 1
    cuts: list[Cuts] = []
    quantiles: list[Quantiles] = []
    if mapper.subsample is not None and np.count_nonzero(rows) > mapper.subsample:
        return cuts, quantiles  # edges are made of rows drawn at random
    weighted = getattr(estimator, "_fitted_with_sw", False) or attributes(estimator).get("class_weight") is not None
    percentages = np.linspace(0, 100, bins + 1)[1:-1]
    for column in map(int, np.flatnonzero(mapper.is_categorical_ == 0)):
        edges = np.asarray(mapper.bin_thresholds_[column], dtype=np.float64)
        if not (np.abs(edges) < NO_LIMIT).all():
            continue
        values = x[rows & ~np.isnan(x[:, column]), column]
        distinct = np.unique(values)
        # With one value more or less the rule must be the same.
        if len(distinct) < bins:
            if np.array_equal(np.unique(half_way(distinct[:-1], distinct[1:])), edges):
                cuts.append(Cuts(column, edges, values=False, complete=True, rows=rows))
        elif len(distinct) > bins + 1 and not weighted:
            for method in METHODS:
                if np.array_equal(np.unique(np.percentile(values, percentages, method=method)), np.unique(edges)):
                    quantiles.append(Quantiles(column, np.unique(edges), percentages, method, rows=rows))
                    break
    return cuts, quantiles
