import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import lostwax as lw
from lostwax.adapters.sklearn import released
from lostwax.adapters.sklearn.steps import step_of
from lostwax.adapters.sklearn.texts import are_texts, counts_of, first_step, occurs
from lostwax.audits.play import Settings
from lostwax.audits.tables import audit_table
from lostwax.games import Cells, Kept
from lostwax.grades import Grade

WORDS = ["red", "green", "blue", "fish", "bird", "cat", "dog", "sun", "moon", "rain", "snow", "wind"]
rng = np.random.default_rng(0)
TEXTS = [" ".join(rng.choice(WORDS, 6)) for _ in range(60)]
Y = rng.integers(0, 2, 60)


def logistic():
    return LogisticRegression(max_iter=2_000)


@pytest.mark.parametrize(
    ("X", "texts"),
    [
        (TEXTS, True),
        (pd.Series(TEXTS), True),
        (np.array(TEXTS, dtype=object), True),
        (iter([]), False),
        ([], False),
        ("a text", False),
        ([1.0, 2.0], False),
        ([["a", "b"]], False),
        ({"a": 1}, False),
        (np.array([["a"], ["b"]]), False),
        (pd.DataFrame({"a": ["b"]}), False),
    ],
)
def test_what_texts_are(X, texts):
    assert are_texts(X) is texts


def test_the_vectoriser_of_a_pipeline_and_the_rest():
    vectoriser, model = CountVectorizer(), logistic()
    found, rest = first_step(Pipeline([("inner", make_pipeline(vectoriser, TfidfTransformer())), ("model", model)]))
    assert found is vectoriser
    assert rest.steps[-1][1] is model
    assert first_step(vectoriser) == (vectoriser, "passthrough")


def test_counts_are_those_of_the_words_even_where_only_their_presence_is_used():
    vectoriser = CountVectorizer(binary=True).fit(["a word, a word", "word"])
    assert counts_of(vectoriser, ["word word word"]).toarray().tolist() == [[3]]
    assert vectoriser.binary


@pytest.mark.parametrize("norm", [None, "l1", "l2"])
@pytest.mark.parametrize("sublinear_tf", [False, True])
def test_words_come_back_from_their_weights(norm, sublinear_tf):
    counts = CountVectorizer().fit_transform([*TEXTS, "red red red green"])
    step = TfidfTransformer(norm=norm, sublinear_tf=sublinear_tf).fit(counts)
    weights = step.transform(counts)
    exact = np.full(weights.shape, Kept.EXACT, dtype=np.uint8)
    found = step_of(step, counts, weights)(Cells(weights.toarray(), exact)).values
    held = counts.toarray() > 0
    np.testing.assert_array_equal(found > 0, held)
    whole = held.any(1) if norm is None else (np.where(held, counts.toarray(), 99).min(1) == 1)  # a word occurs once
    if not (sublinear_tf and norm):
        np.testing.assert_array_equal(found[whole], counts.toarray()[whole])


def test_presence_is_a_set_of_counts():
    found = occurs(Cells(np.array([[0.0, 1.0]]), np.full((1, 2), Kept.EXACT, dtype=np.uint8)))
    assert found.kept.tolist() == [[Kept.EXACT, Kept.SET]]


@pytest.mark.parametrize("X", [TEXTS, pd.Series(TEXTS), np.array(TEXTS)], ids=["list", "series", "array"])
def test_a_bag_of_words_comes_back(X):
    audit = lw.audit(make_pipeline(TfidfVectorizer(), logistic()).fit(X, Y), (X, Y))
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[-1].rebuilt.mean() > 0.95
    assert audit.columns == tuple(sorted(WORDS))
    guess = audit.findings[-1].guess.records.x[:, 0]
    assert ((guess > 0) == (audit.truth.x > 0)).double().mean() > 0.99


def test_counts_of_naive_bayes():
    model = GridSearchCV(make_pipeline(CountVectorizer(), MultinomialNB()), {"multinomialnb__alpha": [1.0]}, cv=2)
    audit = lw.audit(model.fit(TEXTS, Y), (TEXTS, Y))
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].labels_right.all()


def test_idf_weights_give_the_words_away_whatever_follows():
    for model in (RandomForestClassifier(3), make_pipeline(TruncatedSVD(3), logistic())):
        audit = lw.audit(make_pipeline(TfidfVectorizer(), model).fit(TEXTS, Y), (TEXTS, Y))
        assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
        assert any("idf weights tell" in note for note in map(str, audit.notes))
        guess = audit.findings[0].guess.records.x[:, 0]
        assert ((guess > 0) == (audit.truth.x > 0)).all()


def test_a_word_of_one_text_is_in_the_vocabulary():
    texts = [*TEXTS, "xylophone red"]
    model = make_pipeline(CountVectorizer(), RandomForestClassifier(3)).fit(texts, [*Y, 1])
    audit = audit_table(released(model, (texts, [*Y, 1])), Settings())
    row = list(audit.games).index(60)
    assert audit.findings[0].guess.records.x[row, 0, audit.columns.index("xylophone")] == 1
    given = make_pipeline(
        CountVectorizer(vocabulary=[*WORDS, "xylophone"]), TfidfTransformer(use_idf=False), logistic()
    )
    audit = lw.audit(given.fit(texts, [*Y, 1]), (texts, [*Y, 1]))
    assert not any("vocabulary" in note for note in map(str, audit.notes))


def test_idf_weights_of_other_texts_tell_nothing():
    model = make_pipeline(TfidfVectorizer(), Perceptron()).fit(TEXTS[:30], Y[:30])
    audit = lw.audit(model, (TEXTS[30:], Y[30:]), max_minutes=1)
    assert not audit.conclusion.grade.leaks
    assert "TfidfTransformer was not fitted on these texts and is assumed public." in map(str, audit.notes)


def test_texts_that_cannot_be_counted():
    model = make_pipeline(HashingVectorizer(n_features=32), logistic()).fit(TEXTS, Y)
    with pytest.raises(TypeError, match="HashingVectorizer, which keeps no vocabulary"):
        lw.audit(model, (TEXTS, Y))


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_idf_weights_of_counts_that_are_not_sparse(form):
    counts = np.random.default_rng(0).poisson(1.0, size=(80, 6)).astype(float)
    y = (counts[:, 0] > counts[:, 1]).astype(int)
    model = make_pipeline(TfidfTransformer(), LogisticRegression()).fit(form(counts), y)
    assert lw.audit(model, (form(counts), y)).grade.leaks


@pytest.mark.parametrize(
    "vectoriser",
    [TfidfVectorizer(), CountVectorizer(), make_pipeline(CountVectorizer(), TfidfTransformer())],
    ids=["tf-idf", "counts", "two steps"],
)
def test_texts_in_a_column_of_a_table(vectoriser):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"w{i}" for i in range(40)], rng.integers(4, 12))) for _ in range(60)]
    X = pd.DataFrame({"age": rng.normal(50, 10, 60), "review": texts, "town": rng.choice(list("abc"), 60), "left": 0})
    y = rng.integers(0, 2, 60)
    columns = make_column_transformer((vectoriser, "review"), (OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
    audit = lw.audit(make_pipeline(columns, LogisticRegression()).fit(X, y), (X, y))
    assert audit.finding("as converged").rebuilt.all()
    assert not audit.unanswered
    assert any("drops these columns, and they do not count: left" in note for note in map(str, audit.notes))
    held = [place for place, name in enumerate(audit.columns) if name.startswith("review: ")]
    counted = CountVectorizer().fit_transform(X["review"]).toarray()
    np.testing.assert_array_equal(audit.guess.records.x[:, 0, held] > 0.5, counted > 0)
    assert audit.columns_are_words  # no file of numbers holds them


@pytest.mark.parametrize("data", [TEXTS, (TEXTS, None)], ids=["texts", "pair"])
def test_a_vectoriser_alone(data):
    assert lw.audit(TfidfVectorizer().fit(TEXTS), data).grade == "exact"


@pytest.mark.parametrize("settings", [{"min_df": 2}, {"max_df": 0.9}, {"max_features": 3}], ids=str)
def test_words_that_are_kept_by_their_counts_are_not_attacked(settings):
    unread = released(CountVectorizer(**settings).fit(TEXTS), (TEXTS, None)).unread
    assert any("which words it keeps" in sentence for sentence in unread)
    assert not released(CountVectorizer().fit(TEXTS), (TEXTS, None)).unread
