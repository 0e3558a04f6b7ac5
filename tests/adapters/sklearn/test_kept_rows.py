"""Models that keep rows they were fitted on show whether a table is theirs: other rows and labels are refused."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, NearestNeighbors, RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, StandardScaler
from sklearn.semi_supervised import LabelSpreading
from sklearn.svm import SVC, SVR, NuSVC, OneClassSVM

import lostwax as lw

X, Y = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
x, y, other_x, other_y = X[ORDER[:60]], Y[ORDER[:60]], X[ORDER[60:120]], Y[ORDER[60:120]]
CLASSIFIERS = [
    KNeighborsClassifier(),
    RadiusNeighborsClassifier(radius=1e3),
    SVC(),
    NuSVC(nu=0.2),
    GaussianProcessClassifier(),
    LabelSpreading(),
    make_pipeline(StandardScaler(), KNeighborsClassifier()),
    BaggingClassifier(KNeighborsClassifier(), 3, random_state=0),
    OneVsRestClassifier(SVC()),
]
OTHERS = [KNeighborsRegressor(), SVR(), GaussianProcessRegressor(), OneClassSVM(), NearestNeighbors()]
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: str(model)[:40])
def test_a_label_that_the_model_never_saw(model):
    model.fit(x, y)
    with pytest.raises(ValueError, match="labels that the model was not fitted on in 1 of 60 rows, the first in row 3"):
        lw.audit(model, (x, np.where(np.arange(60) == 3, 9, y)))
    with pytest.raises(ValueError, match="labels that the model was not fitted on"):
        lw.audit(model, (x, np.array(["a", "b", "c"])[y]))


@pytest.mark.parametrize("model", [*CLASSIFIERS, *OTHERS], ids=lambda model: str(model)[:40])
def test_other_rows(model):
    model.fit(x, y)
    for rows, labels in ((other_x, other_y), (np.r_[x[:50], other_x[:10]], np.r_[y[:50], other_y[:10]])):
        with pytest.raises(ValueError, match=r"was not fitted on this data \(X, y\)"):
            lw.audit(model, (rows, labels), max_minutes=0.1)


@pytest.mark.parametrize("model", [KNeighborsClassifier(), KNeighborsRegressor(), GaussianProcessRegressor()], ids=str)
def test_fewer_rows_and_more(model):
    model.fit(x, y)
    with pytest.raises(ValueError, match=r"1 of the 60 rows in its .* are not in the table"):
        lw.audit(model, (x[1:], y[1:]))
    with pytest.raises(ValueError, match=r"2 of 62 rows of the table are not in its X_train_|X has 62"):
        lw.audit(model, (np.r_[x, other_x[:2]], np.r_[y, other_y[:2]]))


def test_fewer_rows_than_a_bag_was_drawn_from():
    model = BaggingClassifier(KNeighborsClassifier(), 3, random_state=0).fit(x, y)
    with pytest.raises(ValueError, match="it was fitted on 60 rows or more, and the table has 40"):
        lw.audit(model, (x[:40], y[:40]))


@pytest.mark.parametrize("model", [KNeighborsClassifier(), KNeighborsRegressor()], ids=str)
def test_other_labels_of_the_same_rows(model):
    model.fit(x, y)
    with pytest.raises(ValueError, match="the labels of 1 of 60 rows, the first in row 3, are others in its _y"):
        lw.audit(model, (x, np.where(np.arange(60) == 3, (y + 1) % 3, y)))


ACCEPTED = {
    "in single precision": (KNeighborsClassifier(), x.astype(np.float32), y),
    "in another precision": (KNeighborsClassifier().fit(x.astype(np.float32), y), x, y),
    "names": (SVC(), x, np.array(["a", "b", "c"])[y]),
    "twins": (KNeighborsClassifier(), np.r_[x, x[:5]], np.r_[y, (y[:5] + 1) % 3]),
    "in another order": (KNeighborsClassifier().fit(x[::-1], y[::-1]), x, y),
    "unlabelled": (LabelSpreading(), x, np.where(np.arange(60) < 20, -1, y)),
    "one against one": (OneVsOneClassifier(KNeighborsClassifier()), x, y),
    "scaled": (make_pipeline(MinMaxScaler(), SVR()), x, y),
    "rotated, by other arithmetic when fitted": (make_pipeline(PCA(5), KNeighborsClassifier()), x, y),
    "binned": (make_pipeline(KBinsDiscretizer(3), SVC()), x, y),
    "searched": (GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5]}, cv=3), x, y),
    "calibrated": (CalibratedClassifierCV(SVC(), cv=3), x, y),
    "voting": (VotingClassifier([("knn", KNeighborsClassifier()), ("svc", SVC())]), x, np.array(list("abc"))[y]),
    "several targets": (MultiOutputClassifier(KNeighborsClassifier()), x, np.stack([y, y % 2], 1)),
    "several targets of one model": (KNeighborsClassifier(), x, np.stack([y, y % 2], 1)),
    "one against the others": (OneVsRestClassifier(SVC()), x, np.array(list("abc"))[y]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_own_table_is_accepted(name):
    model, rows, labels = ACCEPTED[name]
    if not (hasattr(model, "n_features_in_") or hasattr(model, "classes_")):
        model.fit(rows, labels)
    assert lw.audit(model, (rows, labels), games=5, max_minutes=0.2) is not None


def test_weights_of_zero_and_sparse_tables_are_accepted():
    weight = np.where(np.arange(60) < 20, 0.0, 1.0)
    assert lw.audit(SVC().fit(x, y, weight), (x, y), sample_weight=weight) is not None
    table = sparse.csr_matrix(np.where(x > np.median(x, 0), x, 0.0))
    assert lw.audit(KNeighborsClassifier().fit(table, y), (table, y), games=5, max_minutes=0.2) is not None
