"""Target folders of SACRO-ML: a model and its table as `Target.save` writes them, named in target.yaml.

Its arrays are pickles. Arrays of numpy are read without running code; the model only if its form runs none, or if the
user trusts the folder.
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np

TARGET = "target.yaml"
LINE = re.compile(r"(\w+): *(.*?) *$")  # a name and its value at the top level; PyYAML would build objects
ARRAYS = {  # what a pickle of an array of numbers or texts needs
    *((home, "_reconstruct") for home in ("numpy.core.multiarray", "numpy._core.multiarray")),
    *((home, "_frombuffer") for home in ("numpy.core.numeric", "numpy._core.numeric")),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class _OnlyArrays(pickle.Unpickler):
    """Reads arrays of numpy, and refuses everything else by name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ARRAYS:
            raise TypeError(f"{module}.{name}")
        return super().find_class(module, name)


def is_target(folder: Path) -> bool:
    """Whether this is a folder with a target.yaml."""
    return (folder / TARGET).is_file()


def read_target(folder: Path, *, trust: bool) -> tuple[Any, tuple[Any, Any]]:
    """The model of a target folder and the rows that it was fitted on; `trust`: pickles may run code."""
    lines = (folder / TARGET).read_text(encoding="utf-8", errors="replace").splitlines()
    named = {match[1]: match[2].strip("'\"") for line in lines if (match := LINE.fullmatch(line))}
    if named.get("model_type") == "PytorchModel":
        raise ValueError(
            f"audit: {folder} holds a net of PyTorch, whose audit needs the code that trains it. Write a recipe: "
            "lostwax init torch."
        )
    paths = {}
    for field in ("model_path", "X_train_path", "y_train_path"):
        value = named.get(field, "")
        if not value:
            by_code = named.get("dataset_module_path") and field != "model_path"
            why = "its data come from code (dataset_module_path)" if by_code else "the file is incomplete"
            raise ValueError(f"audit: {folder / TARGET} names no {field}: {why}. Write a recipe: lostwax init sklearn.")
        path = (folder / value).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ValueError(f"audit: {field} of {folder / TARGET} is outside the folder. Copy the file into it.")
        if not path.is_file():
            raise FileNotFoundError(f"audit: {folder / value}, which {TARGET} names, does not exist.")
        paths[field] = folder / value
    data = _array(paths["X_train_path"], trust=trust), np.squeeze(_array(paths["y_train_path"], trust=trust))
    return _model(paths["model_path"], trust=trust), data


def _array(path: Path, *, trust: bool) -> Any:
    if path.suffix == ".csv":
        try:
            return np.loadtxt(path, delimiter=",", ndmin=1)
        except ValueError:
            return np.loadtxt(path, delimiter=",", ndmin=1, dtype=str)
    if trust:
        return _unpickled(path)
    with path.open("rb") as stream:
        try:
            return _OnlyArrays(stream).load()
        except TypeError as error:
            raise _refused(path, f"holds more than an array of numpy ({error})") from None
        except Exception as error:  # whatever damaged bytes make of it
            raise _damaged(path) from error


def _model(path: Path, *, trust: bool) -> Any:
    from lostwax.adapters.model_files import PICKLES, load_model

    if path.suffix.lower() not in (*PICKLES, ".sav"):
        return load_model(path)
    if trust:
        return _unpickled(path)
    raise _refused(path, "is a pickle, and reading it can run any code")


def _unpickled(path: Path) -> Any:
    try:
        if path.suffix == ".joblib":
            import joblib

            return joblib.load(path)
        with path.open("rb") as stream:
            return pickle.load(stream)
    except Exception as error:  # of any class that it holds
        raise _damaged(path) from error


def _refused(path: Path, why: str) -> TypeError:
    return TypeError(
        f"audit: {path} {why}, so it was not read. If you trust whoever made it: lostwax audit {path.parent} "
        "--trust-pickles. Or save the model with skops.io.dump, and name that file in target.yaml."
    )


def _damaged(path: Path) -> ValueError:
    return ValueError(f"audit: {path} cannot be read: it is damaged, or needs other packages. Save the target again.")
