"""Models named by a path: only files that cannot run code when they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lostwax import files
from lostwax.adapters import catboost, lightgbm, onnx_files, xgboost
from lostwax.adapters.r_files import RDATA, RDS, load_r
from lostwax.adapters.trees import BoostedModel
from lostwax.games import ReleasedTable

SKOPS, ONNX = ".skops", ".onnx"
JSON, XGBOOST, LIGHTGBM, CATBOOST = ".json", ".ubj", ".txt", ".cbm"
PICKLES = {  # by how a file's name ends, the line that loads it
    ".joblib": "model = joblib.load({path!r})",
    ".pkl": "model = pickle.load(open({path!r}, 'rb'))",
    ".pickle": "model = pickle.load(open({path!r}, 'rb'))",
}
WEIGHTS = (".safetensors", ".pt", ".pth", ".ckpt")
AS_JSON = {  # of a binary file: the library that opens it, its package, and how that writes JSON
    XGBOOST: (
        "XGBoost",
        "xgboost",
        "model = xgboost.Booster()\n    model.load_model(source)\n    open(target, 'wb').write(model.save_raw('json'))",
    ),
    CATBOOST: (
        "CatBoost",
        "catboost",
        "catboost.CatBoost().load_model(source, format='cbm').save_model(target, format='json')",
    ),
}
CHILD = """
import json, sys
sys.path[:], source, target, memory, seconds = json.loads(sys.argv[1])
import {package}
try:
    import resource
    pages = int(open('/proc/self/statm').read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, 2 * [pages * resource.getpagesize() + memory])
    resource.setrlimit(resource.RLIMIT_CPU, 2 * [seconds])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, OSError, ValueError):
    pass
try:
    {convert}
except Exception:
    sys.exit({refused})
"""
REFUSED = 3  # the exit code where the library says that a file is no model
MEMORY, MEMORY_PER_BYTE = 2 << 30, 64  # for the library that opens a file
SECONDS, BYTES_PER_SECOND = 60, 1_000_000

Array = NDArray[np.float64]


def load_model(path: str | PathLike[str]) -> Any:
    """The estimator in a .skops file, trees that XGBoost, LightGBM or CatBoost saved, or what R saved: no code is run.

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
    """What an ONNX file says about the table: its numbers, and linear models and trees where it says enough."""
    onnx = _package("onnx")
    graph = onnx_files.loaded(onnx, _existing(path))
    return onnx_files.released(onnx, graph, Path(path).name, data, sample_weight)


def _from_skops(source: Path) -> Any:
    """Load it if it holds only types that skops trusts."""
    io = _package("skops.io")
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


def _from_text(text: bytes, name: str) -> BoostedModel:
    """What `save_model` of XGBoost or CatBoost wrote as JSON."""
    reader = catboost.CatBoostModel if b'"features_info"' in text else xgboost.XGBoostModel
    return reader.of(text, name)


def _from_binary(source: Path) -> BoostedModel:
    """What `save_model` wrote in a form that only the library itself can open."""
    library, package, convert = AS_JSON[source.suffix.lower()]
    _package(package, "'lostwax[boosting]'")
    return _from_text(_opened_apart(source, library, package, convert), source.name)


def _opened_apart(source: Path, library: str, package: str, convert: str) -> bytes:
    """The model as JSON, from a child process with limits: a damaged file can make the library crash, or never end."""
    code, size = CHILD.format(package=package, convert=convert, refused=REFUSED), source.stat().st_size
    memory, seconds = MEMORY + MEMORY_PER_BYTE * size, SECONDS + size // BYTES_PER_SECOND
    again = "Save it again with save_model."
    with TemporaryDirectory() as folder:
        target = Path(folder) / "model.json"
        arguments = json.dumps([sys.path, str(source.resolve()), str(target), memory, seconds])
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-c", code, arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=seconds,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            ended = None
        if ended is None:
            raise ValueError(
                f"audit: {source} is damaged, or very large: {library} did not open it in {seconds} s. {again}"
            )
        if ended == 0 and target.is_file():
            return target.read_bytes()
    if ended == REFUSED:
        raise ValueError(f"audit: {source} is damaged, or not a model of {library}. {again}")
    if ended == 1:
        raise ImportError(f"load_model: {sys.executable} cannot import the package {package}. Install it again.")
    raise ValueError(
        f"audit: {source} is damaged: {library} crashed when it opened the file, in a process that held nothing else. "
        f"{again}"
    )


def _from_lightgbm(source: Path) -> BoostedModel:
    """What `save_model` of LightGBM wrote."""
    return lightgbm.LightGBMModel.of(source.read_text(encoding="utf-8", errors="replace"), source.name)


READERS: dict[str, Callable[[Path], Any]] = {
    SKOPS: _from_skops,
    JSON: lambda source: _from_text(source.read_bytes(), source.name),
    XGBOOST: _from_binary,
    LIGHTGBM: _from_lightgbm,
    CATBOOST: _from_binary,
    **dict.fromkeys((RDS, *RDATA), load_r),
}


def _existing(path: str | PathLike[str]) -> Path:
    source = files.named("audit", Path(path))
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "does not exist"
        raise FileNotFoundError(f"audit: {source} {what}. Name the file of a model.")
    return source


def _package(name: str, install: str = "") -> ModuleType:
    """An optional package, imported; raises a helpful error if it is not installed."""
    top = name.partition(".")[0]
    if find_spec(top) is None:
        raise ImportError(f"load_model: the package {top} is not installed. Install it: pip install {install or top}")
    return import_module(name)
