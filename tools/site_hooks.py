"""What turns the pages, as a Git host shows them, into the site: hooks of mkdocs.

Pages link to files by their place in the repository. Here such links are led to the site's copy of the file, notebooks
become pages with the outputs that are stored in them, the pages of results and papers get their tables, and lists begin
where they do on a Git host.
"""

from __future__ import annotations

import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from lostwax_dev import coverage, results

ROOT = Path(__file__).parent.parent
NOTEBOOKS = "examples/notebooks/"
LINK = re.compile(r'(\]\(|src="|srcset=")(?!https?:|mailto:|#)([^)#"\s]+)')
ITEM = re.compile(r"([-*]|\d+\.) ")
ALSO = ("CHANGELOG.md", "SECURITY.md")  # in the navigation
TABLES = {"results.md": results.page, "papers.md": coverage.page}
NOT_SEARCHED = ("results.md", "repository/")  # tables of thousands of numbers, and what is not documentation


def site_uri(path: str) -> str:
    """The place in the site of a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(NOTEBOOKS):
        return f"notebooks/{Path(path).stem}.md"
    return {"README.md": "index.md"}.get(path, f"repository/{path}")


def repository_path(uri: str) -> str:
    """The other way round."""
    if uri.startswith("notebooks/"):
        return f"{NOTEBOOKS}{Path(uri).stem}.ipynb"
    return uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the tables of results, the notebooks, and what pages link to outside docs/."""
    for uri, with_tables in TABLES.items():
        files.src_uris[uri].content_string = with_tables(ROOT)
    for notebook in sorted((ROOT / NOTEBOOKS).glob("*.ipynb")):
        text, pictures = as_markdown(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for path in ALSO:
        files.append(File.generated(config, site_uri(path), content=(ROOT / path).read_bytes()))
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for _, target in LINK.findall(page.content_string):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(page.src_uri)), target))
            uri = site_uri(path)
            if uri.startswith("repository/") and uri not in files.src_uris and (ROOT / path).is_file():
                added = File.generated(config, uri, content=(ROOT / path).read_bytes())
                files.append(added)
                if added.is_documentation_page():
                    waiting.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to the site, and begin lists where a Git host does."""
    if page.file.src_uri.startswith(NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    here, there = posixpath.dirname(repository_path(page.file.src_uri)), posixpath.dirname(page.file.src_uri)

    def led(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, match[2]))
        if not (ROOT / path).is_file():  # a picture of a notebook; anything else is reported by the strict build
            return match[0]
        return match[1] + posixpath.relpath(site_uri(path), there or ".")

    return LINK.sub(led, with_lists(markdown)).replace("<details>", "<details markdown>")


def with_lists(markdown: str) -> str:
    """Empty lines that Python-Markdown needs: before each list that follows a paragraph, and after a comment."""
    lines: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        before = lines[-1] if lines else ""
        if not fenced and ITEM.match(line) and before.strip() and not ITEM.match(before) and before[0] != " ":
            lines.append("")
        fenced ^= line.startswith("```")
        lines += [line, ""] if line.startswith("<!--") else [line]
    return "\n".join(lines) + "\n"


def as_markdown(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """A notebook's cells and stored outputs, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    blocks = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        blocks.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            name = f"{notebook.stem}_{len(pictures)}.png"
            blocks.append(shown(output, name, pictures))
    return "\n\n".join(blocks) + "\n", pictures


def shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    """One output: a picture, HTML or text, whichever shows most."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    if "image/png" in data:
        pictures[name] = base64.b64decode("".join(data["image/png"]))
        return f"![Output of the cell above]({name})"
    if "text/html" in data:
        table = re.sub(
            r'<table[^>]*class="dataframe"[^>]*>', "<table>", "".join(data["text/html"])
        )  # the site's own style
        return f'<div class="output">{re.sub("<style scoped.*?</style>", "", table, flags=re.DOTALL)}</div>'
    return f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
