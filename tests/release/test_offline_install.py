"""What secure environments install from: a folder of wheels, an image made of it, a recipe for conda."""

import re
import subprocess
import sys
import tomllib

import yaml

from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OF_CONDA = {"matplotlib": "matplotlib-base", "safetensors": "python-safetensors", "torch": "pytorch"}


def test_the_recipe_for_conda_is_what_pyproject_says():
    text = (ROOT / "packaging" / "conda-forge" / "meta.yaml").read_text()
    version = re.search(r'^{% set version = "(.+)" %}$', text, re.MULTILINE)[1]
    assert f'__version__ = "{version}"' in (ROOT / "src" / "lostwax" / "__init__.py").read_text()
    plain = (
        re.sub(r"^{%.*%}$", "", text, flags=re.MULTILINE)
        .replace("{{ PYTHON }}", "python")
        .replace("{{ version }}", version)
    )
    recipe = yaml.safe_load(plain)
    wanted = {tuple(re.fullmatch(r"([\w-]+)(>=.*)", line).groups()) for line in PROJECT["dependencies"]}
    wanted = {(OF_CONDA.get(name, name), floor) for name, floor in wanted} | {("python", PROJECT["requires-python"])}
    assert {tuple(line.split()) for line in recipe["requirements"]["run"]} == wanted
    assert recipe["build"]["entry_points"] == [f"lostwax = {PROJECT['scripts']['lostwax']}"]


def test_the_image_asks_no_network():
    text = (ROOT / "Dockerfile").read_text()
    assert "--no-index --find-links /wheels" in text
    assert "sha256sum --check" in text
    assert not re.search(r"curl|wget|apt-get|https?://", text)
    extras = set(re.search(r'"lostwax\[(.+)\]"', text)[1].split(","))
    assert extras <= set(PROJECT["optional-dependencies"])
    default = re.search(r"extras=\${1-(.+)}", (ROOT / "tools" / "wheels.sh").read_text())[1]
    assert extras == set(default.split(",")), "the folder holds what the image installs"


def test_the_folder_of_wheels_installs_without_a_network(tmp_path):
    """lostwax alone, for the others are gigabytes; hashes are checked as in the image."""
    for part in ("pyproject.toml", "README.md", "LICENSE", "src", "tools"):
        (tmp_path / part).symlink_to(ROOT / part, target_is_directory=(ROOT / part).is_dir())
    (tmp_path / "tools").unlink()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "wheels.sh").write_text((ROOT / "tools" / "wheels.sh").read_text())
    variables = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "NO_DEPS": "1", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "tools/wheels.sh", ""], cwd=tmp_path, env=variables, capture_output=True, text=True)
    if "hatchling" in done.stderr:  # the build needs it, and this machine may have no network
        import pytest

        pytest.skip("hatchling could not be fetched")
    assert done.returncode == 0, done.stderr
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "wheels", check=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--find-links", "wheels"]
    subprocess.run([*command, "--target", "installed", "lostwax"], cwd=tmp_path, check=True)
    assert (tmp_path / "installed" / "lostwax" / "__init__.pyi").exists()
