"""XGBoost's trees: each node publishes the sum of second derivatives of its rows, each threshold is a training value.

With `tree_method="hist"` (the default) and "approx", thresholds are values of the table; with "exact" they lie between
two values in the node. Numbers are float32, and sums are compared with the whole table before they are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from lostwax.adapters.boosted import (
    MOST_CODES,
    UNIT,
    Boosted,
    Numbers,
    Visits,
    checked_shape,
    code_counts,
    codes_going,
    fitting,
    fitting_labels,
    grown_elsewhere,
    has_empty_node,
    parsing,
    real_numbers,
    tells_path,
    visits,
    whole_numbers,
)
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.games.trees import LEAF, Cuts, Floats, Forest, Ints, LabelSums, Tree

OLDEST = (2, 1)
SMALLEST = 1e-16  # second derivatives of logistic losses are at least this
BEYOND = 1e-5  # the last cut is max + |max| + this, and the one below all values min - |min| - this


@dataclass(frozen=True)
class Curvature:
    """The second derivative of each row's loss in its margins, and how exactly float32 computes it."""

    second: Callable[[Numbers, Numbers, Mapping[str, float]], Numbers]  # margins (n, k), y (n, k) -> (n, k)
    to_margin: Callable[[Numbers], Numbers] = lambda score: score  # of base_score
    steps: float = 8.0  # roundings, relative to the result
    cancels: float = 0.0  # ... and of 1 - p, relative to one
    classes: bool = False


def _logit(p: Numbers) -> Numbers:
    return np.log(p / (1 - p))


def _sigmoid(margins: Numbers) -> Numbers:
    found: Numbers = 1 / (1 + np.exp(-margins))
    return found


def _of_probability(p: Numbers) -> Numbers:
    return np.maximum(p * (1 - p), SMALLEST)


def _softmax(margins: Numbers) -> Numbers:
    found = np.exp(margins - margins.max(1, keepdims=True))
    return np.asarray(found / found.sum(1, keepdims=True))


def _pseudo_huber(margins: Numbers, y: Numbers, settings: Mapping[str, float]) -> Numbers:
    square = settings.get("huber_slope", 1.0) ** 2
    apart = (margins - y) ** 2
    found: Numbers = square / ((square + apart) * np.sqrt(1 + apart / square))
    return found


def _squared_log(margins: Numbers, y: Numbers, settings: Mapping[str, float]) -> Numbers:
    above = np.maximum(margins, -1 + 1e-6)
    found: Numbers = np.maximum((np.log1p(y) - np.log1p(above) + 1) / (above + 1) ** 2, 1e-6)
    return found


def _tweedie(margins: Numbers, y: Numbers, settings: Mapping[str, float]) -> Numbers:
    power = settings.get("tweedie_variance_power", 1.5)
    found: Numbers = (2 - power) * np.exp((2 - power) * margins) - y * (1 - power) * np.exp((1 - power) * margins)
    return found


CONSTANT = Curvature(lambda margins, y, settings: np.ones_like(margins), steps=0.0)
LOGISTIC = Curvature(lambda margins, y, settings: _of_probability(_sigmoid(margins)), _logit, cancels=4.0, classes=True)
SOFTMAX = Curvature(lambda margins, y, settings: 2 * _of_probability(_softmax(margins)), cancels=16.0, classes=True)
OBJECTIVES: Mapping[str, Curvature] = {
    "reg:squarederror": CONSTANT,
    "reg:absoluteerror": CONSTANT,
    "reg:quantileerror": CONSTANT,
    "reg:logistic": replace(LOGISTIC, classes=False),
    "binary:logistic": LOGISTIC,
    "binary:logitraw": replace(LOGISTIC, to_margin=lambda score: score),
    "multi:softprob": SOFTMAX,
    "multi:softmax": SOFTMAX,
    "count:poisson": Curvature(
        lambda margins, y, settings: np.exp(margins + settings.get("max_delta_step", 0.7)), np.log
    ),
    "reg:gamma": Curvature(lambda margins, y, settings: y / np.exp(margins), np.log),
    "reg:tweedie": Curvature(_tweedie, np.log),
    "reg:pseudohubererror": Curvature(_pseudo_huber),
    "reg:squaredlogerror": Curvature(_squared_log),
}


class XGBoostNodes(NamedTuple):
    """One tree of a file, each an array (m,); leaves have no children."""

    left: Ints
    right: Ints
    feature: Ints
    threshold: Numbers  # of leaves: what they add
    missing_left: Ints
    curvature: Numbers
    weight: Numbers
    categories: Mapping[int, Ints]  # by node, the codes that go right

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> XGBoostNodes:
        """Raises if some nodes lack one of their numbers."""
        count = len(tree["left_children"])
        names = ("left_children", "right_children", "split_indices")
        left, right, feature = (whole_numbers(tree[name], count) for name in names)
        names = ("split_conditions", "sum_hessian", "base_weights")
        threshold, curvature, weight = (real_numbers(tree[name], count) for name in names)
        codes = whole_numbers(tree["categories"])
        names = ("categories_nodes", "categories_segments", "categories_sizes")
        nodes, starts, sizes = (whole_numbers(tree[name]) for name in names)
        limits = ((codes, MOST_CODES), (nodes, count), (starts, len(codes) + 1), (sizes, len(codes) + 1))
        if not count or any(((part < 0) | (part >= most)).any() for part, most in limits):
            raise ValueError("no nodes, or codes of none")
        parts = zip(nodes.tolist(), starts, sizes, strict=True)
        chosen = {node: codes[start : start + size] for node, start, size in parts}
        with np.errstate(over="ignore"):
            threshold = threshold.astype(np.float32).astype(np.float64)
        missing_left = whole_numbers(tree["default_left"], count)
        return cls(left, right, feature, threshold, missing_left, curvature, weight, chosen)


@dataclass(frozen=True)
class XGBoostModel:
    """The numbers of a model in XGBoost's JSON."""

    name: str
    objective: str
    settings: Mapping[str, float]  # of the objective
    base_score: Numbers  # (k,)
    trees: tuple[XGBoostNodes, ...]
    output: tuple[int, ...]  # which of the k margins a tree adds to
    iterations: tuple[int, ...]  # the first tree of each
    drops: bool  # DART: trees were left out while others were grown
    categories: tuple[tuple[object, ...], ...] = ()  # of each column of pandas' categories, by code

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        objective = OBJECTIVES.get(self.objective)
        return objective is not None and objective.classes

    @classmethod
    def of(cls, text: bytes, name: str) -> XGBoostModel:
        """Read what `Booster.save_raw("json")` gives."""
        try:
            whole = json.loads(text)
            learner, version = whole["learner"], tuple(map(int, whole["version"]))
            booster, params, objective = (
                learner[part] for part in ("gradient_booster", "learner_model_param", "objective")
            )
            kind = booster["name"]
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError):
            raise ValueError(
                f"audit: {name} is not a model of XGBoost, or was saved by a version before 1.0. Load it with xgboost "
                "and save it again with save_model."
            ) from None
        if version[:2] < OLDEST:
            raise ValueError(
                f"audit: {name} was saved by XGBoost {'.'.join(map(str, version))}; {'.'.join(map(str, OLDEST))} is "
                "the oldest that is read. Load it with a newer version and save it again with save_model."
            )
        if kind == "gblinear":
            raise SettingNotReadError(
                "booster='gblinear' was not read: it is a linear model, stopped before its optimum", "."
            )
        with parsing(name):
            model = (booster["gbtree"] if kind == "dart" else booster)["model"]
            trees = tuple(model["trees"])
            vectors = any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees)
        if not trees:
            raise ValueError(f"audit: {name} has no trees, so it reveals nothing. Pass it as it was fitted.")
        if vectors:
            raise SettingNotReadError("multi_strategy='multi_output_tree' was not read: its leaves hold vectors", ".")
        with parsing(name):
            outputs = max(int(params["num_class"]), int(params.get("num_target", 1)), 1)
            output = whole_numbers(model["tree_info"], len(trees))
            iterations = whole_numbers(model["iteration_indptr"])
            if outputs > len(trees) or set(output.tolist()) != set(range(outputs)):
                raise ValueError("outputs without trees, or trees without one")
            if iterations[[0, -1]].tolist() != [0, len(trees)] or (np.diff(iterations) < 0).any():
                raise ValueError("iterations in no order")
            base = real_numbers(np.atleast_1d(json.loads(params["base_score"])))
            return cls(
                name=name,
                objective=str(objective["name"]),
                settings=_settings(objective),
                base_score=np.broadcast_to(base, (outputs,)).copy(),
                trees=tuple(map(XGBoostNodes.of, trees)),
                output=tuple(output.tolist()),
                iterations=tuple(iterations.tolist()),
                drops=kind == "dart",
                categories=tuple(_names(model.get("cats", {}))),
            )


def _names(listed: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """The categories of a data frame, which XGBoost 3.1 and newer writes: texts as bytes with their ends, or numbers.

    A column without categories has no values.
    """
    for column in listed.get("enc", ()):
        values = column["values"]
        if "offsets" in column and values:
            text = bytes(values)
            yield tuple(text[start:end].decode(errors="replace") for start, end in pairwise(column["offsets"]))
        elif values:
            yield tuple(values)


def _settings(objective: Mapping[str, Any]) -> dict[str, float]:
    """The parameters of an objective that are numbers."""
    found = {}
    for part in objective.values():
        for name, value in part.items() if isinstance(part, Mapping) else ():
            try:
                found[name] = float(value)
            except (ValueError, TypeError, OverflowError):
                continue
    return found


def is_xgboost(model: Any) -> bool:
    """A Booster, or an estimator of XGBoost's scikit-learn interface."""
    home = type(model).__module__.partition(".")[0]
    return home == "xgboost" and (hasattr(model, "get_booster") or hasattr(model, "save_raw"))


def model_of(fitted: Any) -> XGBoostModel:
    """The numbers of a Booster or of an estimator."""
    missing = getattr(fitted, "missing", np.nan)
    if missing == missing:
        raise SettingNotReadError("missing=... was not read: only NaN is a missing value here", ".")
    booster = fitted.get_booster() if hasattr(fitted, "get_booster") else fitted
    return XGBoostModel.of(bytes(booster.save_raw("json")), type(fitted).__name__)


class Training(NamedTuple):
    """Settings of the training that a model file does not hold."""

    rate: float = 0.3
    ridge: float = 1.0
    subsample: float = 1.0
    exact: bool = False  # tree_method="exact": thresholds lie between values of the rows in the node


DEFAULTS = Training()


def training_of(fitted: Any) -> Training:
    """As the last training had them; the defaults after a model was loaded from a file."""
    booster = fitted.get_booster() if hasattr(fitted, "get_booster") else fitted
    try:
        config = json.loads(booster.save_config())["learner"]["gradient_booster"]
        config = config.get("gbtree", config)  # DART holds another
        found, exact = config["tree_train_param"], config["gbtree_train_param"]["tree_method"] == "exact"
        return Training(float(found["eta"]), float(found["lambda"]), float(found["subsample"]), exact)
    except (KeyError, TypeError, ValueError):
        return DEFAULTS


def read(model: XGBoostModel, x: Floats, y: Numbers, weight: Numbers, training: Training = DEFAULTS) -> Boosted:
    """What the trees say about rows (n, d), with codes for categories; y are class numbers or targets."""
    cast = x.astype(np.float32).astype(np.float64)
    shapes = list(_shapes(model, cast))
    seen = [visits(tree, cast, strict=True) for tree in shapes]
    objective = OBJECTIVES.get(model.objective)
    known = objective is not None and not model.drops
    trees = tuple(_sized(model, objective, shapes, seen, y, weight)) if objective and known else tuple(shapes)
    fits = [tells_path(tree) for tree in trees]
    empty = [number for number, tree in enumerate(shapes) if has_empty_node(tree, seen[number])]
    if empty and not any(fits):  # a single one can be empty by rounding, of a threshold between close values
        raise grown_elsewhere(model.name, empty[0])
    cuts = _cuts(shapes, cast)
    if cuts is None and not any(fits):
        if training.exact and (not known or training.subsample < 1):
            raise SettingNotReadError(
                "tree_method='exact' was not read together with subsample < 1, DART or a custom objective: thresholds "
                "are no values, and the sizes of nodes are not those of all rows",
                ".",
            )
        raise ValueError(
            f"audit: {model.name} does not fit this table: neither do its rows add up to the trees, nor are the "
            "thresholds values of it. Pass the data the model was fitted on; its sample_weight too. A model of "
            "tree_method='exact' with subsample < 1, DART or a custom objective is not read."
        )
    if any(fits) and objective is not None:
        trees = _labelled(model, objective, trees, seen, y, weight, training)
    notes, unread = _words(model, known, fits, cuts is not None)
    return Boosted(Forest(trees, cuts or (), strict=True), notes=notes, unread=unread)


def _words(model: XGBoostModel, known: bool, fits: list[bool], values: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes, and what was not read."""
    notes = (
        f"{model.name}: every threshold is a value of the table."
        if values
        else f"{model.name}: thresholds lie between values (tree_method='exact'); only the paths of rows were read."
    )
    if all(fits):
        return (notes,), ()
    why = (
        "the rows do not add up to them. Reasons can be subsample < 1, a base_margin, a custom objective, or rows and "
        "sample_weight other than in training"
    )
    if not known:
        why = "with DART trees are left out at random" if model.drops else f"{model.objective} is not modelled"
    number = f"{fits.count(False)} of {len(fits)}"
    return (notes,), (f"the sizes of nodes in {number} trees of {model.name} were not audited: {why}.",)


def _shapes(model: XGBoostModel, x: Floats) -> Iterator[Tree]:
    """The trees without sizes."""
    largest: dict[int, int] = {}
    for tree in model.trees:
        for node, codes in tree.categories.items():
            column = int(tree.feature[node])
            largest[column] = max(largest.get(column, 0), int(codes.max(initial=0)))
        if int(tree.feature[tree.left != LEAF].max(initial=0)) >= x.shape[1]:
            raise ValueError(f"audit: {model.name} has more columns than the table. Pass the data it was fitted on.")
    counts = code_counts(x, largest)
    for tree in model.trees:
        inner = tree.left != LEAF
        shape = Tree(
            feature=np.where(inner, tree.feature, LEAF),
            threshold=tree.threshold,
            left=np.where(inner, tree.left, LEAF),
            right=np.where(inner, tree.right, LEAF),
            missing_left=tree.missing_left.astype(np.bool_),
            size=tree.curvature,
            share=np.zeros(len(x)),
            rounding=np.full(len(tree.left), np.inf),
            categories={
                node: codes_going(codes, counts[int(tree.feature[node])], left=False)
                for node, codes in tree.categories.items()
            },
        )
        yield checked_shape(model.name, shape)


def _sized(
    model: XGBoostModel, objective: Curvature, shapes: list[Tree], seen: list[Visits], y: Numbers, weight: Numbers
) -> Iterator[Tree]:
    """The trees with the share of each row: its second derivative before the tree was grown, in float32 as trained."""
    base = objective.to_margin(model.base_score)
    outputs = len(base)
    target = y if y.ndim > 1 else np.broadcast_to(y[:, None], (len(y), outputs))  # (n, k)
    weights = weight[:, None] * np.where(target == 1, model.settings.get("scale_pos_weight", 1.0), 1.0)
    margins = np.broadcast_to(base.astype(np.float32), (len(y), outputs)).copy()
    for start, end in zip(model.iterations[:-1], model.iterations[1:], strict=True):
        at = margins.astype(np.float64)
        share = weights * objective.second(at, target, model.settings)
        moved = 2 * UNIT * (np.abs(at) + np.abs(base) + (0 if objective.classes else np.abs(target)))
        beside = [weights * objective.second(at + side * moved, target, model.settings) for side in (-1, 1)]
        error = np.abs(beside[1] - beside[0]) + objective.steps * UNIT * share + objective.cancels * UNIT * weights
        error += np.abs(share.astype(np.float32) - share)
        for number in range(start, end):
            tree, way, output = shapes[number], seen[number], model.output[number]
            rounding = way.sums(error[:, output], len(tree.size)) + 2 * UNIT * np.abs(tree.size)
            yield fitting(replace(tree, share=share[:, output], rounding=rounding), way)
            margins[:, output] += tree.threshold[way.leaves].astype(np.float32)


def _cuts(trees: list[Tree], x: Floats) -> tuple[Cuts, ...] | None:
    """The thresholds of each column that are values of it; None if others are among them."""
    found = []
    for column in range(x.shape[1]):
        used = [
            tree.threshold[node]
            for tree in trees
            for node in np.flatnonzero(tree.feature == column)
            if int(node) not in tree.categories
        ]
        values = np.sort(x[~np.isnan(x[:, column]), column])
        thresholds = np.unique(np.asarray(used, dtype=np.float64))
        if len(values) < 2:
            continue
        low, high = _sentinels(values)
        inside = thresholds[(thresholds > low) & (thresholds < high)]
        if not np.isin(inside, values).all():
            return None
        if len(inside):
            found.append(Cuts(column, inside, values=True))
    return tuple(found)


def _sentinels(values: Numbers) -> tuple[float, float]:
    """Beyond these a threshold may be made of the smallest or largest value, to part rows with and without a value.

    Without any one row, the smallest known value is at most the second smallest.
    """
    second, last = values[1], values[-2]
    rounding = 8 * UNIT * (np.abs([second, last]) + BEYOND)
    return second - np.abs(second) - BEYOND + rounding[0], last + np.abs(last) + BEYOND - rounding[1]


def _labelled(
    model: XGBoostModel,
    objective: Curvature,
    trees: tuple[Tree, ...],
    seen: list[Visits],
    y: Numbers,
    weight: Numbers,
    training: Training,
) -> tuple[Tree, ...]:
    """The first tree with sums of labels; with several classes of the root only, from the first tree of each.

    All rows have the same margin there, that of base_score: G = sum_i w_i (p - y_i) with its prediction p.
    """
    first = [trees[model.output.index(output)] for output in range(len(model.base_score))]
    several = y.ndim > 1 or (len(first) > 1 and objective is not SOFTMAX)  # labels per row
    if several or not all(map(tells_path, first)) or model.settings.get("scale_pos_weight", 1.0) != 1.0:
        return trees
    base = objective.to_margin(model.base_score).astype(np.float32).astype(np.float64)
    together = model.iterations[1] // len(first)  # trees of one iteration share its learning rate
    rate = training.rate / together
    gradients = [
        _gradients(model.trees[model.output.index(output)], tree, rate, training.ridge)
        for output, tree in enumerate(first)
    ]
    if model.objective == "reg:squarederror":
        sums, targets = _sums_of_targets(gradients[0], float(base[0]), first[0], seen[0], y, weight)
    elif objective is SOFTMAX or model.objective == "binary:logistic":
        sums, targets = _class_counts(gradients, base, first, y, weight)
    else:
        return trees
    return (
        trees
        if (labels := fitting_labels(sums, targets, seen[0])) is None
        else (replace(first[0], labels=labels), *trees[1:])
    )


def _gradients(tree: XGBoostNodes, shape: Tree, rate: float, ridge: float) -> tuple[Numbers, Numbers]:
    """(m,) the sum of gradients in each node, from its weight -G / (H + lambda), and its rounding error."""
    weights = np.where(shape.feature == LEAF, shape.threshold / rate, tree.weight)
    found = -weights * (shape.size + ridge)
    return found, 4 * UNIT * np.abs(found)


def _sums_of_targets(
    gradient: tuple[Numbers, Numbers], base: float, tree: Tree, way: Visits, y: Numbers, weight: Numbers
) -> tuple[LabelSums, Numbers]:
    """Of squared error H is the weight, and sum w y = b sum w - G."""
    summed, error = gradient
    spread = way.sums(weight * np.abs(y - base), len(tree.size)) + 2 * np.abs(base) * tree.size
    totals = base * tree.size - summed
    return LabelSums(totals[:, None], weight, error + 4 * UNIT * (spread + np.abs(totals))), y[:, None]


def _class_counts(
    gradients: list[tuple[Numbers, Numbers]], base: Numbers, trees: list[Tree], y: Numbers, weight: Numbers
) -> tuple[LabelSums, Numbers]:
    """At the root the weights of all rows add to W, which is known, and those of a class to p W - G."""
    whole = float(weight.sum())
    p = np.array([_sigmoid(base[0])]) if len(base) == 1 else _softmax(base[None])[0]
    ones = p * whole - np.array([summed[0] for summed, _ in gradients])
    counts = np.array([whole - ones[0], ones[0]]) if len(base) == 1 else ones
    totals = np.zeros((len(trees[0].size), len(counts)))
    rounding = np.full(len(trees[0].size), np.inf)
    totals[0] = counts
    rounding[0] = max(error[0] for _, error in gradients) + 16 * UNIT * whole * (1 + np.abs(base).max())
    return LabelSums(totals, weight, rounding), (y[:, None] == np.arange(len(counts))).astype(np.float64)
