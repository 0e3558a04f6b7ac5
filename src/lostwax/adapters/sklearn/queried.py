"""A linear model read from its predictions: some d of them give all weights; withholding the file is no protection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Stationary

Array = NDArray[np.float64]
METHODS = ("decision_function", "predict_proba", "predict")
STEPS = (1.0, 1e-2, 1e-4)  # in deviations of a column: smaller where probabilities round to zero or one
AFFINE = 1e-6  # relative error of what counts as affine


def _logits(p: Array) -> Array:
    """Of two classes that of the second; of more, logarithms of softmax probabilities, whose sum no loss depends on."""
    if p.ndim == 1:
        return np.log(p) - np.log1p(-p)
    if p.shape[1] == 2:
        return np.log(p[:, 1]) - np.log(p[:, 0])
    logs = np.log(p)
    centred: Array = logs - logs.mean(1, keepdims=True)
    return centred


LINKS: Mapping[str, Callable[[Array], Array]] = {
    "identity": lambda p: p,
    "logit": _logits,
    "log": np.log,
    "inverse": np.reciprocal,
}


def queried(model: Stationary, predict: Any, rows: Tensor, method: str | None = None) -> Stationary:
    """The same objective, with weights that are read from predictions at d + 3 points; the stored ones are not used.

    `predict` is the released model or pipeline, of which only `method` is called, on rows like those of the table
    (n, d): by default decision_function, predict_proba or predict, the first that it has. The scale of columns and a
    middle come from `rows`. Which link a prediction went through shows in it: outputs are affine in the row.
    """
    method = method or next(name for name in METHODS if hasattr(predict, name))
    ask: Callable[[Array], Array] = getattr(predict, method)
    d = rows.shape[1]
    spread = rows.std(0, correction=0)
    spread, middle = torch.where(spread > 0, spread, 1.0), rows.mean(0)
    for step in STEPS:
        moves = torch.cat([torch.zeros(1, d).double(), torch.eye(d).double(), torch.ones(2, d).double()])
        moves[-2], moves[-1] = moves[-2] / d, moves[-1] * torch.tensor([1, -1] * d)[:d] / d  # two points to test with
        points = middle + step * moves * spread
        answers = np.asarray(ask(points.numpy()), dtype=np.float64)
        for link in LINKS.values():
            with np.errstate(all="ignore"):
                outputs = torch.from_numpy(link(answers).reshape(len(points), -1))
            if outputs.shape[1] != len(model.weight) or not outputs.isfinite().all():
                continue
            slopes = (outputs[1 : d + 1] - outputs[0]).mT / (step * spread)  # (c, d) of the rows as they are
            expected = outputs[0] + (points - middle) @ slopes.mT
            if (outputs - expected).abs().max() < AFFINE * (outputs - outputs[0]).abs().max():
                weight = slopes * model.scale
                bias = outputs[0] - slopes @ (middle - model.shift)
                return replace(model, weight=weight, bias=None if model.bias is None else bias, stopped_early=False)
    raise ValueError(
        f"queried: {method} of {type(predict).__name__} is not an affine function of the row under any known link "
        f"({', '.join(LINKS)}). Pass method=, or the file of the model."
    )
