"""XGBoost's trees: each node publishes the sum of second derivatives of its rows, each threshold is a training value.

With `tree_method="hist"` (the default) and "approx", thresholds are values of the table; with "exact" they lie between
two values in the node. Numbers are float32, and sums are compared with the whole table before they are used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.trees import (
    MAX_CODES,
    UNIT,
    Boosted,
    BoostedModel,
    Grown,
    Nodes,
    Numbers,
    check_no_empty_node,
    parsing,
    real_numbers,
    refuse,
    thresholds_of,
    whole_numbers,
)
from lostwax.games.boosting import BoostedLoss, BoostedSums, BoostedTree
from lostwax.games.trees import LEAF, Cuts, Floats, Forest, LabelSums, Tree, in_float32

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
    return np.asarray(1 / (1 + np.exp(-margins)))


def _of_probability(p: Numbers) -> Numbers:
    return np.maximum(p * (1 - p), SMALLEST)


def _softmax(margins: Numbers) -> Numbers:
    odds = np.exp(margins - margins.max(1, keepdims=True))
    return np.asarray(odds / odds.sum(1, keepdims=True))


def _tweedie(margins: Numbers, y: Numbers, settings: Mapping[str, float]) -> Numbers:
    power = settings.get("tweedie_variance_power", 1.5)
    return np.asarray((2 - power) * np.exp((2 - power) * margins) - y * (1 - power) * np.exp((1 - power) * margins))


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
}


@dataclass(frozen=True, kw_only=True)
class XGBoostModel(BoostedModel):
    """The numbers of a model in XGBoost's JSON, and settings of the training, which only a fitted model holds."""

    objective: str
    settings: Mapping[str, float]  # of the objective
    output: tuple[int, ...]  # which of the k margins a tree adds to
    iterations: tuple[int, ...]  # the first tree of each
    drops: bool  # DART: trees were left out while others were grown
    rate: float = 0.3
    ridge: float = 1.0
    subsample: float = 1.0
    exact: bool = False  # tree_method="exact": thresholds lie between values of the rows in the node
    refused: Mapping[str, bool] = field(
        default_factory=dict
    )  # settings that sums over unknown rows cannot be read with

    gaps, strict, codes_go_left = True, True, False

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        objective = OBJECTIVES.get(self.objective)
        return objective is not None and objective.classes

    @classmethod
    def of(cls, text: bytes, name: str) -> XGBoostModel:
        """Read what `Booster.save_raw("json")` gives."""
        again = "Load it with xgboost and save it again with save_model."
        with parsing(name, damage=f"is not a model of XGBoost, or was saved by a version before 1.0. {again}"):
            document = json.loads(text)
            learner, version = document["learner"], tuple(map(int, document["version"]))
            booster, params, objective = (
                learner[part] for part in ("gradient_booster", "learner_model_param", "objective")
            )
            kind = booster["name"]
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
        if not trees:
            raise ValueError(f"audit: {name} has no trees, so it reveals nothing. Pass it as it was fitted.")
        with parsing(name, SettingNotReadError):
            if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees):
                raise SettingNotReadError(
                    "multi_strategy='multi_output_tree' was not read: its leaves hold vectors", "."
                )
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
                trees=tuple(map(_nodes, trees)),
                objective=str(objective["name"]),
                settings=_settings(objective),
                base_score=np.broadcast_to(base, (outputs,)).copy(),
                output=tuple(output.tolist()),
                iterations=tuple(iterations.tolist()),
                drops=kind == "dart",
                categories=tuple(_names(model.get("cats", {}))),
            )

    def read(self, x: Floats, y: Numbers, weight: Numbers) -> Boosted:
        """What the trees say about rows (n, d), with codes for categories; y are class numbers or targets."""
        if any(np.isnan(nodes.size).any() for nodes in self.trees):
            raise SettingNotReadError(
                f"{self.name} without sum_hessian was not read: the sums of nodes were removed from it. Pass "
                "threat=lw.Weak(size=len(y)), which does not need them",
                ".",
            )
        cast = in_float32(x)
        self.check_columns(cast, 1 + max(int(nodes.feature.max()) for nodes in self.trees))
        grown, objective = self.grown(cast), OBJECTIVES.get(self.objective)
        known = objective is not None and not self.drops
        if objective is not None and known:
            grown = list(self._sized(objective, grown, y, weight))
        fits = [each.tree.tells_path for each in grown]
        if not any(fits):  # a single node can be empty by rounding, of a threshold between close values
            check_no_empty_node(self.name, grown)
        cuts = _cuts(grown, cast)
        if cuts is None and not any(fits):
            if self.exact and (not known or self.subsample < 1):
                raise SettingNotReadError(
                    "tree_method='exact' was not read together with subsample < 1, DART or a custom objective: "
                    "thresholds are no values, and the sizes of nodes are not those of all rows",
                    ".",
                )
            raise ValueError(
                f"audit: {self.name} does not fit this table: neither do its rows add up to the trees, nor are the "
                "thresholds values of it. Pass the data the model was fitted on; its sample_weight too. A model of "
                "tree_method='exact' with subsample < 1, DART or a custom objective is not read."
            )
        first = grown[0].tree
        if any(fits) and objective is not None:
            first = self._labelled(objective, grown, y, weight)
        note = "every threshold is a value of the table."
        if cuts is None:
            note = "thresholds lie between values (tree_method='exact'); only the paths of rows were read."
        forest = Forest((first, *(each.tree for each in grown[1:])), cuts or (), strict=True)
        return Boosted(forest, notes=(f"{self.name}: {note}",), unread=self._unread(known, fits))

    def sums(self) -> BoostedSums:
        """What the trees tell of rows that nobody knows; raises a TypeError that names what is not read."""
        base, name = self.base_score, self.name
        classes = {"binary:logistic": 2, "binary:logitraw": 2, "reg:squarederror": 0}.get(self.objective)
        if self.objective in ("multi:softprob", "multi:softmax"):
            classes = len(base)
        bad = {
            f"the objective {self.objective}": classes is None,
            "booster='dart'": self.drops,
            "a split of categories": any(nodes.codes for nodes in self.trees),
            "num_parallel_tree > 1": any(end - start != len(base) for start, end in pairwise(self.iterations)),
            "several labels per row": classes == 0 and len(base) > 1,
            **self.refused,
        }
        refuse(name, bad)
        ridge, ridge_error = _chosen(_penalties(self.trees), self.ridge)
        rate, rate_error = _chosen(_rates(self.trees, ridge), self.rate)
        start = in_float32(OBJECTIVES[self.objective].to_margin(in_float32(base)))
        if self.objective == "binary:logistic":  # as XGBoost computes it
            odds = np.float32(1) / base.astype(np.float32) - np.float32(1)
            start = in_float32(-np.log(odds.astype(np.float64)))
        classes = int(classes or 0)
        loss = BoostedLoss(
            classes,
            curvature=2.0 if classes > 2 else 1.0,
            margins_in_float32=True,
            positive_weight=self.settings.get("scale_pos_weight", 1.0) if classes == 2 else 1.0,
        )
        trees = []
        for nodes, output in zip(self.trees, self.output, strict=True):
            leaf = nodes.feature == LEAF
            weight = np.where(leaf, nodes.value / rate, nodes.value)
            error = np.where(leaf, 3 * UNIT + rate_error / rate, 1.5 * UNIT) * np.abs(weight)
            trees.append(
                BoostedTree(
                    self._tree(nodes, {}, 0),
                    step=np.where(leaf, nodes.value, 0.0),
                    output=output,
                    weight=weight,
                    weight_error=error,
                    curvature=nodes.curvature,
                    curvature_error=1.1 * UNIT * nodes.curvature,
                )
            )
        said = "found in" if np.isfinite(self.trees[0].size).all() else "not found in"
        note = f"{name}: learning rate {rate:.6g} and lambda {ridge:.6g} ({said} the file)."
        return BoostedSums(
            name,
            loss,
            tuple(trees),
            start,
            ridge,
            ridge_error=ridge_error,
            strict=True,
            values=not self.exact,
            notes=(note,),
        )

    def _unread(self, known: bool, fits: list[bool]) -> tuple[str, ...]:
        """Which sizes say nothing and why."""
        why = (
            "the rows do not add up to them. Reasons can be subsample < 1, a base_margin, a custom objective, or rows "
            "and sample_weight other than in training"
        )
        if not known:
            why = "with DART trees are left out at random" if self.drops else f"{self.objective} is not modelled"
        number = f"{fits.count(False)} of {len(fits)}"
        unread = f"the sizes of nodes in {number} trees of {self.name} were not audited: {why}."
        return () if all(fits) else (unread,)

    def _sized(self, objective: Curvature, grown: list[Grown], y: Numbers, weight: Numbers) -> Iterator[Grown]:
        """The trees with the share of each row: its second derivative before the tree was grown, in float32."""
        base = objective.to_margin(self.base_score)
        outputs = len(base)
        target = y if y.ndim > 1 else np.broadcast_to(y[:, None], (len(y), outputs))  # (n, k)
        weights = weight[:, None] * np.where(target == 1, self.settings.get("scale_pos_weight", 1.0), 1.0)
        margins = np.broadcast_to(base.astype(np.float32), (len(y), outputs)).copy()
        for start, end in pairwise(self.iterations):
            at = margins.astype(np.float64)
            share = weights * objective.second(at, target, self.settings)
            moved = 2 * UNIT * (np.abs(at) + np.abs(base) + (0 if objective.classes else np.abs(target)))
            beside = [weights * objective.second(at + side * moved, target, self.settings) for side in (-1, 1)]
            error = np.abs(beside[1] - beside[0]) + objective.steps * UNIT * share + objective.cancels * UNIT * weights
            error += np.abs(share.astype(np.float32) - share)
            for number in range(start, end):
                each, nodes, output = grown[number], self.trees[number], self.output[number]
                rounding = each.sums(error[:, output]) + 2 * UNIT * np.abs(nodes.size)
                yield each.with_shares(share[:, output], rounding)
                margins[:, output] += nodes.value[each.leaves].astype(np.float32)

    def _labelled(self, objective: Curvature, grown: list[Grown], y: Numbers, weight: Numbers) -> Tree:
        """The first tree with sums of labels; with several classes of the root only, from the first tree of each.

        All rows have the same margin there, that of base_score: G = sum_i w_i (p - y_i) with its prediction p.
        """
        numbers = [self.output.index(output) for output in range(len(self.base_score))]
        several = y.ndim > 1 or (len(numbers) > 1 and objective is not SOFTMAX)  # labels per row
        first, tree = grown[0], grown[0].tree
        if several or not all(grown[number].tree.tells_path for number in numbers):
            return tree
        if self.settings.get("scale_pos_weight", 1.0) != 1.0:
            return tree
        base = in_float32(objective.to_margin(self.base_score))
        rate = self.rate / (self.iterations[1] // len(numbers))  # trees of one iteration share its learning rate
        gradients = [self._gradients(self.trees[number], rate) for number in numbers]
        if self.objective == "reg:squarederror":  # H is the weight, and sum w y = b sum w - G
            totals = base[0] * tree.size - gradients[0]
            spread = first.sums(weight * np.abs(y - base[0])) + 2 * np.abs(base[0]) * tree.size
            error = 4 * UNIT * np.abs(gradients[0]) + 4 * UNIT * (spread + np.abs(totals))
            return first.with_labels(LabelSums(totals[:, None], weight, error), y[:, None])
        if objective is not SOFTMAX and self.objective != "binary:logistic":
            return tree
        # at the root the weights of all rows add to W, which is known, and those of a class to p W - G
        total, at_root = float(weight.sum()), np.array([gradient[0] for gradient in gradients])
        p = np.array([_sigmoid(base[0])]) if len(base) == 1 else _softmax(base[None])[0]
        ones = p * total - at_root
        counts = np.array([total - ones[0], ones[0]]) if len(base) == 1 else ones
        rounding = 4 * UNIT * np.abs(at_root).max() + 16 * UNIT * total * (1 + np.abs(base).max())
        return first.with_class_counts(counts, weight, rounding, y)

    def _gradients(self, nodes: Nodes, rate: float) -> Numbers:
        """(m,) the sum of gradients in each node, from its weight -G / (H + lambda)."""
        return -np.where(nodes.feature == LEAF, nodes.value / rate, nodes.value) * (nodes.size + self.ridge)


def _penalties(trees: Sequence[Nodes]) -> Numbers:
    """Estimates of lambda, from weights and second derivatives of nodes inside a tree: G = -w (H + lambda) adds up."""
    found = []
    for nodes in trees:
        inside = np.flatnonzero(nodes.feature != LEAF)
        inside = inside[np.isin(nodes.left[inside], inside) & np.isin(nodes.right[inside], inside)]
        left, right = nodes.left[inside], nodes.right[inside]
        w, h = nodes.value, nodes.size
        apart = w[inside] - w[left] - w[right]
        total = w[left] * h[left] + w[right] * h[right] - w[inside] * h[inside]
        large = np.abs(apart) > 0.1
        found.append(total[large] / apart[large])
    return np.concatenate(found)


def _rates(trees: Sequence[Nodes], ridge: float) -> Numbers:
    """Estimates of the learning rate, by which leaves are multiplied and other nodes are not."""
    found = []
    for nodes in trees:
        leaf = nodes.feature == LEAF
        gradient = nodes.value * (nodes.size + ridge)
        inside = np.flatnonzero(~leaf)
        left, right = nodes.left[inside], nodes.right[inside]
        of_leaves = np.where(leaf[left], gradient[left], 0) + np.where(leaf[right], gradient[right], 0)
        others = gradient[inside] - np.where(leaf[left], 0, gradient[left]) - np.where(leaf[right], 0, gradient[right])
        useful = (leaf[left] | leaf[right]) & (np.abs(others) > 0.1)
        found.append(of_leaves[useful] / others[useful])
    return np.concatenate(found)


def _chosen(estimates: Numbers, stated: float) -> tuple[float, float]:
    """A setting and its largest error: as stated if the file agrees; otherwise as most estimates say."""
    stated, estimates = float(np.float32(stated)), estimates[np.isfinite(estimates)]
    middle = float(np.median(estimates)) if len(estimates) > 1 else stated
    if abs(middle - stated) <= 1e-4 * max(abs(stated), 0.01):
        return stated, 0.0
    short = float(f"{middle:.4g}")  # people set few digits
    if abs(short - middle) <= 1e-5 * abs(middle):
        return float(np.float32(short)), 0.0
    return middle, 1e-4 * abs(middle)


def _nodes(tree: Mapping[str, Any]) -> Nodes:
    """One tree of a file; raises if some nodes lack one of their numbers."""
    count = len(tree["left_children"])
    links = ("left_children", "right_children", "split_indices", "default_left")
    left, right, feature, missing_left = (whole_numbers(tree[name], count) for name in links)
    threshold, weight = (in_float32(real_numbers(tree[name], count)) for name in ("split_conditions", "base_weights"))
    curvature = (
        in_float32(real_numbers(tree["sum_hessian"], count)) if tree.get("sum_hessian") else np.full(count, np.nan)
    )
    if not curvature.any():  # set to zero, as some do to hide them
        curvature = np.full(count, np.nan)
    parts = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    codes, nodes, starts, sizes = (whole_numbers(tree[name]) for name in parts)
    limits = ((codes, MAX_CODES), (nodes, count), (starts, len(codes) + 1), (sizes, len(codes) + 1))
    if not count or any(((part < 0) | (part >= limit)).any() for part, limit in limits):
        raise ValueError("no nodes, or codes of none")
    inner = left != LEAF
    return Nodes(
        feature=np.where(inner, feature, LEAF),
        threshold=threshold,
        left=np.where(inner, left, LEAF),
        right=np.where(inner, right, LEAF),
        missing_left=missing_left.astype(np.bool_),
        size=curvature,
        value=np.where(inner, weight, threshold),  # in the place of a threshold, a leaf has what it adds
        curvature=curvature,
        codes={node: codes[at : at + size] for node, at, size in zip(nodes.tolist(), starts, sizes, strict=True)},
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
    numbers = {}
    for part in objective.values():
        for name, value in part.items() if isinstance(part, Mapping) else ():
            with suppress(ValueError, TypeError, OverflowError):
                numbers[name] = float(value)
    return numbers


def model_of(fitted: Any) -> XGBoostModel:
    """The numbers of a Booster or of an estimator, and the settings of its last training if it was not loaded."""
    missing = getattr(fitted, "missing", np.nan)
    if missing == missing:
        raise SettingNotReadError("missing=... was not read: only NaN is a missing value here", ".")
    booster = fitted.get_booster() if hasattr(fitted, "get_booster") else fitted
    model = XGBoostModel.of(bytes(booster.save_raw("json")), type(fitted).__name__)
    try:
        config = json.loads(booster.save_config())["learner"]["gradient_booster"]
        config = config.get("gbtree", config)  # DART holds another
        rate, ridge, subsample = (float(config["tree_train_param"][name]) for name in ("eta", "lambda", "subsample"))
        exact = config["gbtree_train_param"]["tree_method"] == "exact"
        refused = _refused(config["tree_train_param"])
    except (KeyError, TypeError, ValueError):
        return model
    return replace(model, rate=rate, ridge=ridge, subsample=subsample, exact=exact, refused=refused)


def _refused(settings: Mapping[str, str]) -> dict[str, bool]:
    """Settings with which weights are not -G / (H + lambda), or sums not those of all rows."""
    return {
        "subsample < 1": float(settings["subsample"]) < 1,
        "alpha > 0": float(settings["alpha"]) > 0,
        "max_delta_step > 0": float(settings["max_delta_step"]) > 0,
        "monotone_constraints": any(
            part.strip("() ") not in ("", "0") for part in settings["monotone_constraints"].split(",")
        ),
    }


def _cuts(grown: list[Grown], x: Floats) -> tuple[Cuts, ...] | None:
    """The thresholds of each column that are values of it; None if others are among them."""
    cuts = []
    for column in range(x.shape[1]):
        values = np.sort(x[~np.isnan(x[:, column]), column])
        if len(values) < 2:
            continue
        thresholds, (low, high) = thresholds_of(grown, column), _sentinels(values)
        inside = thresholds[(thresholds > low) & (thresholds < high)]
        if not np.isin(inside, values).all():
            return None
        if len(inside):
            cuts.append(Cuts(column, inside, values=True))
    return tuple(cuts)


def _sentinels(values: Numbers) -> tuple[float, float]:
    """Beyond these a threshold may be made of the smallest or largest value, to part rows with and without a value.

    Without any one row, the smallest known value is at most the second smallest.
    """
    second, last = values[1], values[-2]
    rounding = 8 * UNIT * (np.abs([second, last]) + BEYOND)
    return second - np.abs(second) - BEYOND + rounding[0], last + np.abs(last) + BEYOND - rounding[1]
