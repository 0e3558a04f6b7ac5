"""Pipelines on tables as their owners have them: what comes back, what is listed, what is refused."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from packaging.version import Version
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.linear_model import Perceptron, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    OneHotEncoder,
    OrdinalEncoder,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

import lostwax as lw
from adapters.sklearn.mixed import CATEGORIES, NUMBERS, encoded, encoder, gaps, logistic, people
from lostwax.adapters.sklearn import released
from lostwax.audits.play import Settings
from lostwax.audits.tables import audit_table
from lostwax.games import Kept
from lostwax.grades import Grade

N = 50
FRAME, Y = people(N)
GAPS = gaps(FRAME)
TO_NUMBERS = make_pipeline(SimpleImputer(), StandardScaler())
TO_CATEGORIES = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())


def audited(model, X=FRAME, y=Y, **options):
    return lw.audit(model.fit(X, y), (X, y), **options)


def cells(audit):
    """Guesses of the last line as their owner writes them, (games, columns)."""
    from lostwax.reports.gallery import cells

    return cells(audit, audit.findings[-1].guess.records.x[:, 0])


def by_columns(*parts, **options):
    return make_pipeline(ColumnTransformer(list(parts), **options), logistic())


EXACT = {
    "one-hot and scaler": encoded(logistic()),
    "in a grid search": GridSearchCV(encoded(logistic()), {"logisticregression__C": [0.1, 1.0]}, cv=2),
    "nested pipelines": Pipeline(
        [
            ("encode", Pipeline([("columns", encoder()), ("scale", Pipeline([("by maximum", MaxAbsScaler())]))])),
            ("predict", Pipeline([("model", logistic())])),
        ]
    ),
    "passed through": make_pipeline(
        ColumnTransformer([("c", OneHotEncoder(), CATEGORIES)], remainder="passthrough"),
        StandardScaler(with_mean=False),
        logistic(),
    ),
    "columns used twice": by_columns(
        ("numbers", StandardScaler(), NUMBERS),
        ("age again", KBinsDiscretizer(3, strategy="uniform"), ["age"]),
        ("categories", OneHotEncoder(), CATEGORIES),
    ),
    "chosen by type": by_columns(
        ("categories", OneHotEncoder(), make_column_selector(dtype_exclude="number")),
        ("numbers", StandardScaler(), make_column_selector(dtype_include="number")),
    ),
    "chosen by place": by_columns(
        ("categories", OneHotEncoder(drop="first"), [False, False, True, True]), ("n", StandardScaler(), slice(0, 2))
    ),
    "numbers of categories": by_columns(("c", OrdinalEncoder(), CATEGORIES), ("n", StandardScaler(), NUMBERS)),
    "frames between steps": encoded(logistic(), sparse_output=False).set_output(transform="pandas"),
    "without an intercept": encoded(logistic(fit_intercept=False)),
}


@pytest.mark.parametrize("model", EXACT.values(), ids=EXACT.keys())
def test_every_cell_comes_back(model):
    audit = audited(model)
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[-1].rebuilt.all()
    assert not audit.unanswered
    assert audit.columns == tuple(FRAME.columns)
    found = cells(audit)
    for row, (_, truth) in zip(found, FRAME.iloc[audit.games].iterrows(), strict=True):
        assert row[2:] == [truth["town"], truth["sex"]]
        assert float(row[0]) == pytest.approx(truth["age"], rel=1e-4)


@pytest.mark.parametrize(
    "model",
    [make_pipeline(StandardScaler(), PCA(5), logistic()), make_pipeline(StandardScaler(), RandomForestClassifier(3))],
    ids=str,
)
def test_a_scaler_gives_every_row_away(model):
    X, y = load_breast_cancer(return_X_y=True)
    assert audited(model, X, y).findings[0].rebuilt.sum() == 569


def test_a_union_of_features():
    model = make_pipeline(FeatureUnion([("scaled", StandardScaler()), ("turned", PCA(1))]), logistic())
    assert audited(model, FRAME[NUMBERS]).findings[-1].rebuilt.all()


def test_missing_values_are_told_as_missing():
    model = by_columns(("categories", TO_CATEGORIES, CATEGORIES), ("numbers", TO_NUMBERS, NUMBERS))
    audit = audited(model, GAPS)
    found = np.array(cells(audit))
    missing = GAPS[NUMBERS].iloc[audit.games].isna().to_numpy()
    assert (found[:, :2] == "missing")[missing].all()  # the imputer's mean tells
    assert not (found[:, :2] == "missing")[~missing].any()
    assert audit.findings[-1].rebuilt.mean() > 0.8  # an imputed mode may have been the value


def test_neighbours_hold_the_table():
    audit = audited(make_pipeline(KNNImputer(), StandardScaler(), logistic()), GAPS[NUMBERS])
    assert audit.findings[0].rebuilt.all()


def test_columns_that_are_dropped_do_not_count():
    parts = ("numbers", StandardScaler(), NUMBERS), ("nothing", "drop", ["town"]), ("c", OneHotEncoder(), ["sex"])
    for model, left in ((by_columns(parts[0]), ("age", "income")), (by_columns(*parts), ("age", "income", "sex"))):
        audit = audited(model)
        assert audit.columns == left
        assert audit.findings[-1].rebuilt.all()
        assert any("drops these columns" in note and "town" in note for note in map(str, audit.notes))


def test_columns_that_are_lost_and_those_that_are_not_are_named():
    """Numbers come back from the scaler whatever the model hides; a partial leak is a leak."""
    audit = audited(encoded(Perceptron()))
    assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
    assert "the release gives exactly: age, income." in map(str, audit.notes)
    assert "what was read tells nothing of: town, sex." in map(str, audit.notes)
    assert "Perceptron was not audited" in audit.unanswered[0]


def test_columns_that_a_selection_leaves_out_are_lost_by_it():
    numbers = np.random.default_rng(0).normal(size=(N, 4)) + Y[:, None] * [2, 1, 0, 0]
    audit = audited(make_pipeline(SelectKBest(k=2), logistic()), pd.DataFrame(numbers, columns=list("abcd")))
    assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
    assert "the release gives exactly: a, b." in map(str, audit.notes)
    assert "what was read tells nothing of: c, d." in map(str, audit.notes)


@pytest.mark.parametrize(
    "step",
    [FunctionTransformer(np.sin), FunctionTransformer(lambda x: np.hstack([x, x]))],
    ids=["sine", "twice"],
)
def test_a_step_without_a_way_back_leaves_the_question_open(step):
    """The sine of a number tells something of it: "not found" would be a false pass."""
    release = released(make_pipeline(step, logistic()).fit(FRAME[["age"]], Y), (FRAME[["age"]], Y))
    audit = audit_table(release, Settings())
    assert audit.conclusion.line.by_target  # which the model gives whatever its inputs are
    assert f"what comes after {type(step).__name__} was not fully audited" in str(audit.conclusion.open)


@pytest.mark.parametrize("frame", [True, False])
def test_splines_determine_their_number(frame):
    numbers = FRAME[["age", "income"]].dropna().astype(float)
    y = Y[FRAME[["age", "income"]].notna().all(axis=1).to_numpy()]
    table = numbers if frame else numbers.to_numpy()
    audit = lw.audit(make_pipeline(SplineTransformer(), logistic()).fit(table, y), (table, y))
    assert audit.findings[-1].rebuilt.mean() > 0.95


@pytest.mark.parametrize(
    "function",
    [np.log1p, np.sqrt, np.square, lambda x: np.exp(-x / 50), lambda x: np.log(x / 10)],
    ids=["log1p", "sqrt", "square", "decay", "log"],
)
@pytest.mark.parametrize("frame", [True, False])
def test_a_function_that_keeps_or_reverses_the_order_goes_back(function, frame):
    """scikit-learn's own example, FunctionTransformer(np.log1p), states no inverse, and hides nothing."""
    table = FRAME[["age"]] if frame else FRAME[["age"]].to_numpy(dtype=np.float64)
    audit = audited(make_pipeline(FunctionTransformer(function), KNeighborsClassifier()), table)
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].cells.exact_share == 1
    assert not audit.unanswered


def test_a_function_that_mixes_columns_or_rounds_does_not_go_back():
    rows = np.random.default_rng(0).normal(size=(N, 2))
    for function in (lambda x: x[:, ::-1], np.round, lambda x: x + x.mean(1, keepdims=True)):
        audit = audited(make_pipeline(FunctionTransformer(function), KNeighborsClassifier()), rows)
        cells = audit.findings[0].cells
        assert cells is None or not (cells.each.kept == Kept.EXACT).any()


def test_what_has_no_way_back_is_refitted():
    audit = audited(make_pipeline(FunctionTransformer(np.sin), logistic()), FRAME[["age"]], max_minutes=2)
    assert audit.conclusion.grade.leaks
    assert any("FunctionTransformer was not fully audited" in note for note in map(str, audit.notes))


def test_texts_without_a_vocabulary_are_listed():
    audit = audited(by_columns(("town", HashingVectorizer(n_features=8), "town"), ("n", StandardScaler(), NUMBERS)))
    assert audit.conclusion.grade.leaks
    assert "HashingVectorizer was not audited" in audit.unanswered[0]


@pytest.mark.skipif(Version(sklearn.__version__) < Version("1.9"), reason="folds are always drawn at random")
def test_folds_of_a_target_encoder():
    def model(**settings):
        return by_columns(("c", TargetEncoder(**settings), CATEGORIES), ("n", StandardScaler(), NUMBERS))

    repeated = audited(model(cv=KFold(3)))
    assert len(repeated.unanswered) == 1
    assert "encodings_ was not attacked" in repeated.unanswered[0]
    assert repeated.findings[-1].rebuilt.mean() > 0.8
    assert "at training was drawn at random" in audited(model()).unanswered[0]


def test_sample_weights():
    weight = np.random.default_rng(0).integers(1, 4, len(FRAME))
    model = encoded(logistic()).fit(FRAME, Y, logisticregression__sample_weight=weight)
    assert lw.audit(model, (FRAME, Y), sample_weight=weight).findings[-1].rebuilt.all()


@pytest.mark.parametrize(
    "labels", [Y + 1.0, Y.astype(bool), np.array(["no", "yes"])[Y], pd.Series(Y).astype("category")]
)
def test_labels_of_any_kind(labels):
    for model in (
        encoded(logistic()),
        encoded(GaussianNB(), sparse_output=False),
        encoded(logistic(fit_intercept=False)),
    ):
        audit = audited(model, FRAME, labels)
        assert audit.findings[-1].rebuilt.all()
        assert audit.findings[-1].labels_right.all()


@pytest.mark.filterwarnings("ignore:X has feature names")
def test_frames_and_arrays():
    by_number = by_columns(("c", OneHotEncoder(), [2, 3]), ("n", StandardScaler(), [0, 1]))
    array = FRAME.to_numpy()
    for fitted_on, audited_with in (
        (FRAME.set_axis(range(4), axis=1), FRAME.set_axis(range(4), axis=1)),
        (array, FRAME),
        (array, array.tolist()),
    ):
        audit = lw.audit(by_number.fit(fitted_on, Y), (audited_with, Y))
        assert audit.findings[-1].rebuilt.all()
    by_name = encoded(logistic()).fit(FRAME, Y)
    with pytest.raises(ValueError, match=r"audit: ColumnTransformer cannot transform X .*as a data frame"):
        lw.audit(by_name, (array, Y))
    with pytest.raises(ValueError, match="expected X of shape"):
        lw.audit(by_name, (FRAME.to_dict("list"), Y))


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (FRAME[["sex", "age", "town", "income"]], "in a different order"),
        (FRAME.rename(columns={"age": "years"}), "not those of the model: column 0 is 'years'"),
        (FRAME.assign(more=1), "X has 5 features, but Pipeline was fitted on 4: not on the column 'more'"),
        (FRAME[["age", "town", "sex"]], r"X has 3 columns, but Pipeline was fitted on 4: X does not have 'income'"),
    ],
    ids=["order", "names", "more", "fewer"],
)
def test_other_columns(X, words):
    with pytest.raises(ValueError, match=words):
        lw.audit(encoded(logistic()).fit(FRAME, Y), (X, Y))


def test_an_unknown_category_is_not_quoted():
    other = FRAME.assign(town=np.where(np.arange(N) == 3, "Secretville", FRAME["town"]))
    with pytest.raises(ValueError, match="audit: ColumnTransformer cannot transform X") as refused:
        lw.audit(encoded(logistic()).fit(FRAME, Y), (other, Y))
    assert "Secretville" not in str(refused.value)


def tables():
    rng = np.random.default_rng(2)
    boolean = pd.Series(rng.random(N) > 0.5)
    days = pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D")
    frame = FRAME.reset_index(drop=True)
    yield "duplicates", pd.concat([frame, frame[:20]], ignore_index=True), [], []
    yield "constant", frame.assign(one=1.0, same="x"), ["one"], ["same"]
    yield "ids", frame.assign(id=[f"p{i}" for i in range(N)]), [], ["id"]
    yield "number categories", frame.assign(kind=rng.integers(1, 5, N)), [], ["kind"]
    yield "huge ids", frame.assign(id=rng.integers(2**60, 2**62, N)), [], ["id"]
    yield "huge numbers", frame.assign(id=rng.integers(2**60, 2**62, N)), ["id"], []
    yield "dates", frame.assign(day=days.astype("datetime64[us]")), [], ["day"]
    yield "dates in nanoseconds", frame.assign(day=days.astype("datetime64[ns]")), [], ["day"]
    yield "booleans", frame.assign(yes=boolean), [], ["yes"]
    yield "missing booleans", frame.assign(yes=boolean.astype("boolean").mask(rng.random(N) < 0.1)), [], ["yes"]
    yield "pandas categories", frame.astype({"town": "category"}), [], []
    yield "nullable types", frame.convert_dtypes(), [], []
    yield "one label for all rows", frame.set_axis([0] * N), [], []
    yield "two rows", frame.iloc[[0, int(np.flatnonzero(Y[0] != Y)[0])]], [], []


@pytest.mark.parametrize(("table", "numbers", "categories"), [pytest.param(*case[1:], id=case[0]) for case in tables()])
def test_unusual_tables(table, numbers, categories):
    model = by_columns(("c", OneHotEncoder(), CATEGORIES + categories), ("n", StandardScaler(), NUMBERS + numbers))
    labels = np.array([0, 1]) if len(table) == 2 else np.concatenate([Y, Y])[: len(table)]
    audit = audited(model, table, labels)
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[-1].rebuilt.all()


@pytest.mark.parametrize("column", ["age", "town"])
def test_one_column(column):
    step = OneHotEncoder() if column == "town" else StandardScaler()
    assert audited(make_pipeline(step, logistic()), FRAME[[column]]).findings[-1].rebuilt.all()


def test_a_column_without_values_is_nothing_to_rebuild():
    model = by_columns(("categories", TO_CATEGORIES, CATEGORIES), ("numbers", TO_NUMBERS, [*NUMBERS, "empty"]))
    with pytest.warns(UserWarning, match="without any observed values"):
        audit = audited(model, GAPS.assign(empty=np.nan))
    assert audit.findings[-1].rebuilt.mean() > 0.8


def test_rows_that_are_all_the_same():
    same = FRAME.iloc[[0] * 20].reset_index(drop=True)
    with pytest.raises(ValueError, match="all 20 rows of X are the same"):
        audited(encoded(logistic()), same, Y[:20])


@pytest.mark.parametrize("n", [N, 500])
def test_what_was_fitted_on_other_rows_is_no_leak(n):
    """Neither graded as a leak nor passed: it is refused, or undecided with the reason."""
    other, labels = people(n, seed=7)
    for model in (
        encoded(logistic()),
        encoded(GaussianNB(), sparse_output=False),
        encoded(RandomForestClassifier(3, random_state=0)),
    ):
        with pytest.raises(ValueError, match="was not fitted on this data"):
            lw.audit(model.fit(other, labels), (FRAME, Y))
    unread = lw.audit(encoded(Perceptron()).fit(other, labels), (FRAME, Y), max_minutes=1)
    assert unread.conclusion.grade is Grade.UNDECIDED
    assert "Perceptron was not audited" in str(unread.unanswered)
    assert not lw.audit(encoder().fit(other), (FRAME, Y)).conclusion.grade.leaks


def test_random_weights_are_no_leak():
    scaled = encoder().fit(people(500, seed=7)[0])
    model = logistic().fit(scaled.transform(FRAME), Y)
    model.coef_ = np.random.default_rng(0).normal(size=model.coef_.shape)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(make_pipeline(scaled, model), (FRAME, Y))


def test_a_public_scaler_does_not_protect_the_model_after_it():
    scaled = encoder().fit(people(500, seed=7)[0])
    model = make_pipeline(scaled, logistic().fit(scaled.transform(FRAME), Y))
    audit = lw.audit(model, (FRAME, Y))
    assert audit.findings[-1].rebuilt.all()
    assert "StandardScaler was not fitted on this table and is assumed public." in map(str, audit.notes)


def test_given_categories_tell_nothing():
    ids = pd.DataFrame({"id": [f"p{i}" for i in range(N)]})
    found = lw.audit(make_pipeline(OneHotEncoder()).fit(ids), (ids, None))
    assert found.findings[0].rebuilt.all()  # a category that no known row has is the secret's
    given = ColumnTransformer(
        [("id", OneHotEncoder(categories=[list(ids["id"])]), ["id"]), ("n", StandardScaler(), NUMBERS)]
    )
    audit = lw.audit(given.fit(FRAME.assign(id=ids)), (FRAME.assign(id=ids), None))
    assert not audit.findings[0].rebuilt.any()
    assert "what was read tells nothing of: id." in map(str, audit.notes)


def test_a_transformer_alone_needs_no_labels():
    audit = lw.audit(encoder().fit(FRAME), (FRAME, None))
    assert audit.conclusion.grade.leaks
    assert lw.audit(StandardScaler().fit(FRAME[NUMBERS]), (FRAME[NUMBERS], None)).findings[0].rebuilt.all()
    with pytest.raises(TypeError, match="y is missing: it is None, but Pipeline was fitted on labels"):
        lw.audit(encoded(Ridge()).fit(FRAME, Y), (FRAME, None))


class Own(TransformerMixin, BaseEstimator):
    """A user's encoder, which states nothing about the tables it accepts."""

    def fit(self, X, y=None):
        self.town_ = "Bath"
        return self

    def transform(self, X):
        return np.c_[X["age"], X["town"] == self.town_].astype(float)


def test_a_table_of_strings_before_steps_that_do_not_check_their_inputs():
    frame, y = people(60)
    unchanged = make_pipeline(FunctionTransformer(), encoder(), logistic()).fit(frame, y)
    assert lw.audit(unchanged, (frame, y)).finding("as converged").rebuilt.all()
    own = make_pipeline(Own(), logistic()).fit(frame, y)
    assert any(note.startswith("Refitted: ") for note in map(str, lw.audit(own, (frame, y), games=8).notes))
