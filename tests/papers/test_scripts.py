"""The scripts of S1 run from end to end on a stand-in for MNIST: digits enlarged to 28 x 28, in files of its name."""

import runpy
import shutil
import sys

import numpy as np
import pytest
import torch

import lostwax as lw
from lostwax.reports.results import read_rows

SIZES = "--known 20 --shadows 30 --targets 6 --width 16 --epochs 2"
# script -> what is asked for, and how many numbers come of it
RUNS = {
    "s1_table2": (f"{SIZES} --rows logits", 1 + 4),
    "s1_figure6": (f"{SIZES} --rows letters --members 2", 1 + 4),
    "s1_figure7": (f"{SIZES} --rows 0.2_512_private", 1 + 4),
    "s1_figure11": (f"{SIZES} --rows losses refit", 4),
    "s1_figure12": (f"{SIZES} --shadows 150 --rows 100", 1 + 4 + 3 * 4),
    "s1_figure13": (f"{SIZES} --shadows 50 --rows warm", 1 + 1 + 4),
    "s1_figure21": (SIZES, 1 + 4 + 2),
    "s1_figure22": (f"{SIZES} --rows relu", 4),
}
ONLY_HELP = ("s1_table3", "s1_table4", "s1_figure5", "s1_figure17")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Digits as MNIST, and as letters."""
    folder = tmp_path_factory.mktemp("data")
    small = lw.records.digits()
    images = torch.nn.functional.interpolate(small.x, size=28, mode="bilinear")[:, 0].mul(255).byte().numpy()
    np.savez(folder / "mnist.npz", images=images, labels=small.y.numpy(), split=small.y.numpy() * 0)
    shutil.copy(folder / "mnist.npz", folder / "emnist_letters_part.npz")
    return folder


@pytest.fixture
def papers(root, tmp_path, monkeypatch):
    """A copy of the scripts, for results are written beside them; its victims take ten steps."""
    copy = shutil.copytree(
        root / "papers", tmp_path / "papers", ignore=shutil.ignore_patterns("results", "__pycache__")
    )
    setup = copy / "s1_mnist.py"
    setup.write_text(setup.read_text().replace("steps=100", "steps=10"))
    monkeypatch.syspath_prepend(copy)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    precision = torch.get_float32_matmul_precision()
    yield copy
    torch.set_float32_matmul_precision(precision)
    sys.modules.pop("s1_mnist", None)


def run(script, words, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script.name, *words.split()])
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("name", RUNS)
def test_the_numbers_asked_for_are_written(name, papers, data, monkeypatch):
    words, count = RUNS[name]
    run(papers / f"{name}.py", f"{words} --data {data}", monkeypatch)
    rows = read_rows(papers / "results" / f"{name}.json")
    assert len(rows) == count
    assert all(np.isfinite(row.value) and row.seed == 0 for row in rows)
    assert all(row.low <= row.value <= row.high for row in rows if row.low is not None)


@pytest.mark.parametrize("name", ONLY_HELP)
def test_help_names_the_rows(name, papers, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="0"):
        run(papers / f"{name}.py", "--help", monkeypatch)
    rows = runpy.run_path(str(papers / f"{name}.py"))["GAMES"]
    help_text = capsys.readouterr().out.replace("\n", " ")
    assert all(row in help_text for row in rows)


def test_every_script_is_tried(root):
    scripts = {path.stem for path in (root / "papers").glob("s1_*.py")} - {"s1_mnist"}
    assert scripts == {*RUNS, *ONLY_HELP}, "name a new script in RUNS, or, where it takes long, in ONLY_HELP"
