"""Every Python block in README and docs runs, and so does every example, and every command of the tutorial.

What takes long runs with fewer records, models and steps here (`SMALLER`), and as it is printed in the slow suite.
"""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from links import dead_links
from lostwax.cli import main
from lostwax_dev import coverage, results

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BUILT = {"results.md": results.page, "papers.md": coverage.page}  # what the site shows there
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


SMALLER = {  # of a page or an example: what is printed, and what is run instead
    "tables.md": (("200)", "60)"), ("Outputs(), max_minutes=1", "Outputs(), games=5, max_minutes=1")),
    "nets.md": (("epochs=10", "epochs=2"), ("split(30, 60, 20", "split(30, 40, 8"), ("games=8", "games=3")),
    "mnemonist.md": (
        ("split(300, 300, 30", "split(100, 100, 12"),
        ("secrets, 30", "secrets, 12"),
        ("steps=40", "steps=8"),
    ),
    "weak.md": (("split(1_000, 700", "split(300, 400"), ("steps=100", "steps=10"), ("steps=32", "steps=8")),
    "recipes.md": (("epochs=5", "epochs=1"), ("epochs=20", "epochs=2"), ("range(3)", "range(2)")),
    "trees.md": (("Regressor(random_state", "Regressor(20, random_state"), ("games=50", "games=10")),
    "reconn.md": (("split(300, 200, 20", "split(200, 60, 20"), ("epochs=20", "epochs=2"), ("epochs=10", "epochs=2")),
    "newton.md": (("digits[1000:1004]", "digits[1000:1001]"),),
    "extending.md": (("split(100, 200, 20", "split(100, 60, 20"), ("steps=20", "steps=5"), ("games=2", "games=1")),
    "kernel_ridge.md": (("split(300, 300, 20", "split(100, 100, 8"), ("steps=100", "steps=20")),
    "06_erased.py": (
        ("range(8)", "range(2)"),
        ("X[order[:1_197]], y[order[:1_197]]", "X[order[:300]], y[order[:300]]"),
    ),
    "02_linear_head.py": (("split(1_000,", "split(200,"), ("games=10", "games=3")),
    "05_what_protects.py": (
        ("split(300, 100, 60, 600, 300, 300", "split(60, 30, 20, 100, 60, 60"),
        ("steps=30", "steps=5"),
        ("(2.0, 5.0, 10.0, 20.0, 40.0)", "(2.0, 5.0)"),
    ),
}
SLOW = ("03_fine_tuned_head.py",)  # half a minute


def sized(paths):
    """Each path, small if it is among `SMALLER`; and as printed, in the slow suite if it takes long."""
    for path in paths:
        if path.name in SMALLER:
            yield pytest.param(path, True, id=f"{path.name}, smaller")
        slow = path.name in SMALLER or path.name in SLOW
        yield pytest.param(path, False, id=path.name, marks=pytest.mark.slow if slow else ())


def smaller(name, text):
    for printed, small in SMALLER[name]:
        assert printed in text, f"{name} does not hold {printed}: mend SMALLER"
        text = text.replace(printed, small)
    return text


@pytest.mark.parametrize(("page", "small"), list(sized(page for page in PAGES if blocks(page))))
def test_snippets_run(page, small, tmp_path, monkeypatch):
    """The blocks of a page are one program, run from top to bottom."""
    monkeypatch.chdir(tmp_path)
    program = "\0".join(blocks(page))
    names = {}
    for number, block in enumerate((smaller(page.name, program) if small else program).split("\0")):
        exec(compile(block, f"{page.name}, block {number}", "exec"), names)


@pytest.mark.parametrize("attack", ["lw.Newton()", pytest.param(None, marks=pytest.mark.slow)], ids=["quick", "whole"])
def test_the_tutorial_can_be_followed(tmp_path, monkeypatch, attack):
    """From top to bottom: a block that begins with a file's name is that file, a shell block is run line by line.

    The net is attacked by all attacks that apply, which takes more than a minute; quickly, by one in two games.
    """
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "tutorial.md").read_text()
    for kind, block in re.findall(r"^```(python|toml|sh)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind != "sh":
            Path(block.splitlines()[0].removeprefix("# ")).write_text(block)
            continue
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            expected = re.search(r"# exit code (\d)", line)
            assert words[0] == "lostwax"
            assert main(words[1:]) == (int(expected[1]) if expected else 0), line
            if attack and words[1:3] == ["init", "torch"]:
                recipe = Path(words[-1]).read_text()
                assert "games = 10\n" in recipe
                Path(words[-1]).write_text(recipe.replace("games = 10\n", f"games = 2\nattack = {attack}\n"))


@pytest.mark.parametrize(("example", "small"), list(sized(EXAMPLES)))
def test_examples_run(example, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = tmp_path / example.name
    program.write_text(smaller(example.name, example.read_text()) if small else example.read_text())
    runpy.run_path(str(program), run_name="__main__")


def test_no_page_waits_for_numbers():
    for page in PAGES:
        assert re.findall(r"@@|^(?:RESULTS|NUMBERS|TODO)\b.*$", page.read_text(), re.MULTILINE) == [], page.name


def test_links_lead_somewhere():
    assert [link for page in PAGES for link in dead_links(page)] == []


def test_links_to_headings_lead_somewhere():
    for page in PAGES:
        for target, heading in re.findall(r"\]\((?!https?:)([^)#:]*)#([^)]+)\)", page.read_text()):
            text = BUILT[target](ROOT) if target in BUILT else (page.parent / target if target else page).read_text()
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            known = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
            assert heading in known, f"{page.name} points to #{heading} of {target or page.name}, which is not there"


def test_the_map_names_files_that_exist():
    names = set(re.findall(r"[\w/]+\.py\b", (ROOT / "docs" / "design.md").read_text()))
    files = {
        path.as_posix() for folder in ("src", "tools", "tests", "papers") for path in (ROOT / folder).rglob("*.py")
    }
    assert [name for name in sorted(names) if not any(file.endswith(f"/{name}") for file in files)] == []
