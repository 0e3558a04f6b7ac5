"""Every Python block in README and docs runs, and so does every example, and every command of the tutorial."""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from lostwax.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_snippets_run(page, tmp_path, monkeypatch):
    """The blocks of a page are one program, run from top to bottom."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, block in enumerate(blocks(page)):
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


SLOW = ("03_fine_tuned_head.py",)  # half a minute
EACH = [pytest.param(one, marks=pytest.mark.slow if one.name in SLOW else (), id=one.name) for one in EXAMPLES]


@pytest.mark.parametrize("example", EACH)
def test_examples_run(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#:]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text()):
        path = page.parent / (target[0] or target[1])
        assert path.exists(), f"{page.name} points to {path}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_headings_lead_somewhere(page):
    for target, heading in re.findall(r"\]\((?!https?:)([^)#:]*)#([^)]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        known = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
        assert heading in known, f"{page.name} points to #{heading} of {target or page.name}, which is not there"
