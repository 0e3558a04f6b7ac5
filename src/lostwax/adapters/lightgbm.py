"""LightGBM's trees: each node publishes the number of its rows, and the model the extremes of each column.

Thresholds lie half-way between neighbouring values of the whole column, those next to zero excepted. Counts are
compared with the whole table before they are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

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
from lostwax.games import Extremes, Noted
from lostwax.games.notes import extreme_values
from lostwax.games.trees import LEAF, Bools, Cuts, Floats, Forest, Ints, LabelSums, Tree

VERSIONS = ("v4",)
ENDLESS = 1e299  # infinity in a model file: all values are below
ZERO = 1.01e-35  # values up to this are zero, and have a separate bin
FEWEST_EXTREMES = 0.5  # share of columns whose extremes are those of the table the model was fitted on
SAMPLED = 200_000  # rows above which bins are made of a sample (bin_construct_sample_cnt)
CATEGORICAL, DEFAULT_LEFT = 1, 2  # bits of a decision_type; those of 4 and 8 say what counts as missing
MISSING_ZERO, MISSING_NAN = 1, 2
LOG_MEANS = ("poisson", "gamma", "tweedie")  # objectives whose starting score is the logarithm of the mean target
WORD = 32  # bits of a set of codes


class LightGBMNodes(NamedTuple):
    """One tree of a file: `inner` nodes, which come first, and leaves."""

    feature: Ints  # (inner,)
    decision: Ints  # (inner,)
    threshold: Numbers  # (inner,)
    left: Ints  # (inner,) leaves are below zero
    right: Ints  # (inner,)
    size: Numbers  # (inner + leaves,)
    value: Numbers  # (leaves,)
    curvature: Numbers  # (leaves,) empty where the file does not give them
    categories: Mapping[int, Ints]  # by inner node, the codes that go left

    @classmethod
    def of(cls, entries: Mapping[str, str]) -> LightGBMNodes:
        """Raises if a part is missing."""
        leaves = int(entries["num_leaves"])
        inner = leaves - 1
        if inner < 0:
            raise ValueError("no leaves")

        def ints(name: str) -> Ints:
            return whole_numbers(_numbers(int, entries[name] if inner else ""), inner)

        def floats(name: str, count: int) -> Numbers:
            return real_numbers(_numbers(float, entries[name] if count else ""), count)

        feature, decision, left, right = map(ints, ("split_feature", "decision_type", "left_child", "right_child"))
        threshold = floats("threshold", inner)
        size = np.concatenate([floats("internal_count", inner), floats("leaf_count", leaves)])
        curvature = floats("leaf_weight", leaves if entries.get("leaf_weight") else 0)
        categories = {} if entries.get("num_cat", "0") == "0" else _categories(entries, decision, threshold)
        value = floats("leaf_value", leaves)
        return cls(feature, decision, threshold, left, right, size, value, curvature, categories)

    @property
    def start(self) -> float:
        """Of the first iteration: the leaves are the starting score plus rate times -G / H.

        At the mean label gradients add to zero, and the mean of the leaves by their H is the starting score.
        """
        return float((self.value * self.curvature).sum() / self.curvature.sum())


@dataclass(frozen=True)
class LightGBMModel:
    """The numbers of a model in LightGBM's text format."""

    name: str
    objective: str
    classes: int  # trees per iteration
    ranges: tuple[str, ...]  # of each column: [min:max], codes, or none
    trees: tuple[LightGBMNodes, ...]
    settings: Mapping[str, str]
    categories: tuple[tuple[object, ...], ...] = ()  # of each column of pandas' categories, by code

    @classmethod
    def of(cls, text: str, name: str) -> LightGBMModel:
        """Read what `Booster.model_to_string()` gives."""
        if not text.startswith("tree\n"):
            raise ValueError(f"audit: {name} is not a model of LightGBM. Save it with Booster.save_model.")
        head, *rest = text.split("\nTree=")
        about = _entries(head)
        if (version := about.get("version", "of unknown form")) not in VERSIONS:
            raise ValueError(
                f"audit: {name} is a model file {version} of LightGBM; {', '.join(VERSIONS)} is read. Load it with "
                "LightGBM 4.5 or newer and save it again."
            )
        if "end of trees" not in text:
            raise ValueError(f"audit: {name} is damaged: its end is missing. Save it again.")
        end = text.partition("\nparameters:\n")[2].partition("\nend of parameters")[0]
        pairs = (line.strip("[]").partition(": ") for line in end.splitlines() if line.startswith("["))
        settings = {key: value for key, _, value in pairs}
        if any("is_linear=1" in tree for tree in rest):
            raise SettingNotReadError("linear_tree=True was not read: its leaves hold linear models", ".")
        with parsing(name):
            trees = tuple(LightGBMNodes.of(_entries(tree.partition("\nend of trees")[0])) for tree in rest)
            model = cls(
                name=name,
                objective=about.get("objective", "custom"),
                classes=int(about["num_tree_per_iteration"]),
                ranges=tuple(about["feature_infos"].split()),
                trees=trees,
                settings=settings,
                categories=_names(text),
            )
            if model.classes < 1 or any((tree.feature >= len(model.ranges)).any() for tree in trees):
                raise ValueError("no trees per iteration, or a split of a column that the model does not have")
            for column in model.ranges:
                _ends(column)
        if any((tree.decision >> 2 & 3 == MISSING_ZERO).any() for tree in trees):
            raise SettingNotReadError("zero_as_missing=True was not read: zeros do not go by their value", ".")
        return model

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        return self.objective.partition(" ")[0] in ("binary", "multiclass", "multiclassova")

    def number(self, setting: str, default: float) -> float:
        """A parameter of the training."""
        try:
            return float(self.settings.get(setting, default))
        except ValueError:
            return default


def _names(text: str) -> tuple[tuple[object, ...], ...]:
    """The categories of a data frame, which LightGBM writes after the model."""
    end = text.rpartition("\npandas_categorical:")[2].partition("\n")[0] if "\npandas_categorical:" in text else ""
    return tuple(tuple(each) for each in json.loads(end or "null") or ())


def _ends(column: str) -> tuple[float, float]:
    """The extremes of a column of numbers, "[0.5:3]"; NaN of others."""
    if not column.startswith("["):
        return np.nan, np.nan
    low, high = (float(end) for end in column.strip("[]").split(":"))
    return low, high


def _entries(text: str) -> dict[str, str]:
    return {key: value for key, found, value in (line.partition("=") for line in text.splitlines()) if found}


def is_lightgbm(model: Any) -> bool:
    """A Booster, or an estimator of LightGBM's scikit-learn interface."""
    home = type(model).__module__.partition(".")[0]
    return home == "lightgbm" and (hasattr(model, "booster_") or hasattr(model, "model_to_string"))


def model_of(fitted: Any) -> LightGBMModel:
    """The numbers of a Booster or of an estimator."""
    booster = fitted.booster_ if hasattr(fitted, "booster_") else fitted
    return LightGBMModel.of(booster.model_to_string(num_iteration=-1), type(fitted).__name__)


def above_half_way(lower: Floats, upper: Floats) -> Floats:
    """The threshold between two neighbouring values: the next number above their mean."""
    return np.asarray(np.nextafter((lower + upper) / 2, np.inf))


def read(model: LightGBMModel, x: Floats, y: Numbers, weight: Numbers) -> Boosted:
    """What the trees say about rows (n, d), with codes for categories; y are class numbers or targets."""
    if len(model.ranges) != x.shape[1]:
        raise ValueError(
            f"audit: X has {x.shape[1]} columns, but {model.name} was fitted on {len(model.ranges)}. Pass the data the "
            "model was fitted on."
        )
    inside = _grown_on(model, weight)
    shapes = [replace(tree, share=inside.astype(np.float64)) for tree in _shapes(model, x)]
    seen = [visits(tree, x, strict=False, inside=inside) for tree in shapes]
    for number, (tree, way) in enumerate(zip(shapes, seen, strict=True)):
        if has_empty_node(tree, way):
            raise grown_elsewhere(model.name, number)
    trees = tuple(fitting(tree, way) for tree, way in zip(shapes, seen, strict=True))
    fits = [tells_path(tree) for tree in trees]
    extremes, agreeing = _extremes(model, x[inside])
    cuts = (
        _cuts(shapes, x, inside) if len(x) <= min(SAMPLED, model.number("bin_construct_sample_cnt", SAMPLED)) else None
    )
    sampled = _sampled(model)
    if not any(fits) and (sampled is None or (not cuts and agreeing < FEWEST_EXTREMES)):
        raise ValueError(
            f"audit: {model.name} was not fitted on this table: the counts of its nodes are those of other rows. Pass "
            "the data the model was fitted on."
        )
    labelled = _labelled(model, trees, seen, y, weight) if any(fits) else trees
    notes: list[Noted] = []
    if extremes is not None:
        notes.append(extreme_values(model.name, "holds the minimum and maximum of each column"))
    if cuts is None:
        notes.append(f"{model.name}: its thresholds were not solved for, as they are not half-way between neighbours.")
    forest = Forest(labelled, cuts or (), single=False)
    unread = () if all(fits) else (_unread(model, fits, sampled),)
    return Boosted(forest, () if extremes is None else (extremes,), tuple(notes), unread)


def _grown_on(model: LightGBMModel, weight: Numbers) -> Bools:
    """(n,) the rows that trees were grown on: those without weight too, if they were passed to `fit`."""
    weighted = weight > 0
    grown = bool(model.trees) and len(model.trees[0].feature) > 0 and model.trees[0].size[0] == weighted.sum()
    return weighted if grown else np.ones(len(weight), dtype=np.bool_)


def _sampled(model: LightGBMModel) -> str | None:
    """How rows were drawn for each tree; None if all were used."""
    if "goss" in (model.settings.get("data_sample_strategy"), model.settings.get("boosting")):
        return "GOSS"
    shares = [model.number(f"{which}bagging_fraction", 1) for which in ("", "pos_", "neg_")]
    if model.number("bagging_freq", 0) > 0 and min(shares) < 1:
        return "bagging"
    return None if model.settings else "the file does not say how"


def _unread(model: LightGBMModel, fits: list[bool], sampled: str | None) -> str:
    """Which counts say nothing and why."""
    why = "they are not those of the rows" if sampled is None else f"they are of a sample of the rows ({sampled})"
    return f"the counts of {fits.count(False)} of {len(fits)} trees of {model.name} were not audited: {why}."


def _shapes(model: LightGBMModel, x: Floats) -> Iterator[Tree]:
    """The trees as they are: inner nodes first, then leaves."""
    largest: dict[int, int] = {}
    for tree in model.trees:
        for node, codes in tree.categories.items():
            column = int(tree.feature[node])
            largest[column] = max(largest.get(column, 0), int(codes.max(initial=0)))
    counts = code_counts(x, largest)
    for tree in model.trees:
        yield _shape(model, tree, counts, len(x))


def _shape(model: LightGBMModel, tree: LightGBMNodes, codes: Mapping[int, int], rows: int) -> Tree:
    inner, leaves = len(tree.feature), len(tree.value)
    ends, decision = np.full(leaves, LEAF), tree.decision
    missing = decision >> 2 & 3
    threshold = np.where(tree.threshold >= ENDLESS, np.inf, tree.threshold)
    left, right = (
        np.concatenate([np.where(child >= 0, child, inner + ~child), ends]) for child in (tree.left, tree.right)
    )
    # values that are not NaN by their type of missing value are zero, and codes that are missing go right
    missing_left = np.where(missing == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
    missing_left = np.where((decision & CATEGORICAL) > 0, False, missing_left)
    shape = Tree(
        feature=np.concatenate([tree.feature, ends]),
        threshold=np.concatenate([np.where((decision & CATEGORICAL) > 0, np.nan, threshold), np.zeros(leaves)]),
        left=left,
        right=right,
        missing_left=np.concatenate([missing_left, np.zeros(leaves, dtype=np.bool_)]),
        size=tree.size,
        share=np.ones(rows),
        rounding=np.zeros(len(tree.size)),
        categories={
            node: codes_going(named, codes[int(tree.feature[node])], left=True)
            for node, named in tree.categories.items()
        },
    )
    return checked_shape(model.name, shape)


def _categories(entries: Mapping[str, str], decision: Ints, threshold: Numbers) -> dict[int, Ints]:
    """By node, the codes that go left."""
    bounds, words = (whole_numbers(_numbers(int, entries[name])) for name in ("cat_boundaries", "cat_threshold"))
    if len(words) * WORD > MOST_CODES:
        raise ValueError("more codes than are read")
    found: dict[int, Ints] = {}
    for node in np.flatnonzero(decision & CATEGORICAL):
        which = int(threshold[node])
        chosen = words[bounds[which] : bounds[which + 1]]
        bits = (chosen[:, None] >> np.arange(WORD)) & 1  # (words, 32)
        found[int(node)] = np.flatnonzero(bits.ravel())
    return found


def _extremes(model: LightGBMModel, x: Floats) -> tuple[Extremes | None, float]:
    """The extremes of the columns where they are those of the table, NaN elsewhere; and the share of these columns."""
    low, high = np.full(x.shape[1], np.nan), np.full(x.shape[1], np.nan)
    for column, ends in enumerate(model.ranges):
        low[column], high[column] = _ends(ends)
    given = ~np.isnan(low)
    if not given.any():
        return None, 0.0
    with np.errstate(all="ignore"):
        own_low, own_high = np.nanmin(x[:, given], 0), np.nanmax(x[:, given], 0)
    agree = (low[given] == own_low) & (high[given] == own_high)
    low[np.flatnonzero(given)[~agree]], high[np.flatnonzero(given)[~agree]] = np.nan, np.nan
    if not agree.any():
        return None, 0.0
    return Extremes(f"{model.name}'s feature_infos", torch.from_numpy(low), torch.from_numpy(high)), float(agree.mean())


def _cuts(trees: list[Tree], x: Floats, inside: Bools) -> tuple[Cuts, ...] | None:
    """The thresholds of each column; None if some are not half-way between neighbours, as with forced bins."""
    found = []
    for column in range(x.shape[1]):
        used = [tree.threshold[tree.feature == column] for tree in trees]
        thresholds = np.unique(np.concatenate(used)) if used else np.empty(0)
        thresholds = thresholds[(np.abs(thresholds) > ZERO) & np.isfinite(thresholds)]
        values = np.unique(x[inside & ~np.isnan(x[:, column]), column])
        if not np.isin(thresholds, above_half_way(values[:-1], values[1:])).all():
            return None
        if len(thresholds):
            found.append(Cuts(column, thresholds, values=False, between=above_half_way, rows=inside))
    return tuple(found)


def _labelled(
    model: LightGBMModel, trees: tuple[Tree, ...], seen: list[Visits], y: Numbers, weight: Numbers
) -> tuple[Tree, ...]:
    """The first tree with sums of labels; with several classes of the root only, from their starting scores."""
    leaves, rate = model.trees[: model.classes], model.number("learning_rate", 0.1)
    splits, objective = any(len(one.feature) for one in leaves), model.objective
    plain = all(model.number(name, 0) == 0 for name in ("lambda_l1", "lambda_l2", "max_delta_step", "path_smooth"))
    first, way = trees[0], seen[0]
    if (splits and not plain) or model.number("boost_from_average", 1) != 1 or not tells_path(first):
        return trees
    if not splits:  # the leaves are the starting scores
        if objective.partition(" ")[0] in LOG_MEANS:
            leaves, objective = tuple(one._replace(value=np.exp(one.value)) for one in leaves), "regression"
        leaves, rate = tuple(one._replace(curvature=weight.sum(keepdims=True)) for one in leaves), 1.0
    if any(not one.curvature.sum() > 0 for one in leaves):  # no tree was grown
        return trees
    if objective == "regression":
        sums, targets = _sums_of_targets(leaves[0], first, way, y, weight, rate)
    elif objective in ("binary sigmoid:1", f"multiclass num_class:{model.classes}"):
        sums, targets = _class_counts(leaves, first, y, weight, rate)
    else:
        return trees
    labels = fitting_labels(sums, targets, way)
    return trees if labels is None else (replace(first, labels=labels), *trees[1:])


def _sums_of_targets(
    leaves: LightGBMNodes, tree: Tree, way: Visits, y: Numbers, weight: Numbers, rate: float
) -> tuple[LabelSums, Numbers]:
    """Of squared error H is the weight: leaf by leaf start + (value - start) / rate is the mean target."""
    at = np.flatnonzero(tree.feature == LEAF)
    start, total = leaves.start, leaves.curvature
    totals, rounding = np.zeros((len(tree.feature), 1)), np.full(len(tree.feature), np.inf)
    totals[at, 0] = total * (start + (leaves.value - start) / rate)
    spread = way.sums(weight * np.abs(y - start), len(tree.feature))[at] + np.abs(start) * total * (1 + 1 / rate)
    rounding[at] = 8 * UNIT * (spread + np.abs(totals[at, 0]))
    return LabelSums(totals, weight, rounding), y[:, None]


def _class_counts(
    leaves: Sequence[LightGBMNodes], tree: Tree, y: Numbers, weight: Numbers, rate: float
) -> tuple[LabelSums, Numbers]:
    """The starting scores are log(p / (1 - p)), or log p_k of several classes, of their shares in the table."""
    starts = np.array([one.start for one in leaves])
    shares = (
        np.exp(starts) if len(starts) > 1 else np.array([1 / (1 + np.exp(starts[0])), 1 / (1 + np.exp(-starts[0]))])
    )
    totals, rounding = np.zeros((len(tree.feature), len(shares))), np.full(len(tree.feature), np.inf)
    totals[0] = shares * weight.sum()
    rounding[0] = 16 * UNIT * weight.sum() * (1 + np.abs(starts).max()) / rate
    return LabelSums(totals, weight, rounding), (y[:, None] == np.arange(len(shares))).astype(np.float64)


def _numbers(kind: Callable[[str], Any], text: str) -> list[Any]:
    return [kind(word) for word in text.split()]
