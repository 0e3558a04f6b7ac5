"""ONNX files: all numbers that one holds, and the equations of linear models and trees where it says enough.

It keeps weights, thresholds and values of leaves in float32, but no penalty and no counts of rows. The penalty is
searched among settings of two digits. A leaf whose mean is not that of the known rows in it holds the missing one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import NotReadError, SettingNotReadError
from lostwax.adapters.sklearn.grown import off_middle
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place
from lostwax.adapters.sklearn.same_data import DOUBTFUL, score_statistic
from lostwax.adapters.sklearn.scan import scan
from lostwax.adapters.trees import UNIT, Grown, Numbers, parsing
from lostwax.games import Columns, Fitted, Records, ReleasedTable, Stationary
from lostwax.games.fitted import gap
from lostwax.games.trees import LEAF, Forest, LabelSums, Tree, in_float32
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError

LINEAR = ("LinearClassifier", "LinearRegressor")
TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")
UNTOUCHED = ("Cast", "Identity")
READ = f"Scaler, Mul, Add, {', '.join((*LINEAR, *TREES))}"
FITS = DOUBTFUL  # of `score_statistic`: weights at the optimum of this objective
PENALTY = "the file does not hold the penalty: it was searched among settings of two digits, as an attacker would."


class Predictor(NamedTuple):
    """The node that predicts, and what lies before it: rows become (x - shift) / scale."""

    operator: str
    values: dict[str, Any]  # its attributes
    shift: Numbers  # (d,)
    scale: Numbers


def released(onnx: ModuleType, graph: Any, name: str, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """What an ONNX file says about the table."""
    X, y = inputs.unpack(data)
    x = torch.from_numpy(inputs.features(X)).flatten(1)
    targets, weight = inputs.targets(y, len(x)), inputs.weights(sample_weight, len(x))
    numbers_held = {path: values.astype(np.float32) for path, values in arrays(onnx, graph)}  # as ONNX holds them
    width = x.shape[1]
    rows = {  # attributes hold rows side by side
        f"{path} as rows": values.reshape(-1, width)
        for path, values in numbers_held.items()
        if values.ndim == 1 and len(values) > width and not len(values) % width
    }
    nodes, why = None, ""
    try:
        with parsing(name, NotReadError):
            nodes = _nodes(onnx, graph, width)
    except NotReadError as error:
        why = error.reason
    classify = None if nodes is None else nodes.operator.endswith("Classifier")
    is_number = targets.dtype.kind in "iub" and classify is False
    labels, classes = inputs.numbered(targets.astype(np.float64) if is_number else targets, classes=bool(classify))
    columns = Columns(inputs.column_names(X, []), ((),) * width)
    reader = PipelineReader(columns, [*range(width)], labels, weight)
    table, facts = Records(x, labels), scan({**numbers_held, **rows}, x, labels, weight)
    place, beside = reader.start(x.numpy(), x), Fitted(name, table, weight, None, facts.sums, facts.extremes)
    if facts.sums or facts.extremes or facts.stored:
        reader.publish(replace(beside, stored=facts.stored), place)
    reader.notes += facts.notes
    if nodes is not None:
        try:
            with parsing(name, NotReadError):
                _read(name, nodes, table, classes, reader, place)
        except NotReadError as error:
            why = error.reason
    if why:
        reader.unread.append(f"the computation in {name} was not audited, and cannot be fitted again: {why}.")
    return reader.released(name, table, classes=classes)


def _nodes(onnx: ModuleType, graph: Any, width: int) -> Predictor:
    """Follow the rows from the input to the model; raises NotReadError at a step that is not a scaler."""
    constants = {tensor.name: numbers(onnx, tensor) for tensor in graph.initializer}
    at, shift, scale = graph.input[0].name, np.zeros(width), np.ones(width)
    if len(graph.input) > 1:
        raise SettingNotReadError(f"it has {len(graph.input)} inputs", ".")
    for node in graph.node:
        if at not in node.input:
            continue
        values = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        other = next((constants[each] for each in node.input if each in constants), np.empty(0))
        if node.op_type == "Scaler":  # (x - offset) scale
            shift, scale = shift + scale * np.asarray(values["offset"]), scale / np.asarray(values["scale"])
        elif node.op_type == "Mul" and other.size in (1, width):
            scale = scale / other
        elif node.op_type == "Add" and other.size in (1, width):
            shift = shift - scale * other
        elif node.op_type in (*LINEAR, *TREES):
            return Predictor(node.op_type, values, shift + np.zeros(width), scale * np.ones(width))
        elif node.op_type not in UNTOUCHED:
            raise SettingNotReadError(f"the step {node.op_type} is not read; supported: {READ}", ".")
        at = node.output[0]
    raise SettingNotReadError(f"it holds none of {', '.join((*LINEAR, *TREES))}", ".")


def _read(
    name: str, nodes: Predictor, table: Records, classes: tuple[object, ...], reader: PipelineReader, place: Place
) -> None:
    """Note the equation, or the trees, if they are those of this table."""
    if classes:
        stated = [*nodes.values.get("classlabels_strings", ()), *nodes.values.get("classlabels_ints", ())]
        stated += nodes.values.get("classlabels_int64s", ())
        if [str(each.decode() if isinstance(each, bytes) else each) for each in stated] != [*map(str, classes)]:
            raise SettingNotReadError("its class labels are not those of y, in their order", ".")
    if nodes.operator in LINEAR:
        model = _equation(nodes, table, reader.weight)
        reader.publish(Fitted(name, table, reader.weight, model), place)
        reader.notes.append(PENALTY)
        return
    forest = _forest(nodes, table, len(classes), reader.weight.numpy())
    reader.publish(Fitted(name, table, reader.weight, None, forest=forest), place)
    reader.unread.append(
        f"the trees in {name} hold no counts: rows whose target is the mean of their leaf were not located."
    )


# linear models


def _equation(nodes: Predictor, table: Records, weight: Tensor) -> Stationary:
    """The objective at whose optimum the weights are; raises NotReadError if none of those that are tried fits."""
    values, width = nodes.values, table.x.shape[1]
    theta = torch.from_numpy(np.asarray(values["coefficients"], dtype=np.float64).reshape(-1, width))  # (c, d)
    bias = torch.from_numpy(np.asarray(values.get("intercepts") or [0.0] * len(theta), dtype=np.float64))
    post = (values.get("post_transform") or b"NONE").decode()
    loss: Any = SquaredError()
    if nodes.operator == "LinearClassifier":
        two = len(theta) == 2 and bool((theta[0] == -theta[1]).all())
        if not (post == "SOFTMAX" or (post == "LOGISTIC" and two)):
            raise SettingNotReadError(f"a LinearClassifier that ends in {post} does not say what it minimised", ".")
        theta, bias, loss = (theta[1:], bias[1:], BinaryCrossEntropy()) if two else (theta, bias, CrossEntropy())
        if two and post == "SOFTMAX":
            theta, bias = 2 * theta, 2 * bias
    none, shift, scale = torch.zeros(len(theta)).double(), *(torch.from_numpy(each) for each in nodes[2:])
    plain = Stationary(theta, bias if bool(bias.any()) else None, loss, none, none, shift, scale)
    left = gap(plain, table, weight)[:, :width]  # (c, d) = ridge W at the optimum
    ridge = max(0.0, float((left * theta).sum() / theta.square().sum().clamp_min(1e-300)))
    best = min(_settings(ridge, float(weight.sum())), key=lambda each: float((left - each * theta).square().sum()))
    model = replace(plain, ridge=none + best)
    if not score_statistic(model, table, weight) <= FITS:
        raise SettingNotReadError(
            f"its weights are not at the optimum of {type(loss).__name__} with a ridge penalty on this table: they "
            "were fitted on other rows or weights, with another loss or penalty, or stopped early, which the file does "
            "not say. Pass the model that it was made of",
            ".",
        )
    return model


def _settings(ridge: float, weight: float) -> list[float]:
    """Penalties as people set them, near one: alpha, C, or alpha for the mean over rows; or none."""
    if ridge == 0:
        return [0.0]
    return [0.0, float(f"{ridge:.2g}"), 1 / float(f"{1 / ridge:.2g}"), weight * float(f"{ridge / weight:.2g}")]


# trees


def _forest(nodes: Predictor, table: Records, classes: int, weight: Numbers) -> Forest:
    """Trees that were all grown on all rows; raises NotReadError for bootstraps, boosting and other targets."""
    if nodes.shift.any() or (nodes.scale != 1).any():
        raise SettingNotReadError("trees behind a scaler are not read", ".")
    values, x, y = nodes.values, in_float32(table.x.numpy()), table.y.double().numpy()
    if {*values["nodes_modes"]} - {b"BRANCH_LEQ", b"LEAF"} or (values.get("post_transform") or b"NONE") != b"NONE":
        raise SettingNotReadError("trees with other comparisons than <=, or of scores, are not read", ".")
    at = "class" if nodes.operator == TREES[0] else "target"
    number = np.asarray(values["nodes_treeids"])
    trees = np.unique(number)
    outputs = np.asarray(values[f"{at}_ids"])
    k = int(outputs.max()) + 1
    second = classes == 2 and k == 1  # shares of the second class alone
    targets = y[:, None] == np.arange(classes) if classes else y.reshape(len(y), -1)  # (n, classes) or (n, k)
    if targets.shape[1] != k and not second:
        raise SettingNotReadError(f"its leaves hold {k} numbers, not those of these targets", ".")
    located = []
    for tree in trees:
        in_tree, leaves = number == tree, np.asarray(values[f"{at}_treeids"]) == tree
        feature, left, right, ids, missing = (
            np.asarray(values[f"nodes_{part}"])[in_tree]
            for part in ("featureids", "truenodeids", "falsenodeids", "nodeids", "missing_value_tracks_true")
        )
        inner = np.asarray([mode == b"BRANCH_LEQ" for mode in values["nodes_modes"]])[in_tree]
        if (ids != np.arange(len(ids))).any() or (np.minimum(left, right)[inner] <= np.flatnonzero(inner)).any():
            raise SettingNotReadError("its nodes are in another order than below their parents", ".")
        value = np.zeros((len(ids), k))
        np.add.at(
            value,
            (np.asarray(values[f"{at}_nodeids"])[leaves], outputs[leaves]),
            len(trees) * np.asarray(values[f"{at}_weights"])[leaves],
        )
        value = np.hstack([1 - value, value]) if second else value
        bare = Tree(
            feature=np.where(inner, feature, LEAF),
            threshold=np.asarray(values["nodes_values"], dtype=np.float64)[in_tree],
            left=np.where(inner, left, LEAF),
            right=np.where(inner, right, LEAF),
            missing_left=missing.astype(np.bool_),
            size=np.zeros(len(ids)),
            share=np.zeros(len(x)),
            rounding=np.zeros(len(ids)),
        )
        located.append(_located(Grown.of(bare, x), x, targets.astype(np.float64), weight, value))
    return Forest(tuple(located), rounded=True)


def _located(grown: Grown, x: Numbers, targets: Numbers, weight: Numbers, value: Numbers) -> Tree:
    """The tree with those rows whose leaf shows that they are missing: its mean differs, or no other row is in it."""
    leaf, count = grown.leaves, np.bincount(grown.leaves, minlength=len(value))
    total = np.bincount(leaf, weight, len(value))  # (m,) of leaves
    sums = np.stack([np.bincount(leaf, weight * column, len(value)) for column in targets.T], 1)
    rounding = 4 * UNIT * total * (np.abs(value).max(1) + np.abs(targets).max())
    is_leaf = grown.tree.feature == LEAF
    off = np.abs(sums - value * total[:, None]).max(1) > rounding
    if (is_leaf & (off | (total == 0))).any():
        raise SettingNotReadError(
            "the values of its leaves are not the means of the rows in them, as after bootstraps, boosting and class "
            "weights, or where it was fitted on other rows. Pass the model that it was made of",
            ".",
        )
    differs = weight * np.abs(targets - value[leaf]).max(1) > 4 * rounding[leaf]
    shown = (weight > 0) & (differs | (count[leaf] == 1))  # (n,)
    shown_weight = np.where(shown, weight, 0.0)
    totals = value * np.bincount(leaf, shown_weight, len(value))[:, None]
    tree = replace(grown.tree, share=shown.astype(np.float64))
    middle = off_middle(Grown.of(replace(tree, share=None), x), x)  # (m,)
    near = middle <= 2 * UNIT * np.abs(tree.threshold)
    return replace(
        tree,
        size=grown.sums(shown.astype(np.float64)),
        between_neighbours=bool(near.all()) and bool(shown.all()),
        labels=LabelSums(totals, shown_weight, np.where(is_leaf, rounding, np.inf)) if shown.any() else None,
    )


# files


def loaded(onnx: ModuleType, source: Path) -> Any:
    """The graph of a file; raises a ValueError for one that is damaged."""
    try:
        return onnx.load(str(source)).graph
    except Exception as error:  # a DecodeError of protobuf, whose package is not ours
        raise ValueError(f"audit: {source} is damaged, or no ONNX file. Export it again.") from error


def arrays(onnx: ModuleType, graph: Any, within: str = "") -> Iterator[tuple[str, Numbers]]:
    """The numbers of a graph and of graphs inside its nodes, by name."""
    for tensor in graph.initializer:
        yield f"{within}{tensor.name}", numbers(onnx, tensor)
    for place, node in enumerate(graph.node):
        name = f"{within}{node.name or f'{node.op_type}[{place}]'}"
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            path = f"{name}.{attribute.name}"
            if isinstance(value, onnx.GraphProto):
                yield from arrays(onnx, value, f"{path}.")
            elif isinstance(value, onnx.TensorProto):
                yield path, numbers(onnx, value)
            elif isinstance(value, list | float | int) and np.asarray(value).dtype.kind in "fi":
                yield path, np.atleast_1d(np.asarray(value, dtype=np.float64))


def numbers(onnx: ModuleType, tensor: Any) -> Numbers:
    """A tensor of numbers in float64; one of text is empty."""
    values = np.asarray(onnx.numpy_helper.to_array(tensor))
    return values.astype(np.float64) if values.dtype.kind in "fiub" else np.empty(0)
