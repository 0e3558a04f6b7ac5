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
from numpy.typing import NDArray

from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.adapters.trees import (
    EPSILON,
    UNIT,
    Boosted,
    BoostedModel,
    Grown,
    Nodes,
    Numbers,
    parsing,
    present_values,
    real_numbers,
    refuse,
    whole_numbers,
)
from lostwax.games.boosting import BoostedLoss, BoostedSums, BoostedTree
from lostwax.games.trees import LEAF, Cuts, Floats, Forest, LabelSums, in_float32

OLDEST = (1, 0)
LARGEST = float(np.finfo(np.float32).max)  # a border here parts rows with and without a value
MAX_BINNED_ROWS = 200_000  # above these borders are made of a sample
OTHER_INPUTS = {  # parts of a model that are not made of numbers
    "text_features": "text features",
    "embedding_features": "embedding features",
}
FLOAT = "FloatFeature"  # a kind of splits
MAX_STEPS = 1_000  # Newton steps that are repeated for a leaf
STEP_ERROR = 1e-9  # relative, of Newton steps whose arithmetic is repeated


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
        borders = in_float32(real_numbers(entry["borders"] or []))
        return cls(column, bool(entry["has_nans"]), entry["nan_value_treatment"] == "AsTrue", borders)


@dataclass(frozen=True, kw_only=True)
class CatBoostModel(BoostedModel):
    """The numbers of a model in CatBoost's JSON."""

    features: tuple[Feature, ...]
    scale: float
    settings: Mapping[str, Any]  # of the training
    places: tuple[int, ...]  # of the trees in the file: those that split categories are left out
    in_file: int

    @classmethod
    def of(cls, text: bytes, name: str) -> CatBoostModel:
        """Read what `save_model(format="json")` writes."""
        with parsing(name, damage="is damaged, or not a model of CatBoost. Save it again with save_model."):
            document = json.loads(text)
        damage = (
            f"is not a model of CatBoost {OLDEST[0]}, or a part of it is missing. Save it with "
            'save_model(path, format="json") and default settings.'
        )
        with parsing(name, SettingNotReadError, damage=damage):
            inputs, settings = document["features_info"], document["model_info"].get("params", {})
            for part, why in OTHER_INPUTS.items():
                if inputs.get(part):
                    raise SettingNotReadError(f"{name} was not read: it has {why}", "")
            features = tuple(map(Feature.of, inputs["float_features"]))
            if "oblivious_trees" not in document and "trees" in document:
                raise SettingNotReadError(f"{name} was not read: only symmetric trees are (grow_policy)", "")
            every = document["oblivious_trees"]
            categorical = [int(entry["flat_feature_index"]) for entry in inputs.get("categorical_features") or ()]
            kinds = [{split["split_type"] for split in tree["splits"] or ()} for tree in every]
            places = tuple(n for n, splits in enumerate(kinds) if not (categorical and splits - {FLOAT}))
            nodes = tuple(_nodes(every[place], features) for place in places)
            scale, bias = document["scale_and_bias"]
            return cls(
                name=name,
                trees=nodes,
                rate=_number(settings, "boosting_options", "learning_rate", default=np.nan),
                base_score=real_numbers(np.atleast_1d(bias)),
                features=features,
                scale=float(real_numbers([scale])[0]),
                settings=settings,
                places=places,
                in_file=len(every),
                no_numbers=tuple(categorical),
            )

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        return self.loss in ("Logloss", "MultiClass", "MultiClassOneVsAll")

    @property
    def loss(self) -> str:
        """The name of the loss; empty if it is not known."""
        return str(_setting(self.settings, "loss_function", "type", default=""))

    def read(self, x: Floats, y: Numbers, weight: Numbers) -> Boosted:
        """What the trees say about rows (n, d); y are class numbers or targets."""
        self.check_columns(x, 1 + max((feature.column for feature in self.features), default=-1))
        if self.trees and _setting(self.settings, "data_processing_options", "class_weights", default=[]):
            raise SettingNotReadError(f"{self.name} with class weights was not read", "")
        cast, share = in_float32(x), in_float32(weight)
        exact = bool((share == np.round(share)).all()) and share.sum() < 2**53
        rounding = 0.0 if exact else 4 * EPSILON * len(share) * share.sum()
        trees = []
        for number, grown in enumerate(self.grown(cast)):
            tree = replace(grown.tree, share=share, rounding=np.full(len(grown.tree.size), rounding))
            grown = grown._replace(tree=tree)
            if not tree.size.any():
                raise ValueError(
                    f"audit: {self.name} has no weights of leaves: they were removed from the model. Pass it as it was "
                    "fitted."
                )
            if len(wrong := grown.misfits()):
                node, total = int(wrong[0]), grown.sums(share)[wrong[0]]
                says = f"a total weight of {total:,.6g}, the model says {tree.size[node]:,.6g}"
                raise other_data(self.name, f"in tree {number} the rows of node {node} have {says}")
            first = self.places[number] == 0
            trees.append(replace(tree, labels=self._label_sums(grown, share, y)) if first else tree)
        cuts = tuple(self._cuts(cast)) if (weight > 0).all() and len(x) <= MAX_BINNED_ROWS else ()
        missing = np.ones(x.shape[1], dtype=np.bool_)
        missing[[feature.column for feature in self.features]] = [feature.has_missing for feature in self.features]
        notes = (f"{self.name}: borders are half-way between two values of the table.",) if cuts else ()
        unread = (
            f"{self.name} was audited only for its columns of numbers: {self.in_file - len(trees):,} of "
            f"{self.in_file:,} trees split categories by statistics of labels, which it holds too.",
        )
        forest = Forest(tuple(trees), cuts=cuts, accepts_missing=missing)
        return Boosted(forest, notes=notes, unread=unread if self.no_numbers else ())

    def sums(self) -> BoostedSums:
        """What the trees tell of rows that nobody knows: counts; raises a TypeError that names what is not read."""
        whole = all((nodes.size == np.round(nodes.size)).all() for nodes in self.trees)
        refuse(
            self.name,
            {
                f"the loss {self.loss}": self.loss not in ("RMSE", "Logloss"),
                "categorical features": bool(self.no_numbers),
                "weights of rows": not whole,
                "a model without counts of leaves": not all(nodes.size.any() for nodes in self.trees),
                "missing values": any(feature.has_missing for feature in self.features),
            },
        )
        trees = []
        for nodes in self.trees:
            unknown = np.full(len(nodes.size), np.nan)
            tree = replace(self._tree(nodes, {}, 0), rounding=np.zeros(len(nodes.size)))
            step = np.where(nodes.feature == LEAF, np.nan_to_num(nodes.value), 0.0) * self.scale
            trees.append(BoostedTree(tree, step, 0, unknown, unknown, unknown, unknown))
        note = f"{self.name}: only the counts of its leaves are read; labels are guessed from its predictions."
        loss = BoostedLoss(0)
        return BoostedSums(self.name, loss, tuple(trees), self.base_score, notes=(note,), by_sign=self.classifies)

    def _cuts(self, x: Floats) -> Iterator[Cuts]:
        """The borders of each column; nothing where they follow another rule."""
        options = ("data_processing_options", "float_features_binarization", "border_type")
        by_column = _setting(self.settings, "data_processing_options", "per_float_feature_quantization", default=None)
        if by_column or _setting(self.settings, *options, default="Uniform") == "Uniform":
            return
        for feature in self.features:
            borders = np.unique(feature.borders[np.abs(feature.borders) < LARGEST])
            values = present_values(x, feature.column)
            if len(borders) and np.isin(borders, half_way_in_float32(values[:-1], values[1:])).all():
                yield Cuts(feature.column, borders, values=False, between=half_way_in_float32)

    def _label_sums(self, grown: Grown, share: Numbers, y: Numbers) -> LabelSums | None:
        """Sums of labels in the leaves of the first tree, from its Newton steps; and of all rows, from their mean."""
        tree, bias = grown.tree, self.base_score[0] if len(self.base_score) == 1 else np.nan
        if y.ndim > 1 or self.scale != 1 or np.isnan(bias) or self.loss not in ("RMSE", "Logloss"):
            return None
        cast, root = in_float32(y), tree.size[0]
        sums = grown.sums(share * cast)
        apart = np.abs(y - cast) @ share + UNIT * np.abs(y).max() * share.max()  # labels are rounded to float32
        ridge = _number(self.settings, "tree_learner_options", "l2_leaf_reg", default=np.nan) * root / len(y)
        step = self.trees[0].value / self.rate
        if self.classifies:
            steps = _number(self.settings, "tree_learner_options", "leaf_estimation_iterations", default=1)
            if not 1 <= steps <= MAX_STEPS:
                return None
            totals, rounding = _positives(step, self.trees[0].size, ridge, bias, int(steps))
        else:
            totals = tree.size * bias + step * (tree.size + ridge)
            largest = np.abs(bias) + np.abs(y).max()
            rounding = 16 * EPSILON * (len(y) + 2) * (tree.size + ridge) * largest + apart
        leaves = (tree.feature == LEAF) & (tree.size > 0)
        agrees = bool((np.abs(totals - sums) <= rounding)[leaves].all())  # else leaves have constraints, or other steps
        rounding = np.where(leaves & agrees, rounding, np.inf)
        if not self.classifies and _setting(self.settings, "boosting_options", "boost_from_average", default=False):
            totals[0] = root * bias
            mean = root * (UNIT * np.abs(bias) + 4 * EPSILON * (len(y) + 2) * np.abs(y).max()) + apart
            rounding[0] = mean if abs(totals[0] - sums[0]) <= mean else np.inf
        if not np.isfinite(rounding).any():
            return None
        totals = np.where(np.isfinite(rounding), totals, 0.0)
        both = np.stack([tree.size - totals, totals], 1) if self.classifies else totals[:, None]
        return LabelSums(both, share, rounding)


def _setting(settings: Any, *names: str, default: Any) -> Any:
    """One setting of the training, by its place in the file."""
    for name in names:
        settings = settings.get(name, default) if isinstance(settings, Mapping) else default
    return settings


def _number(settings: Any, *names: str, default: float) -> float:
    """One setting that is a number; NaN if it is none."""
    number = _setting(settings, *names, default=default)
    return float(number) if isinstance(number, int | float) and abs(number) < LARGEST else np.nan


def model_of(fitted: Any) -> CatBoostModel:
    """The numbers of a fitted model."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        fitted.save_model(str(path), format="json")
        return CatBoostModel.of(path.read_bytes(), type(fitted).__name__)


def _nodes(tree: Mapping[str, Any], features: Sequence[Feature]) -> Nodes:
    """A tree with one split per depth: the split of the root decides the highest bit of a leaf's number.

    Rows with a value up to the border go left; nodes without rows are leaves.
    """
    splits, weights = (tree["splits"] or [])[::-1], real_numbers(tree["leaf_weights"])
    for split in splits:
        if split["split_type"] != FLOAT:
            raise SettingNotReadError(f"a model with splits of kind {split['split_type']} was not read", "")
    depth, count = len(splits), 2 ** len(splits) - 1
    if len(weights) != count + 1:
        raise ValueError(f"expected {count + 1} leaves, got {len(weights)}")
    number = whole_numbers([split["float_feature_index"] for split in splits])
    if ((number < 0) | (number >= len(features))).any():
        raise IndexError("a split of a feature that the model does not have")
    nodes = np.arange(2 * count + 1)
    level = np.floor(np.log2(nodes[:count] + 1)).astype(np.intp)
    by_depth = [weights]
    for _ in range(depth):
        by_depth.append(by_depth[-1].reshape(-1, 2).sum(1))
    size = np.concatenate(by_depth[::-1])
    inner = (nodes < count) & (size > 0)

    def of_splits(values: Sequence[Any], leaf: Any) -> NDArray[Any]:
        """(nodes,) the value of each node's split, and that of leaves."""
        return np.where(inner, np.append(np.array([*values, leaf])[level], np.full(count + 1, leaf)), leaf)

    split_features = [features[place] for place in number]
    border = of_splits(in_float32(real_numbers([split["border"] for split in splits])).tolist(), 0.0)
    return Nodes(
        feature=of_splits([feature.column for feature in split_features], LEAF).astype(np.intp),
        threshold=np.where(np.abs(border) >= LARGEST, np.copysign(np.inf, border), border),
        left=np.where(inner, 2 * nodes + 1, LEAF),
        right=np.where(inner, 2 * nodes + 2, LEAF),
        missing_left=~of_splits([feature.missing_right for feature in split_features], False).astype(np.bool_),
        size=size,
        value=np.append(np.full(count, np.nan), _values(tree["leaf_values"], count + 1)),
        curvature=np.full(len(size), np.nan),
    )


def _values(values: Any, leaves: int) -> Numbers:
    """(leaves,) the values of leaves with one each; NaN if they have several."""
    numbers = real_numbers(np.atleast_1d(values))
    return numbers if len(numbers) == leaves else np.full(leaves, np.nan)


def half_way_in_float32(lower: Floats, upper: Floats) -> Floats:
    """The border between two neighbouring values."""
    return in_float32(0.5 * lower + 0.5 * upper)


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
