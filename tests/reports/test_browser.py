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
    kinds = ("of_pictures", "by_accident", "under_a_ceiling")
    return {kind: lw.report(audit_of(kind), tmp_path_factory.mktemp(kind)) for kind in kinds}


@pytest.mark.parametrize("kind", ["of_pictures", "by_accident", "under_a_ceiling"])
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


A4, LETTER = 680, 702  # CSS pixels between the margins
SPILLS = """() => {
  const spills = (one) => {
    const { left, right } = one.getBoundingClientRect();
    const scrolls = getComputedStyle(one).overflowX !== 'visible' && one.scrollWidth > one.clientWidth + 1;
    return scrolls || right > innerWidth + 1 || left < -1;
  };
  const shown = [...document.querySelectorAll('main *')].filter((one) => one.getClientRects().length);
  return shown.filter((one) => !one.closest('svg') && spills(one)).map((one) => one.outerHTML.slice(0, 80));
}"""


@pytest.fixture(scope="module")
def long_names(tmp_path_factory):
    """A report with a policy, and columns with long names that are only partly rebuilt."""
    import pandas as pd
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(0)
    names = [f"{word}_{'very_' * 9}long_name" for word in ("age", "income", "height", "weight")]
    X = pd.DataFrame(rng.normal(size=(90, 4)).round(2), columns=names)
    y = X.sum(axis=1)
    audit = lw.audit(RandomForestRegressor(10, max_depth=4, random_state=0).fit(X, y), (X, y))
    policy = lw.Policy(max_grade="not found", max_rebuilt_share=0.05, max_nearer_share=0.2)
    return lw.report(audit, tmp_path_factory.mktemp("long"), title="A" * 200, owner="B" * 100, policy=policy)


@pytest.mark.parametrize("kind", ["of_pictures", None])
def test_nothing_is_cut_off_on_paper(kind, browser, folders, long_names):
    opened = Opened(browser, long_names if kind is None else folders[kind])
    opened.page.emulate_media(media="print")
    for width in (A4, LETTER):
        opened.page.set_viewport_size({"width": width, "height": 1000})
        assert opened.page.evaluate(SPILLS) == []


@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_pages_have_numbers_and_only_long_tables_are_split(paper, browser, long_names, artefacts):
    opened = Opened(browser, long_names)
    pdf = opened.page.pdf(path=artefacts / f"report_long_{paper}.pdf", format=paper)
    assert 5 <= pdf.count(b"/Type /Page\n") <= 12
    style = opened.page.inner_html("style")
    assert 'counter(page) " / " counter(pages)' in style
    opened.page.emulate_media(media="print")
    kept = "tables => tables.map((table) => [table.rows.length > 11, getComputedStyle(table).breakInside])"
    found = {tuple(one) for one in opened.page.eval_on_selector_all("table", kept)}
    assert found == {(False, "avoid"), (True, "auto")}
    assert opened.page.eval_on_selector("thead", "head => getComputedStyle(head).display") == "table-header-group"


@pytest.mark.parametrize("kind", ["of_pictures", None])
def test_decision_and_signature_are_one_sheet(kind, browser, folders, long_names):
    """The details follow on other sheets, and on a screen the signature comes after them."""
    opened = Opened(browser, long_names if kind is None else folders[kind])
    order = "['#signoff', '#all'].map(part => document.querySelector(part).getBoundingClientRect().top)"
    signed, details = opened.page.evaluate(order)
    assert signed > details
    opened.page.emulate_media(media="print")
    for width, height in ((A4, 994), (LETTER, 926)):  # what margins leave, at 96 dots per inch
        opened.page.set_viewport_size({"width": width, "height": 1000})
        box = opened.page.locator(".signoff").bounding_box()
        assert box["y"] + box["height"] <= height
    assert opened.page.eval_on_selector(".signoff", "part => getComputedStyle(part).breakAfter") == "page"


def test_the_first_screen_is_the_decision(browser, folders, long_names):
    """Grade, what it means and the suggestion are seen without scrolling, also on a telephone."""
    for path in (folders["of_pictures"], long_names):
        opened = Opened(browser, path)
        for size in ({"width": 1200, "height": 900}, {"width": 390, "height": 844}):
            opened.page.set_viewport_size(size)
            for part in (".grade", "#verdict", ".lead", ".suggestion"):
                box = opened.page.locator(part).first.bounding_box()
                assert box["y"] + box["height"] <= size["height"], part
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_comparison_opens_everywhere(browser, audit_of, tmp_path, artefacts):
    both = lw.compare(audit_of("rebuilt_pictures"), audit_of("nothing"), accuracy=(0.9, 0.8))
    path = both.to_html(tmp_path / "comparison.html")
    for scheme in ("light", "dark"):
        opened = Opened(browser, path, color_scheme=scheme)
        opened.page.screenshot(path=artefacts / f"comparison_{scheme}.png", full_page=True)
        assert opened.said == []
        assert opened.asked == [path.resolve().as_uri()]
        opened.page.set_viewport_size({"width": 390, "height": 844})
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_cards_of_a_notebook(browser, audit_of, tmp_path, artefacts):
    """They follow the theme, and leave the rest of the page as it is."""
    shown = (audit_of("of_pictures"), audit_of("nothing"), lw.bound(noise_multiplier=3.0, baseline=0.1))
    path = tmp_path / "notebook.html"
    body = "<br>".join(one._repr_html_() for one in shown)
    path.write_text(f"<!doctype html><meta charset='utf-8'><body><p id='outside'>text</p><div id='cards'>{body}</div>")
    outside = "(({ color, font, margin, background }) => [color, font, margin, background])"
    look = f"{outside}(getComputedStyle(document.getElementById('outside')))"
    for scheme in ("light", "dark"):
        opened = Opened(browser, path, color_scheme=scheme)
        opened.page.screenshot(path=artefacts / f"cards_{scheme}.png", full_page=True)
        ink, paper = opened.page.eval_on_selector(
            ".lostwax-card", "card => [getComputedStyle(card).color, getComputedStyle(card).backgroundColor]"
        )
        assert abs(brightness(ink) - brightness(paper)) > 150
        assert (brightness(paper) < 60) == (scheme == "dark")
        assert opened.said == []
        beside = opened.page.evaluate(look)
        opened.page.evaluate("document.getElementById('cards').remove()")
        assert opened.page.evaluate(look) == beside
