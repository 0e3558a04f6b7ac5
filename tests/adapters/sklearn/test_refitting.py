"""An estimator as a trainer: its own settings, its own rows, and random numbers by the model's number alone."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from joblib import parallel_config
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from lostwax.adapters.objects import contents
from lostwax.adapters.sklearn.refitting import Estimator, Fit, Refits, SealedEstimator, _unfitted, tried
from lostwax.games import Informed, Records
from lostwax.games.nouns import sending
from lostwax.shadows.identity import parts

X, y = load_iris(return_X_y=True)
ROWS = np.random.default_rng(0).permutation(len(X))
PROBES = {"known": ROWS[:5], "candidates": ROWS[120:]}


def estimator(model, X=X, y=y, sample_weight=None, sizes=None):
    return Estimator(model, X, y, sample_weight, PROBES, sizes or {})


def records(rows):
    rows = torch.from_numpy(rows)
    return Records(torch.from_numpy(X)[rows], torch.from_numpy(y)[rows], rows.double()[:, None])


def trained(model, processes=1, models=6, shows=("parameters", "outputs.candidates"), **settings):
    ours = estimator(model)
    trial = tried(ours, ROWS[:80], ROWS[1:81])
    sealed = SealedEstimator(estimator(model, sizes=trial.estimator.sizes))
    trainer = Refits(sealed, type(model).__name__, shows, trial.deterministic, processes=processes, **settings)
    cohort = Informed(records(ROWS[:80])).deal(records(ROWS[120:]), models, seed=0)
    return trainer, cohort, trainer(nn.Identity(), cohort, seed=3)


def test_it_is_the_estimator_fitted_on_the_known_rows_and_the_secret():
    _, cohort, release = trained(LogisticRegression(C=0.5))
    for game in range(6):
        rows = [*ROWS[:80], int(cohort.own.features[game, 0, 0])]
        model = LogisticRegression(C=0.5).fit(X[rows], y[rows])
        held = np.concatenate([model.coef_.ravel(), model.intercept_])
        assert np.isin(held.round(9), release.params["parameters"][game].numpy().round(9)).all()
        odds = release.params["outputs.candidates"][game].view(30, 3)
        assert (odds.argmax(1).numpy() == model.predict(X[PROBES["candidates"]])).all()


@pytest.mark.parametrize(
    ("model", "backend"),
    [
        pytest.param(SGDClassifier(max_iter=3, tol=None), "loky", marks=pytest.mark.slow),
        (GaussianNB(), "threading"),
    ],
    ids=str,
)
def test_model_i_is_the_same_in_any_chunk_and_process(model, backend):
    _, cohort, release = trained(model)
    alone = trained(model, models=5)[0](nn.Identity(), cohort[4:5], seed=3)
    with parallel_config(backend):
        in_processes, _, again = trained(model, processes=2)
    assert in_processes.tile_size(nn.Identity(), cohort) == 2
    for name, value in release.params.items():
        assert torch.equal(value[4:5], alone.params[name])
        assert torch.equal(value, again.params[name])


def test_a_number_as_random_state_is_public_and_none_is_private():
    public, _, release = trained(SGDClassifier(max_iter=3, tol=None, random_state=0))
    private, cohort, other = trained(SGDClassifier(max_iter=3, tol=None))
    assert public.facts(nn.Identity(), 81).deterministic
    assert not private.facts(nn.Identity(), 81).deterministic
    same, different = (trainer(nn.Identity(), cohort, seed=4) for trainer in (public, private))
    assert torch.equal(release.flat(), same.flat())
    assert not torch.equal(other.flat(), different.flat())


@pytest.mark.parametrize(
    ("model", "deterministic", "stores"),
    [
        (RandomForestClassifier(3), False, True),
        (RandomForestClassifier(3, random_state=0), True, True),
        (make_pipeline(StandardScaler(), RandomForestClassifier(3)), False, True),
        (make_pipeline(StandardScaler(), MLPClassifier((2,), max_iter=2)), False, False),
        (MLPClassifier((2,), max_iter=2, random_state=np.random.RandomState(0)), False, False),
        (LogisticRegression(), True, False),
    ],
    ids=["forest", "seeded forest", "scaled forest", "scaled perceptron", "perceptron", "logistic"],
)
def test_what_is_random_and_whose_seeds_are_stored(model, deterministic, stores):
    trial = tried(estimator(model), ROWS[:80], ROWS[1:81])
    assert (trial.deterministic, trial.stores_seeds) == (deterministic, stores)


@pytest.mark.parametrize("rows", [pd.DataFrame(X), csr_matrix(X), X.tolist()], ids=lambda rows: type(rows).__name__)
def test_rows_come_in_any_form(rows):
    model = DecisionTreeClassifier(random_state=0)
    labels = np.array(["a", "b", "c"])[y]
    seen = estimator(model, X=rows, y=labels.tolist()).seen([Fit(ROWS[:80], 0)])
    expected = estimator(model, y=labels).seen([Fit(ROWS[:80], 0)])
    np.testing.assert_allclose(seen[0]["outputs.known"], expected[0]["outputs.known"], rtol=1e-9)


def test_sample_weights_go_with_their_rows():
    weight = np.linspace(0.1, 2, len(X))
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    model = estimator(pipeline, sample_weight=weight).fitted(ROWS[:80], 0)
    ours = pipeline.fit(X[ROWS[:80]], y[ROWS[:80]], logisticregression__sample_weight=weight[ROWS[:80]])
    np.testing.assert_allclose(model[-1].coef_, ours[-1].coef_)
    with pytest.raises(TypeError, match="takes no sample_weight"):
        estimator(KNeighborsClassifier(), sample_weight=weight).fitted(ROWS[:80], 0)


class Plain:
    """Has neither get_params nor classes_, and names."""

    def fit(self, X, y):
        self.names, self.means = np.unique(y), np.stack([X[y == name].mean(0) for name in np.unique(y)])

    def predict(self, X):
        return self.names[((X[:, None] - self.means) ** 2).sum(2).argmin(1)]


class Continues(Plain):
    """Goes on where it ended."""

    def fit(self, X, y):
        before = getattr(self, "means", 0)
        super().fit(X, y)
        self.means = self.means + before


def test_an_object_of_any_class_will_do():
    names = np.array(["u", "v", "w"])[y]
    ours = estimator(Plain(), y=names)
    trial = tried(ours, ROWS[:80], ROWS[1:81])
    assert (trial.deterministic, trial.constant) == (True, False)
    assert trial.estimator.sizes == {"means": 12}
    seen = ours.seen([Fit(ROWS[:80], 0)])[0]["outputs.known"].reshape(5, 3)
    assert (seen.sum(1) == 1).all()


class Largest(Plain):
    """Most rows change nothing in it."""

    def fit(self, X, y):
        self.largest = X[:, 0].max()

    def predict(self, X):
        return np.zeros(len(X))


def test_a_model_that_most_rows_do_not_change_is_not_constant():
    order = X[:, 0].argsort()
    model, known, (one, other, *more) = Largest(), order[10:-3], np.array_split(order[[0, 1, 2, -1]], 4)
    sets = [np.append(known, row) for row in (one, other, *more)]
    assert tried(estimator(model), *sets[:2]).constant_numbers
    assert not tried(estimator(model), *sets).constant_numbers


def test_an_object_that_is_not_fitted_anew_is_refused():
    model = Continues()
    model.fit(X, y)
    with pytest.raises(ValueError, match="continues from an earlier fit"):
        tried(estimator(model), ROWS[:80], ROWS[1:81])
    with pytest.raises(TypeError, match="with fit and one of"):
        tried(estimator(object()), ROWS[:80], ROWS[1:81])


class Fails(BaseEstimator):
    def fit(self, X, y):
        raise RuntimeError("no.")

    def predict(self, X):
        return X


def test_a_fit_that_fails_is_an_error_that_says_where():
    with pytest.raises(ValueError, match=r"Fails\.fit failed on 80 rows"):
        tried(estimator(Fails()), ROWS[:80], ROWS[1:81])


def test_settings_are_not_numbers_of_a_fitted_model():
    model = MLPClassifier((3,), max_iter=2, random_state=5).fit(X, y)
    held = contents(model).numbers
    assert {"coefs_.0", "intercepts_.1", "n_iter_"} <= held.keys()
    assert not {"random_state", "max_iter", "alpha"} & held.keys()
    assert held["coefs_.0"].size == 12


def test_rows_cannot_be_reached_from_the_trainer():
    trainer, _, _ = trained(GaussianNB())
    assert copy.deepcopy(trainer).sealed is trainer.sealed
    assert not hasattr(trainer.sealed, "__dict__")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(trainer)
    assert repr(trainer) == "Refits(GaussianNB)"


def test_an_engine_sends_the_rows_to_its_workers():
    trainer, cohort, release = trained(GaussianNB())
    with sending():
        sent = pickle.dumps(trainer)
    again = pickle.loads(sent)(nn.Identity(), cohort, seed=3)
    assert torch.equal(again.flat(), release.flat())
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(trainer)


def doubled(X):
    return 2 * X


def test_checkpoints_know_fits_by_settings_code_and_table():
    def of(model, X=X, **settings):
        return parts(SealedEstimator(estimator(make_pipeline(FunctionTransformer(doubled), model), X=X, **settings)))

    moved = X.copy()
    moved[3, 1] += 1e-9
    same, *others = (
        of(*each)
        for each in (
            [GaussianNB()],
            [GaussianNB(var_smoothing=1e-8)],
            [GaussianNB(), moved],
            [GaussianNB(), pd.DataFrame(X)],
            [BernoulliNB()],
        )
    )
    assert same == of(GaussianNB().fit(X, y))
    assert "doubled #" in same["code"]
    assert all(other != same for other in others)
    assert of(GaussianNB(), sizes={"theta_": 12}) != same


def test_a_model_whose_constructor_changes_settings_is_built_again_not_copied():
    """A fitted copy of CatBoost's with categories can hang when it is fitted again and asked."""
    catboost = pytest.importorskip("catboost")
    few = {"iterations": 2, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    table = pd.DataFrame({"town": ["a", "b", "c", "a"] * 10, "age": np.arange(40.0)})
    model = Pipeline([("model", catboost.CatBoostClassifier(cat_features=["town"], **few))])
    model.fit(table, np.arange(40) % 2)
    fresh = _unfitted(model, draw=0)
    assert model["model"].is_fitted()
    assert not fresh["model"].is_fitted()
    assert fresh["model"].get_params() == model["model"].get_params()
