"""Results of statsmodels: the equation that their parameters satisfy, and the training data that they hold.

A results object keeps the design matrix and the targets of its model (`results.model.exog`, `endog`), and with a
formula the whole data frame. Saved or shared as it is, it stores every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters import fitted_objects
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import KindNotReadError, targets_of
from lostwax.adapters.sklearn.same_data import check_empty_columns, of_this_table
from lostwax.adapters.sklearn.survival import has_hazards
from lostwax.games import Fitted, Loss, Noted, Records, ReleasedTable, Stationary, Stored
from lostwax.games.notes import stored_rows
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, ProbitLoss, SquaredError, Tweedie

# By name: statsmodels need not be installed unless a model comes from it.
MODELS: Mapping[str, Loss] = {
    "OLS": SquaredError(),
    "WLS": SquaredError(),
    "Logit": BinaryCrossEntropy(),
    "Probit": ProbitLoss(),
    "MNLogit": CrossEntropy(),
    "Poisson": Tweedie(1.0),
}
FAMILIES: Mapping[tuple[str, str], Callable[[Any], Loss]] = {  # of GLM, with their links
    ("Gaussian", "Identity"): lambda family: SquaredError(),
    ("Binomial", "Logit"): lambda family: BinaryCrossEntropy(),
    ("Binomial", "Probit"): lambda family: ProbitLoss(),
    ("Poisson", "Log"): lambda family: Tweedie(1.0),
    ("Gamma", "Log"): lambda family: Tweedie(2.0),
    ("Gamma", "InversePower"): lambda family: Tweedie(2.0, "inverse"),
    ("InverseGaussian", "Log"): lambda family: Tweedie(3.0),
    ("Tweedie", "Log"): lambda family: Tweedie(float(family.var_power)),
}
SUPPORTED = f"{', '.join(MODELS)}; GLM with {', '.join(f'{family} ({link})' for family, link in FAMILIES)}"


def is_statsmodels(model: Any) -> bool:
    """Whether this is what `fit()` of a statsmodels model returns."""
    home = type(model).__module__.partition(".")[0]
    return home == "statsmodels" and hasattr(model, "params") and hasattr(model, "model")


def released(results: Any, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """Read results and the data they were fitted on; X with or without the column of ones.

    Of a model without a known equation, only the rows that its results hold are read.
    """
    try:
        fitted = read(results, data, sample_weight)
    except KindNotReadError as error:
        X, y = inputs.unpack(data)
        try:
            design = _Design.of(results, X)
        except ValueError:  # its parameters are not those of columns
            return fitted_objects.released(results, data, sample_weight, error.reason)
        labels, classes = inputs.numbered(inputs.targets(y, len(design.x)))
        weight = inputs.weights(sample_weight, len(design.x))
        unread = (f"the parameters were not attacked: {error.reason}.",)
        fitted = replace(design.fitted(results, labels, weight, None, classes), unread=unread)
        if has_hazards(results) or not fitted.stored:
            return fitted_objects.released(results, (design.x.numpy(), y), sample_weight, error.reason)
    return ReleasedTable.of(fitted, by_equation=False)


def read(results: Any, data: Any, sample_weight: Any = None) -> Fitted:
    """The equation of the model, and the rows that the results hold."""
    loss = _loss(results)
    X, y = inputs.unpack(data)
    design = _Design.of(results, X)
    labels = inputs.targets(y, len(design.x))
    params = np.array(results.params, dtype=np.float64)
    inputs.check_finite(f"params of {type(results.model).__name__}", params)
    theta = torch.from_numpy(params.reshape(len(params), -1)).mT  # (c, k)
    if params.ndim == 2:  # MNLogit fixes the outputs of its first class at zero
        theta = torch.cat([torch.zeros_like(theta[:1]), theta])
    weight = theta[:, design.places]
    bias = None if design.constant is None else design.ones * theta[:, design.constant]
    none, d = weight.new_zeros(len(weight)), weight.shape[1]
    solver = getattr(results, "mle_retvals", None)  # least squares has none
    stopped = not (
        solver.get("converged", True) if isinstance(solver, Mapping) else getattr(results, "converged", True)
    )
    model = Stationary(weight, bias, loss, none, none, weight.new_zeros(d), weight.new_ones(d), stopped)
    target, classes = targets_of(loss, labels, len(weight))
    of_rows = inputs.weights(_weights(results, sample_weight), len(design.x))
    fitted = design.fitted(results, target, of_rows, model, classes)
    check_empty_columns(fitted)
    return of_this_table(fitted)


class _Design(NamedTuple):
    """The features of the model, without its column of ones."""

    x: Tensor  # (n, d)
    names: tuple[str, ...]
    places: list[int]  # their rows in `params`
    constant: int | None  # the row of the intercept
    ones: float = 1.0  # the value of that column
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, results: Any, X: Any) -> _Design:
        """The columns of X that the model was fitted on."""
        stored, constant = getattr(results.model, "exog", None), results.model.data.const_idx
        width = len(np.asarray(results.params)) if stored is None else np.asarray(stored).shape[1]  # not variances
        places = [place for place in range(width) if place != constant]
        if not places:
            raise ValueError(
                f"audit: {type(results.model).__name__} has an intercept and no features, so there is no row to "
                "rebuild. This is no all-clear: whoever knows all other targets can read the missing one from it."
            )
        known = results.model.exog_names or [f"x{place}" for place in range(width)]  # remove_data() may drop them
        names = tuple(str(known[place]) for place in places)
        ones = 1.0 if stored is None or constant is None else float(np.asarray(stored)[0, constant])
        if inputs.is_frame(X) and set(names) <= set(X.columns):
            return cls(_numbers(X[list(names)]), names, places, constant, ones)
        columns = np.shape(X)[-1] if np.ndim(X) == 2 else 0
        from_formula = inputs.is_frame(X) and hasattr(results.model, "formula")  # terms of several columns
        if columns in (width, len(places)) and not from_formula:
            x = _numbers(X)
            return cls(x[:, places] if columns == width else x, names, places, constant, ones)
        if from_formula and stored is not None:
            if len(stored) != len(X):
                raise ValueError(
                    f"audit: X has {len(X):,} rows, but the model was fitted on {len(stored):,}: it drops rows with "
                    "missing values. Pass (results.model.exog, results.model.endog)."
                )
            note = "the formula's design matrix was audited: its columns are those of the model, not of the table."
            return cls(_numbers(np.asarray(stored)[:, places]), names, places, constant, ones, (note,))
        raise ValueError(
            f"audit: X has {columns} columns, but the model was fitted on {width}: {', '.join(map(str, known))}. Pass "
            "its design matrix, with or without the column of ones."
        )

    def fitted(
        self, results: Any, y: Tensor, weight: Tensor, model: Stationary | None, classes: tuple[object, ...]
    ) -> Fitted:
        """What is read of the results, with the rows that they hold."""
        held, data, notes, stored = results.model, results.model.data, list[Noted](self.notes), tuple[Stored, ...]()
        for source, rows, targets in (
            ("results.model.exog", getattr(held, "exog", None), getattr(held, "endog", None)),
            ("results.model.data.orig_exog", getattr(data, "orig_exog", None), getattr(data, "orig_endog", None)),
        ):
            if rows is not None and not stored:
                x = torch.from_numpy(np.asarray(rows, dtype=np.float64)[:, self.places])
                values = np.asarray(targets).squeeze()
                numbers = values.ndim == 1 and values.dtype.kind in "iuf"  # one per row
                stored = (Stored(source, x, torch.from_numpy(values.astype(np.float64)) if numbers else None),)
                notes.append(stored_rows(source))
        if getattr(data, "frame", None) is not None:
            notes.append(
                "results.model.data.frame holds all columns of the table that the formula was given, the unused ones "
                "too. It stays after remove_data(), and in what save() writes."
            )
        return Fitted(
            name=f"statsmodels {type(held).__name__}",
            table=Records(self.x, y),
            weight=weight,
            model=model,
            stored=stored,
            classes=classes,
            columns=self.names,
            notes=tuple(notes),
        )


def _numbers(X: Any) -> Tensor:
    return torch.from_numpy(inputs.features(X))


def _loss(results: Any) -> Loss:
    """The loss that the model minimises; a TypeError for those without a known equation."""
    model, name = results.model, type(results.model).__name__
    fitted_by = type(getattr(results, "_results", results)).__name__
    if fitted_by.startswith(("Regularized", "L1")):
        raise KindNotReadError(f"results of {name}.fit_regularized() are not supported", ". Use fit().")
    if any(getattr(model, part, None) is not None for part in ("offset", "exposure")):
        raise KindNotReadError(f"{name} with an offset or exposure is not supported", ".")
    if name == "GLM":
        family, link = model.family, type(model.family.link).__name__
        key = (type(family).__name__, link)
        if key in FAMILIES:
            return FAMILIES[key](family)
        name = f"GLM with {key[0]}(link={link}())"
    elif name in MODELS:
        return MODELS[name]
    raise KindNotReadError(f"{name} of statsmodels is not supported", f". Supported: {SUPPORTED}.")


def _weights(results: Any, sample_weight: Any) -> Any:
    """The weights of the rows, from the model unless they are given."""
    if sample_weight is not None:
        return sample_weight
    model = results.model
    parts = ("weights",) if type(model).__name__ == "WLS" else ("freq_weights", "var_weights")
    weights = [np.asarray(values) for part in parts if (values := getattr(model, part, None)) is not None]
    if not weights and type(model).__name__ == "WLS":
        raise ValueError("audit: WLS without its data has no weights. Pass sample_weight=, as in WLS(..., weights=).")
    return np.prod(weights, axis=0) if weights else None
