"""The workflows are valid, call targets that exist, and cover what pyproject.toml promises."""

import os
import re
import tomllib

import pytest
import yaml

from conftest import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read(path):
    """As GitHub reads it: `on` is a word, not a truth value."""
    text = re.sub(r"^on:", '"on":', path.read_text(), flags=re.MULTILINE)
    return yaml.safe_load(text)


def steps(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_three():
    assert [path.stem for path in WORKFLOWS] == ["docs", "publish", "tests"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_it_has_what_a_workflow_needs(path):
    workflow = read(path)
    assert set(workflow) <= {"name", "on", "permissions", "concurrency", "jobs"}
    assert workflow["permissions"] == {"contents": "read"}, "no more rights than a job asks for"
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= set(job)
        assert all(("run" in step) != ("uses" in step) for step in job["steps"])
        assert set(job.get("needs", "").split()) <= set(workflow["jobs"])
    for step in steps(workflow):
        assert "secrets." not in str(step), "nothing needs a secret"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_its_actions_are_pinned(path):
    """To a commit, which nobody can move, with the version beside it; Dependabot proposes newer ones."""
    uses = re.findall(r"uses: (.*)", path.read_text())
    assert uses
    for line in uses:
        assert re.fullmatch(r"(actions|pypa)/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    kept_new = yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in kept_new} == {"github-actions", "pip"}


def test_other_systems_are_tested():
    job = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["others"]
    assert job["strategy"]["matrix"]["system"] == ["macos-latest", "windows-latest"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_its_commands_exist(path):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    commands = [step["run"].split() for step in steps(read(path)) if "run" in step]
    assert commands
    for program, argument, *_ in commands:
        if program == "make":
            assert argument in targets, f"make {argument}"
        elif program == "python":
            assert argument == "-m"
        else:
            assert os.access(ROOT / program, os.X_OK), program


def test_every_supported_python_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13"]
    assert project["requires-python"] == f">={versions[0]}"


def test_coverage_has_a_job_and_a_floor():
    """It is not part of `make test`, which it makes slower by a third."""
    job = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["coverage"]
    assert "if" not in job, "on every push"
    assert job["steps"][-1] == {"run": "make coverage"}
    recipe = re.search(r"^coverage:.*\n\t(.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe[1].endswith("$(FAST) --cov --cov-report=term:skip-covered --cov-fail-under=90")


def test_only_a_checked_and_tested_tag_is_published():
    workflow = read(ROOT / ".github" / "workflows" / "publish.yml")
    assert workflow["on"] == {"push": {"tags": ["v*"]}}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert [step["run"] for step in build["steps"] if "run" in step] == [
        '.ci/tag "$GITHUB_REF_NAME"',
        "make test",
        "make dist",
    ]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_each_question_once(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    fields = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["attributes"]["label"] for part in fields)
    assert len({part["id"] for part in fields}) == len(fields) > 0


@pytest.mark.parametrize("name", ["CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md", "pyproject.toml"])
def test_nobody_is_named_who_does_not_exist(name):
    """No e-mail address and no placeholder: reports go through the repository."""
    text = (ROOT / name).read_text()
    assert not re.search(r"[\w.]+@[\w.]+\.\w+|\[INSERT|TODO|example\.(com|org)", text)
