import pytest

import lostwax as lw


@pytest.mark.parametrize("attack", [lw.KernelRidge, lw.RecoNN])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shadows": "5"}, "expected shadows to be a whole number, or None, got '5'"),
        ({"shadows": 5.5}, "expected shadows to be a whole number, or None, got 5.5"),
        ({"shadows": 3}, "expected shadows >= 4, or None, got 3"),
        ({"validation": "0.1"}, "expected validation to be a number, got '0.1'"),
        ({"validation": 1}, r"expected validation in \(0, 1\), got 1"),
    ],
)
def test_settings_are_checked(attack, settings, words):
    with pytest.raises(ValueError, match=f"{attack.__name__}: {words}"):
        attack(**settings)
