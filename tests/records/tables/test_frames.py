import numpy as np
import pandas as pd
import pytest
import torch

from lostwax.games import Columns
from lostwax.records.tables import coded, codes_of


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "age": [30, 41, 30, 55],
            "income": [1.5, np.nan, 2.5, 3.0],
            "town": ["Bath", "York", None, "Bath"],
            "smoker": [True, False, False, True],
            "grade": pd.Categorical(["low", "high", "low", np.nan]),
            "born": pd.to_datetime(["1990-01-01", "1980-05-05", None, "1970-01-01"]),
            "code": ["1", "2", "1", "3"],
            "nullable": pd.array([1, None, 3, 4], dtype="Int64"),
        }
    )


def test_numbers_codes_and_missing_values(frame):
    x, columns = coded(frame)
    assert columns.names == tuple(frame.columns)
    assert columns.categories[2:5] == (("Bath", "York"), (True, False), ("low", "high"))
    assert columns.categories[6] == ("1", "2", "3")  # text that reads as a number is text
    assert all(columns.categories[j] == () for j in (0, 1, 5, 7))
    np.testing.assert_array_equal(x[:, 2], [0, 1, np.nan, 0])
    np.testing.assert_array_equal(x[:, 4], [0, 1, 0, np.nan])
    np.testing.assert_array_equal(x[:, 1].isnan(), frame["income"].isna())
    np.testing.assert_array_equal(x[:, 5].isnan(), frame["born"].isna())
    np.testing.assert_array_equal(x[:, 7], [1, np.nan, 3, 4])


def test_codes_of_values_are_those_of_the_table(frame):
    x, columns = coded(frame)
    again = codes_of(columns, frame.drop(columns="born").assign(born=x[:, 5])[list(frame)].astype(object).to_numpy())
    torch.testing.assert_close(again, x, equal_nan=True, rtol=0, atol=0)


def test_an_unknown_category_is_no_code():
    columns = Columns(("town",), (("Bath", "York"),))
    assert codes_of(columns, np.array([["Leeds"], ["York"]], dtype=object))[:, 0].isnan().tolist() == [True, False]


def test_arrays_of_objects_and_of_numbers():
    x, columns = coded(np.array([[1, "a"], [2, "b"], [None, "a"]], dtype=object))
    assert columns.categories == ((), ("a", "b"))
    np.testing.assert_array_equal(x, [[1, 0], [2, 1], [np.nan, 0]])
    x, columns = coded(np.arange(6.0).reshape(3, 2))
    assert columns == Columns((), ((), ()))
    np.testing.assert_array_equal(x, np.arange(6.0).reshape(3, 2))


@pytest.mark.parametrize("X", [np.zeros(3), np.zeros((0, 2)), pd.DataFrame({"a": []})])
def test_no_table(X):
    with pytest.raises(ValueError, match="audit: "):
        coded(X)


def test_a_blind_guess_does_not_see_the_missing_row(frame):
    x, columns = coded(frame)
    blind = columns.blind(x, torch.arange(4))
    assert blind[0, 0] == pytest.approx((41 + 30 + 55) / 3)
    assert blind[1, 1] == pytest.approx((1.5 + 2.5 + 3.0) / 3)
    changed = x.clone()
    changed[0] = torch.tensor([1e6, 7.0, 1, 1, 1, 0, 1, 9])
    torch.testing.assert_close(columns.blind(changed, torch.tensor([0])), blind[:1], equal_nan=True)


def test_cells_as_their_owner_writes_them(frame):
    x, columns = coded(frame)
    assert [columns.text(j, float(x[2, j])) for j in (0, 1, 2, 3)] == ["30", "2.5", "missing", "False"]


def test_true_and_false_come_back_from_numbers_with_rounding_errors():
    columns = coded(pd.DataFrame({"smokes": [True, False, True]}))[1]
    rebuilt = np.array([[1.0000000000000002], [-1e-17], [np.nan], [True]], dtype=object)
    codes = codes_of(columns, rebuilt)[:, 0]
    assert codes.nan_to_num(nan=-1).tolist() == [0, 1, -1, 0]
