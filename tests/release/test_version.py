"""The version is written once; the changelog, the citation and the tag agree with it."""

import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.version import Version

import lostwax

TODAY = "2026-12-24"


@pytest.fixture
def checkout(root, tmp_path):
    """What a tag is checked against, to be changed."""
    for name in (".ci/tag", "src/lostwax/__init__.py", "CHANGELOG.md", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    return tmp_path


def objections(checkout, tag):
    ran = subprocess.run([sys.executable, checkout / ".ci" / "tag", tag], capture_output=True, text=True, check=False)
    assert ran.returncode == bool(ran.stderr)
    return ran.stderr


def date(checkout):
    """Release it: the changelog and the citation get the date."""
    changes, citation = checkout / "CHANGELOG.md", checkout / "CITATION.cff"
    changes.write_text(re.sub(r"^(## \S+), .+$", rf"\1, {TODAY}", changes.read_text(), count=1, flags=re.MULTILINE))
    lines = [line for line in citation.read_text().splitlines() if not line.startswith("date-released")]
    citation.write_text("\n".join([*lines, f"date-released: {TODAY}", ""]))


def test_pyproject_reads_the_version_of_the_package(root):
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/lostwax/__init__.py"
    assert str(Version(lostwax.__version__)) == lostwax.__version__


def test_the_citation_names_this_version_and_no_other_date_than_the_changelog(root):
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+), (.+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert str(citation["version"]) == newest[1] == lostwax.__version__
    assert newest[2] == str(citation.get("date-released", "unreleased"))


def test_a_dated_release_may_be_tagged(checkout):
    date(checkout)
    assert objections(checkout, f"v{lostwax.__version__}") == ""


@pytest.mark.parametrize("tag", ["v9.9.9", lostwax.__version__, "v"])
def test_another_tag_is_refused(checkout, tag):
    date(checkout)
    assert f"expected the tag v{lostwax.__version__}" in objections(checkout, tag)


def test_a_section_without_a_date_is_refused(checkout):
    date(checkout)
    changes = checkout / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(TODAY, "unreleased"))
    assert "write the date of the release there" in objections(checkout, f"v{lostwax.__version__}")


def test_a_version_without_a_section_is_refused(checkout):
    date(checkout)
    package = checkout / "src" / "lostwax" / "__init__.py"
    package.write_text(package.read_text().replace(lostwax.__version__, "9.9.9"))
    found = objections(checkout, "v9.9.9")
    assert "The first section of CHANGELOG.md is" in found
    assert "CITATION.cff: expected version 9.9.9" in found


def test_changes_are_told_in_short_lines_by_release(root):
    lines = (root / "CHANGELOG.md").read_text().splitlines()
    versions = [Version(line.split()[1].rstrip(",")) for line in lines if line.startswith("## ")]
    assert versions == sorted(versions, reverse=True)
    assert Version("0.1.0") in versions
    long = [line for line in lines if len(line) > 200]
    assert not long, f"{len(long)} lines of CHANGELOG.md are longer than 200 characters, the first: {long[0]}"
