"""What is published: the wheel holds the package and nothing else, and installs where there is nothing."""

import os
import re
import subprocess
import sys
import tarfile
import time
import venv
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

import lostwax
from links import dead_links
from release.conftest import build

SOURCE = Path(lostwax.__file__).parent
KINDS = {".py", ".pyi", ".json", ".js", ".css", ".jinja"}
INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
EXTRAS = {"vision", "tables", "text", "cluster", "boosting", "solver", "libraries", "docs", "test", "dev", "all"}
USABLE = ("vision", "tables", "cluster", "boosting", "solver")


def contents(wheel):
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def run(*words, **options):
    """What a command prints; it sees no PYTHONPATH, which would lead it to this checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, **options)
    assert ran.returncode == 0, f"{words}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def empty_environment(folder):
    """An environment with Python alone, and pip from outside."""
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def install(python, *what):
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *what)


def test_the_wheel_holds_the_package_and_nothing_else(built):
    found, info = set(contents(built.wheel)), f"lostwax-{lostwax.__version__}.dist-info"
    files = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {path for path in files if path.suffix not in KINDS} == {Path("py.typed")}, "a stray file"
    assert found == {f"lostwax/{path.as_posix()}" for path in files} | {f"{info}/{name}" for name in INFO}
    assert {"lostwax/py.typed", "lostwax/__init__.pyi", "lostwax/reports/template/report.html.jinja"} <= found


def test_the_wheel_is_small(built):
    assert built.wheel.stat().st_size <= 1_100_000, "about 1 MB: what grew?"


def test_its_metadata(built, root):
    parts = contents(built.wheel)
    data = message_from_bytes(parts[f"lostwax-{lostwax.__version__}.dist-info/METADATA"])
    assert data["Name"] == "lostwax"
    assert data["Version"] == lostwax.__version__
    assert data["License-Expression"] == "Apache-2.0"
    assert set(data.get_all("Provides-Extra")) == EXTRAS
    assert data.get_payload(decode=True).decode().strip() == (root / "README.md").read_text().strip()


def test_no_address_is_invented(root):
    """An address in the metadata is a true one: none of the names that stand for one."""
    text = (root / "pyproject.toml").read_text() + (root / "CITATION.cff").read_text()
    for url in re.findall(r"https?://[^\s\"'<>]+", text):
        assert not re.search(r"example\.|localhost|your|placeholder|todo|user/repo|\bOWNER\b", url, re.IGNORECASE), url
    assert not re.search(r"[\w.]+@[\w.]+\.\w+", text), "an e-mail address"


def test_every_dependency_has_a_floor_and_no_ceiling(built):
    data = message_from_bytes(contents(built.wheel)[f"lostwax-{lostwax.__version__}.dist-info/METADATA"])
    for requirement in data.get_all("Requires-Dist"):
        requirement = requirement.replace("mkdocs<2,", "mkdocs")  # the theme of the site is not made for version 2
        assert re.match(r"lostwax\[|[\w.-]+(\[\w+\])?>=[\d.]+($|;| )", requirement), requirement


def test_the_source_distribution_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "tests/conftest.py"} <= names
    assert not {name for name in names if re.search(r"__pycache__|\.pyc$|\.venv|\.git/", name)}
    build(tmp_path / f"lostwax-{lostwax.__version__}", tmp_path / "dist", "wheel")
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name == built.wheel.name
    assert contents(wheel) == contents(built.wheel)


def test_the_tests_of_the_source_distribution_find_the_files_they_read(built, tmp_path):
    with tarfile.open(built.source) as archive:
        archive.extractall(tmp_path, filter="data")
    asked = ("--collect-only", "-qq", "-n", "0", "-p", "no:cacheprovider", "tests/bounds", "tests/test_docs.py")
    folder = tmp_path / f"lostwax-{lostwax.__version__}"
    run(sys.executable, "-m", "pytest", *asked, cwd=folder)
    # the project has no public address, so that links are relative: they lead somewhere wherever it is unpacked
    pages = [folder / "README.md", folder / "CONTRIBUTING.md", *(folder / "docs").rglob("*.md")]
    assert [link for page in pages for link in dead_links(page)] == []


def test_the_wheel_alone_loads_what_needs_nothing_else(built, tmp_path, root):
    """None of its dependencies is there, and nothing of this checkout."""
    python = empty_environment(tmp_path / "env")
    install(python, "--no-index", "--no-deps", built.wheel)
    assert run(python.with_name("lostwax"), "--version", cwd=tmp_path) == f"lostwax {lostwax.__version__}\n"
    run(python, "-I", root / "tests" / "bare_imports.py", "light", cwd=tmp_path)


def test_every_module_loads_without_the_optional_packages(root):
    run(sys.executable, root / "tests" / "bare_imports.py", "optional")


@pytest.mark.slow
def test_an_empty_environment_gets_a_first_audit_and_then_each_extra(built, tmp_path, root):
    """As a user would install it; without an extra, the error names the command that installs it."""
    python = empty_environment(tmp_path / "env")
    start = time.monotonic()
    install(python, built.wheel)
    size = sum(
        path.stat().st_size for path in (tmp_path / "env").rglob("*") if path.is_file() and not path.is_symlink()
    )
    print(f"\ninstalled in {time.monotonic() - start:.0f} s, {size / 1e9:.1f} GB")
    command = python.with_name("lostwax")
    run(command, "init", "sklearn", cwd=tmp_path)
    run(command, "audit", "recipe.py", "--out", "audit", cwd=tmp_path)
    assert (tmp_path / "audit" / "report.html").stat().st_size > 10_000
    run(sys.executable, root / "tests" / "release" / "extras.py", "prepare", tmp_path)
    for extra in USABLE:
        check = (python, "-I", root / "tests" / "release" / "extras.py", extra, tmp_path)
        assert f"lostwax[{extra}]" in run(*check, cwd=tmp_path)
        start = time.monotonic()
        install(python, f"{built.wheel}[{extra}]")
        print(f"{extra} in {time.monotonic() - start:.0f} s")
        assert run(*check, cwd=tmp_path).splitlines()[-1] == f"{extra} works"
