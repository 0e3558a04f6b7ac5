"""Reports in a real browser: they open from a file, ask nobody, and do what they show."""

import os
import shutil

import numpy as np
import pytest

import lostwax as lw
from reports.conftest import NASTY

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("no Chromium in CI: `make chromium` installs it")
    if path is None:
        pytest.skip("no Chromium: install it with the system's package manager to test reports in a browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def artefacts(root):
    """Screenshots are kept to be looked at."""
    folder = root / "artefacts"
    folder.mkdir(exist_ok=True)
    return folder


class Opened:
    """A page, and all that it said and asked for."""

    def __init__(self, browser, path, **settings):
        self.said, self.asked = [], []
        self.page = browser.new_context(viewport={"width": 1200, "height": 900}, **settings).new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def colour(self, what="backgroundColor"):
        return self.page.evaluate(f"getComputedStyle(document.documentElement).{what}")

    def slide(self, value):
        self.page.eval_on_selector(
            "#threshold",
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }",
            value,
        )


@pytest.fixture(scope="module")
def folders(tmp_path_factory, audit_of):
    """A report of each of four kinds."""
    kinds = ("of_pictures", "by_accident", "under_a_ceiling", "held_by_neurons")
    return {kind: lw.report(audit_of(kind), tmp_path_factory.mktemp(kind)) for kind in kinds}


@pytest.mark.parametrize("kind", ["of_pictures", "by_accident", "under_a_ceiling", "held_by_neurons"])
def test_opens_from_a_file_and_asks_nobody(kind, browser, folders, artefacts):
    opened = Opened(browser, folders[kind])
    assert opened.said == []
    assert {url.split(":")[0] for url in opened.asked} <= {"file", "data"}
    assert [url for url in opened.asked if url.startswith("file:")] == [folders[kind].resolve().as_uri()]
    assert opened.page.title() != "owned"
    opened.page.screenshot(path=artefacts / f"report_{kind}.png", full_page=True)
    widths = opened.page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
    assert all(width > 0 for width in widths)
    assert bool(widths) == (kind != "by_accident")
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if kind == "by_accident":
        assert NASTY in opened.page.inner_text("main")


def test_the_slider_counts_as_numpy_does(browser, folders, audit_of):
    audit = audit_of("of_pictures")
    errors = audit.findings[0].errors[audit.criterion]
    opened = Opened(browser, folders["of_pictures"])
    page = opened.page
    assert page.inner_text("#count") == f"{int(audit.findings[0].rebuilt.sum())} of 120"
    data = page.evaluate("JSON.parse(document.getElementById('games').textContent)")
    start = page.eval_on_selector("#errors-threshold", "line => line.getBoundingClientRect().x")
    for value in (200, 500, 750, 1_000):
        opened.slide(value)
        limit = 10 ** (data["low"] + value / 1_000 * (data["high"] - data["low"]))
        assert page.inner_text("#count") == f"{int((errors <= limit).sum())} of 120"
        marked = page.eval_on_selector_all(".pair.counts", "pairs => pairs.map(pair => Number(pair.dataset.error))")
        shown = page.eval_on_selector_all(".pair", "pairs => pairs.map(pair => Number(pair.dataset.error))")
        assert marked == [error for error in shown if error <= limit]
        moved = page.eval_on_selector("#errors-threshold", "line => line.getBoundingClientRect().x") - start
        assert moved == pytest.approx(_pixels(page, np.log10(limit / audit.threshold)), abs=1.5)
    page.click("#reset")
    assert page.inner_text("#limit") == "0.05"


def _pixels(page, decades):
    """How far apart two thresholds lie in the drawing, by the labels of its axis."""
    ticks = page.eval_on_selector_all(
        "#errors-matplotlib\\.axis_1 use", "ticks => ticks.map(tick => tick.getBoundingClientRect().x)"
    )
    return decades * (ticks[1] - ticks[0])


def test_both_themes_and_the_toggle(browser, folders, artefacts):
    light = Opened(browser, folders["of_pictures"], color_scheme="light")
    dark = Opened(browser, folders["of_pictures"], color_scheme="dark")
    dark.page.screenshot(path=artefacts / "report_dark.png", full_page=True)
    assert brightness(light.colour()) > 200 > 60 > brightness(dark.colour())
    assert brightness(light.colour("color")) < 60 < 200 < brightness(dark.colour("color"))
    text = "getComputedStyle(document.querySelector('.chart text')).fill"
    assert brightness(dark.page.evaluate(text)) > brightness(dark.colour()) + 80
    assert brightness(light.page.evaluate(text)) < brightness(light.colour()) - 80
    dark.page.click("#theme")
    assert dark.colour() == light.colour()
    dark.page.click("#theme")
    assert brightness(dark.colour()) < 60


def brightness(colour):
    return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")) / 3


def test_on_paper(browser, folders, artefacts):
    opened = Opened(browser, folders["of_pictures"], color_scheme="dark")
    opened.page.emulate_media(media="print")
    assert opened.colour() == "rgb(255, 255, 255)"
    assert not opened.page.is_visible(".slider")
    assert opened.page.is_visible(".static")
    pdf = opened.page.pdf(path=artefacts / "report.pdf", format="A4")
    assert pdf.startswith(b"%PDF")


def test_on_a_telephone_and_without_script(browser, folders, artefacts):
    opened = Opened(browser, folders["of_pictures"], java_script_enabled=False)
    opened.page.set_viewport_size({"width": 390, "height": 844})
    assert opened.page.is_visible(".static")
    assert not opened.page.is_visible(".slider")
    assert not opened.page.is_visible("#theme")
    body = opened.page.locator("body").bounding_box()
    assert body["width"] <= 390
    opened.page.screenshot(path=artefacts / "report_phone.png", full_page=True)
