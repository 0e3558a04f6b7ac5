import math
from dataclasses import replace

import pytest

from lostwax.bounds import Ceiling, bound


def test_probabilities_follow_from_the_logs():
    ceiling = Ceiling(math.log(0.2), math.log(0.25), math.log(0.1), "test")
    assert ceiling.lower == pytest.approx(0.2)
    assert ceiling.upper == pytest.approx(0.25)
    assert ceiling.baseline == pytest.approx(0.1)
    assert ceiling.amplification == pytest.approx(2.5)
    assert ceiling.advantage == pytest.approx(0.15 / 0.9)
    assert ceiling.relative_width == pytest.approx(0.2)


def test_underflow_and_overflow_stay_on_the_safe_side():
    ceiling = Ceiling(-5000.0, -4000.0, -5000.0, "test")
    assert 0 < ceiling.upper < 1e-300
    assert ceiling.lower == 0
    assert ceiling.amplification == math.inf
    assert ceiling.log_amplification == 1000
    assert "e-1738" in str(ceiling)


def test_it_reads_as_a_sentence():
    text = str(bound(noise_multiplier=1.0, baseline=0.1))
    assert text.startswith("success 0.38914 (blind guess 0.1, 3.8914 times that; certified")  # both ends
    apart = Ceiling(math.log(0.2), math.log(0.4), math.log(0.1), "test", certified=False, estimate=0.3)
    assert str(apart).startswith("success estimated between 0.2 and 0.4 (blind guess 0.1, 4 times that; not certified")


def test_a_limit_of_the_blind_guess_is_called_one():
    limited = replace(bound(noise_multiplier=1.0, baseline=0.1), certified=False, method="read off a sample")
    assert limited.blind_at_most
    assert limited.sentence == "success at most 0.38914 (blind guess at most 0.1; not certified, read off a sample)"
    assert not replace(limited, estimate=0.3).blind_at_most


def test_it_is_broken_beyond_three_standard_errors():
    ceiling = bound(noise_multiplier=4.0, steps=4, baseline=0.25)
    for games in (1_000, 100_000):
        mean, spread = games * ceiling.upper, (games * ceiling.upper * (1 - ceiling.upper)) ** 0.5
        assert not ceiling.broken_by(round(mean + 2.8 * spread), games)
        assert ceiling.broken_by(round(mean + 3.2 * spread), games)
    assert not ceiling.broken_by(3, 3)
    assert not ceiling.broken_by(0, 10)
