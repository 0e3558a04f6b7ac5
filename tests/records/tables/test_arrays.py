"""Every form of the same numbers is read alike, or refused in a sentence; none is misread."""

import numpy as np
import pytest
import torch

import lostwax as lw
from fuzz.arrays import CLASSES, TARGETS, X, fitted, other, rebuilt, same
from lostwax.records.tables import numbers

REFUSED = {"sparse", "sparse rows", "sparse matrix"}


@pytest.mark.parametrize("form", same(X))
def test_the_same_numbers_in_another_form(form):
    if form in REFUSED:
        with pytest.raises(TypeError, match="audit: X is a sparse"):
            numbers("audit", "X", same(X)[form])
    else:
        np.testing.assert_array_equal(numbers("audit", "X", same(X)[form]), X)


def test_an_audit_of_the_same_numbers():
    model, forms = fitted("regression"), same(X)
    expected = rebuilt(lw.audit(model, (X, TARGETS), games=5))
    for form in ("requires_grad", "negative bit", "strided view", "parameter"):
        assert rebuilt(lw.audit(model, (forms[form], TARGETS), games=5)) == expected, form


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("meta", "X is on the meta device"),
        ("nested", "X is a sparse or nested tensor"),
        ("quantised", "X is a quantised tensor"),
        ("ragged", "rows of different lengths"),
        ("huge integer", "the value at row 0, column 0 is an integer too large"),
        ("masked", "X has 1 masked values"),
        ("date", "the value at row 0, column 0 is of type date"),
        ("dates", "expected numbers in X, got datetime64"),
        ("complex tensor", "X holds complex numbers"),
        ("dict", "expected X to be an array of numbers, got dict"),
    ],
)
def test_what_holds_no_numbers(form, words):
    with pytest.raises((TypeError, ValueError), match=f"^audit: .*{words}"):
        numbers("audit", "X", other(X)[form])


@pytest.mark.parametrize("form", ["bfloat16", "half", "float8"])
def test_short_floats_are_read_as_they_are(form):
    np.testing.assert_array_equal(numbers("audit", "X", other(X)[form]), other(X)[form].double().numpy())


def test_labels_with_three_axes():
    with pytest.raises(ValueError, match="one label or row of targets per record"):
        lw.audit(fitted("regression"), (X, TARGETS[:, None, None]))
    with pytest.raises(ValueError, match="audit: the label in y at row 4 is missing"):
        lw.audit(fitted("classes"), (X, np.where(np.arange(40) == 4, None, CLASSES)))


def test_a_file_without_a_line_of_names(tmp_path):
    (tmp_path / "a.csv").write_text("5.1,3.5,0\n4.9,3.0,1\n")
    with pytest.raises(ValueError, match="the first line of a file is a record"):
        lw.records.table(tmp_path / "a.csv", "species")


def test_records_are_tensors_with_a_number_in_each_cell():
    x, y = torch.ones(3, 2), torch.arange(3)
    for odd, words in (
        (x.to_sparse(), "sparse or nested"),
        (x.to("meta"), "meta device"),
        (torch.tensor(1.0), "a single number"),
        (x.to(torch.complex64), "real numbers"),
        (None, "to be a tensor"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^Records: .*{words}"):
            lw.Records(odd, y)
