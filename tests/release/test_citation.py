"""CITATION.cff is a citation file (version 1.2.0 of the format) and cites the papers that docs/papers.md names."""

import re

import pytest
import yaml

TYPES = {"article", "conference-paper"}  # of the forty that the format has, those that papers are


@pytest.fixture
def citation(root):
    return yaml.safe_load((root / "CITATION.cff").read_text())


def test_it_has_what_the_format_requires(citation):
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert all(isinstance(citation[field], str) and citation[field] for field in ("title", "message", "license"))
    assert citation["authors"] == [{"name": "The lostwax authors"}]
    for paper in citation["references"]:
        assert paper["type"] in TYPES
        assert paper["authors"]
        assert all(set(author) == {"family-names", "given-names"} for author in paper["authors"])
        assert isinstance(paper["year"], int)
        assert set(paper) <= {"type", "title", "year", "authors", "doi", "url", "identifiers", "conference"}


def test_it_cites_the_four_papers_where_they_are(citation, root):
    """Titles, years, authors and addresses are those of docs/papers.md."""
    rows = re.findall(
        r"^\| S\d \| (.+?): \*(.+?)\*, (\d{4}), \[.+?\]\((.+?)\).* \|", (root / "docs/papers.md").read_text(), re.M
    )
    assert len(rows) == len(citation["references"]) == 4
    for (authors, title, year, url), paper in zip(rows, citation["references"], strict=True):
        assert paper["title"] == title
        assert paper["year"] == int(year)
        assert [f"{one['given-names']} {one['family-names']}" for one in paper["authors"]] == authors.split(", ")
        assert paper["url"] == re.sub(r"v\d$", "", url)
        if arxiv := re.search(r"arxiv\.org/abs/([\d.]+)", url):
            assert paper["doi"] == f"10.48550/arXiv.{arxiv[1].removesuffix('.')}"
