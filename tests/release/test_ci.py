"""What users put into their CI: GitHub's action and GitLab's job, whose shell steps are run here."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from conftest import ROOT

ACTION, GITLAB, GITHUB = (ROOT / name for name in ("action.yml", "examples/ci/gitlab-ci.yml", "examples/ci/github.yml"))
RECIPE = """
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
data = X, y = load_iris(return_X_y=True)
model = LogisticRegression(max_iter=2_000).fit(X, y)
games = 10
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "policy.toml").write_text("max_rebuilt_share = 0.5\n")
    return tmp_path


def bash(script, folder, **variables):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def run_action(folder, **inputs):
    """The steps of the action, as GitHub runs them: the last exit code, and the outputs by step."""
    action = yaml.safe_load(ACTION.read_text())
    given = {name: value.get("default", "") for name, value in action["inputs"].items()} | inputs
    outputs = {}

    def filled(expression):
        kind, *path = re.fullmatch(r"\$\{\{ ([\w.-]+) \}\}", expression)[1].split(".")
        return given[path[0]] if kind == "inputs" else outputs[path[0]][path[2]]

    for step in action["runs"]["steps"]:
        written = folder / "output"
        written.write_text("")
        variables = {name: filled(value) for name, value in step["env"].items()}
        done = bash(step["run"], folder, **variables, GITHUB_OUTPUT=str(written))
        outputs[step.get("id")] = dict(line.split("=", 1) for line in written.read_text().splitlines())
        if done.returncode:
            break
    named = {name: filled(value["value"]) for name, value in action["outputs"].items() if len(outputs) > 2}
    return done, named


def test_the_action_gates_and_writes_both_formats(folder):
    done, outputs = run_action(folder, recipe="recipe.py", policy="policy.toml", install="")
    assert done.returncode == 1, done.stderr
    assert outputs == {
        "report": "lostwax-report/report.html",
        "sarif": "lostwax-report.sarif",
        "junit": "lostwax-report.junit.xml",
    }
    assert not (folder / "lostwax-report" / "records.safetensors").exists()
    (run,) = json.loads((folder / outputs["sarif"]).read_text())["runs"]
    assert {"policy/max_rebuilt_share", "attacker/insider"} <= {result["ruleId"] for result in run["results"]}
    assert int(ET.parse(folder / outputs["junit"]).getroot().get("failures")) >= 2


def test_without_a_policy_the_action_only_reports(folder):
    done, outputs = run_action(folder, recipe="recipe.py", out="a b", install="", **{"max-minutes": "2"})
    assert done.returncode == 0, done.stderr
    assert (folder / outputs["sarif"]).name == "a b.sarif"


def test_a_mistake_is_no_broken_policy(folder):
    done, _ = run_action(folder, recipe="absent.py", install="")
    assert done.returncode == 2


def test_nothing_of_the_user_is_pasted_into_a_shell():
    """Inputs come as variables: text in a recipe's name is no command."""
    for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"]:
        assert "${{" not in step["run"]


def test_the_job_for_gitlab(folder):
    install, *script = yaml.safe_load(GITLAB.read_text())["lostwax"]["script"]
    assert install.startswith("python -m pip install")
    done = bash("\n".join(script), folder)
    assert done.returncode == 1, done.stderr
    artifacts = yaml.safe_load(GITLAB.read_text())["lostwax"]["artifacts"]
    assert ET.parse(folder / artifacts["reports"]["junit"]).getroot().tag == "testsuite"
    assert (folder / artifacts["paths"][0] / "report.html").exists()


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("github-actions", ACTION),
        ("gitlab-ci", GITLAB),
        ("github-workflows", GITHUB),
        ("dependabot", ROOT / ".github" / "dependabot.yml"),
        *(("github-workflows", path) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_it_keeps_to_the_schema(schema, path):
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
