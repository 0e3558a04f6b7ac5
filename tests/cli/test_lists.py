import re

import pytest

import lostwax
from lostwax.cli import main


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch):
    """In a narrow one, titles are folded; tests/audits/test_text.py looks at that."""
    monkeypatch.setenv("COLUMNS", "120")


def listed(what, capsys):
    assert main(["list", what]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "some"),
    [
        ("attacks", ["ClosedForm", "Newton", "Ensemble", "RecoNN", "Refit", "NearestCandidate"]),
        ("trainers", ["GD", "SGD", "Adam", "Optimum", "Defended", "OwnTraining"]),
        ("metrics", ["MSE", "SSIM", "LPIPS"]),
        ("bounds", ["bound", "calibrate", "BallsInBins", "log_kappa_ball"]),
    ],
)
def test_names_with_a_line_each(what, some, capsys):
    text = listed(what, capsys).split("\n\n")[0]
    assert all(len(line) <= 120 for line in text.splitlines())
    lines = re.sub(r"\n +", " ", text).splitlines()  # without the wrapping
    names = {line.split()[0] for line in lines}
    assert set(some) <= names
    assert all(len(line.split()) > 3 for line in lines)
    if what == "bounds":
        assert all(hasattr(lostwax.bounds, name) for name in names)
