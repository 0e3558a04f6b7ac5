"""Files of ONNX: linear models and trees give the audit of the estimator that they were made of, or say why not."""

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import lostwax as lw
from lostwax.grades import Grade

onnx, skl2onnx = pytest.importorskip("onnx"), pytest.importorskip("skl2onnx")
IRIS, CANCER, DIABETES, WINE = (
    load(return_X_y=True) for load in (load_iris, load_breast_cancer, load_diabetes, load_wine)
)

QUICK = {"attackers": ["anyone"], "games": 60}


@pytest.fixture
def saved(tmp_path):
    """Write a fitted model as ONNX."""

    def save(model, data):
        onnx.save(skl2onnx.to_onnx(model, data[0][:1].astype(np.float32)), tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    return save


def rebuilt(audit):
    return float(np.mean(audit.findings[0].rebuilt))


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (LinearRegression(), DIABETES),
        (Ridge(alpha=0.7), DIABETES),
        (make_pipeline(MinMaxScaler(), Ridge()), DIABETES),
        (LogisticRegression(max_iter=5_000), IRIS),
        (make_pipeline(StandardScaler(), LogisticRegression(C=0.3)), CANCER),
    ],
    ids=lambda value: "".join(c for c in str(value) if c.isalnum())[:40] if hasattr(value, "fit") else "",
)
def test_a_linear_model_gives_the_audit_of_its_estimator(saved, model, data):
    model = clone(model).fit(*data)
    ours, theirs = (lw.audit(each, data, **QUICK) for each in (saved(model, data), model))
    assert ours.grade is theirs.grade is Grade.EXACT
    assert rebuilt(ours) == pytest.approx(rebuilt(theirs), abs=0.02)
    assert not ours.unanswered
    assert any("does not hold the penalty" in str(note) for note in ours.notes)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (DecisionTreeRegressor(max_depth=4, random_state=0), DIABETES),
        (ExtraTreesRegressor(10, random_state=0), DIABETES),
    ],
    ids=["tree", "forest of all rows"],
)
def test_trees_of_numbers_give_the_audit_of_their_estimator(saved, model, data):
    model = clone(model).fit(*data)
    ours, theirs = (lw.audit(each, data, **QUICK) for each in (saved(model, data), model))
    assert ours.grade is theirs.grade
    assert rebuilt(ours) == rebuilt(theirs)
    assert any("hold no counts" in why for why in ours.unanswered)


def test_only_leaves_that_differ_from_the_known_rows_locate_the_missing_one(saved):
    """Of labels that all rows of a leaf share, nothing is seen: no path, no label, and no all-clear."""
    x, y = WINE
    some = lw.audit(saved(DecisionTreeClassifier(max_depth=2, random_state=0).fit(x, y), WINE), WINE, **QUICK)
    assert some.grade.leaks
    y = (x[:, 0] > np.median(x[:, 0])).astype(int)  # one split, two pure leaves
    pure = lw.audit(saved(DecisionTreeClassifier().fit(x, y), (x, y)), (x, y), **QUICK)
    assert pure.grade is Grade.UNDECIDED


def test_a_leaf_of_one_row_shows_it(saved):
    x = np.c_[np.arange(40.0), np.ones(40)]
    y = (x[:, 0] == 39).astype(int)
    audit = lw.audit(saved(DecisionTreeClassifier().fit(x, y), (x, y)), (x, y), attackers=["anyone"])
    assert audit.grade.leaks


@pytest.mark.parametrize(
    ("model", "data", "why"),
    [
        (LinearSVC(), IRIS, "ends in NONE does not say what it minimised"),
        (Lasso(), DIABETES, "with another loss or penalty"),
        (RandomForestClassifier(3, random_state=0), IRIS, "not the means of the rows in them, as after bootstraps"),
        (GradientBoostingRegressor(n_estimators=2), DIABETES, "as after bootstraps, boosting"),
        (make_pipeline(QuantileTransformer(n_quantiles=9), Ridge()), DIABETES, "is not read; supported: Scaler"),
        (
            make_pipeline(StandardScaler(with_mean=False), DecisionTreeRegressor(max_depth=2)),
            DIABETES,
            "behind a scaler",
        ),
    ],
    ids=["svc", "lasso", "bootstraps", "boosting", "quantiles", "scaled tree"],
)
def test_what_the_file_does_not_say_is_named(saved, model, data, why):
    try:  # means and extremes of a scaler are found, whatever comes after it
        reasons = " ".join(lw.audit(saved(clone(model).fit(*data), data), data, **QUICK).unanswered)
    except TypeError as error:
        reasons = str(error)
    assert re.search(f"cannot be fitted again.*{why}", reasons)


def test_a_model_of_other_rows_is_no_leak(saved):
    x, y = DIABETES
    for model in (Ridge(), DecisionTreeRegressor(max_depth=3)):
        path = saved(model.fit(x[:200], y[:200]), DIABETES)
        with pytest.raises(TypeError, match="fitted on other rows"):
            lw.audit(path, (x[200:], y[200:]))


def test_class_labels_are_those_of_the_table(saved):
    x, y = IRIS
    path = saved(LogisticRegression(max_iter=5_000).fit(x, y), IRIS)
    with pytest.raises(TypeError, match="class labels are not those of y"):
        lw.audit(path, (x, y + 1))


def test_names_of_classes_and_weights_of_rows(saved):
    x, y = CANCER
    names, weight = np.array(["benign", "malign"])[y], np.linspace(0.5, 2, len(y))
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(x, names, logisticregression__sample_weight=weight, standardscaler__sample_weight=weight)
    audit = lw.audit(saved(model, CANCER), (x, names), sample_weight=weight, **QUICK)
    assert audit.grade is Grade.EXACT
    assert not audit.unanswered


def test_numbers_beside_the_model_are_found(saved):
    """Support vectors are rows, whatever is minimised; the computation is named as not audited."""
    audit = lw.audit(saved(SVC().fit(*IRIS), IRIS), IRIS)
    assert audit.grade is Grade.EXACT
    assert any("cannot be fitted again" in why for why in audit.unanswered)


@pytest.mark.parametrize("attribute", ["nodes_truenodeids", "nodes_featureids", "target_weights", "nodes_modes"])
def test_damaged_trees_are_refused(saved, attribute):
    path = saved(DecisionTreeRegressor(max_depth=3).fit(*DIABETES), DIABETES)
    model = onnx.load(str(path))
    node = next(each for each in model.graph.node if each.op_type.startswith("TreeEnsemble"))
    field = next(each for each in node.attribute if each.name == attribute)
    kind = "strings" if field.strings else "floats" if field.floats else "ints"
    values = getattr(field, kind)
    del values[-2:]
    onnx.save(model, path)
    with pytest.raises(ValueError, match="is damaged: a part of the model is missing"):
        lw.audit(path, DIABETES)
