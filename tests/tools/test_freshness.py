"""A result knows which code made it, and is marked when that code changes."""

import json
import subprocess
import sys

import pytest

from lostwax_dev import freshness
from lostwax_dev.freshness import changed, code_of, commit_of, essence, state
from lostwax_dev.results import Row, outdated, read_rows, tables, write_rows


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A package of two rooms and a script that imports one of them, and a helper beside it."""
    package = tmp_path / "src" / "lostwax"
    for room, module in (("attacks", "used"), ("attacks", "unused"), ("reports", "shown")):
        (package / room).mkdir(parents=True, exist_ok=True)
        (package / room / f"{module}.py").write_text("answer = 1\n")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "script.py").write_text('"""A script."""\n\nimport helper\n')
    (tmp_path / "papers" / "helper.py").write_text("size = 3\n")
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(freshness.lostwax, "__file__", str(package / "__init__.py"))
    loaded = {"used": package / "attacks" / "used.py", "shown": package / "reports" / "shown.py"}
    loaded["helper"] = tmp_path / "papers" / "helper.py"
    for name, path in loaded.items():
        module = type(sys)(f"loaded_{name}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, f"loaded_{name}", module)
    return tmp_path


def test_the_code_is_the_script_what_it_imports_and_the_modules_of_the_package(repository):
    code = code_of(repository / "papers" / "script.py")
    assert [(part.folder, part.files) for part in code] == [
        ("papers", ("helper.py", "script.py")),
        ("src/lostwax/attacks", ("used.py",)),
    ]
    assert state(code, repository) == ""


def test_only_a_change_of_that_code_marks_a_result(repository):
    code = code_of(repository / "papers" / "script.py")
    attacks = repository / "src" / "lostwax" / "attacks"
    (attacks / "unused.py").write_text("answer = 2\n")
    (repository / "src" / "lostwax" / "reports" / "shown.py").write_text("answer = 2\n")
    (attacks / "used.py").write_text('"""Words."""\n\nanswer = 1  # and more of them\n')
    assert changed(code, repository) == []
    (attacks / "used.py").write_text("answer = 2\n")
    assert changed(code, repository) == ["src/lostwax/attacks"]
    (repository / "papers" / "helper.py").unlink()
    assert changed(code, repository) == ["papers", "src/lostwax/attacks"]
    assert state(code, repository) == "earlier code"
    assert state(None, repository) == "unknown code"


def test_the_page_marks_the_rows_of_earlier_code(repository):
    script = repository / "papers" / "script.py"
    write_rows(str(script), [Row("old", "old", 1.0)])
    before = tables(repository)
    assert "earlier code |" not in before
    (repository / "papers" / "helper.py").write_text("size = 4\n")
    path = write_rows(str(script), [Row("new", "new", 2.0)], keep_others=True)
    text = tables(repository)
    assert [line.endswith("; earlier code |") for line in text.splitlines() if line.startswith(("| old", "| new"))] == [
        True,
        False,
    ]
    assert outdated(repository) == ["papers/script: 1 of 2 rows; papers"]
    assert len(json.loads(path.read_text())["code"]) == 2
    assert len({row.code for row in read_rows(path)}) == 2


def test_rows_that_are_written_again_stay_what_they_were(repository):
    script = repository / "papers" / "script.py"
    path = write_rows(str(script), [Row("a", "first", 1.0)])
    (first,) = read_rows(path)
    old = json.loads(path.read_text())["rows"]
    path.write_text(json.dumps([{name: value for name, value in old[0].items() if name not in {"commit", "code"}}]))
    (older,) = read_rows(path)
    assert (older.code, older.commit, older.version) == (None, None, first.version)
    (repository / "papers" / "helper.py").write_text("size = 4\n")
    write_rows(str(script), [older, first.__class__("b", "second", 2.0)])
    assert [row.code is None for row in read_rows(path)] == [True, False]


@pytest.mark.parametrize(
    "other",
    ["x = 1\ny = 2", "x = 1  # why\n\n\ny = 2\n", '"""Words."""\nx = 1\ny = 2\n', "# é\nx = 1\ny = 2  \n"],
)
def test_words_are_not_code(other):
    assert essence(other) == "x = 1\ny = 2"


def test_what_is_not_a_docstring_counts():
    assert essence('def f(): """Words."""; return 1\n') != essence('def f(): """Words."""; return 2\n')
    assert essence('x = "# not a comment"\n') == 'x = "# not a comment"'
    assert essence('def f():\n    """é\n    Words."""\n    return 1\n') == "def f():\n    return 1"
    assert essence('x = """a"""\n') != essence('x = """b"""\n')


def test_the_commit_says_whether_the_code_was_edited(tmp_path):
    def git(*words):
        person = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *person, *words], check=True, capture_output=True)

    script = tmp_path / "papers" / "script.py"
    script.parent.mkdir()
    script.write_text("x = 1\n")
    assert commit_of(script) is None
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    commit = commit_of(script)
    assert len(commit) == 10
    (tmp_path / "papers" / "results.json").write_text("[]")
    assert commit_of(script) == commit  # results are not code
    script.write_text("x = 2\n")
    assert commit_of(script) == f"uncommitted on {commit}"
