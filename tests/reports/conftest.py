"""Audits of every kind that a report must suit, each over in moments."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.linear_model import LogisticRegression, Ridge

import lostwax as lw
from audits.game import KNOWN, Reads, audited
from lostwax.audits.ceiling import privacy_of
from lostwax.audits.luck import Luck

NASTY = "<script>document.title='owned'</script><img src=x onerror=alert(1)>&\"'"


def of_a_table():
    """Every row of a regression comes back."""
    X, y = load_diabetes(return_X_y=True)
    return lw.audit(Ridge(alpha=0.1).fit(X, y), (X, y), games=60)


def by_accident():
    """Hidden by a solver that stopped early; the classes have names that want to be markup and a formula."""
    X, y = load_iris(return_X_y=True)
    names = np.array([NASTY, "=HYPERLINK(1)", "virginica"])[y]
    return lw.audit(LogisticRegression(max_iter=1_000, tol=1e-2).fit(X, names), (X, names), games=40)


def one_game():
    X, y = load_iris(return_X_y=True)
    return lw.audit(Ridge().fit(X, y), (X, y), games=1)


def of_pictures():
    """A way of training that gives most of a picture away."""
    return audited(Reads(noise=0.1), games=120)


def rebuilt_pictures():
    return audited(Reads(noise=1e-7), games=120)


def nothing():
    return audited(Reads(blind=1.0), games=120)


def candidates():
    return audited(lw.attacks.NearestCandidate(Reads(noise=1.5)), threat=lw.Informed(KNOWN, candidates=8), games=60)


def diverged():
    """In half of the games the guess is no number."""
    audit = of_pictures()
    released = audit.findings[0]
    errors = {name: np.where(np.arange(120) % 2, np.inf, values) for name, values in released.errors.items()}
    return replace(audit, findings=(replace(released, errors=errors),), unanswered=("60 of 120 victims diverged.",))


def all_diverged():
    audit = of_pictures()
    released = audit.findings[0]
    errors = {name: np.full(120, np.inf) for name in released.errors}
    nulls = {null: np.full(120, np.inf) for null in released.null_errors}
    luck = Luck(120, 0.0, 0.0, 1.0, 0.0, 0.0, 0.5)
    line = replace(released, errors=errors, null_errors=nulls, luck=luck)
    return replace(audit, findings=(line,), unanswered=("120 of 120 victims diverged.",))


def under_a_ceiling():
    mechanism = {"noise_multiplier": 3.0, "sample_rate": 1.0, "steps": 10}
    return replace(candidates(), ceiling=lw.bound(**mechanism, baseline=1 / 8), privacy=privacy_of(mechanism))


KINDS = {
    kind.__name__: kind
    for kind in (
        of_a_table,
        by_accident,
        one_game,
        of_pictures,
        rebuilt_pictures,
        nothing,
        candidates,
        diverged,
        all_diverged,
        under_a_ceiling,
    )
}


@pytest.fixture(scope="session")
def audit_of():
    """`audit_of("one_game")`, made once."""
    return cache(lambda name: KINDS[name]())


@pytest.fixture(params=KINDS)
def audit(request, audit_of):
    return audit_of(request.param)
