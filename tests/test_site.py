"""The documentation as a site: built strictly, complete, and read without a network."""

import dataclasses
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import lostwax as lw

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def documented(site):
    """The names that have a place in the reference."""
    pages = (page.read_text() for page in (site / "reference").glob("*.html"))
    return {name for page in pages for name in re.findall(r'id="(lostwax[\w.]*)"', page)}


def public(module):
    """Names of a module that users may use: its own list, or what it defines without an underscore."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = ((name, value) for name, value in vars(module).items() if not name.startswith("_"))
    return [name for name, value in own if getattr(value, "__module__", None) == module.__name__]


def public_objects():
    """(place in the reference, object) of every public name of lostwax and its rooms, and of rooms within them."""
    waiting, seen = [lw], set()
    while waiting:
        module = waiting.pop()
        for name in public(module):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                if value.__name__ not in seen:
                    seen.add(value.__name__)
                    waiting.append(value)
            elif name != "__version__":
                yield f"{lw._HOME[name] if module is lw else module.__name__}.{name}", value


def home(value):
    """Where it is defined: the place of a function that shares its name with its module."""
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__name__', None)}"


OBJECTS = dict(public_objects())


def test_every_public_name_is_in_the_reference(documented):
    assert len(OBJECTS) > 150
    missing = {place for place, value in OBJECTS.items() if not {place, home(value)} & documented}
    assert not sorted(missing)


def test_every_field_is_in_the_reference(documented):
    kinds = {place: kind for place, kind in OBJECTS.items() if inspect.isclass(kind)}
    fields = {
        f"{place}.{name}"
        for place, kind in kinds.items()
        for name in [
            *(field.name for field in (dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ())),
            *getattr(kind, "_fields", ()),
        ]
        if not name.startswith("_")
    }
    assert len(fields) > 300
    assert not sorted(fields - documented)


def test_every_argument_is_in_the_reference(site):
    """A function's arguments are in its signature; the comment beside a field is its description."""
    verbs = (site / "reference" / "verbs.html").read_text()
    text = re.sub(r"<[^>]+>", "", verbs)
    assert all(name in text for name in inspect.signature(lw.audit).parameters)
    assert "Number of records to attack, drawn by" in text
    assert "What the adversary knows, in words." in (site / "reference" / "audits.html").read_text()


def test_every_page_is_in_the_navigation(site):
    """Except for what other pages link to outside docs/."""
    home = (site / "index.html").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert f'href="{address}"' in home or address == "index.html", f"add {page.name} to the nav of mkdocs.yml"


def test_results_and_papers_have_their_tables(site):
    """They are built from the results, and are not in docs/."""
    results, papers = ((site / f"{name}.html").read_text() for name in ("results", "papers"))
    assert 'id="paperss1_table2"' in results
    assert results.count("<tr>") > 5_000
    assert "Of their 2" in papers
    assert papers.count("<tr>") > 400


def test_the_reference_on_a_git_host_lists_every_name():
    page = (ROOT / "docs" / "reference" / "index.md").read_text()
    missing = [name for name in lw.__all__ if name != "__version__" and f"`lw.{name}`" not in page]
    assert not missing


def test_pages_load_nothing_from_elsewhere(site):
    loads = re.compile(r'<(?:script|img|iframe|link(?! rel="canonical"))[^>]*(?:src|href)="?(?:https?:)?//[^">\s]*')
    for page in site.rglob("*.html"):
        assert not loads.findall(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not re.findall(r"@import[^;]*//|url\(['\"]?(?:https?:)?//[^)]*\)", style.read_text()), style


def test_pages_open_and_search_from_a_folder(site):
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    asked, said = [], []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: said.append(str(error)))
        for name in ("index", "concepts", "notebooks/net", "reference/attacks"):
            page.goto(f"file://{site}/{name}.html")
        page.click("input[name=query]")
        page.keyboard.type("calibrate")
        found = page.locator(".md-search-result__item").first
        found.wait_for(timeout=20_000)
        assert "noise" in page.locator(".md-search-result__list").inner_text().lower()
        browser.close()
    assert not said
    assert all(url.startswith(("file:", "data:", "blob:", "about:")) for url in asked)


def test_the_pictures_are_what_the_script_draws_from_measured_numbers():
    spec = importlib.util.spec_from_file_location("concept_pictures", ROOT / "tools" / "concept_pictures.py")
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    for name in drawing.PICTURES:
        assert (ROOT / "docs" / "figures" / f"concept_{name}.svg").read_text() == drawing.picture(name)
    page = (ROOT / "docs" / "dpsgd.md").read_text()
    for line, numbers in (("ceiling", drawing.CEILING), ("`PriorAware()`", drawing.ATTACK)):
        assert f"| {line} | {' | '.join(f'{number:.3f}' for number in numbers)} |" in page
