"""`lw.audit(after, data, before=(model, data))`: what changed is found, and read exactly where it can be."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import lostwax as lw
from lostwax.audits.words import leak, people
from lostwax.grades import Grade
from lostwax.recipes import Recipe

X, Y = load_breast_cancer(return_X_y=True)
TABLE, PUBLIC = (X[:400], Y[:400]), (X[400:], Y[400:])
ROW = 17


def without(data, rows):
    """The data without some rows, in the form in which they are."""
    X, y = data
    if hasattr(X, "drop"):
        return X.drop(index=rows), y.drop(index=rows)
    if isinstance(X, list):
        left = [number for number in range(len(X)) if number not in np.atleast_1d(rows)]
        return [X[number] for number in left], y[left]
    return np.delete(X, rows, axis=0), np.delete(y, rows, axis=0)


def audited(make, data, later, **options):
    """The audit of two fits."""
    before, after = make().fit(*data), make().fit(*later)
    return lw.audit(after, later, before=(before, data), **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_pipeline(StandardScaler(), LogisticRegression()),
        lambda: make_pipeline(StandardScaler(), PCA(5), LogisticRegression()),
        lambda: GaussianNB(),
        lambda: make_pipeline(MinMaxScaler(), GaussianNB()),
        lambda: make_pipeline(StandardScaler(), KNeighborsClassifier()),
        lambda: KMeans(3, random_state=0, n_init=1),
    ],
    ids=["scaler", "pca", "naive bayes", "scaled naive bayes", "neighbours", "clusters"],
)
@pytest.mark.parametrize("added", [False, True], ids=["removed", "added"])
def test_one_row_comes_back_to_1e_9_deviations_with_nobody_known(make, added):
    fewer = without(TABLE, ROW)
    audit = audited(make, fewer, TABLE) if added else audited(make, TABLE, fewer)
    assert audit.games.tolist() == [ROW]
    assert audit.errors.max() < 1e-9
    assert audit.grade is Grade.EXACT
    assert audit.adversary == lw.games.Adversary(0, 400, "row", files=2)
    assert audit.notes[0].text.startswith("added" if added else "removed")


def test_naive_bayes_gives_rows_of_different_classes_each_by_itself():
    rows = [int(np.flatnonzero(TABLE[1] == label)[3]) for label in (0, 1)]
    audit = audited(GaussianNB, TABLE, without(TABLE, rows))
    assert audit.errors.max() < 1e-9
    assert audit.findings[0].labels_right.all()


def test_two_rows_leave_two_values_per_cell():
    audit = audited(lambda: make_pipeline(StandardScaler(), LogisticRegression()), TABLE, without(TABLE, [3, 8]))
    cells = audit.findings[0].cells
    assert cells.several > 0.9 * (cells.total - 2)  # the targets are not read
    assert audit.grade in (Grade.UNDECIDED, Grade.RECOGNISABLE, Grade.BETTER_THAN_CHANCE)
    values = audit.guess.records.x[:, 0].numpy()
    np.testing.assert_allclose(np.sort(values, 0), np.sort(TABLE[0][[3, 8]], 0), rtol=1e-5)


def test_a_corrected_row_comes_back_where_it_changed():
    table = TABLE[0].copy()
    table[ROW, :7] *= 1.5
    audit = audited(lambda: make_pipeline(StandardScaler(), LogisticRegression()), TABLE, (table, TABLE[1]))
    assert audit.games.tolist() == [ROW, ROW]  # the old one and the new one
    exact = audit.findings[0].cells.each.kept == lw.games.Kept.EXACT
    assert exact.sum(1).tolist() == [7, 7]


def mixed(rows=700):
    """A table with numbers, missing values and categories."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"age": random.integers(18, 90, rows), "income": random.lognormal(10, 1, rows).round(2)})
    frame["income"] = frame["income"].mask(random.random(rows) < 0.1)
    frame["town"] = random.choice(["Bath", "Ely", "Leeds", "York"], rows)
    frame.loc[ROW, "town"] = "Hull"
    return frame, (frame["age"] + random.normal(0, 20, rows) > 55).astype(int)


def pipeline():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    encoder = make_column_transformer((numbers, ["age", "income"]), (OneHotEncoder(handle_unknown="ignore"), ["town"]))
    return make_pipeline(encoder, LogisticRegression(C=0.1))


@pytest.mark.parametrize("missing", [False, True])
def test_a_mixed_table_with_a_category_of_its_own(missing):
    frame, y = mixed()
    if missing:
        frame.loc[ROW, "income"] = np.nan
    audit = audited(pipeline, (frame, y), without((frame, y), ROW))
    assert audit.errors.max() < 1e-9
    assert audit.findings[0].cells.certified == 3
    assert audit.grade is Grade.EXACT


def test_words_of_a_text_that_no_other_has():
    random, words = np.random.default_rng(0), ["fever", "cough", "rash", "nausea", "chills", "pain"]
    texts = [" ".join(random.choice(words, 3, replace=False)) for _ in range(60)]
    texts[ROW] = "fever zoonosis"
    ill = np.array(["fever" in text for text in texts])
    make = lambda: make_pipeline(TfidfVectorizer(), MultinomialNB())  # noqa: E731
    audit = audited(make, (texts, ill), without((texts, ill), ROW))
    named = dict(zip(audit.columns, audit.guess.records.x[0, 0].tolist(), strict=True))
    assert {word for word, count in named.items() if count} == {"fever", "zoonosis"}


def test_a_linear_model_alone_takes_a_public_sample():
    make = lambda: LogisticRegression(C=0.01, tol=1e-10, max_iter=100_000)  # noqa: E731
    scaled = (TABLE[0] - X.mean(0)) / X.std(0), TABLE[1]
    audit = audited(make, scaled, without(scaled, ROW))
    assert audit.grade is Grade.UNDECIDED  # nothing was read, and nothing is passed
    public = (PUBLIC[0] - X.mean(0)) / X.std(0), PUBLIC[1]
    audit = audited(make, scaled, without(scaled, ROW), prior=public)
    assert audit.findings[0].labels_right.all()
    assert audit.findings[0].predicted is not None
    assert [finding.name for finding in audit.findings] == ["as released", "as converged"]
    assert audit.errors[0] < audit.baselines["blind guess (mean of the public rows)"][audit.metric][0]


def test_a_ridge_after_a_scaler_gives_the_row_and_says_so():
    y = X[:, 0] + 0.1 * np.random.default_rng(0).normal(size=len(X))
    make = lambda: make_pipeline(StandardScaler(), Ridge())  # noqa: E731
    table, public = (X[:400, 1:], y[:400]), (X[400:, 1:], y[400:])
    audit = audited(make, table, without(table, ROW), prior=public)
    assert audit.errors.max() < 1e-9
    assert audit.findings[0].label_errors[0] < 0.5


@pytest.mark.parametrize("kind", [DecisionTreeClassifier, DecisionTreeRegressor])
def test_trees_tell_the_target_and_intervals_and_what_was_not_compared(kind):
    y = TABLE[1] if kind is DecisionTreeClassifier else TABLE[0][:, 0]
    table = TABLE[0][:, 1:], y
    audit = audited(lambda: kind(random_state=0), table, without(table, ROW))
    assert audit.findings[0].target.read.all()
    each, truth = audit.findings[0].cells.each, audit.truth.x.numpy()
    within = each.kept == lw.games.Kept.INTERVAL
    low, high = (np.where(within, ends, 0.0) for ends in each.bounds[:2])
    assert (within.sum(), (low <= np.where(within, truth, 0.0) + 1e-6).all()) == (within.sum(), True)
    assert (np.where(within, truth, 0.0) <= high + 1e-6).all()
    assert any("first node in which they differ" in sentence for sentence in audit.unanswered)


def test_a_forest_of_samples_is_not_passed():
    audit = audited(lambda: RandomForestClassifier(5, random_state=0), TABLE, without(TABLE, ROW))
    assert audit.grade is Grade.UNDECIDED
    assert any("5 of 5 trees were not compared" in sentence for sentence in audit.unanswered)


def usual(rows=700):
    """Categories, of which row 0 has the most frequent one in each column; no other row has all of them."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({name: random.choice(list("abcdefgh"), rows) for name in "pqrstu"})
    frame.iloc[0] = frame.mode().iloc[0]
    assert (frame == frame.iloc[0]).all(axis=1).sum() == 1
    return frame, random.integers(0, 2, rows)


@pytest.mark.parametrize("tells", [False, True])
def test_a_row_that_equals_the_blind_guess_comes_back_only_if_something_is_read(tells):
    frame, y = usual()
    last = CategoricalNB(min_categories=8) if tells else RandomForestClassifier(5, random_state=0)
    encoder = OrdinalEncoder if tells else OneHotEncoder
    make = lambda: make_pipeline(encoder(categories=[list("abcdefgh")] * 6), clone(last))  # noqa: E731
    audit = audited(make, (frame, y), (frame[1:], y[1:]))
    assert audit.errors[0] == 0
    assert audit.grade.leaks is tells
    assert audit.findings[0].luck.nearer == 0


def test_the_page_speaks_of_the_person_who_was_erased():
    audit = audited(lambda: make_pipeline(StandardScaler(), LogisticRegression()), TABLE, without(TABLE, ROW))
    words = people(audit)
    assert words.startswith("The records of people who were erased, added or corrected")
    assert "Any person" not in words
    assert leak(audit) == "anyone who has both files can rebuild records that changed."


def test_the_gate_fails_on_a_deletion_that_can_be_read():
    policy = lw.Policy(max_grade="not found", max_rebuilt_share=0.05)  # the tutorial's
    audit = audited(lambda: make_pipeline(StandardScaler(), LogisticRegression()), TABLE, without(TABLE, ROW))
    assert len(policy.breaches(audit)) == 2


def test_a_recipe_names_the_earlier_release(tmp_path):
    recipe = tmp_path / "recipe.py"
    recipe.write_text(
        "from sklearn.datasets import load_breast_cancer\n"
        "from sklearn.naive_bayes import GaussianNB\n"
        "X, y = load_breast_cancer(return_X_y=True)\n"
        "before = GaussianNB().fit(X, y), (X, y)\n"
        "model, data = GaussianNB().fit(X[1:], y[1:]), (X[1:], y[1:])\n"
    )
    audit = Recipe.read(recipe).audit()
    assert (audit.games.tolist(), audit.grade) == ([0], Grade.EXACT)
    recipe.write_text(recipe.read_text().replace("before", "_before") + "prior = X, y\n")
    assert "prior" not in Recipe.read(recipe).arguments  # a name of the recipe's own


def test_what_was_attached_and_is_not_understood_is_not_passed():
    left, make = without(TABLE, ROW), lambda: DecisionTreeClassifier(max_depth=1, random_state=0)
    before, after = make().fit(*TABLE), make().fit(*left)
    after.drift_ = {"hashes": [f"{number * 7919:x}" for number in range(400)]}
    audit = lw.audit(after, left, before=(before, TABLE))
    assert any("drift_" in sentence for sentence in audit.unanswered)


def test_mistakes_are_named():
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*TABLE)
    with pytest.raises(ValueError, match="hold the same rows"):
        lw.audit(model, TABLE, before=(model, TABLE))
    with pytest.raises(TypeError, match=r"before=\(model, data\)"):
        lw.audit(model, TABLE, before=model)
    with pytest.raises(TypeError, match="two releases of one model"):
        lw.audit(model, TABLE, before=(GaussianNB().fit(*TABLE), TABLE))
    with pytest.raises(TypeError, match="games does not apply"):
        lw.audit(model, TABLE, before=(model, TABLE), games=3)
    with pytest.raises(ValueError, match="expected at most"):
        lw.audit(model, TABLE, before=(make_pipeline(StandardScaler(), LogisticRegression()).fit(*PUBLIC), PUBLIC))


def test_an_audit_of_two_releases_is_written_and_read(tmp_path):
    audit = audited(lambda: make_pipeline(StandardScaler(), LogisticRegression()), TABLE, without(TABLE, ROW))
    page = lw.report(audit, tmp_path / "report")
    again = lw.Audit.from_json(page.parent / "audit.json")
    assert (again.grade, again.adversary) == (audit.grade, audit.adversary)


NULLS = 300


@pytest.mark.slow
@pytest.mark.parametrize("null", ["another row changed", "only rounding differs"])
def test_no_alarm_beyond_its_level_where_the_release_owes_nothing_to_the_row(null):
    """The table lacks a row, but the weights lack another one, or none: a leak would be a false alarm."""
    x, y = (TABLE[0] - X.mean(0)) / X.std(0), TABLE[1]
    public = (PUBLIC[0] - X.mean(0)) / X.std(0), PUBLIC[1]
    make = lambda solver: LogisticRegression(C=0.01, tol=1e-10, max_iter=100_000, solver=solver)  # noqa: E731
    before, alarms, played = make("lbfgs").fit(x, y), 0, 0
    random = np.random.default_rng(0)
    for _ in range(NULLS):
        row, other = random.choice(len(x), 2, replace=False)
        later = without((x, y), row)
        after = make("newton-cholesky").fit(*(without((x, y), other) if null == "another row changed" else (x, y)))
        try:
            audit = lw.audit(after, later, before=(before, (x, y)), prior=public)
        except ValueError:  # the readers refuse: not fitted on this data
            continue
        played, alarms = played + 1, alarms + audit.grade.leaks
    assert played > 0.9 * NULLS
    assert alarms <= 0.01 * NULLS + 3 * (0.01 * 0.99 * NULLS) ** 0.5
