import pytest

from lostwax.bounds import bound, fano_advantage

GUO = {  # S3 Table 2
    10: [0.976, 0.593, 0.380, 0.274, 0.213, 0.174],
    100: [0.861, 0.346, 0.195, 0.131, 0.097, 0.076],
}
NOISES = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("size", [10, 100])
def test_table_2_to_three_decimals(size):
    values = [fano_advantage([1 / size] * size, noise) for noise in NOISES]
    assert values == pytest.approx(GUO[size], abs=5.1e-4)


@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("noise", NOISES)
def test_it_lies_above_the_exact_advantage(size, noise):
    assert bound(noise_multiplier=noise, baseline=1 / size).advantage <= fano_advantage([1 / size] * size, noise)


def test_limits():
    assert fano_advantage([0.5, 0.5], 1e6) < 1e-2
    assert fano_advantage([0.5, 0.5], 1e-3) == 1.0
    assert fano_advantage([0.7, 0.2, 0.1], 1.0) <= 1
