"""CatBoost's trees: each leaf publishes the total weight of its rows, each border is half-way between two values.

Numbers are float32. Whatever the bootstrap, weights of leaves are sums over all rows. The first prediction of squared
error is the mean of the labels, and the leaves of the first tree hold their sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from lostwax.adapters.boosted import UNIT, Boosted, Numbers, real_numbers, visits, whole_numbers
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.grown import EPSILON, other_data
from lostwax.games.trees import LEAF, Cuts, Floats, Forest, Ints, LabelSums, Tree

OLDEST = (1, 0)
LARGEST = float(np.finfo(np.float32).max)  # a border here parts rows with and without a value
SAMPLED = 200_000  # rows above which borders are made of a sample
OTHER_INPUTS = {  # parts of a model that are not made of numbers
    "categorical_features": "categorical features: it replaces them by statistics of labels",
    "text_features": "text features",
    "embedding_features": "embedding features",
}
MOST_STEPS = 1_000  # Newton steps that are repeated for a leaf
STEP_ERROR = 1e-9  # relative, of Newton steps whose arithmetic is repeated


class Binary(NamedTuple):
    """The nodes of one tree as arrays (m,); those of a leaf are -1."""

    feature: Ints  # by CatBoost's number of a float feature
    border: Numbers
    left: Ints
    right: Ints
    weight: Numbers
    value: Numbers  # of leaves with one number each; NaN elsewhere


class Feature(NamedTuple):
    """A column of numbers."""

    column: int  # of the table
    has_missing: bool
    missing_right: bool
    borders: Numbers

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Feature:
        """As a file describes it."""
        (column,) = whole_numbers([entry["flat_feature_index"]]).tolist()
        if column < 0:
            raise ValueError("a feature that is no column")
        borders = _in_float32(real_numbers(entry["borders"] or []))
        return cls(column, bool(entry["has_nans"]), entry["nan_value_treatment"] == "AsTrue", borders)


@dataclass(frozen=True)
class Model:
    """The numbers of a model in CatBoost's JSON."""

    name: str
    features: tuple[Feature, ...]
    trees: tuple[Binary, ...]
    scale: float
    bias: tuple[float, ...]
    settings: Mapping[str, Any]  # of the training

    @classmethod
    def of(cls, text: bytes, name: str) -> Model:
        """Read what `save_model(format="json")` writes."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(
                f"audit: {name} is damaged, or not a model of CatBoost. Save it again with save_model."
            ) from None
        try:
            features, about = document["features_info"], document["model_info"]
            for part, why in OTHER_INPUTS.items():
                if features.get(part):
                    raise SettingNotReadError(f"{name} was not read: it has {why}", "")
            trees = document.get("oblivious_trees")
            found = map(_nested, document["trees"]) if trees is None else map(_oblivious, trees)
            scale, bias = document["scale_and_bias"]
            inputs, binary = tuple(map(Feature.of, features["float_features"])), tuple(found)
            if any(int(tree.feature.max(initial=LEAF)) >= len(inputs) for tree in binary):
                raise IndexError("a split of a feature that the model does not have")
            if any(int(tree.feature.min(initial=LEAF)) < LEAF for tree in binary):
                raise IndexError("a split of a feature that the model does not have")
            (scale,), bias = real_numbers([scale]).tolist(), tuple(real_numbers(np.atleast_1d(bias)).tolist())
            return cls(name, inputs, binary, scale, bias, about.get("params", {}))
        except SettingNotReadError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError):
            raise ValueError(
                f"audit: {name} is not a model of CatBoost {OLDEST[0]}, or a part of it is missing. Save it with "
                'save_model(path, format="json") and default settings.'
            ) from None

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        return self.loss in ("Logloss", "MultiClass", "MultiClassOneVsAll")

    @property
    def loss(self) -> str:
        """The name of the loss; empty if it is not known."""
        return str(self.setting("loss_function", "type", default=""))

    def setting(self, *names: str, default: Any) -> Any:
        """One setting of the training, by its place in the file."""
        found: Any = self.settings
        for name in names:
            found = found.get(name, default) if isinstance(found, Mapping) else default
        return found

    def number(self, *names: str, default: float) -> float:
        """One setting that is a number; NaN if it is none."""
        found = self.setting(*names, default=default)
        return float(found) if isinstance(found, int | float) and abs(found) < LARGEST else np.nan


def is_catboost(model: Any) -> bool:
    """A model of CatBoost."""
    return type(model).__module__.partition(".")[0] == "catboost" and hasattr(model, "save_model")


def model_of(fitted: Any) -> Model:
    """The numbers of a fitted model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        return Model.of(path.read_bytes(), type(fitted).__name__)


def read(model: Model, x: Floats, y: Numbers, weight: Numbers) -> Boosted:
    """What the trees say about rows (n, d); y are class numbers or targets."""
    _check_columns(model, x)
    cast, share = x.astype(np.float32).astype(np.float64), weight.astype(np.float32).astype(np.float64)
    trees = [_tree(model, binary, share) for binary in model.trees]
    for number, tree in enumerate(trees):
        _check_weights(model, number, tree, share, cast)
    if trees:
        trees[0] = replace(trees[0], labels=_label_sums(model, trees[0], share, cast, y))
    cuts = tuple(_cuts(model, cast)) if (weight > 0).all() and len(x) <= SAMPLED else ()
    missing = np.ones(x.shape[1], dtype=np.bool_)
    missing[[feature.column for feature in model.features]] = [feature.has_missing for feature in model.features]
    notes = (f"{model.name}: borders are half-way between two values of the table.",) if cuts else ()
    return Boosted(Forest(tuple(trees), cuts=cuts, accepts_missing=missing), notes=notes)


def _oblivious(tree: Mapping[str, Any]) -> Binary:
    """A tree with one split per depth, as nodes: the split of the root decides the highest bit of a leaf's number."""
    splits, weights = (tree["splits"] or [])[::-1], real_numbers(tree["leaf_weights"])
    depth, count = len(splits), 2 ** len(splits) - 1
    if len(weights) != count + 1:
        raise ValueError(f"expected {count + 1} leaves, got {len(weights)}")
    nodes = np.arange(count)
    level = np.floor(np.log2(nodes + 1)).astype(np.intp)
    leaf = np.full(count + 1, LEAF)
    by_depth = [weights]
    for _ in range(depth):
        by_depth.append(by_depth[-1].reshape(-1, 2).sum(1))
    return Binary(
        feature=np.append(_features(splits)[level], leaf).astype(np.intp),
        border=np.append(_borders(splits)[level], np.zeros(count + 1)),
        left=np.append(2 * nodes + 1, leaf).astype(np.intp),
        right=np.append(2 * nodes + 2, leaf).astype(np.intp),
        weight=np.concatenate(by_depth[::-1]),
        value=np.append(np.full(count, np.nan), _values(tree["leaf_values"], count + 1)),
    )


def _nested(root: Mapping[str, Any]) -> Binary:
    """A tree whose nodes hold each other, as `grow_policy="Depthwise"` and "Lossguide" give them."""
    nodes, left, right, at = [root], [LEAF], [LEAF], 0
    while at < len(nodes):
        if "split" in nodes[at]:
            left[at], right[at] = len(nodes), len(nodes) + 1
            nodes += [nodes[at]["left"], nodes[at]["right"]]
            left, right = [*left, LEAF, LEAF], [*right, LEAF, LEAF]
        at += 1
    inner = np.array(left) != LEAF
    splits = [node["split"] for node in nodes if "split" in node]
    feature, border = np.full(len(nodes), LEAF), np.zeros(len(nodes))
    feature[inner], border[inner] = _features(splits), _borders(splits)
    weight, value = np.zeros(len(nodes)), np.full(len(nodes), np.nan)
    for number in reversed(range(len(nodes))):
        if inner[number]:
            weight[number] = weight[left[number]] + weight[right[number]]
        else:
            weight[number] = real_numbers([nodes[number]["weight"]])[0]
            value[number] = _values(nodes[number]["value"], 1)[0]
    return Binary(feature, border, np.array(left), np.array(right), weight, value)


def _features(splits: Sequence[Mapping[str, Any]]) -> Ints:
    for split in splits:
        if split["split_type"] != "FloatFeature":
            raise SettingNotReadError(f"a model with splits of kind {split['split_type']} was not read", "")
    return whole_numbers([split["float_feature_index"] for split in splits])


def _borders(splits: Sequence[Mapping[str, Any]]) -> Numbers:
    return _in_float32(real_numbers([split["border"] for split in splits]))


def _in_float32(values: Numbers) -> Numbers:
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)


def _values(values: Any, leaves: int) -> Numbers:
    """(leaves,) the values of leaves with one each; NaN if they have several."""
    found = real_numbers(np.atleast_1d(values))
    return found if len(found) == leaves else np.full(leaves, np.nan)


def _tree(model: Model, binary: Binary, share: Numbers) -> Tree:
    """One tree by columns of the table. Rows with a value up to the border go left."""
    column = np.array([feature.column for feature in model.features], dtype=np.intp)
    right = np.array([feature.missing_right for feature in model.features])
    inner = (binary.feature != LEAF) & (binary.weight > 0)
    border = np.where(np.abs(binary.border) >= LARGEST, np.copysign(np.inf, binary.border), binary.border)
    exact = bool((share == np.round(share)).all()) and share.sum() < 2**53
    return Tree(
        feature=np.where(inner, column[binary.feature.clip(0)], LEAF),
        threshold=border,
        left=np.where(inner, binary.left, LEAF),
        right=np.where(inner, binary.right, LEAF),
        missing_left=~right[binary.feature.clip(0)],
        size=binary.weight,
        share=share,
        rounding=np.full(len(binary.weight), 0.0 if exact else 4 * EPSILON * len(share) * share.sum()),
    )


def _check_columns(model: Model, x: Floats) -> None:
    last = max((feature.column for feature in model.features), default=-1)
    if last >= x.shape[1]:
        raise ValueError(
            f"audit: {model.name} was fitted on at least {last + 1:,} columns, the table has {x.shape[1]:,}. Pass the "
            "data it was fitted on, with its columns in the same order."
        )


def _check_weights(model: Model, number: int, tree: Tree, share: Numbers, x: Floats) -> None:
    """Raise if the rows do not add up to the weights of leaves."""
    if model.setting("data_processing_options", "class_weights", default=[]):
        raise SettingNotReadError(f"{model.name} with class weights was not read", "")
    if not tree.size.any():
        raise ValueError(
            f"audit: {model.name} has no weights of leaves: they were removed from the model. Pass it as it was fitted."
        )
    seen = visits(tree, x, strict=False)
    held = seen.sums(share, len(tree.size))
    reached = np.bincount(seen.nodes, minlength=len(tree.size)) > 0
    wrong = np.flatnonzero(reached & (np.abs(held - tree.size) > tree.rounding))
    if len(wrong):
        node = int(wrong[0])
        says = f"a total weight of {held[node]:,.6g}, the model says {tree.size[node]:,.6g}"
        raise other_data(model.name, f"in tree {number} the rows of node {node} have {says}")


def half_way_in_float32(lower: Floats, upper: Floats) -> Floats:
    """The border between two neighbouring values."""
    middle: Floats = (0.5 * lower + 0.5 * upper).astype(np.float32).astype(np.float64)
    return middle


def _cuts(model: Model, x: Floats) -> Iterator[Cuts]:
    """The borders of each column; nothing where they follow another rule."""
    options = ("data_processing_options", "float_features_binarization", "border_type")
    own = model.setting("data_processing_options", "per_float_feature_quantization", default=None)
    if own or model.setting(*options, default="Uniform") == "Uniform":
        return
    for feature in model.features:
        borders = np.unique(feature.borders[np.abs(feature.borders) < LARGEST])
        distinct = np.unique(x[~np.isnan(x[:, feature.column]), feature.column])
        if len(borders) and np.isin(borders, half_way_in_float32(distinct[:-1], distinct[1:])).all():
            yield Cuts(feature.column, borders, values=False, between=half_way_in_float32)


def _label_sums(model: Model, tree: Tree, share: Numbers, x: Floats, y: Numbers) -> LabelSums | None:
    """Sums of labels in the leaves of the first tree, from its Newton steps; and of all rows, from their mean."""
    if y.ndim > 1 or model.scale != 1 or len(model.bias) != 1 or model.loss not in ("RMSE", "Logloss"):
        return None
    cast, root = y.astype(np.float32).astype(np.float64), tree.size[0]
    held = visits(tree, x, strict=False).sums(share * cast, len(tree.size))
    apart = np.abs(y - cast) @ share + UNIT * np.abs(y).max() * share.max()  # labels are rounded to float32
    ridge = model.number("tree_learner_options", "l2_leaf_reg", default=np.nan) * root / len(y)
    rate = model.number("boosting_options", "learning_rate", default=np.nan)
    step = model.trees[0].value / rate
    if model.classifies:
        steps = model.number("tree_learner_options", "leaf_estimation_iterations", default=1)
        if not 1 <= steps <= MOST_STEPS:
            return None
        totals, rounding = _positives(step, model.trees[0].weight, ridge, model.bias[0], int(steps))
    else:
        totals = tree.size * model.bias[0] + step * (tree.size + ridge)
        largest = np.abs(model.bias[0]) + np.abs(y).max()
        rounding = 16 * EPSILON * (len(y) + 2) * (tree.size + ridge) * largest + apart
    leaves = (tree.feature == LEAF) & (tree.size > 0)
    agrees = bool((np.abs(totals - held) <= rounding)[leaves].all())  # else leaves have constraints, or other steps
    rounding = np.where(leaves & agrees, rounding, np.inf)
    if not model.classifies and model.setting("boosting_options", "boost_from_average", default=False):
        totals[0] = root * model.bias[0]
        mean = root * (UNIT * np.abs(model.bias[0]) + 4 * EPSILON * (len(y) + 2) * np.abs(y).max()) + apart
        rounding[0] = mean if abs(totals[0] - held[0]) <= mean else np.inf
    if not np.isfinite(rounding).any():
        return None
    totals = np.where(np.isfinite(rounding), totals, 0.0)
    both = np.stack([tree.size - totals, totals], 1) if model.classifies else totals[:, None]
    return LabelSums(both, share, rounding)


def _positives(reached: Numbers, size: Numbers, ridge: float, start: float, steps: int) -> tuple[Numbers, Numbers]:
    """The weight of the second class in leaves that some Newton steps took so far, and its largest error.

    How far they go grows with it: it is found by bisection.
    """

    def way(positive: Numbers) -> Numbers:
        margin = np.full(len(size), float(start))
        for _ in range(steps):
            p = 1 / (1 + np.exp(-margin))
            margin += (positive - size * p) / (size * p * (1 - p) + ridge)
        return margin - start

    def first(aim: Numbers) -> Numbers:
        low, high = np.zeros(len(size)), size.copy()
        for _ in range(60):
            middle = (low + high) / 2
            beyond = way(middle) >= aim
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return high

    slack = STEP_ERROR * (1 + np.abs(reached))
    least, most = first(reached - slack), first(reached + slack)
    return (least + most) / 2, most - least + STEP_ERROR * size
