"""Every script that writes rows can write them elsewhere, and never replaces those of a larger run unasked."""

import runpy
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from lostwax_dev import results
from lostwax_dev.results import Row, parse, read_rows, write_rows

ROOT = Path(__file__).parents[2]
ROWLESS = {  # scripts that write no rows
    "benchmarks/refitted_intervals.py": "prints",
    "benchmarks/same_results.py": "compares two of its own files",
    "papers/s2_heads.py": "trains base models that others load",
    "papers/s4_cifar.py": "prints",
}
SCRIPTS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("papers", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if "__main__" in path.read_text()
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_where_rows_go(script, monkeypatch, capsys):
    """Its --help is asked, so that an option of a shared parser counts."""
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(sys, "path", [str((ROOT / script).parent), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    try:
        with pytest.raises(SystemExit):
            runpy.run_path(str(ROOT / script), run_name="__main__")
    except ImportError as error:
        pytest.skip(f"needs {error.name}")
    finally:
        for name in set(sys.modules) - before:  # the scripts that it imports
            if Path(getattr(sys.modules[name], "__file__", None) or "").parent == (ROOT / script).parent:
                del sys.modules[name]
    text = capsys.readouterr().out
    assert (" --out " in text and " --replace " in text) or script in ROWLESS, text


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A benchmark of 100 games by default, whose command line is read."""
    monkeypatch.setattr(results, "measured_now", lambda script: {"machine": "", "version": None})
    monkeypatch.setattr(results, "_RUN", Namespace())
    path = tmp_path / "benchmarks" / "speed.py"
    path.parent.mkdir()

    def run(*words, rows=("a", "b"), keep_others=False):
        monkeypatch.setattr(sys, "argv", ["speed.py", *words])
        parser = ArgumentParser()
        parser.add_argument("--games", type=int, default=100)
        vars(results._RUN).clear()
        parse(parser)
        written = [replace(Row(name, name, 1.0), seed=len(words)) for name in rows]
        return write_rows(str(path), written, keep_others=keep_others)

    return run


def test_a_smaller_run_leaves_the_rows_as_they_are(script, capsys):
    tracked = script()
    before = tracked.read_bytes()
    small = script("--games", "10")
    assert small.parts[-4:] == ("artefacts", "benchmarks", "results", "speed.json")
    assert "A smaller run (10 of 100 games)" in capsys.readouterr().out
    fewer = script(rows=["a"])
    assert fewer == small
    assert "1 of 2 rows would be lost, such as b" in capsys.readouterr().out
    assert tracked.read_bytes() == before
    assert script("--games", "10", "--replace") == tracked
    assert tracked.read_bytes() != before


def test_it_says_what_it_replaces(script, capsys, tmp_path):
    tracked = script()
    script(rows=["b", "c"], keep_others=True)
    assert f"{tracked}: replaces 1 rows, keeps 1 others." in capsys.readouterr().out
    assert [row.id for row in read_rows(tracked)] == ["a", "b", "c"]
    script("--replace", rows=["c"])
    assert f"{tracked}: replaces 1 rows, drops 2 others." in capsys.readouterr().out
    assert script("--out", str(tmp_path / "own"), "--games", "1") == tmp_path / "own" / "speed.json"
