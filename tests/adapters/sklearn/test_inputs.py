"""What newcomers pass by mistake: the message names the slip."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder
from sklearn.svm import SVC

import lostwax as lw
from lostwax.adapters.sklearn.inputs import rows_seen

X, Y = load_wine(return_X_y=True)
FRAME, LABELS = load_wine(return_X_y=True, as_frame=True)
SCALED = StandardScaler().fit_transform(X)
MODEL = LogisticRegression(max_iter=5_000).fit(SCALED, Y)
NAMED = make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, LABELS)
NET = torch.nn.Linear(13, 3)
RECORDS = lw.Records(torch.from_numpy(SCALED), torch.from_numpy(Y))


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        ((X, Y), MODEL, "the arguments are swapped: data is the model, LogisticRegression"),
        (RECORDS, NET, "the arguments are swapped: data is the model, Linear"),
        (MODEL, (Y, X), r"X and y are swapped: X has shape \(178,\), and y \(178, 13\)"),
        (MODEL, X, "y is missing.*fitted without labels"),
        (MODEL, (X,), "y is missing"),
        (MODEL, (X, None), "y is missing: it is None, but LogisticRegression was fitted on labels"),
        (NET, (X, None), "y is missing: it is None"),
        (MODEL, (SCALED, Y.astype(str)), "not one of its 3 classes, which are numbers, and y holds texts"),
        (MODEL, (SCALED, Y + 5), r"in 178 of 178 rows, the first in row 0: not one of its 3 classes\. Pass"),
        (MODEL, (SCALED[:, ::-1], Y), "with the columns in the same order"),
        (MODEL, (SCALED, Y[::-1]), "X and y in the same order of rows"),
        (NAMED, FRAME.assign(kind=LABELS), r"table.drop\(columns='kind'\), table\['kind'\]"),
        (NAMED, (FRAME.assign(kind=LABELS), LABELS), "fitted on 13: not on the column 'kind'. If it holds the labels"),
        (MODEL, (np.column_stack([X, Y]), Y), "not on column 13, which equals y"),
    ],
)
def test_what_is_passed_in_the_wrong_place_is_named(model, data, message):
    with pytest.raises((TypeError, ValueError), match=message):
        lw.audit(model, data)


TRAIN = np.random.default_rng(0).permutation(len(X))[:120]


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), KNeighborsClassifier()),
        make_pipeline(StandardScaler(), SVC()),
        make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5, random_state=0)),
        SGDClassifier(max_iter=5, tol=None, random_state=0),
        make_pipeline(make_column_transformer((StandardScaler(), [0, 1, 2]), remainder="drop"), LogisticRegression()),
        RandomForestClassifier(5, random_state=0),
        HistGradientBoostingClassifier(max_iter=5),
        StandardScaler(),
        PCA(2),
    ],
    ids=lambda model: type(model[-1] if hasattr(model, "steps") else model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_test_rows_that_were_passed_too_are_named(model):
    model.fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match=r"[Ww]ere test rows passed too\?"):
        lw.audit(model, (X, Y))


def test_a_model_without_a_count_of_its_rows_is_known_by_its_gradient():
    model = LogisticRegression(max_iter=5_000).fit(SCALED[TRAIN], Y[TRAIN])
    with pytest.raises(ValueError, match=r"LogisticRegression was not fitted on this data .* without test rows"):
        lw.audit(model, (SCALED, Y))


def test_a_scaler_of_fewer_public_rows_is_no_slip():
    """The model itself was fitted on all rows: its gradient says so."""
    scaler = StandardScaler().fit(X[:50])
    model = make_pipeline(scaler, LogisticRegression(tol=1e-8, max_iter=5_000).fit(scaler.transform(X), Y))
    audit = lw.audit(model, (X, Y), games=5)
    assert any("assumed public" in note for note in map(str, audit.notes))


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (StandardScaler().fit(X), 178),
        (StandardScaler().fit(np.where(np.arange(13) > 3, X, np.nan)), None),  # a count for each column
        (StandardScaler().fit(X, sample_weight=np.full(len(X), 0.3)), None),  # a sum of weights
        (SVC().fit(X, Y), 178),
        (GaussianNB().fit(X, Y), None),
        (SGDClassifier(max_iter=3, tol=None).partial_fit(X, Y, classes=[0, 1, 2]).partial_fit(X, Y), 356),
        (MLPClassifier((2,), max_iter=3, early_stopping=True, random_state=0).fit(X, Y), None),
        (MLPClassifier((2,), max_iter=3, solver="lbfgs", random_state=0).fit(X, Y), None),
        (object(), None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_rows_are_counted_only_where_a_model_is_sure(model, rows):
    assert rows_seen(model) == rows


def test_an_optimiser_of_torch_is_no_trainer():
    optimiser = torch.optim.AdamW(NET.parameters(), lr=0.01)
    known, prior, secrets = RECORDS.split(50, 50, 20, seed=0)
    with pytest.raises(TypeError, match=r"got AdamW. An optimiser of torch .* lw.AdamW\(lr=0.01, ...\)"):
        lw.audit(NET, trainer=optimiser, threat=lw.Informed(known), prior=prior, secrets=secrets)
    with pytest.raises(TypeError, match=r"got AdamW. An optimiser of torch"):
        lw.audit(NET, RECORDS, trainer=optimiser)
    with pytest.raises(TypeError, match=r"the class SGD. .* lw.SGD\(lr=..., ...\)"):
        lw.audit(NET, RECORDS, trainer=torch.optim.SGD)
    with pytest.raises(TypeError, match=r"lw.OwnTraining\(_train\)"):
        lw.audit(NET, RECORDS, trainer=_train)


def _train(net, x, y, seed):
    return net


@pytest.mark.parametrize(
    "model",
    [KMeans(2, n_init=1), PCA(1), make_pipeline(StandardScaler(), IsolationForest(n_estimators=5, random_state=0))],
    ids=str,
)
def test_a_table_alone_is_enough_for_a_model_without_labels(model):
    alone, pair = (lw.audit(model.fit(X), data, games=5) for data in (X, (X, None)))
    assert alone.grade is pair.grade
    np.testing.assert_array_equal(alone.findings[0].rebuilt, pair.findings[0].rebuilt)


def test_a_table_alone_is_not_enough_for_an_encoder_by_labels():
    model = TargetEncoder().fit(X, Y)
    with pytest.raises(TypeError, match="y is missing"):
        lw.audit(model, X)
