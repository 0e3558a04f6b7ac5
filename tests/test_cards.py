"""Cards of notebooks: self-contained, small, no scripts, and no style that reaches outside of them."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import lostwax as lw
from audits.game import Reads, audited
from lostwax.audits.decision import decide
from lostwax.cards import STYLE

NASTY = "<script>alert(1)</script></style>&\"'"


@pytest.fixture(scope="module")
def audit():
    return replace(audited(Reads(noise=1e-7), games=40), subject=NASTY, threat=NASTY)


def cards(audit):
    policy = lw.Policy(max_grade="not found")
    plan = lw.calibrate(max_success=0.2, baseline=0.1)
    kept = policy.breaches(audited(Reads(blind=1.0), games=120))
    assert kept == ()
    shown = (audit, plan, plan.ceiling, replace(plan.ceiling, certified=False), policy.breaches(audit), kept)
    return [one._repr_html_() for one in (*shown, lw.compare(audit, audit))]


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.attributes = [], set(), set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_cards_can_stand_in_any_page(audit):
    for card in cards(audit):
        tags = Tags()
        tags.feed(card)
        assert tags.open == []
        assert tags.seen <= {"style", "div", "p", "b", "i", "span"}
        assert tags.attributes == {"class"}
        assert len(card) < 8_000
        assert "http" not in card
        assert "@media (prefers-color-scheme: dark)" in card
        assert not re.search(r"url\(|@import|expression", card)


def test_no_rule_reaches_outside():
    selectors = re.findall(r"([^{}]+)\{", STYLE.replace("@media (prefers-color-scheme: dark) {", ""))
    assert selectors
    assert all(one.strip().startswith(".lostwax-card") for one in selectors)


def test_an_audit_shows_its_first_screen(audit):
    card = audit._repr_html_()
    found = decide(audit)
    assert f"lostwax-{found.suggestion.tone}" in card
    assert f"Suggestion: {found.suggestion}." in card
    assert f">{audit.grade}<" in card
    assert audit.conclusion.headline in card


def test_a_ceiling_that_is_not_certified_is_an_estimate():
    ceiling = lw.bound(noise_multiplier=3.0, baseline=0.1)
    assert "No attack succeeds in more than" in ceiling._repr_html_()
    assert "Estimate: no attack" in replace(ceiling, certified=False)._repr_html_()
    assert "lostwax-warning" in lw.bound(noise_multiplier=0.3, baseline=0.1)._repr_html_()


def test_a_policy_that_is_kept_is_no_proof():
    kept = lw.Policy(max_grade="not found").breaches(audited(Reads(blind=1.0), games=120))
    assert isinstance(kept, tuple)
    assert "not a proof" in kept._repr_html_()


def test_a_plan_without_noise():
    plan = lw.calibrate(max_success=0.2, baseline=0.1)
    assert "∞" in replace(plan, epsilon=float("inf"))._repr_html_()
