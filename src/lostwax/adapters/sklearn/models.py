"""The models at the end of a pipeline: each is read by its equation and scanned; models of models are looked into."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn import ensemble, model_selection, multioutput
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.tree import BaseDecisionTree
from torch import Tensor

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.boosting import is_boosted, read_boosted
from lostwax.adapters.sklearn.estimators import (
    NotReadError,
    Reading,
    SettingNotReadError,
    has_reader,
    is_classifier,
    read_estimator,
)
from lostwax.adapters.sklearn.hist_boosting import own_encoder
from lostwax.adapters.sklearn.inputs import check_labels, chosen, numbered, other_data
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers, is_large
from lostwax.adapters.sklearn.same_data import check_empty_columns, check_kept, check_sparse, of_this_table
from lostwax.adapters.sklearn.survival import has_hazards, read_cox
from lostwax.adapters.sklearn.trees import forest_notes, forest_of, has_trees, not_drawn_again
from lostwax.games import Fitted, Records
from lostwax.games.folding import SparseFitted, SparseRecords
from lostwax.games.notes import total_of_all_rows

Labels = NDArray[Any]
LabelsBack = Callable[[Tensor], Tensor]


class Inner(NamedTuple):
    """One of the models in a model: what it was fitted on."""

    model: Any
    labels: Labels
    weight: Tensor  # zero for rows that it was not fitted on
    labels_back: LabelsBack | None = None  # to those of the whole, NaN: not told; None: the same


class Inside(NamedTuple):
    """The models that a model is made of, and sentences on what else it learnt, which is not audited."""

    models: Iterable[Inner]
    unread: tuple[str, ...] = ()


def read_models(estimator: Any, place: Place, labels: Labels, weight: Tensor, reader: PipelineReader) -> None:
    """Note what the models in a release publish about the rows of a place."""
    estimator = chosen(estimator)
    if isinstance(estimator, Pipeline):
        *before, (_, last) = estimator.steps
        own = replace(reader, weight=weight)  # its steps were fitted on the rows that the model was fitted on
        for _, step in before:
            place = own.through(step, place)
        read_models(last, place, labels, weight, reader)
    elif isinstance(estimator, str) or estimator is None:  # "passthrough", "drop"
        return
    elif hasattr(estimator, "transform") and not hasattr(estimator, "predict"):
        reader.through(estimator, place)
    elif (inner := inner_models(estimator, labels, weight)) is not None:
        _check_classes(estimator, labels)
        for part in inner.models:
            own, back, after = reader, part.labels_back, reader.labels_back
            if back is not None:
                y = numbered(part.labels, classes=is_classifier(part.model))[0]
                own = replace(reader, y=y, labels_back=back if after is None else _one_after_the_other(back, after))
            read_models(part.model, place, part.labels, part.weight, own)
        reader.unread += inner.unread
    else:
        _read_model(estimator, place, labels, weight, reader)


def _one_after_the_other(first: LabelsBack, then: LabelsBack) -> LabelsBack:
    return lambda labels: then(first(labels))


def _read_model(estimator: Any, place: Place, labels: Labels, weight: Tensor, reader: PipelineReader) -> None:
    """One model: the rows and sums that it holds, and its equation or its trees."""
    if not place.reads:
        return  # the step before it is named as the reason
    reading, not_read = None, None
    is_cox = has_hazards(estimator)
    elsewhere = is_cox or (not has_reader(estimator) and (is_boosted(estimator) or has_trees(estimator)))
    try:
        reading = None if elsewhere else read_estimator(estimator, labels, weight)
    except NotReadError as error:
        not_read = error
        _check_classes(estimator, labels)
        if place.units is not None and (x := as_numbers(place.rows)) is not None:  # else steps before it may be random
            check_kept(estimator, x, labels, weight)
    held = reader.scanned(estimator, place, numbered(labels, classes=is_classifier(estimator))[0], weight)
    try:
        if not_read is not None:
            raise not_read
        if reading is not None:
            publish_equation(type(estimator).__name__, reading, place, reader, sums_found=held > 0)
        elif is_cox:
            read_cox(estimator, place, labels, weight, reader)
        elif is_boosted(estimator):
            read_boosted(estimator, place, labels, weight, reader)
        else:
            read_trees(estimator, place, labels, weight, reader)
    except NotReadError as error:
        if held < 1:
            how = "audited only for the rows and values that it holds" if held else "not audited"
            reader.unread.append(f"{type(estimator).__name__} was {how}: {error.reason}.")


def _check_classes(estimator: Any, labels: Labels) -> None:
    """Raise for labels that a classifier of scikit-learn, whose equation is not read, was not fitted on."""
    module, classes = type(estimator).__module__, attributes(estimator).get("classes_")
    if module.startswith("sklearn.") and isinstance(classes, np.ndarray) and labels.ndim == 1:
        labelled = labels[labels != -1] if module.startswith("sklearn.semi_supervised") else labels  # -1: not labelled
        check_labels(labelled, classes)


def publish_equation(name: str, reading: Reading, place: Place, reader: PipelineReader, *, sums_found: bool) -> None:
    """Note the equation of a model, if it is that of the rows of a place."""
    if is_large(place.rows) and reading.model is not None:
        table = SparseRecords(place.rows.tocsr().astype(np.float64), reading.y)
        sparse = SparseFitted(name, table, reading.weight, reading.model)
        check_sparse(sparse)
        reader.notes += reading.notes
        reader.publish_sparse(sparse, place)
        return
    x = as_numbers(place.rows)
    if x is None and reading.model is not None and reading.model.without_features:
        x = reading.model.weight.new_zeros(len(reading.y), reading.model.weight.shape[1])  # whatever they are
    if x is None:
        return
    sums = () if sums_found else reading.sums
    fitted = Fitted(name, Records(x, reading.y), reading.weight, reading.model, sums)
    check_empty_columns(fitted)
    elsewhere = () if place.units is not None else reader.public  # scalers alone are often public
    fitted = of_this_table(fitted, elsewhere=elsewhere, fewer_rows=next(iter(reader.fewer_rows), None))
    totals = [total_of_all_rows(total.source, of_model=True) for total in sums]
    reader.notes += [*reading.notes, *totals, *fitted.notes]
    if fitted.model is not None or fitted.sums:
        reader.publish(fitted, place)


def read_trees(estimator: Any, place: Place, labels: Labels, weight: Tensor, reader: PipelineReader) -> None:
    """Note what the nodes of a model's trees publish."""
    if (encoder := own_encoder(estimator)) is not None:
        place = reader.through(encoder, place)
    if (x := as_numbers(place.rows)) is None:
        raise SettingNotReadError(f"trees on {place.rows.shape[1]:,} sparse columns are not read", ".")
    try:
        forest = forest_of(estimator, x.numpy(), labels, weight.numpy())
    except ValueError as error:
        if type(estimator).__module__.startswith("sklearn."):
            raise
        raise SettingNotReadError("its trees do not fit the rows as those of its base class would", ".") from error
    y = numbered(labels, classes=is_classifier(estimator))[0]
    reader.publish(Fitted(type(estimator).__name__, Records(x, y), weight, None, forest=forest), place)
    if (rest := not_drawn_again(estimator, forest)) is not None:
        reader.unread.append(rest)
    reader.notes += [note for note in forest_notes(forest, labels) if note not in reader.notes]


@singledispatch
def inner_models(estimator: Any, labels: Labels, weight: Tensor) -> Inside | None:
    """The models that a model is made of, with what each was fitted on; None for a model without others inside."""
    return None


@inner_models.register(ensemble.VotingClassifier)
@inner_models.register(ensemble.VotingRegressor)
@inner_models.register(ensemble.StackingClassifier)
@inner_models.register(ensemble.StackingRegressor)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """Each is fitted on all rows; classes are numbered."""
    own = np.unique(labels, return_inverse=True)[1] if is_classifier(estimator) else labels
    models = [Inner(model, own, weight) for model in estimator.estimators_]
    if isinstance(estimator, ensemble.VotingClassifier | ensemble.VotingRegressor):
        return Inside(models)
    end = f"{type(estimator.final_estimator_).__name__} at the end of {type(estimator).__name__}"
    return Inside(models, (f"{end} was not audited: it was fitted on predictions.",))


@inner_models.register(FrozenEstimator)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """The model that is kept from being fitted again."""
    return Inside([Inner(estimator.estimator, labels, weight)])


@inner_models.register(model_selection.FixedThresholdClassifier)
@inner_models.register(model_selection.TunedThresholdClassifierCV)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside | None:
    """The classifier whose probabilities are compared with a threshold, if it was fitted on all rows."""
    if not estimator.get_params(deep=False).get("refit", True):
        return None
    unread = "the threshold of TunedThresholdClassifierCV was not audited: it was chosen on predictions."
    tuned = isinstance(estimator, model_selection.TunedThresholdClassifierCV)
    return Inside([Inner(estimator.estimator_, labels, weight)], (unread,) if tuned else ())


@inner_models.register(CalibratedClassifierCV)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """One for each fold, fitted on the rows outside it; or one for all rows."""
    models = [calibrated.estimator for calibrated in estimator.calibrated_classifiers_]
    unread = "the calibrators of CalibratedClassifierCV were not audited: they were fitted on predictions."
    drawn = getattr(estimator.cv, "shuffle", False) and not isinstance(getattr(estimator.cv, "random_state", None), int)
    if drawn:
        name = type(models[0]).__name__
        unread = f"{name} inside CalibratedClassifierCV was not audited: its folds were drawn at random."
    if len(models) == 1:
        return Inside([Inner(models[0], labels, weight)], (unread,))
    if drawn:
        return Inside([], (unread,))
    folds = model_selection.check_cv(estimator.cv, labels, classifier=True).split(np.zeros((len(labels), 1)), labels)
    fitted = []
    for model, (train, _) in zip(models, folds, strict=True):
        inside = torch.zeros_like(weight)
        inside[torch.from_numpy(train)] = 1.0
        fitted.append(Inner(model, labels, weight * inside))
    return Inside(fitted, (unread,))


@inner_models.register(multioutput.MultiOutputClassifier)
@inner_models.register(multioutput.MultiOutputRegressor)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """One for each column of targets."""
    return Inside([_of_column(model, labels, column, weight) for column, model in enumerate(estimator.estimators_)])


@inner_models.register(multioutput.ClassifierChain)
@inner_models.register(multioutput.RegressorChain)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """The first of the chain."""
    unread = f"the later models of {type(estimator).__name__} were not audited: they were fitted on labels too."
    return Inside([_of_column(estimator.estimators_[0], labels, int(estimator.order_[0]), weight)], (unread,))


def _of_column(model: Any, labels: Labels, column: int, weight: Tensor) -> Inner:
    """A model of one column of targets."""
    columns = labels.reshape(len(labels), -1)

    def back(y: Tensor) -> Tensor:
        targets = torch.full((len(y), columns.shape[1]), torch.nan, dtype=torch.float64)
        targets[:, column] = y.double()
        return targets

    return Inner(model, columns[:, column], weight, None if labels.ndim == 1 else back)


@inner_models.register(TransformedTargetRegressor)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside:
    """The regressor of transformed targets."""
    transformer = estimator.transformer_
    targets = transformer.transform(labels.reshape(len(labels), -1))

    def back(y: Tensor) -> Tensor:
        finite = y.reshape(len(y), -1).isfinite().all(1)  # (g,)
        values = torch.full((len(y), *labels.shape[1:]), torch.nan, dtype=torch.float64)
        if finite.any():
            inverse = np.asarray(transformer.inverse_transform(y[finite].reshape(int(finite.sum()), -1).numpy()))
            values[finite] = torch.from_numpy(inverse.astype(np.float64)).reshape(-1, *labels.shape[1:])
        return values

    own = targets[:, 0] if targets.shape[1] == 1 else targets
    there_and_back = back(torch.from_numpy(np.asarray(own, dtype=np.float64))).numpy()
    inverse = np.isclose(there_and_back, labels, rtol=1e-6, atol=1e-6 * float(np.std(labels))).mean() > 0.5
    return Inside([Inner(estimator.regressor_, own, weight, back if inverse else None)])  # None: labels stay unanswered


@inner_models.register(ensemble.BaggingClassifier)
@inner_models.register(ensemble.BaggingRegressor)
def _(estimator: Any, labels: Labels, weight: Tensor) -> Inside | None:
    """Each is fitted on a sample of the rows, which its seed gives; not where it sees a part of the columns."""
    if isinstance(estimator.estimators_[0], BaseDecisionTree):
        return None  # they are one forest
    if estimator.max_features != 1.0 or estimator.bootstrap_features or not bool((weight == 1).all()):
        return None
    own = np.unique(labels, return_inverse=True)[1] if is_classifier(estimator) else labels
    counts = [np.bincount(sample, minlength=len(labels)) for sample in estimator.estimators_samples_]
    if (most := max(map(len, counts))) > len(labels):
        rows = f"it was fitted on {most:,} rows or more, and the table has {len(labels):,}"
        raise other_data(type(estimator).__name__, rows)
    pairs = zip(estimator.estimators_, counts, strict=True)
    return Inside([Inner(model, own, torch.from_numpy(count.astype(np.float64))) for model, count in pairs])
