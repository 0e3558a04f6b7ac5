import base64
import io

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Ridge

import lostwax as lw
from lostwax.games import Records
from lostwax.reports.gallery import are_pictures, labels, rows
from lostwax.reports.html import render


def test_best_median_and_worst(audit_of):
    audit = audit_of("of_pictures")
    errors = np.sort(audit.findings[0].errors[audit.criterion])
    best, median, worst = rows(audit)
    assert [pair.error for pair in best.pairs] == errors[:8].tolist()
    assert [pair.error for pair in worst.pairs] == errors[-8:].tolist()
    shown = [pair.error for pair in median.pairs]
    assert shown[0] <= np.median(errors) <= shown[-1]


def test_the_picture_is_the_record(audit_of):
    pair = rows(audit_of("of_pictures"))[0].pairs[3]
    picture = imread(io.BytesIO(base64.b64decode(pair.pictures[0].partition(",")[2])), format="png")
    np.testing.assert_allclose(picture[..., 0], audit_of("of_pictures").truth.x[pair.position].squeeze(), atol=1 / 250)


def test_tables_show_numbers(audit_of):
    audit = audit_of("of_a_table")
    pair = rows(audit)[0].pairs[0]
    assert pair.pictures is None
    assert [cell.original for cell in pair.cells] == [f"{value:.6g}" for value in audit.truth.x[pair.position].tolist()]
    assert [cell.name for cell in pair.cells] == [str(place) for place in range(1, 11)]


@pytest.mark.parametrize("named", ["the data", "the model"])
def test_tables_show_the_names_of_features(named):
    pytest.importorskip("pandas")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = Ridge(alpha=0.1).fit(X if named == "the model" else X.to_numpy(), y)
    audit = lw.audit(model, (X if named == "the data" else X.to_numpy(), y), games=2)
    assert [cell.name for cell in rows(audit)[0].pairs[0].cells] == list(X.columns)
    assert "<th>bmi</th>" in render(audit, {}, records=True)


def test_tables_say_what_is_known_of_each_cell():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(2)
    model = RandomForestRegressor(10, max_features=1, max_depth=4, random_state=0).fit(X, X[:, 0] + X[:, 1])
    audit = lw.audit(model, (X, X[:, 0] + X[:, 1]))
    shown = [cell for row in rows(audit) for pair in row.pairs for cell in pair.cells]
    page = render(audit, {}, records=True)
    exact = [cell for cell in shown if cell.known == "exact"]
    assert 0 < len(exact) < len(shown)
    for cell in exact:
        assert cell.rebuilt == cell.original
        assert f"<td>{cell.original}</td><td><strong>{cell.rebuilt}</strong></td>" in page
    for cell in shown:
        if cell.known not in ("exact", "unknown"):
            assert f"<td>{cell.rebuilt}<small>{cell.known}</small></td>" in page


def test_what_is_hidden_by_accident_is_shown_again_from_the_optimum(audit_of):
    *_, last = rows(audit_of("by_accident"))
    assert "as converged" in last.name
    assert all(pair.rebuilt for pair in last.pairs)


def test_shapes_that_are_pictures(audit_of):
    from dataclasses import replace

    audit = audit_of("one_game")
    for shape, yes in {(8, 8): True, (1, 8, 8): True, (3, 8, 8): True, (2, 8, 8): False, (64,): False}.items():
        records = Records(torch.zeros(1, *shape), torch.zeros(1))
        assert are_pictures(replace(audit, truth=records)) == yes


def test_labels_have_the_users_names(audit_of):
    audit = audit_of("by_accident")
    assert set(labels(audit, audit.truth.y)) <= set(map(str, audit.classes))
    assert labels(audit, torch.tensor([[1.0, 2.0]])) == [""]
