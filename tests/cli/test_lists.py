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


def test_every_attack_has_a_row_and_every_empty_cell_an_objection(capsys):
    text = listed("attacks", capsys)
    for table in text.split("\n\nBy trainer"):
        rows, reasons = table.split("\n\n", 1)
        numbers = set(re.findall(r"\[\d+\]", rows))
        assert numbers
        assert numbers == set(re.findall(r"^\[\d+\]", reasons, flags=re.MULTILINE))
        for attack in ("ClosedForm", "Newton", "Ensemble", "RecoNN", "Refit", "NearestCandidate"):
            assert re.search(rf"^{attack} ", rows, flags=re.MULTILINE)
    assert "Informed(candidates)" in text


@pytest.mark.parametrize(
    ("what", "some"),
    [
        ("trainers", ["GD", "SGD", "Adam", "Optimum", "Defended", "OwnTraining"]),
        ("metrics", ["MSE", "SSIM", "LPIPS"]),
        ("bounds", ["bound", "calibrate", "BallsInBins", "log_kappa_ball"]),
    ],
)
def test_names_with_a_line_each(what, some, capsys):
    text = listed(what, capsys)
    assert all(len(line) <= 120 for line in text.splitlines())
    lines = re.sub(r"\n +", " ", text).splitlines()  # without the wrapping
    names = {line.split()[0] for line in lines}
    assert set(some) <= names
    assert all(len(line.split()) > 3 for line in lines)
    if what == "bounds":
        assert all(hasattr(lostwax.bounds, name) for name in names)


def test_reasons_are_about_the_attack_and_never_about_the_example(capsys):
    """WeakRecoNN applies to Weak; an example that its training sets cannot be drawn from would say otherwise."""
    text = listed("attacks", capsys)
    assert "Weak.deal" not in text
    first = text.split("\n\n")[0].splitlines()
    row = next(line for line in first if line.startswith("WeakRecoNN "))
    columns = re.split(r"\s{2,}", first[1].strip())
    assert dict(zip(columns, row.split()[1:], strict=True))["Weak,"] == "yes"  # and, below it, Weak(per_class)
    assert first[2].endswith("Weak(per_class)")
    assert " yes" in next(line for line in text.split("By trainer")[1].splitlines() if line.startswith("WeakRecoNN "))
