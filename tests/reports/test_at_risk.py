from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

import lostwax as lw
from lostwax.reports.gallery import MOST_RISKY, _listed, most_at_risk
from lostwax.reports.html import render


def test_rows_have_their_numbers_and_the_closest_come_first(audit_of):
    audit = audit_of("of_a_table")
    found = most_at_risk(audit, records=True)
    assert len(found) == MOST_RISKY
    assert {one.row for one in found} <= set(audit.games.tolist())
    assert [one.error for one in found] == sorted(audit.findings[0].errors[audit.metric])[:MOST_RISKY]
    assert all(one.rebuilt and one.columns == "all 10" and one.error < one.without for one in found)


def test_the_worst_line_counts(audit_of):
    audit = audit_of("by_accident")
    assert audit.conclusion.line.name == "as converged"
    assert all(one.rebuilt for one in most_at_risk(audit, records=False))


def test_columns_are_named_and_only_with_records():
    pytest.importorskip("pandas")
    import pandas as pd

    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 3)).round(2), columns=["age", "bmi", "<b>"])
    y = X.age + X.bmi
    audit = lw.audit(RandomForestRegressor(10, max_depth=4, random_state=0).fit(X, y), (X, y))
    found = most_at_risk(audit, records=True)
    each = audit.findings[0].cells.each
    place = audit.games.tolist().index(found[0].row)
    exact = [name for name, kept in zip(X.columns, each.kept[place].tolist(), strict=True) if kept == each.kept.max()]
    assert found[0].columns == (", ".join(exact) or "none exactly")
    assert not any(one.columns for one in most_at_risk(audit, records=False))
    assert "<b>" not in render(audit, {}, records=True)
    assert "columns that come back" not in render(audit, {}, records=False)


def test_where_nothing_was_found_nothing_is_ranked(audit_of):
    assert most_at_risk(audit_of("nothing"), records=True) == ()
    page = render(audit_of("nothing"), {}, records=False)
    assert "single out no record" in page
    assert "does not show that there is none" in page


def test_guesses_no_better_than_baselines_are_not_listed(audit_of):
    audit = audit_of("of_pictures")
    better = audit.beats_baselines(audit.findings[0]) | audit.findings[0].rebuilt
    found = most_at_risk(audit, records=True)
    assert {one.row for one in found} <= set(audit.games[better].tolist())
    assert all(one.error < one.without for one in found)
    assert not any(one.columns for one in found)  # pixels have no names


def test_candidates_are_named_or_not(audit_of):
    found = most_at_risk(audit_of("candidates"), records=True)
    assert found
    assert all(one.rebuilt for one in found)


def test_undecided_lists_what_may_be_at_risk(audit_of):
    audit = replace(audit_of("nothing"), unanswered=("Newton was stopped.",))
    assert most_at_risk(audit, records=False) == ()


def test_names_that_all_come_back_are_not_repeated_row_by_row():
    names = ("age", "income_in_euros", "smoker", "<b>")
    assert _listed(names, np.array([True] * 4)) == "all 4"
    assert _listed(names, np.array([True, False, True, False])) == "age, smoker"
    assert _listed(names[:3], np.array([True] * 3)) == "age, income_in_euros, smoker"
    assert _listed(names, np.zeros(4, bool)) == "none exactly"
