"""The printed table is never wider than the terminal."""

import os
import pty
import subprocess
import sys
from functools import cache
from typing import get_args

import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import lostwax as lw
from audits.game import KNOWN, Reads, audited
from lostwax.audits.decision import decide
from lostwax.audits.text import as_table, cut_to_fit
from lostwax.cli.lists import What, listed

SHOW = """
import os, sys
from lostwax.audits import Audit
audit = Audit.from_json(sys.argv[1])
for os.environ["COLUMNS"] in sys.argv[2:]:
    print(audit, end="\\f")
"""


@cache
def of_a_model():
    """Hidden by a solver that stopped early: there are reasons to give."""
    X, y = load_iris(return_X_y=True)
    return lw.audit(LogisticRegression(max_iter=1_000, tol=1e-2).fit(X, y), (X, y), games=40)


@cache
def of_pictures():
    return audited(Reads(noise=0.1), games=120)


@cache
def of_candidates():
    return audited(lw.attacks.NearestCandidate(Reads(noise=1.5)), threat=lw.Informed(KNOWN, candidates=8), games=60)


@pytest.mark.parametrize("breaches", [None, (), ("max_grade: broken",)])
def test_the_suggestion_is_the_pages(breaches):
    audit = of_pictures()
    decision = decide(audit, breaches)
    name = "suggestion (no policy)" if breaches is None else "suggestion"
    printed = " ".join(as_table(audit, 10_000, breaches).split())
    assert f" {name}: {decision.suggestion}. {decision.reason} " in printed


@pytest.mark.parametrize("kind", [of_a_model, of_pictures, of_candidates])
@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_is_wider_than_asked(kind, columns):
    audit = kind()
    text = as_table(audit, columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "\n%" not in text  # no number is parted from its sign
    found, words = (set(part.replace(":", "").split()) for part in (text, as_table(audit, 10_000)))
    assert words - found <= {"why", "rest"}  # nothing is lost but a title, where reasons stand below the table


def test_cells_are_folded_between_words():
    rows = [("", "rebuilt", "error"), ("nearest known row", "10.0 % (0.3-44.5)", "0.068")]
    assert cut_to_fit(rows, 26) == [
        "         rebuilt     error",
        "nearest  10.0 %      0.068",
        "known    (0.3-44.5)",
        "row",
    ]
    assert cut_to_fit(rows, 200)[1] == "nearest known row  10.0 % (0.3-44.5)  0.068"


def test_in_a_real_terminal(tmp_path):
    of_a_model().to_json(tmp_path / "audit.json")
    ours, theirs = pty.openpty()
    ran = subprocess.Popen([sys.executable, "-c", SHOW, tmp_path / "audit.json", "80", "120"], stdout=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        text += piece
    os.close(ours)
    assert ran.wait() == 0
    narrow, wide, rest = text.decode().split("\f")
    assert not rest
    for columns, shown in ((80, narrow), (120, wide)):
        assert 0.6 * columns < max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize("columns", [80, 120])
def test_lists_fit_too(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for what in get_args(What):
        assert max(map(len, listed(what).splitlines())) <= columns
