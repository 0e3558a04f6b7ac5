"""Which files and functions an audit goes through: `python -m lostwax_dev.walks`.

A reader who follows one audit opens these files. Imports do not count: what runs does.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import lostwax as lw

PACKAGE = str(Path(lw.__file__).parent) + os.sep


class Walk(NamedTuple):
    """What ran of the package, outside module bodies and class bodies."""

    files: frozenset[str]
    functions: int


def walked(call: Callable[[], Any]) -> Walk:
    """Run `call` twice, and note every function of lostwax that the second run, which imports nothing, enters."""
    call()
    codes = set[CodeType]()

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            codes.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(before)
    functions = {code for code in codes if not code.co_name.startswith("<")}
    return Walk(frozenset(code.co_filename.removeprefix(PACKAGE) for code in functions), len(functions))


def scaled_logistic() -> Callable[[], Any]:
    """A scaler and a logistic regression."""
    X, y = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    return lambda: lw.audit(model, (X, y), games=20)


def pipeline() -> Callable[[], Any]:
    """The same with missing values and an imputer."""
    X, y = load_wine(return_X_y=True)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()).fit(X, y)
    return lambda: lw.audit(model, (X, y), games=20)


def forest() -> Callable[[], Any]:
    """A small forest."""
    X, y = load_breast_cancer(return_X_y=True)
    model = RandomForestClassifier(5, random_state=0).fit(X[:200], y[:200])
    return lambda: lw.audit(model, (X[:200], y[:200]), games=20)


def net() -> Callable[[], Any]:
    """A small net, by Newton."""
    X, y = load_digits(return_X_y=True)
    records = lw.Records(torch.tensor(X / 16), torch.tensor(y))
    start = nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10)).double()
    return lambda: lw.audit(
        start,
        trainer=lw.GD(steps=5),
        threat=lw.Informed(records[:40]),
        prior=records[40:200],
        secrets=records[200:203],
        attack=lw.attacks.Newton(),
    )


def check_dp() -> Callable[[], Any]:
    """A claim of differential privacy."""

    def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        with torch.no_grad():
            for weight in net.parameters():
                weight.add_(torch.randn_like(weight))
        return net

    X, y = load_digits(return_X_y=True)
    records = lw.Records(torch.tensor(X[:50] / 16, dtype=torch.float32), torch.tensor(y[:50]))
    return lambda: lw.check_dp(nn.Linear(64, 10), records, train, epsilon=1.0, delta=1e-5, games=60, trials=8)


WALKS = {walk.__name__: walk for walk in (scaled_logistic, pipeline, forest, net, check_dp)}


def main() -> None:
    """Print files and functions of each walk."""
    names = sys.argv[1:]
    warnings.simplefilter("ignore")
    for name, prepare in WALKS.items():
        with contextlib.redirect_stderr(io.StringIO()):
            walk = walked(prepare())
        print(f"{name:>16} {len(walk.files):4} files {walk.functions:5} functions")
        if name in names:
            print("\n".join(f"{'':>20}{file}" for file in sorted(walk.files)))


if __name__ == "__main__":
    main()
