import sys

import numpy as np
import pandas as pd
import pytest
import torch

from lostwax import records

X = np.array([[1, 20, 0], [2, 30, 1], [3, 40, 0], [4, 50, 1]])
FRAME = pd.DataFrame(
    {
        "age": [31, 25, 62, 47],
        "income": [1.5, 2.5, 0.5, 3.5],
        "owner": [True, False, True, True],
        "city": ["Rome", "Oslo", "Rome", "Bonn"],
        "risk": [0.25, 0.5, 0.75, 1.0],
    }
)


def test_arrays_become_our_own_float64_copy():
    source = X.astype(np.float64)
    found = records.table((source, np.array([7, 1, 2, 7])))
    source[:] = 0
    assert torch.equal(found.x, torch.tensor(X).double())
    assert found.y.tolist() == [2, 0, 1, 2]
    assert found.y.dtype == torch.int64


def test_frame_csv_and_parquet_are_the_same_records(tmp_path):
    FRAME.to_csv(tmp_path / "people.csv", index=False)
    FRAME.to_csv(tmp_path / "people.csv.gz", index=False)
    FRAME.to_parquet(tmp_path / "people.parquet")
    frame = records.table(FRAME, target="city")
    assert frame.x[0].tolist() == [31, 1.5, 1, 0.25]
    assert frame.y.tolist() == [2, 1, 2, 0]  # Bonn, Oslo, Rome
    pair = records.table((FRAME.drop(columns="city"), FRAME["city"]))
    files = [records.table(tmp_path / f"people.{kind}", target="city") for kind in ("csv", "csv.gz", "parquet")]
    for other in (pair, *files, records.table(str(tmp_path / "people.csv"), target="city")):
        assert torch.equal(frame.x, other.x)
        assert torch.equal(frame.y, other.y)


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        (np.array([0.5, 2.0, 0.5, 1.0]), None, torch.tensor([0.5, 2.0, 0.5, 1.0]).double()),
        (np.array([0.5, 2.0, 0.5, 1.0]), True, torch.tensor([0, 2, 0, 1])),
        (np.array([5, 1, 1, 9]), None, torch.tensor([1, 0, 0, 2])),
        (np.array([5, 1, 1, 9]), False, torch.tensor([5.0, 1, 1, 9]).double()),
        (np.array([True, False, False, True]), None, torch.tensor([1, 0, 0, 1])),
        (["b", "a", "a", "c"], None, torch.tensor([1, 0, 0, 2])),
        (pd.Series(["b", "a", "a", "c"], dtype="category"), None, torch.tensor([1, 0, 0, 2])),
        (pd.Series([5, 1, 1, 9], dtype="Int64"), None, torch.tensor([1, 0, 0, 2])),
        (np.array([5, 1, 1, 9], dtype=object), False, torch.tensor([5.0, 1, 1, 9]).double()),
    ],
)
def test_labels_become_classes_or_stay_numbers(labels, classes, expected):
    found = records.table((X, labels), classes=classes).y
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_nullable_columns_are_numbers():
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype="Int64"), "y": [0, 1]})
    assert records.table(frame, target="y").x.tolist() == [[1], [2]]
    frame.loc[0, "a"] = pd.NA
    with pytest.raises(ValueError, match=r"column 'a' \(1 of 2 rows\)"):
        records.table(frame, target="y")


def _with(column, values):
    return FRAME.drop(columns="city").assign(**{column: values})


Y = np.array([0, 1, 0, 1])
HOLES = np.where(X == 20, np.inf, np.where(X == 0, np.nan, X))


@pytest.mark.parametrize(
    ("data", "target", "message"),
    [
        (FRAME, "risk", r"columns are not: 'city'\. Encode them first"),
        (FRAME, "Risk", r"target: expected one of 'age'.*got 'Risk'\. Did you mean 'risk'"),
        (FRAME, None, "target: expected one of 'age'.*got None"),
        (pd.concat([FRAME, FRAME], axis=1), "age", "target must name one column, got 2 named 'age'"),
        (_with("when", pd.Timestamp(0)), "risk", "columns are not: 'when'"),
        (_with("phase", 1j), "risk", "columns are not: 'phase'"),
        (
            _with("income", [np.nan, np.inf, 1, 2]),
            "risk",
            r"NaN or infinite values in column 'income' \(2 of 4 rows\)",
        ),
        (
            _with("risk", [np.nan, 1, 2, 3]),
            "risk",
            r"target 'risk' has 1 of 4 labels missing.*the first in row 0",
        ),
        (_with("risk", ["a", "b", None, "c"]), "risk", "target 'risk' has 1 of 4.* in row 2"),
        (_with("risk", ["a", 1, "b", "c"]), "risk", "has 1 of 4 labels.*another type.*the first in row 1"),
        (_with("risk", pd.Timestamp(0)), "risk", "target 'risk' must be numbers or text.*datetime64"),
        (FRAME[["risk"]], "risk", r"at least one row and one feature, got shape \(4, 0\)"),
        (FRAME.iloc[:0].drop(columns="city"), "risk", "at least one row"),
        ((HOLES, Y), None, r"column 1 \(1 of 4 rows\), column 2 \(2 of 4 rows\)"),
        ((np.full((2, 20), np.nan), Y[:2]), None, r"column 11 \(2 of 2 rows\) and 8 more"),
        ((X.astype(str), Y), None, "X must be an array of numbers"),
        ((X[0], Y), None, r"shape \(n, d\), got int64 of shape \(3,\)"),
        ((X[:0], Y[:0]), None, r"at least one row.*\(0, 3\)"),
        ((X, Y[:3]), None, "one label per row of X: expected 4, got 3"),
        ((X, Y[:, None]), None, r"y must be numbers or text of shape \(n,\).*\(4, 1\)"),
        ((X, Y), "age", "leave target out"),
    ],
)
def test_refuses_bad_values(data, target, message):
    with pytest.raises(ValueError, match=message):
        records.table(data, target)


@pytest.mark.parametrize("labels", [np.array(["a", "1", "b", "2"]), np.array(["1", "2", "3", "4"], dtype=object)])
def test_refuses_text_as_numbers(labels):
    with pytest.raises(ValueError, match="y is text, got classes=False"):
        records.table((X, labels), classes=False)


@pytest.mark.parametrize("data", [X, [X, Y], (X, Y, Y), None, 3])
def test_refuses_other_kinds_of_data(data):
    with pytest.raises(TypeError, match=rf"data must be a pair.*got {type(data).__name__}"):
        records.table(data)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("people.csv", b"", "cannot be read as a table"),
        ("people.csv", b"a,b\n1,2\n1,2,3\n", "cannot be read as a table"),
        ("people.parquet", b"not parquet", "cannot be read as a table"),
        ("people.xlsx", b"", r"expected a \.csv or \.parquet file"),
    ],
)
def test_names_the_file_that_cannot_be_read(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        records.table(tmp_path / name, target="b")
    assert name in str(caught.value)


def test_names_the_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.csv is not a file"):
        records.table(tmp_path / "absent.csv", target="b")


@pytest.mark.parametrize(("package", "kind"), [("pandas", "csv"), ("pyarrow", "parquet")])
def test_says_what_to_install(tmp_path, monkeypatch, package, kind):
    (tmp_path / f"people.{kind}").touch()
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"records\.table needs {package}: pip install 'lostwax\[tables\]'"
    with pytest.raises(ModuleNotFoundError, match=message):
        records.table(tmp_path / f"people.{kind}", target="b")


def test_arrays_need_no_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert len(records.table((X, Y))) == 4
