"""Cox models of scikit-survival, lifelines and statsmodels, and of R: their score equation.

lifelines also holds the mean of every column, the times and events of all rows, and their predicted hazards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.inputs import is_frame, other_data
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers
from lostwax.attacks.closed_form.partial_likelihood import score_statistic
from lostwax.games import Fitted, ProportionalHazards, Records

UNRELATED = 0.01  # the score statistic of a model of other rows is about 1
PLAIN: Mapping[str, Mapping[str, tuple[Any, ...]]] = {  # by class, settings whose values leave the score as it is
    "CoxPHSurvivalAnalysis": {"alpha": (0,)},
    "CoxPHFitter": {
        **dict.fromkeys(("weights_col", "entry_col", "formula", "cluster_col"), (None,)),
        "penalizer": (0.0,),
        "baseline_estimation_method": ("breslow",),
    },
    "PHReg": dict.fromkeys(("strata", "entry", "offset"), (None,)),
}
HOMES = ("sksurv", "lifelines", "statsmodels")


class Cox(NamedTuple):
    """The coefficients of a Cox model."""

    source: str
    weight: NDArray[np.float64]  # (d,)
    efron: bool
    columns: tuple[str, ...] = ()  # by name, where they have names
    strata: tuple[str, ...] = ()  # columns of X whose values have risk sets of their own


def has_hazards(model: Any) -> bool:
    """Whether this is a fitted Cox model of these libraries."""
    kind = type(getattr(model, "model", None) or model)
    return kind.__name__ in PLAIN and kind.__module__.partition(".")[0] in HOMES


def cox_of(model: Any) -> Cox:
    """What a fitted Cox model states."""
    stated = getattr(model, "model", None) or model  # results of statsmodels
    name, settings = type(stated).__name__, attributes(stated)
    settings |= attributes(settings.get("_model"))  # of lifelines
    for setting, values in PLAIN[name].items():
        value: Any = settings.get(setting)
        if not (value is None if values == (None,) else np.all(np.isin(value, values))):
            raise SettingNotReadError(f"the score equation of {name} with {setting} is not read", ".")
    if name == "CoxPHSurvivalAnalysis":
        return Cox(name, np.asarray(model.coef_, dtype=np.float64), model.ties == "efron")
    if name == "CoxPHFitter":
        groups = settings.get("strata")
        strata = () if groups is None else (groups,) if isinstance(groups, str) else tuple(map(str, groups))
        columns = tuple(map(str, model.params_.index))
        return Cox(name, model.params_.to_numpy(np.float64), efron=True, columns=columns, strata=strata)
    return Cox(name, np.asarray(model.params, dtype=np.float64), stated.ties == "efron")


def read_cox(model: Any, place: Place, labels: Any, weight: Tensor, reader: PipelineReader) -> None:
    """Note the score equation of a model of the rows of a place."""
    publish_cox(cox_of(model), place, labels, weight, reader)


def publish_cox(cox: Cox, place: Place, labels: Any, weight: Tensor, reader: PipelineReader) -> None:
    """Note the score equation of a Cox model; raises a ValueError if it is that of other rows."""
    times, events = times_and_events(np.asarray(labels, dtype=np.float64))
    x = as_numbers(place.rows)
    if x is None or x.shape[1] != len(cox.weight) or x.isnan().any():
        raise SettingNotReadError(
            f"{cox.source} has {len(cox.weight)} coefficients, and X has not as many columns of numbers", "."
        )
    weight_of, at, seen = (torch.from_numpy(each) for each in (cox.weight, times, events))
    strata = _strata(cox, reader.table) if cox.strata else None
    weights = None if bool((weight == 1).all()) else weight
    hazards = ProportionalHazards(cox.source, weight_of, at, seen, cox.efron, strata, weights)
    if not (distance := score_statistic(hazards, x.numpy())) <= UNRELATED:
        raise other_data(cox.source, f"its score statistic there is {distance:.2g} (expected < {UNRELATED})")
    reader.publish(Fitted(cox.source, Records(x, reader.y), weight, None, hazards=hazards), place)


def _strata(cox: Cox, X: Any) -> Tensor:
    """(n,) the number of each row's stratum; raises if these are no columns of X."""
    if absent := [name for name in cox.strata if not (is_frame(X) and name in X.columns)]:
        raise ValueError(f"audit: {cox.source} has strata by {', '.join(absent)}. Pass X as a data frame with them.")
    return torch.from_numpy(X.groupby([*cox.strata], dropna=False, observed=True).ngroup().to_numpy(np.int64))


def times_and_events(y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) each, from one column of times, or from times and events in any order."""
    columns = y.reshape(len(y), -1).T
    if len(columns) == 1:
        return columns[0], np.ones(len(y))
    binary = [bool(np.isin(column, (0, 1)).all()) for column in columns]
    if len(columns) != 2 or not any(binary):
        raise ValueError(
            "audit: expected y with times and events of a Cox model: two columns, of which one holds 0 and 1, or one "
            "column of times where all events were observed."
        )
    event = 1 if binary[1] else 0
    return columns[1 - event].copy(), columns[event].copy()
