import pytest

from lostwax.reports.figures import draw_ceilings


@pytest.mark.parametrize("against", ["noise", "epsilon"])
def test_it_draws_a_file(tmp_path, against):
    path = draw_ceilings(
        tmp_path / "ceilings.png",
        baselines=[0.5, 0.1],
        sample_rate=0.1,
        steps=10,
        noise_multipliers=[1.0, 2.0],
        against=against,
    )
    assert path.read_bytes().startswith(b"\x89PNG")
