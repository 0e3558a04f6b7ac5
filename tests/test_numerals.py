import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lostwax.numerals import RAISED, at_most, number, percent, power


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.05, "0.05"),
        (0.0132, "0.013"),
        (1.0, "1"),
        (17.6, "18"),
        (1234.5, "1,234"),
        (4.21e-9, "4.2×10⁻⁹"),
        (-0.5, "−0.5"),
        (-2e-7, "−2.0×10⁻⁷"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "?"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text


@given(st.floats(-1e300, 1e300))
def test_a_number_can_be_read_back(value):
    digits, _, exponent = number(value).replace(",", "").replace("−", "-").partition("×10")
    lowered = exponent.translate({raised: plain for plain, raised in RAISED.items()})
    assert float(f"{digits}e{lowered or 0}") == pytest.approx(value, rel=0.06, abs=5e-324)


@given(st.floats(0, 1))
def test_some_are_never_none_and_never_all(share):
    text = percent(share)
    assert (text.startswith("0\N{NO-BREAK SPACE}")) == (share == 0)
    assert (text.startswith("100")) == (share == 1)


def test_percent():
    texts = [percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in (0, 0.004, 0.05, 0.123, 0.956, 0.99999, 1)]
    assert texts == ["0 %", "0.4 %", "5 %", "12 %", "95.6 %", "99.9 %", "100 %"]


def test_powers():
    assert [power(value) for value in (1e-14, 1e-3, 0.1, 1.0, 1e5)] == ["10⁻¹⁴", "0.001", "0.1", "1", "10⁵"]


@given(st.floats(1e-300, 1))
def test_a_limit_is_never_rounded_down(share):
    shown = float(at_most(share).removesuffix("\N{NO-BREAK SPACE}%")) / 100
    assert share * (1 - 1e-9) <= shown <= 1.011 * share
