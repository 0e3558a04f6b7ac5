"""The notebooks run, and hold outputs that may be shown."""

import importlib.util
import json
import re

import pytest

NOTEBOOKS = ("dp", "erasure", "head", "net", "table")


@pytest.fixture
def folder(root):
    return root / "examples" / "notebooks"


def test_all_are_tested(folder):
    assert tuple(sorted(path.stem for path in folder.glob("*.ipynb"))) == NOTEBOOKS


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_outputs_are_whole_and_name_no_machine(folder, name):
    """`make notebooks` writes them: every cell was run, in order, without errors, and no path or warning is kept."""
    text = (folder / f"{name}.ipynb").read_text()
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not re.search(r"site-packages|/home/|/root/|/tmp/|Warning:|stderr", text)
    assert len(text) < 100_000


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_it_runs(root, folder, name, tmp_path):
    pytest.importorskip("nbclient")
    spec = importlib.util.spec_from_file_location("run_notebooks", root / "tools" / "run_notebooks.py")
    run_notebooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run_notebooks)
    stored = json.loads((folder / f"{name}.ipynb").read_text())
    executed = run_notebooks.executed(folder / f"{name}.ipynb", tmp_path)
    for old, new in zip(stored["cells"], executed.cells, strict=True):
        kinds = [[output["output_type"] for output in cell.get("outputs", [])] for cell in (old, new)]
        assert kinds[0] == kinds[1], "the stored outputs are of another version: make notebooks"
