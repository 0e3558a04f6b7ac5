"""Every Python block in README and docs runs, and every example does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_examples_run(example, tmp_path):
    subprocess.run([sys.executable, example], cwd=tmp_path, check=True, capture_output=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)|src=\"([^\"]+)\"", page.read_text()):
        path = page.parent / (target[0] or target[1])
        assert path.exists(), f"{page.name} points to {path}, which is not there"
