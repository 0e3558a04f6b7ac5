"""A number in README is that of its result, and says so where that is not of this version."""

import json
from decimal import Decimal

import pytest

from lostwax import __version__
from lostwax_dev.readme import DECLARED, FOOTNOTE, Line, Shown, every_row, objections, read_lines
from lostwax_dev.results import Row

CODE = (("papers", "0" * 12, ("script.py",)),)
OURS = {"version": __version__, "commit": "0123456789", "code": CODE}
README = f"""# Name

**A question?**

*Top: 10 digits.*

## What it finds

| released model | what |
|---|---|
| net on 100 records | error {{}}, {{}} of them ([docs](docs/a.md#12)) |

{FOOTNOTE}.

More, beside 12 others.
"""
LINES = [
    Line("Top: 10", settings=("10",)),
    Line("net on", (Shown("error 0.012", "papers/a:error"), Shown("98 %", "papers/a:share")), ("100",)),
]


def wrong(error="error 0.012", share="98 %", lines=LINES, **fields):
    rows = {
        "papers/a:error": Row("error", "error", 0.01249, paper=0.5, **OURS | fields),
        "papers/a:share": Row("share", "share", 0.9751, **OURS),
    }
    return objections(README.format(error, share), lines, rows)


def test_readme_is_right(root):
    assert objections((root / "README.md").read_text(), read_lines(root / DECLARED), every_row(root)) == []


def test_numbers_of_this_version_pass():
    assert wrong() == []


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"version": "0.1.0"}, "measured by version 0.1.0"),
        ({"version": None}, "before versions were recorded"),
        ({"commit": None}, "not recorded"),
        ({"code": None}, "not recorded"),
        ({"commit": "uncommitted on 0123456789"}, "uncommitted on 0123456789"),
    ],
)
def test_other_numbers_are_run_again_or_marked(fields, why):
    (found,) = wrong(**fields)
    assert why in found
    assert "'error 0.012†'" in found
    assert wrong(error="error 0.012†", **fields) == []


def test_a_mark_without_need_is_removed():
    (found,) = wrong(error="error 0.012†")
    assert "remove the mark" in found
    assert objections(README.format("error 0.012†", "98 %").replace(FOOTNOTE, ""), LINES, {})[-1].endswith(
        f"{FOOTNOTE!r}."
    )


@pytest.mark.parametrize("error", ["error 0.011", "error 0.0126", "error 0.0120"])
def test_every_digit_counts(error):
    lines = [LINES[0], Line("net on", (Shown(error, "papers/a:error"), LINES[1].shown[1]), ("100",))]
    (found,) = wrong(error=error, lines=lines)
    assert "is not what papers/a:error has, 0.01249" in found


def test_words_claims_and_papers_numbers():
    def one(text, **fields):
        shown = (Shown(text, "papers/a:error", **fields), LINES[1].shown[1])
        return wrong(error=text, lines=[LINES[0], Line("net on", shown, ("100",))])

    assert one("none", value=0.01249) == []
    assert len(one("none", value=0.0)) == 1
    assert one("under 2 %", below=Decimal("0.02")) == []
    assert len(one("under 1 %", below=Decimal("0.01"))) == 1
    assert one("theirs 0.5", paper=True) == []
    assert len(one("theirs 0.6", paper=True)) == 1


def test_no_number_is_left_out():
    (found,) = wrong(error="error 0.012, 7 of 9")
    assert "names no row for 7, 9" in found
    (found,) = wrong(lines=LINES[1:])
    assert "does not name this line of README: Top: 10 digits." in found
    found = wrong(error="error 12")
    assert "'error 0.012' is not there any more" in found[0]
    assert any("0 lines that begin with 'forest'" in words for words in wrong(lines=[*LINES, Line("forest")]))


def test_results_of_this_version_carry_commit_and_digest(root):
    for path in [*(root / "papers" / "results").glob("*.json"), *(root / "benchmarks" / "results").glob("*.json")]:
        content = json.loads(path.read_text())
        rows = content if isinstance(content, list) else content["rows"]
        ours = [row for row in rows if row.get("version") == __version__]
        assert [row["id"] for row in ours if row.get("commit") is None or row.get("code") is None] == [], path.name
