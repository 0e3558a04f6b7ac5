"""A fitted part is compared with its rows by value: what it stores is found, and nothing else."""

from collections import OrderedDict

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn import (
    cluster,
    covariance,
    decomposition,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    preprocessing,
    svm,
)
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_wine, make_blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.manifold import Isomap
from sklearn.mixture import GaussianMixture
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import BernoulliRBM, MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.random_projection import GaussianRandomProjection
from sklearn.semi_supervised import LabelPropagation, LabelSpreading
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from lostwax.adapters.sklearn.scan import Scanned, scan
from lostwax.attacks.closed_form.stored import held
from lostwax.games import Records
from lostwax.games.fitted import unexplained

pytestmark = pytest.mark.filterwarnings("ignore")
RANDOM = np.random.default_rng(0)
N, D = 60, 5
EQUAL_ROWS = np.tile(RANDOM.normal(size=(N // 2, D)), (2, 1))
CONSTANT_COLUMNS = np.c_[RANDOM.normal(size=(N, D - 2)), np.ones(N), np.zeros(N)]
TABLES = {
    "continuous": RANDOM.normal(size=(N, D)) * RANDOM.uniform(0.1, 10, D) + RANDOM.normal(size=D),
    "standardised": preprocessing.StandardScaler().fit_transform(RANDOM.normal(size=(N, D))),
    "integers": RANDOM.integers(0, 6, (N, D)).astype(float),
    "binary": RANDOM.integers(0, 2, (N, D)).astype(float),
    "one-hot": np.eye(D)[RANDOM.integers(0, D, N)],
    "tiny": RANDOM.integers(0, 2, (8, 3)).astype(float),
    "one column": RANDOM.normal(size=(N, 1)),
    "one column of integers": RANDOM.integers(0, 10, (N, 1)).astype(float),
    "equal rows": EQUAL_ROWS,
    "constant columns": CONSTANT_COLUMNS,
    "identity": np.eye(8),
}
LABELS = {name: np.arange(len(x)) * 7 % 5 % (3 if len(x) > 10 else 2) for name, x in TABLES.items()}
TARGETS = {name: RANDOM.normal(size=len(x)) for name, x in TABLES.items()}


def scanned(part, x, y=None, weight=None) -> Scanned:
    weight = np.ones(len(x)) if weight is None else weight
    y = None if y is None else torch.from_numpy(np.asarray(y))
    return scan(part, torch.from_numpy(np.asarray(x, dtype=np.float64)), y, torch.from_numpy(weight))


def fitted(model, table):
    """The model on a table, with its labels or targets; None if it cannot be fitted on such rows."""
    regresses = model.__sklearn_tags__().estimator_type == "regressor"
    x, y = TABLES[table], (TARGETS if regresses else LABELS)[table]
    try:
        return clone(model).fit(x, y), x, y
    except ValueError:
        return None, x, y


NOTHING = [
    linear_model.LinearRegression(),
    linear_model.Ridge(),
    linear_model.Lasso(0.1),
    linear_model.Lasso(100.0),  # all weights are zero
    linear_model.ElasticNet(),
    linear_model.LogisticRegression(),
    linear_model.LogisticRegression(C=1e-6),
    linear_model.RidgeClassifier(),
    linear_model.SGDClassifier(random_state=0),
    linear_model.SGDRegressor(random_state=0),
    linear_model.Perceptron(),
    linear_model.HuberRegressor(),
    linear_model.OrthogonalMatchingPursuit(),
    svm.LinearSVC(),
    svm.LinearSVR(),
    DecisionTreeClassifier(),
    DecisionTreeRegressor(),
    ensemble.RandomForestClassifier(3),
    ensemble.ExtraTreesRegressor(3),
    ensemble.GradientBoostingClassifier(n_estimators=3),
    ensemble.HistGradientBoostingRegressor(max_iter=3),
    ensemble.AdaBoostClassifier(n_estimators=3),
    ensemble.BaggingClassifier(n_estimators=3),
    ensemble.IsolationForest(n_estimators=3),
    MLPClassifier((5,), max_iter=5),
    BernoulliRBM(3, n_iter=2),
    DummyClassifier(),
    DummyRegressor(),
    preprocessing.Normalizer(),
    preprocessing.PolynomialFeatures(),
    preprocessing.Binarizer(),
    preprocessing.PowerTransformer(),
    decomposition.TruncatedSVD(1),
    GaussianRandomProjection(2),
    RBFSampler(n_components=4),
    SelectKBest(k=1),
    VarianceThreshold(),
    OneVsRestClassifier(linear_model.LogisticRegression()),
    CalibratedClassifierCV(linear_model.LogisticRegression(), cv=2),
]


@pytest.mark.parametrize("model", NOTHING, ids=lambda model: str(model)[:40])
def test_what_stores_nothing_is_not_flagged(model):
    for table in TABLES:
        part, x, y = fitted(model, table)
        if part is not None:
            assert scanned(part, x, y) == Scanned(), table


ROWS = [
    svm.SVC(),
    svm.SVR(),
    svm.NuSVR(),
    svm.OneClassSVM(),
    neighbors.KNeighborsClassifier(),
    neighbors.KNeighborsClassifier(algorithm="brute"),
    neighbors.KNeighborsRegressor(),
    neighbors.NearestNeighbors(),
    neighbors.RadiusNeighborsClassifier(),
    neighbors.LocalOutlierFactor(5),
    neighbors.KernelDensity(),
    GaussianProcessClassifier(),
    GaussianProcessRegressor(),
    KernelRidge(),
    KNNImputer(),
    Nystroem(n_components=5),
    decomposition.KernelPCA(2),
    LabelPropagation(),
    LabelSpreading(),
    Isomap(n_neighbors=3),
    cluster.HDBSCAN(min_cluster_size=3),
    ensemble.BaggingClassifier(neighbors.KNeighborsClassifier(), n_estimators=2, random_state=0),
    ensemble.VotingClassifier([("a", svm.SVC()), ("b", linear_model.LogisticRegression())]),
]
WITH_LABELS = ["SVC()", "KNeighborsC", "KNeighborsR", "RadiusNei", "GaussianProcessR", "LabelP", "LabelS", "Voting"]


@pytest.mark.parametrize("model", ROWS, ids=lambda model: str(model)[:40])
def test_stored_rows_are_found_and_held(model):
    for table in TABLES:
        part, x, y = fitted(model, table)
        found = scanned(part, x, y)
        assert found.stored, table
        stored = found.stored[0]
        rows = {tuple(row) for row in x.tolist()}
        assert all(tuple(row) in rows for row in stored.x.tolist())
        if str(model).startswith(tuple(WITH_LABELS)):
            assert stored.y is not None
            both = {(*row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)}
            pairs = zip(stored.x.tolist(), stored.y.tolist(), strict=True)
            assert all((*row, label) in both for row, label in pairs), table
        guess, label = held(stored, Records(torch.from_numpy(x), torch.from_numpy(y)), torch.arange(len(x)))
        answered = ~guess.isnan().all(1)
        assert (guess.numpy() == x)[answered].all()
        assert label is None or (label.numpy() == y)[answered].all()
        if table == "continuous":
            assert answered.sum() == len(stored.x) >= 5


def test_a_support_vector_machine_leaves_its_other_rows_alone():
    x, y = make_blobs(100, 2, centers=2, random_state=0)
    model = svm.SVC(kernel="linear").fit(x, y)
    (stored,) = scanned(model, x, y).stored
    guess, _ = held(stored, Records(torch.from_numpy(x), torch.from_numpy(y)), torch.arange(100))
    assert (~guess.isnan().all(1)).nonzero().flatten().tolist() == sorted(model.support_.tolist())


def test_rows_with_missing_cells():
    x = TABLES["continuous"].copy()
    x[RANDOM.random(x.shape) < 0.2] = np.nan
    (stored,) = scanned(KNNImputer().fit(x), x).stored
    np.testing.assert_array_equal(stored.x.numpy(), x)


def test_one_column():
    x, y = TABLES["one column"], TARGETS["one column"]
    part = IsotonicRegression().fit(x[:, 0], y)
    (stored,) = scanned(part, x, y).stored
    assert set(stored.x[:, 0].tolist()) == set(part.X_thresholds_.tolist())
    assert set(part.X_thresholds_.tolist()) <= set(x[:, 0].tolist())


@pytest.mark.parametrize("model", [cluster.DBSCAN(eps=1.5), cluster.AffinityPropagation(random_state=0)], ids=str)
def test_exemplars_of_clusters(model):
    x = make_blobs(60, 3, random_state=0)[0]
    part = model.fit(x)
    (stored,) = scanned(part, x).stored
    numbers = getattr(part, "core_sample_indices_", getattr(part, "cluster_centers_indices_", None))
    np.testing.assert_array_equal(stored.x.numpy(), x[numbers])


class OwnModel:
    """A user's own class."""

    def __init__(self, **held):
        self.__dict__.update(held)
        self.loss = lambda x: x
        self.me = self

    @property
    def careless(self):
        raise AssertionError("a scan reads what is stored and calls nothing")


@pytest.mark.parametrize(
    "hold",
    [
        lambda x, y: OwnModel(memory=x[::2], answers=y[::2]),
        lambda x, y: OwnModel(memory=x[::2].tolist(), answers=y[::2].tolist()),
        lambda x, y: OwnModel(memory=list(x[::2])),
        lambda x, y: OwnModel(deep={"a": [OwnModel(inner=x[::2])]}),
        lambda x, y: OwnModel(frame=pd.DataFrame(x[::2])),
        lambda x, y: OwnModel(tensor=torch.from_numpy(x[::2])),
        lambda x, y: OwnModel(single=x[::2].astype(np.float32)),
        lambda x, y: OwnModel(half_sparse=sparse.csr_matrix(x[::2])),
        lambda x, y: OwnModel(tree=neighbors.BallTree(x[::2])),
        lambda x, y: {"initialiser": x[::2].astype(np.float32)},
        lambda x, y: OrderedDict(vectors=x[::2].astype(np.float32).ravel()),  # rows one after the other, as in ONNX
    ],
)
def test_rows_are_found_in_any_object(hold):
    x, y = TABLES["continuous"], LABELS["continuous"]
    part = hold(x, y)
    (stored,) = scanned(part, x, y).stored
    np.testing.assert_array_equal(stored.x.numpy(), x[::2].astype(stored.x.numpy().dtype))
    if hasattr(part, "answers"):
        assert stored.y.tolist() == y[::2].tolist()


def test_rows_beside_others_are_found_too():
    x, y = TABLES["continuous"], LABELS["continuous"]
    more = np.r_[x, RANDOM.normal(size=(7, D))]
    (stored,) = scanned(neighbors.KNeighborsClassifier().fit(more, np.r_[y, y[:7]]), x, y).stored
    np.testing.assert_array_equal(stored.x.numpy(), x)


def test_nearly_equal_rows_are_not_stored_rows():
    for name, x in TABLES.items():
        away = x + 1e-9 * RANDOM.normal(size=x.shape)
        assert not scanned(OwnModel(X=away), x, LABELS[name]).stored
        assert not scanned(OwnModel(other=RANDOM.normal(size=x.shape)), x, LABELS[name]).stored


def test_numbers_that_agree_by_accident():
    """Identities, zeros, ones and unit vectors are rows of many tables."""
    for name in ("binary", "one-hot", "tiny", "identity", "integers", "one column of integers"):
        x = TABLES[name]
        d = x.shape[1]
        part = OwnModel(a=np.eye(d), b=np.zeros((4, d)), c=np.ones(d), d=np.zeros(d), e=np.eye(d)[:1], f=np.arange(2))
        assert scanned(part, x, LABELS[name]) == Scanned(), name


ALL_ROWS = [
    preprocessing.StandardScaler(),
    decomposition.PCA(1),
    decomposition.IncrementalPCA(1),
    decomposition.FactorAnalysis(1),
    decomposition.FastICA(1),
    covariance.EmpiricalCovariance(),
    linear_model.BayesianRidge(),
    PLSRegression(1),
    SimpleImputer(),
    LinearDiscriminantAnalysis(),
    preprocessing.QuantileTransformer(n_quantiles=N),
]
BY_LABEL = [
    LinearDiscriminantAnalysis(),
    QuadraticDiscriminantAnalysis(),
    neighbors.NearestCentroid(),
    naive_bayes.GaussianNB(),
    naive_bayes.MultinomialNB(),
    naive_bayes.ComplementNB(),
    naive_bayes.CategoricalNB(),
    naive_bayes.BernoulliNB(),
]


@pytest.mark.parametrize(
    ("model", "by_label"),
    [*((model, False) for model in ALL_ROWS), *((model, True) for model in BY_LABEL)],
    ids=lambda value: str(value)[:40],
)
def test_means_and_sums_are_found(model, by_label):
    tried = 0
    for table in TABLES:
        part, x, y = fitted(model, table)
        if part is None:
            continue
        if isinstance(part, naive_bayes.BernoulliNB) and not np.isin(x, (0, 1)).all():
            continue
        found = scanned(part, x, y)
        (sums,) = (one for one in found.sums if one.by_label == by_label)
        weight = torch.ones(len(x), dtype=torch.float64)
        gap, _ = unexplained(sums, Records(torch.from_numpy(x), torch.from_numpy(y)), weight)
        assert gap.abs().max() < 1e-9, table
        assert any("reveals it by itself" in note for note in map(str, found.notes))
        tried += 1
    assert tried >= (1 if isinstance(model, naive_bayes.BernoulliNB) else 4)


def test_sums_with_sample_weights():
    x, y = TABLES["continuous"], LABELS["continuous"]
    weight = RANDOM.uniform(0.1, 5.0, len(x))
    rows = Records(torch.from_numpy(x), torch.from_numpy(y))
    for part in (preprocessing.StandardScaler().fit(x, None, weight), naive_bayes.GaussianNB().fit(x, y, weight)):
        (sums,) = scanned(part, x, y, weight).sums
        assert sums.weighted
        assert unexplained(sums, rows, torch.from_numpy(weight))[0].abs().max() < 1e-9
    (sums,) = scanned(preprocessing.StandardScaler().fit(x), x, y, weight).sums
    assert not sums.weighted


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_rows_of_single_precision(offset):
    """Their means are single precision too, whatever the dtype in which they are held."""
    x = RANDOM.normal(offset, [1.0, 2.0, 3.0, 0.1, 50.0], (5_000, D)).astype(np.float32)
    y = RANDOM.integers(0, 3, len(x))
    for model in (decomposition.PCA(1), SimpleImputer(), neighbors.NearestCentroid(), LinearDiscriminantAnalysis()):
        assert scanned(model.fit(x, y), x, y).sums
    for model in (neighbors.KNeighborsClassifier(), svm.SVC(max_iter=20)):
        assert scanned(model.fit(x, y), x, y).stored
    for model in (linear_model.LogisticRegression(max_iter=5), linear_model.Ridge(), DecisionTreeClassifier()):
        assert scanned(model.fit(x, y), x, y) == Scanned()


def test_clusters():
    x = np.r_[make_blobs(50, 3, random_state=0)[0], [[100.0, 100.0, 100.0]]]  # the last is a cluster of one
    part = cluster.KMeans(4, random_state=0).fit(x)
    ((sums, group),) = scanned(part, x, np.arange(len(x)) % 2).grouped
    np.testing.assert_array_equal(group.numpy(), part.labels_)
    rows = Records(torch.from_numpy(x), group)
    assert unexplained(sums, rows, torch.ones(len(x), dtype=torch.float64))[0].abs().max() < 1e-9
    early = cluster.KMeans(4, random_state=0, max_iter=1, n_init=1, init="random").fit(x)
    for sums, group in scanned(early, x).grouped:  # those clusters whose numbers agree
        rows = Records(torch.from_numpy(x), group)
        assert unexplained(sums, rows, torch.ones(len(x), dtype=torch.float64))[0].abs().max() < 1e-9


def test_the_rows_of_a_robust_mean():
    x = TABLES["continuous"]
    part = covariance.MinCovDet(random_state=0).fit(x)
    groups = [group >= 0 for _, group in scanned(part, x).grouped]
    assert any((group.numpy() == part.support_).all() for group in groups)


@pytest.mark.parametrize(
    "model", [preprocessing.MinMaxScaler(), preprocessing.KBinsDiscretizer(3, encode="ordinal")], ids=str
)
def test_extremes(model):
    for table in ("continuous", "integers", "binary", "tiny"):
        part, x, y = fitted(model, table)
        (extremes,) = scanned(part, x, y).extremes
        np.testing.assert_array_equal(extremes.low.numpy(), x.min(0))
        np.testing.assert_array_equal(extremes.high.numpy(), x.max(0))


def test_largest_absolute_values():
    x = np.abs(TABLES["continuous"]) * [1, -1, 1, 1, -1]
    x[0, 3] = -1e-3  # a column of both signs
    found = scanned(preprocessing.MaxAbsScaler().fit(x), x)
    (extremes,) = found.extremes
    assert extremes.high.isfinite().tolist() == [True, False, True, False, False]
    assert extremes.low.isfinite().tolist() == [False, True, False, False, True]
    assert any("both signs" in note for note in map(str, found.notes))


@pytest.mark.parametrize(
    "model", [preprocessing.StandardScaler(), decomposition.PCA(1), preprocessing.MinMaxScaler()], ids=str
)
def test_a_part_that_was_fitted_elsewhere_is_public(model):
    x, y = load_wine(return_X_y=True)
    part = model.fit(RANDOM.normal(x.mean(0), 2 * x.std(0), (1_000, 13)))
    found = scanned(part, x, y)
    assert found._replace(notes=()) == Scanned(fitted_elsewhere=True)
    assert any("assumed public" in note for note in map(str, found.notes))


def test_almost_the_same_rows_are_an_error():
    x, y = load_wine(return_X_y=True)
    other = x.copy()
    other[3, 2] += 0.05
    with pytest.raises(ValueError, match="almost this data"):
        scanned(preprocessing.StandardScaler().fit(x), other, y)
    for model in (naive_bayes.GaussianNB(), LinearDiscriminantAnalysis()):
        with pytest.raises(ValueError, match=r"not fitted on this data.*does not agree .* in 1 of 3 classes"):
            scanned(model.fit(x, y), other, y)


def test_a_part_of_other_inputs_is_left_alone():
    """A model after PCA holds rows of the PCA's outputs: it is compared with these, by whoever knows them."""
    x, y = TABLES["continuous"], LABELS["continuous"]
    pipeline = make_pipeline(decomposition.PCA(2), neighbors.KNeighborsClassifier()).fit(x, y)
    found = scanned(pipeline, x, y)
    assert not found.stored
    assert len(found.sums) == 1


def test_a_bootstrap_sample_holds_each_row_once():
    x, y = TABLES["continuous"], LABELS["continuous"]
    drawn = RANDOM.integers(0, N, N)
    part = neighbors.KNeighborsClassifier().fit(x[drawn], y[drawn])
    (stored,) = scanned(part, x, y).stored
    assert len(stored.x) == len(set(drawn.tolist()))
    guess, label = held(stored, Records(torch.from_numpy(x), torch.from_numpy(y)), torch.arange(N))
    answered = ~guess.isnan().all(1)
    assert set(answered.nonzero().flatten().tolist()) == set(drawn.tolist())
    assert (label.numpy() == y)[answered].all()


@pytest.mark.parametrize("covariance", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("components", [2, 4, 9])
def test_the_mean_behind_the_components_of_a_mixture_is_found(components, covariance):
    """weights_ @ means_ is the mean of the table: a mixture once told nothing."""
    x = np.random.default_rng(3).gamma(2.0, size=(90, 4)) * [1, 10, 0.1, 5]
    part = GaussianMixture(components, covariance_type=covariance, random_state=1).fit(x)
    (sums,) = scanned(part, x).sums
    np.testing.assert_allclose(sums.totals[0], x.sum(0), rtol=1e-10)


def test_class_means_of_one_class_against_the_rest_add_up_to_the_table():
    x, y = load_wine(return_X_y=True)
    part = OneVsRestClassifier(naive_bayes.GaussianNB()).fit(x, y)
    totals = [sums.totals[0] for sums in scanned(part, x).sums]
    assert totals
    np.testing.assert_allclose(totals, [x.sum(0)] * len(totals), rtol=1e-10)


@pytest.mark.parametrize("topics", [3, 12, 30])
def test_word_counts_behind_topics_are_found(topics):
    counts = np.random.default_rng(4).poisson(0.4, (80, 25))
    part = decomposition.LatentDirichletAllocation(topics, random_state=0, max_iter=3).fit(counts)
    (sums,) = scanned(part, counts).sums
    np.testing.assert_allclose(sums.totals[0], counts.sum(0), rtol=1e-9)


def test_combinations_that_owe_nothing_to_the_table_are_no_sums():
    """300 arrays of as many rows as a mixture has, with weights beside them; and the directions of low-rank tables."""
    random = np.random.default_rng(5)
    for number in range(300):
        n, d, k = random.integers(30, 200), random.integers(2, 30), random.integers(2, 12)
        x = random.normal(size=(n, d)) if number % 2 else random.integers(0, 5, (n, d)).astype(float)
        weights = random.dirichlet(np.ones(k))
        other = x[random.integers(0, n, n)]  # means of groups of another sample of these rows
        groups = np.stack([other[random.random(n) < 0.5].mean(0) for _ in range(k)])
        half = random.normal(size=(k, d)).astype(np.float16)
        for rows in (random.normal(size=(k, d)), groups, random.integers(0, 4, (k, d)), half, half.astype(np.float32)):
            assert not scanned({"weights_": weights, "a": rows}, x).sums
        low = random.normal(size=(n, min(k, d - 1))) @ random.normal(size=(min(k, d - 1), d))
        assert not scanned({"a": np.linalg.svd(low, full_matrices=False)[2][: min(k, d - 1)]}, low).sums
