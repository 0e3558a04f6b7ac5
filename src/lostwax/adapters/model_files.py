"""Models named by a path: only files that cannot run code when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax import files
from lostwax.adapters import catboost, lightgbm, xgboost
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.boosting import SavedBooster
from lostwax.adapters.sklearn.pipelines import to_cells
from lostwax.adapters.sklearn.scan import scan
from lostwax.games import Columns, Fitted, Part, Records, ReleasedTable

SKOPS, ONNX = ".skops", ".onnx"
JSON, XGBOOST, LIGHTGBM, CATBOOST = ".json", ".ubj", ".txt", ".cbm"
PICKLES = {  # by how a file's name ends, the line that loads it
    ".joblib": "model = joblib.load({path!r})",
    ".pkl": "model = pickle.load(open({path!r}, 'rb'))",
    ".pickle": "model = pickle.load(open({path!r}, 'rb'))",
}
WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt")

Array = NDArray[np.float64]


def load_model(path: str | PathLike[str]) -> Any:
    """The estimator in a .skops file, or the trees that XGBoost, LightGBM or CatBoost saved: these hold no code.

    Pickles are never read: that runs whatever code they hold. A recipe, which is Python, may load them.
    """
    source = files.named("audit", Path(path))
    ending = source.suffix.lower()
    if ending in PICKLES:  # whether it exists or not
        line = PICKLES[ending].format(path=str(source))
        raise TypeError(
            f"audit: {source} is a pickle, and reading it can run any code, so it is not read. If you trust it, load "
            f"it in a recipe and pass the model: {line}. Or save the model with skops.io.dump."
        )
    if ending in WEIGHTS:
        raise TypeError(
            f"audit: {source} holds weights, and not the net that they belong to. Load them, and pass the net: "
            f"lw.audit(lw.adapters.load_weights(net, {str(source)!r}), (X, y), trainer=...)."
        )
    if (reader := READERS.get(ending)) is None:
        known = ", ".join((*READERS, ONNX, *PICKLES))
        raise TypeError(f"audit: {source} does not end as a file of a model does ({known}). Pass the model itself.")
    return reader(_existing(source))


def is_computation(path: str | PathLike[str]) -> bool:
    """A file that can be asked, but not fitted again."""
    return Path(path).suffix.lower() == ONNX


def released_computation(path: str | PathLike[str], data: Any, sample_weight: Any = None) -> ReleasedTable:
    """What the numbers in an ONNX file say about the table; its computation is not audited."""
    X, y = inputs.unpack(data)
    x = torch.from_numpy(inputs.features(X)).flatten(1)
    labels, classes = inputs.any_labels(inputs.targets(y, len(x)))
    weight = inputs.weights(sample_weight, len(x))
    arrays = {name: one.astype(np.float32) for name, one in named_arrays(path).items()}  # as ONNX holds them
    width = x.shape[1]
    flat = {name: one for name, one in arrays.items() if one.ndim == 1 and len(one) > width and not len(one) % width}
    rows = {
        f"{name} as rows": one.reshape(-1, width) for name, one in flat.items()
    }  # attributes hold rows side by side
    found = scan({**arrays, **rows}, x, labels, weight)
    columns = Columns(inputs.column_names(X, []), ((),) * width)
    fitted = Fitted(Path(path).name, Records(x, labels), weight, None, found.sums, found.extremes, found.stored)
    some = bool(found.sums or found.extremes or found.stored)
    return ReleasedTable(
        name=Path(path).name,
        table=fitted.table,
        weight=weight,
        columns=columns,
        parts=(Part(fitted, to_cells(lambda values: values, columns)),) if some else (),
        classes=classes,
        notes=found.notes,
        unread=("the computation in the file was not audited: it cannot be fitted again.",),
    )


def named_arrays(path: str | PathLike[str]) -> dict[str, Array]:
    """All numbers that an ONNX file holds, by name: its initialisers, and attributes of its nodes.

    Those of support vectors, trees and neighbours are attributes; an array of rows may be flat.
    """
    onnx, source = _package("onnx", "named_arrays"), _existing(path)
    try:
        graph = onnx.load(str(source)).graph
    except Exception as error:  # a DecodeError of protobuf, whose package is not ours
        raise ValueError(f"audit: {source} is damaged, or no ONNX file. Export it again.") from error
    return dict(_arrays(onnx, graph, ""))


def _from_skops(source: Path) -> Any:
    """Load it if it holds only types that skops trusts."""
    io = _package("skops.io", "load_model")
    try:
        untrusted = io.get_untrusted_types(file=source)
        if not untrusted:
            return io.load(source)
    except Exception as error:  # of a zip, a JSON text or an array, whatever is damaged
        raise ValueError(f"audit: {source} is damaged, or no skops file: {error} Save it again.") from error
    raise ValueError(
        f"audit: {source} holds types that skops does not trust: {', '.join(sorted(untrusted))}. If you trust them, "
        f"load it in a recipe and pass the model: model = skops.io.load({str(source)!r}, trusted={sorted(untrusted)})."
    )


def _from_json(source: Path) -> SavedBooster:
    """What `save_model` of XGBoost or CatBoost wrote."""
    text = source.read_bytes()
    if b'"features_info"' in text:
        return _from_catboost(source)
    return SavedBooster.of_xgboost(xgboost.XGBoostModel.of(text, source.name))


def _from_xgboost(source: Path) -> SavedBooster:
    """The binary form, which XGBoost itself must open."""
    booster = _package("xgboost", "load_model", "'lostwax[boosting]'").Booster()
    try:
        booster.load_model(source)
        text = bytes(booster.save_raw("json"))
    except Exception as error:  # XGBoostError, which is known only where the package is
        raise ValueError(
            f"audit: {source} is damaged, or not a model of XGBoost. Save it again with save_model."
        ) from error
    return SavedBooster.of_xgboost(xgboost.XGBoostModel.of(text, source.name))


def _from_lightgbm(source: Path) -> SavedBooster:
    """What `save_model` of LightGBM wrote."""
    return SavedBooster.of_lightgbm(
        lightgbm.LightGBMModel.of(source.read_text(encoding="utf-8", errors="replace"), source.name)
    )


def _from_catboost(source: Path) -> SavedBooster:
    """What `save_model` of CatBoost wrote; the binary form CatBoost itself must open."""
    error_of = (
        (_package("catboost", "load_model", "'lostwax[boosting]'").CatBoostError,)
        if source.suffix.lower() == CATBOOST
        else ()
    )
    try:
        return SavedBooster.of_catboost(catboost.model_in(source))
    except (json.JSONDecodeError, UnicodeDecodeError, *error_of) as error:
        raise ValueError(
            f"audit: {source} is damaged, or not a model of CatBoost. Save it again with save_model."
        ) from error


READERS = {
    SKOPS: _from_skops,
    JSON: _from_json,
    XGBOOST: _from_xgboost,
    LIGHTGBM: _from_lightgbm,
    CATBOOST: _from_catboost,
}


def _arrays(onnx: ModuleType, graph: Any, within: str) -> Iterator[tuple[str, Array]]:
    """The numbers of a graph and of graphs inside its nodes."""
    for tensor in graph.initializer:
        yield f"{within}{tensor.name}", _numbers(onnx, tensor)
    for place, node in enumerate(graph.node):
        name = f"{within}{node.name or f'{node.op_type}[{place}]'}"
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            path = f"{name}.{attribute.name}"
            if isinstance(value, onnx.GraphProto):
                yield from _arrays(onnx, value, f"{path}.")
            elif isinstance(value, onnx.TensorProto):
                yield path, _numbers(onnx, value)
            elif isinstance(value, list | float | int) and np.asarray(value).dtype.kind in "fi":
                yield path, np.atleast_1d(np.asarray(value, dtype=np.float64))


def _numbers(onnx: ModuleType, tensor: Any) -> Array:
    """A tensor of numbers in float64; one of text is empty."""
    values = np.asarray(onnx.numpy_helper.to_array(tensor))
    return values.astype(np.float64) if values.dtype.kind in "fiub" else np.empty(0)


def _existing(path: str | PathLike[str]) -> Path:
    source = files.named("audit", Path(path))
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise FileNotFoundError(f"audit: {source} {what}. Name the file of a model.")
    return source


def _package(name: str, asked: str, install: str = "") -> ModuleType:
    """An optional package, imported; raises a helpful error if it is not installed."""
    top = name.partition(".")[0]
    if find_spec(top) is None:
        raise ImportError(f"{asked}: the package {top} is not installed. Install it: pip install {install or top}")
    return import_module(name)
