"""The lists of supported estimators are what is found, and no reader is missing from them."""

import re

import pytest
import sklearn
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import SelectorMixin
from sklearn.linear_model import Lasso, LogisticRegression, MultiTaskElasticNet
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from sklearn.svm import SVC

from lostwax.adapters.sklearn.estimators import read_estimator
from lostwax.adapters.sklearn.models import inner_models
from lostwax.adapters.sklearn.pipelines import own_facts
from lostwax.adapters.sklearn.steps import step_of
from lostwax_dev.supported import Gives, Supported, full_list, listed, look, short_list, with_list

REFUSED = {MultiTaskElasticNet}  # registered to say that it is not read


def registered(*readers):
    """Classes of scikit-learn; other tests register their own."""
    return {kind for reader in readers for kind in reader.registry if kind.__module__.startswith("sklearn.")}


@pytest.fixture(scope="module")
def found():
    return listed()


@pytest.mark.parametrize(
    ("kind", "gives", "back"),
    [
        (LogisticRegression, Gives.EQUATION, None),
        (Lasso, Gives.ACTIVE, None),
        (KNeighborsClassifier, Gives.ALL_STORED, None),
        (SVC, Gives.SOME_STORED, None),
        (RandomForestClassifier, Gives.TREES, None),
        (StandardScaler, Gives.SUM, "exact"),
        (KBinsDiscretizer, Gives.EXTREMES, "an interval"),
    ],
)
def test_an_estimator_is_listed_by_what_is_found_in_it(kind, gives, back):
    assert look(kind) == Supported(kind.__name__, gives, back)


def test_every_model_with_an_equation_is_listed_with_what_it_gives(found):
    listed_with = {one.name.partition("(")[0] for one in found if one.gives is not Gives.NOTHING}
    kinds = registered(read_estimator) - registered(inner_models) - REFUSED
    assert not {kind.__name__ for kind in kinds} - listed_with, "name settings that are read in supported.VARIANTS"


def test_every_transformer_and_model_of_models_is_listed(found):
    words = set(re.findall(r"\w+", full_list(found)))
    kinds = registered(step_of, own_facts, inner_models) - {TfidfTransformer, SelectorMixin}  # of texts; a base class
    assert not {kind.__name__ for kind in kinds} - words


def test_the_lists_in_the_documentation_are_up_to_date(root, found):
    overview, tables = ((root / "docs" / name).read_text() for name in ("overview.md", "tables.md"))
    if f"With scikit-learn {'.'.join(sklearn.__version__.split('.')[:2])}," not in tables:
        pytest.skip("the lists were made with another version of scikit-learn")
    assert tables == with_list(tables, "list", full_list(found)), "run `make results`"
    assert short_list(found) in overview, "run `make results`"


def test_a_list_replaces_what_was_between_its_marks():
    page = "before\n<!-- list: `make results` writes this -->\nold\n<!-- end of list -->\nafter\n"
    assert with_list(page, "list", "| new |") == page.replace("old", "| new |")
