"""LightGBM's trees: each node publishes the number of its rows, and the model the extremes of each column.

Thresholds lie half-way between neighbouring values of the whole column, those next to zero excepted. Counts are
compared with the whole table before they are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

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
    present_values,
    real_numbers,
    refuse,
    thresholds_of,
    whole_numbers,
)
from lostwax.games import Extremes, Noted
from lostwax.games.boosting import BoostedLoss, BoostedSums, BoostedTree
from lostwax.games.notes import extreme_values
from lostwax.games.trees import LEAF, Bools, Cuts, Floats, Forest, Ints, LabelSums, Tree

VERSIONS = ("v4",)
ENDLESS = 1e299  # infinity in a model file: all values are below
ZERO = 1.01e-35  # values up to this are zero, and have a separate bin
FEWEST_EXTREMES = 0.5  # share of columns whose extremes are those of the table the model was fitted on
MAX_BINNED_ROWS = 200_000  # above these bins are made of a sample (bin_construct_sample_cnt)
CATEGORICAL, DEFAULT_LEFT = 1, 2  # bits of a decision_type; those of 4 and 8 say what counts as missing
MISSING_ZERO, MISSING_NAN = 1, 2
LOG_MEANS = ("poisson", "gamma", "tweedie")  # objectives whose starting score is the logarithm of the mean target
SUMS_ERROR = 1e-13  # of sums in double, of one per row
TYPED_DIGITS = 3  # of a setting, at most: more are cut off at six, and a trailing zero is not written
WORD = 32  # bits of a set of codes


@dataclass(frozen=True, kw_only=True)
class LightGBMModel(BoostedModel):
    """The numbers of a model in LightGBM's text format."""

    objective: str
    classes: int  # trees per iteration
    low: Numbers  # (d,) the smallest number of each column, NaN for codes and columns that are not used
    high: Numbers  # (d,)
    settings: Mapping[str, str]

    @classmethod
    def of(cls, text: str, name: str) -> LightGBMModel:
        """Read what `Booster.model_to_string()` gives."""
        if not text.startswith("tree\n"):
            raise ValueError(f"audit: {name} is not a model of LightGBM. Save it with Booster.save_model.")
        head, *parts = text.split("\nTree=")
        about = _entries(head)
        if (version := about.get("version", "of unknown form")) not in VERSIONS:
            raise ValueError(
                f"audit: {name} is a model file {version} of LightGBM; {', '.join(VERSIONS)} is read. Load it with "
                "LightGBM 4.5 or newer and save it again."
            )
        if "end of trees" not in text:
            raise ValueError(f"audit: {name} is damaged: its end is missing. Save it again.")
        if any("is_linear=1" in tree for tree in parts):
            raise SettingNotReadError("linear_tree=True was not read: its leaves hold linear models", ".")
        end = text.partition("\nparameters:\n")[2].partition("\nend of parameters")[0]
        pairs = (line.strip("[]").partition(": ") for line in end.splitlines() if line.startswith("["))
        settings = {key: value for key, _, value in pairs}
        # the categories of a data frame, which LightGBM writes after the model
        _, mark, after = text.rpartition("\npandas_categorical:")
        listed = after.partition("\n")[0] if mark else ""
        with parsing(name, SettingNotReadError):
            low, high = np.array([_ends(column) for column in about["feature_infos"].split()]).reshape(-1, 2).T
            model = cls(
                name=name,
                trees=tuple(_nodes(_entries(tree.partition("\nend of trees")[0])) for tree in parts),
                rate=_number(settings, "learning_rate", 0.1),
                objective=about.get("objective", "custom"),
                classes=int(about["num_tree_per_iteration"]),
                low=low,
                high=high,
                settings=settings,
                categories=tuple(tuple(each) for each in json.loads(listed or "null") or ()),
            )
            if model.classes < 1 or any((nodes.feature >= len(low)).any() for nodes in model.trees):
                raise ValueError("no trees per iteration, or a split of a column that the model does not have")
        return model

    @property
    def classifies(self) -> bool:
        """Whether labels are class numbers."""
        return self.objective.partition(" ")[0] in ("binary", "multiclass", "multiclassova")

    def read(self, x: Floats, y: Numbers, weight: Numbers) -> Boosted:
        """What the trees say about rows (n, d), with codes for categories; y are class numbers or targets."""
        if len(self.low) != x.shape[1]:
            raise ValueError(
                f"audit: X has {x.shape[1]} columns, but {self.name} was fitted on {len(self.low)}. Pass the data the "
                "model was fitted on."
            )
        inside = self._grown_on(weight)
        grown = self.grown(x, inside)
        check_no_empty_node(self.name, grown)
        grown = [each.with_shares(inside.astype(np.float64), 0.0) for each in grown]
        fits = [each.tree.tells_path for each in grown]
        extremes, agreeing = self._extremes(x[inside])
        binned = min(MAX_BINNED_ROWS, _number(self.settings, "bin_construct_sample_cnt", MAX_BINNED_ROWS))
        cuts = _cuts(grown, x, inside) if len(x) <= binned else None
        sampled = self._sampled()
        if not any(fits) and (sampled is None or (not cuts and agreeing < FEWEST_EXTREMES)):
            raise ValueError(
                f"audit: {self.name} was not fitted on this table: the counts of its nodes are those of other rows. "
                "Pass the data the model was fitted on."
            )
        trees = [each.tree for each in grown]
        if any(fits):
            trees[0] = self._labelled(grown[0], y, weight)
        notes, unread = list[Noted](), list[str]()
        if extremes:
            notes.append(extreme_values(self.name, "holds the minimum and maximum of each column"))
        if cuts is None:
            notes.append(
                f"{self.name}: its thresholds were not solved for, as they are not half-way between neighbours."
            )
        if not all(fits):
            why = f"they are of a sample of the rows ({sampled})" if sampled else "they are not those of the rows"
            number = f"{fits.count(False)} of {len(fits)}"
            unread.append(f"the counts of {number} trees of {self.name} were not audited: {why}.")
        return Boosted(Forest(tuple(trees), cuts or (), single=False), extremes, tuple(notes), tuple(unread))

    def sums(self) -> BoostedSums:
        """What the trees tell of rows that nobody knows; raises a TypeError that names what is not read."""
        kinds = {"binary sigmoid:1": 2, f"multiclass num_class:{self.classes}": self.classes, "regression": 0}
        classes, settings = kinds.get(self.objective), self.settings
        positive = ("lambda_l1", "max_delta_step", "path_smooth", "is_unbalance", "use_quantized_grad", "linear_tree")
        refuse(
            self.name,
            {
                f"the objective {self.objective}": classes is None,
                f"boosting={settings.get('boosting')}": settings.get("boosting", "gbdt") != "gbdt",
                str(self._sampled()): self._sampled() is not None,
                **{name: _number(settings, name, 0) != 0 for name in positive},
                "scale_pos_weight": _number(settings, "scale_pos_weight", 1) != 1,
                "monotone_constraints": bool(settings.get("monotone_constraints", "")),
                "boost_from_average=False": _number(settings, "boost_from_average", 1) != 1,
                "a split of categories": any(nodes.codes for nodes in self.trees),
                "a model without trees": not any(len(nodes.size) > 1 for nodes in self.trees),
            },
        )
        loss = BoostedLoss(int(classes or 0), curvature=self.classes / (self.classes - 1) if self.classes > 1 else 1.0)
        ridge, start, trees = _number(settings, "lambda_l2", 0), self._start(loss), []
        ridge_error, rate_error = (_cut_off(settings.get(name, "0")) for name in ("lambda_l2", "learning_rate"))
        rate_error /= self.rate
        for number, nodes in enumerate(self.trees):
            leaf, output = nodes.feature == LEAF, number % self.classes
            # the first trees hold the starting score
            step = np.where(leaf, nodes.value, np.nan) - (start[output] if number < self.classes else 0.0)
            tree = replace(self._tree(nodes, {}, 0), rounding=np.zeros(len(leaf)))
            error = 1e-14 * (np.abs(step) + np.abs(start[output])) / self.rate + rate_error * np.abs(step) / self.rate
            root = SUMS_ERROR * nodes.size[0]
            curvature = np.where(np.isnan(nodes.curvature), np.nan, nodes.curvature)
            trees.append(
                BoostedTree(
                    tree, np.where(leaf, step, 0.0), output, step / self.rate, error + root, curvature, 0 * step + root
                )
            )
        low, high = self.low, self.high
        return BoostedSums(
            self.name,
            loss,
            tuple(trees),
            start,
            ridge,
            ridge_error=ridge_error,
            starts_at_mean=True,
            low=low,
            high=high,
        )

    def _start(self, loss: BoostedLoss) -> Numbers:
        """The scores before the first tree: at the mean label sum (value - start) (H + lambda) = 0."""
        ridge, starts = _number(self.settings, "lambda_l2", 0), []
        for nodes in self.trees[: self.classes]:
            leaf = nodes.feature == LEAF
            weight = nodes.curvature[leaf] + ridge if len(leaf) > 1 else np.ones(1)
            starts.append(float((nodes.value[leaf] * weight).sum() / weight.sum()))
        scores, rows = np.array(starts), self.trees[0].size[0]
        if not loss.classes:
            return scores
        shares = 1 / (1 + np.exp(-scores)) if loss.classes == 2 else np.exp(scores)
        shares = np.rint(shares * rows) / rows  # in whole rows, as LightGBM computes them
        with np.errstate(divide="ignore"):
            scores = np.log(shares / (1 - shares)) if loss.classes == 2 else np.log(np.maximum(shares, 1e-15))
        return np.asarray(scores)

    def _grown_on(self, weight: Numbers) -> Bools:
        """(n,) the rows that trees were grown on: those without weight too, if they were passed to `fit`."""
        weighted = weight > 0
        first = self.trees[0] if self.trees else None
        counted = first is not None and len(first.size) > 1 and first.size[0] == weighted.sum()
        return weighted if counted else np.ones(len(weight), dtype=np.bool_)

    def _sampled(self) -> str | None:
        """How rows were drawn for each tree; None if all were used."""
        if "goss" in (self.settings.get("data_sample_strategy"), self.settings.get("boosting")):
            return "GOSS"
        shares = [_number(self.settings, f"{which}bagging_fraction", 1) for which in ("", "pos_", "neg_")]
        if _number(self.settings, "bagging_freq", 0) > 0 and min(shares) < 1:
            return "bagging"
        return None if self.settings else "the file does not say how"

    def _extremes(self, x: Floats) -> tuple[tuple[Extremes, ...], float]:
        """The extremes of the columns where they are those of the table, NaN elsewhere; and the share of these."""
        stated = ~np.isnan(self.low)
        with np.errstate(all="ignore"):
            low, high = np.nanmin(x[:, stated], 0), np.nanmax(x[:, stated], 0)
        agree = stated.copy()
        agree[stated] = (self.low[stated] == low) & (self.high[stated] == high)
        if not agree.any():
            return (), 0.0
        low, high = (torch.from_numpy(np.where(agree, end, np.nan)) for end in (self.low, self.high))
        return (Extremes(f"{self.name}'s feature_infos", low, high),), float(agree.sum() / stated.sum())

    def _labelled(self, grown: Grown, y: Numbers, weight: Numbers) -> Tree:
        """The first tree with sums of labels; with several classes of the root only, from their starting scores.

        Leaves of the first iteration are the starting score plus rate times -G / H. At the mean label gradients add to
        zero, and the mean of the leaves by their H is the starting score.
        """
        tree, first, rate, objective = grown.tree, self.trees[: self.classes], self.rate, self.objective
        at = [np.flatnonzero(nodes.feature == LEAF) for nodes in first]
        value = [nodes.value[leaves] for nodes, leaves in zip(first, at, strict=True)]
        curvature = [nodes.curvature[leaves] for nodes, leaves in zip(first, at, strict=True)]
        splits = any(len(nodes.size) > 1 for nodes in first)
        penalties = ("lambda_l1", "lambda_l2", "max_delta_step", "path_smooth")
        penalised = splits and any(_number(self.settings, name, 0) != 0 for name in penalties)
        if penalised or _number(self.settings, "boost_from_average", 1) != 1 or not tree.tells_path:
            return tree
        if not splits:  # the leaves are the starting scores
            if objective.partition(" ")[0] in LOG_MEANS:
                value, objective = [np.exp(score) for score in value], "regression"
            curvature, rate = [weight.sum(keepdims=True)] * len(value), 1.0
        if any(not total.sum() > 0 for total in curvature):  # no tree was grown
            return tree
        starts = np.array([(score * h).sum() / h.sum() for score, h in zip(value, curvature, strict=True)])
        if objective == "regression":  # H is the weight: leaf by leaf start + (value - start) / rate is the mean target
            start, total = float(starts[0]), curvature[0]
            totals, rounding = np.zeros((len(tree.size), 1)), np.full(len(tree.size), np.inf)
            totals[at[0], 0] = total * (start + (value[0] - start) / rate)
            spread = grown.sums(weight * np.abs(y - start))[at[0]] + np.abs(start) * total * (1 + 1 / rate)
            rounding[at[0]] = 8 * UNIT * (spread + np.abs(totals[at[0], 0]))
            return grown.with_labels(LabelSums(totals, weight, rounding), y[:, None])
        if objective not in ("binary sigmoid:1", f"multiclass num_class:{self.classes}"):
            return tree
        # the starting scores are log(p / (1 - p)), or log p_k of several classes, of their shares in the table
        odds = np.exp(starts) if len(starts) > 1 else 1 / (1 + np.exp(np.array([starts[0], -starts[0]])))
        error = float(16 * UNIT * weight.sum() * (1 + np.abs(starts).max()) / rate)
        return grown.with_class_counts(odds * weight.sum(), weight, error, y)


def _nodes(entries: Mapping[str, str]) -> Nodes:
    """One tree of a file, inner nodes first, then leaves; raises if a part is missing."""
    leaves = int(entries["num_leaves"])
    inner = leaves - 1
    if inner < 0:
        raise ValueError("no leaves")

    def ints(name: str) -> Ints:
        return whole_numbers([int(word) for word in entries[name].split()] if inner else [], inner)

    def floats(name: str, count: int) -> Numbers:
        return real_numbers([float(word) for word in entries[name].split()] if count else [], count)

    feature, decision, left, right = map(ints, ("split_feature", "decision_type", "left_child", "right_child"))
    threshold, missing, categorical = floats("threshold", inner), decision >> 2 & 3, (decision & CATEGORICAL) > 0
    if (missing == MISSING_ZERO).any():
        raise SettingNotReadError("zero_as_missing=True was not read: zeros do not go by their value", ".")
    codes = {} if entries.get("num_cat", "0") == "0" else _codes(entries, categorical, threshold)
    threshold = np.where(threshold >= ENDLESS, np.inf, threshold)
    # values that are not NaN by their type of missing value are zero, and codes that are missing go right
    missing_left = np.where(missing == MISSING_NAN, (decision & DEFAULT_LEFT) > 0, threshold >= 0) & ~categorical
    ends, unknown = np.full(leaves, LEAF), np.full(inner, np.nan)
    curvature = floats("leaf_weight", leaves) if entries.get("leaf_weight") else np.full(leaves, np.nan)
    return Nodes(
        feature=np.concatenate([feature, ends]),
        threshold=np.concatenate([np.where(categorical, np.nan, threshold), np.zeros(leaves)]),
        left=np.concatenate([np.where(left >= 0, left, inner + ~left), ends]),  # leaves are below zero
        right=np.concatenate([np.where(right >= 0, right, inner + ~right), ends]),
        missing_left=np.concatenate([missing_left, np.zeros(leaves, dtype=np.bool_)]),
        size=np.concatenate([floats("internal_count", inner), floats("leaf_count", leaves)]),
        value=np.concatenate([unknown, floats("leaf_value", leaves)]),
        curvature=np.concatenate([unknown, curvature]),
        codes=codes,
    )


def _codes(entries: Mapping[str, str], categorical: Bools, threshold: Numbers) -> dict[int, Ints]:
    """By node, the codes that go left."""
    names = ("cat_boundaries", "cat_threshold")
    bounds, words = (whole_numbers([int(word) for word in entries[name].split()]) for name in names)
    if len(words) * WORD > MAX_CODES:
        raise ValueError("more codes than are read")
    codes: dict[int, Ints] = {}
    for node in np.flatnonzero(categorical):
        which = int(threshold[node])
        bits = (words[bounds[which] : bounds[which + 1], None] >> np.arange(WORD)) & 1  # (words, 32)
        codes[int(node)] = np.flatnonzero(bits.ravel())
    return codes


def _ends(column: str) -> tuple[float, float]:
    """The extremes of a column of numbers, "[0.5:3]"; NaN of others."""
    if not column.startswith("["):
        return np.nan, np.nan
    low, high = (float(end) for end in column.strip("[]").split(":"))
    return low, high


def _entries(text: str) -> dict[str, str]:
    return {key: value for key, equals, value in (line.partition("=") for line in text.splitlines()) if equals}


def _number(settings: Mapping[str, str], name: str, default: float) -> float:
    """A parameter of the training."""
    try:
        return float(settings.get(name, default))
    except ValueError:
        return default


def _cut_off(text: str) -> float:
    """How far a setting may be from what the file says, which has at most six digits of it."""
    digits = text.partition("e")[0].replace(".", "").strip("-0")
    return 5e-6 * abs(float(text)) if len(digits) > TYPED_DIGITS else 0.0


def model_of(fitted: Any) -> LightGBMModel:
    """The numbers of a Booster or of an estimator."""
    booster = fitted.booster_ if hasattr(fitted, "booster_") else fitted
    return LightGBMModel.of(booster.model_to_string(num_iteration=-1), type(fitted).__name__)


def above_half_way(lower: Floats, upper: Floats) -> Floats:
    """The threshold between two neighbouring values: the next number above their mean."""
    return np.asarray(np.nextafter((lower + upper) / 2, np.inf))


def _cuts(grown: list[Grown], x: Floats, inside: Bools) -> tuple[Cuts, ...] | None:
    """The thresholds of each column; None if some are not half-way between neighbours, as with forced bins."""
    cuts = []
    for column in range(x.shape[1]):
        thresholds, values = thresholds_of(grown, column), present_values(x, column, inside)
        thresholds = thresholds[np.abs(thresholds) > ZERO]
        if not np.isin(thresholds, above_half_way(values[:-1], values[1:])).all():
            return None
        if len(thresholds):
            cuts.append(Cuts(column, thresholds, values=False, between=above_half_way, rows=inside))
    return tuple(cuts)
