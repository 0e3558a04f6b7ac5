import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import lostwax as lw
from audits.game import KNOWN, Reads, audited
from lostwax.games.notes import Note, as_notes
from lostwax.grades import Grade
from lostwax.numerals import at_most, percent, round_up
from lostwax.reports.advice import answer
from lostwax.reports.charts import drawn
from lostwax.reports.html import render
from reports.conftest import NASTY


def page_of(audit, *, records):
    return render(audit, drawn(audit), records=records)


VOID = {"meta", "img", "input", "path", "use", "rect", "br", "line"}


class Outline(HTMLParser):
    """Which elements there are, what they refer to, and whether each is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.references, self.handlers = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def outline(page):
    found = Outline()
    found.feed(page)
    assert not found.open
    return found


def test_every_kind_is_a_whole_page_that_asks_nobody(audit):
    page = page_of(audit, records=True)
    found = outline(page)
    assert all(reference.startswith(("data:image/png;base64,", "#")) for reference in found.references)
    assert not found.handlers
    assert found.seen.count("h1") == 1
    assert found.seen.count("link") == 0
    first = re.sub(r"<[^>]+>", " ", page[page.index("<main>") :])[:300]
    assert answer(audit).conclusion.headline in html.unescape(first)


def test_the_first_screen_has_no_code_words(audit):
    """No class, argument or call: those who decide read no Python. The class that was audited stands below."""
    page = page_of(audit, records=False)
    first = html.unescape(re.sub(r"<[^>]+>", " ", page[page.index('<section class="verdict') : page.index('id="who"')]))
    assert not re.findall(r"\b[A-Z]?[a-z]+[A-Z]\w*|\w+_\w+|\w\(|\w=", first)
    assert audit.subject in html.unescape(page)


def test_strings_of_the_user_are_text(audit_of):
    audit = audit_of("of_pictures")
    released = replace(audit.findings[0], name=NASTY)
    nasty = replace(
        audit,
        subject=NASTY,
        threat=NASTY,
        attack=NASTY,
        notes=as_notes((NASTY, "$x_1^$ and \\frac{")),
        findings=(released, replace(released, name="$\\frac$ " + NASTY)),
        baselines={f"{name} {NASTY}": errors for name, errors in audit.baselines.items()},
        oracle=f"{audit.oracle} {NASTY}",
        provenance={NASTY: {NASTY: NASTY}, **audit.provenance, "attack": NASTY},
    )
    for page in (page_of(nasty, records=True), page_of(audit_of("by_accident"), records=True)):
        found = outline(page)
        assert "<script>document" not in page
        assert "<img src=x" not in page
        assert not found.handlers
        assert found.seen.count("script") == 2


def test_a_model_that_is_repeated_step_by_step_is_protected_for_its_steps(audit_of):
    audit = audit_of("of_pictures")
    known = replace(audit, provenance={**audit.provenance, "steps": 100})
    assert "100 full-batch steps;" in page_of(known, records=True)
    assert "the number of steps is unknown here" in page_of(audit, records=True)


def test_sections_that_cannot_be_drawn_say_so(audit_of):
    assert "false positives need games with other secrets" in page_of(audit_of("one_game"), records=True)
    assert "The ceiling</h2>" not in page_of(audit_of("of_pictures"), records=True)
    page = page_of(audit_of("under_a_ceiling"), records=True)
    assert "The ceiling</h2>" in page
    assert "The bound is certified." in page
    assert "<li>No other record depends on the secret one." in page
    privacy = audit_of("under_a_ceiling").privacy
    assert f"ε = {round_up(privacy.epsilon)} at δ = 1e-05 (add or remove one record)" in page
    assert f"told in at most {at_most(privacy.membership.upper)} of cases" in page
    assert 'id="threshold"' not in page


def test_candidates_that_are_right_by_luck_are_not_marked(audit_of):
    threat = lw.Informed(KNOWN, candidates=8)
    lucky = audited(lw.attacks.NearestCandidate(Reads(blind=1.0)), threat=threat, games=60)
    assert 0 < lucky.findings[0].rebuilt.sum() < 20
    for audit in (lucky, replace(lucky, unanswered=("Newton was stopped.",))):
        page = page_of(audit, records=True)
        assert ">right</span>" in page
        assert "Guessing alone explains this many right candidates." in page
        assert "single out no record" in page
        assert 'class="pair counts"' not in page
    page = page_of(audit_of("candidates"), records=True)
    assert 'class="pair counts"' in page
    assert "Guessing alone" not in page


def test_records_that_were_not_rebuilt_are_not_called_so(audit_of):
    few = audited(Reads(noise=0.05), games=3)  # closer than every baseline, too few to tell
    assert few.grade is Grade.UNDECIDED
    for audit in (few, audit_of("of_pictures")):
        assert not audit.findings[0].rebuilt.any()
        page = page_of(audit, records=True)
        assert "records that guesses come closest to" in page
        assert "rebuilt best" not in page.lower()
    assert "records that are rebuilt best" in page_of(audit_of("of_a_table"), records=True)


def test_a_limit_of_the_blind_guess_is_called_one(audit_of):
    audit = audit_of("of_pictures")
    ceiling = replace(lw.bound(noise_multiplier=3.0, steps=10, baseline=0.02), certified=False, method="read off 40")
    page = page_of(replace(audit, ceiling=ceiling), records=False)
    assert (
        f"where a blind guess wins at most {percent(0.02)}. The success of a blind guess was estimated from records"
        in page
    )
    assert "certified.</p>" in page
    assert "The bound is" not in page
    sampled = page_of(replace(audit, ceiling=replace(ceiling, estimate=0.1)), records=False)
    assert f"where a blind guess wins {percent(0.02)}. The bound is estimated by sampling, not certified." in sampled


def test_errors_are_explained_where_pictures_are_shown(audit_of):
    page = page_of(audit_of("diverged"), records=True)
    assert "; ∞ is an error in one that never varies." in page
    assert re.search(r"Not drawn: \d+ of \d+ games with an infinite error", page)
    assert "standard deviations of each pixel" in page_of(audit_of("of_pictures"), records=True)
    assert "standard deviations of each feature" in page_of(audit_of("of_a_table"), records=True)
    assert "What hardly varies" not in page_of(audit_of("of_a_table"), records=False)


@pytest.mark.parametrize("records", [True, False])
def test_the_page_says_whether_it_holds_records(records, audit_of):
    page = page_of(audit_of("of_pictures"), records=records)
    assert ("treat it like the training set" in page) == records


def test_attacks_that_did_not_play_are_told_apart_from_the_notes(audit_of):
    told = {"notes": (Note("a note"),), "left_out": ("It objects.",), "unanswered": ("Slow & dear would take hours.",)}
    page = page_of(replace(audit_of("of_pictures"), **told), records=False)
    slow = "Slow &amp; dear would take hours."
    assert page.index(f"Not answered: {slow}") < page.index("a note") < page.index("All numbers")
    assert page.index("All numbers") < page.rindex(slow) < page.index("It objects.")
    assert "1 not applicable</a>" in page
    assert "1 not answered</a>" in page
