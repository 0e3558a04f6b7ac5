"""The scripts for SLURM run here, with the variables that it sets, and two of its commands for this machine alone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lostwax as lw
from conftest import ROOT
from lostwax.recipes import Recipe

SCRIPTS = ROOT / "examples" / "clusters"
RECIPE = """
import torch
import lostwax as lw
x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
known, prior, secrets = lw.Records(x, torch.arange(60) % 2).split(20, 20, 20, seed=0)
net = torch.nn.Linear(4, 2)
trainer = lw.GD(lr=0.1, steps=3, tile=16, init=lw.inits.LeCunNormal())
threat = lw.Informed(known)
"""
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE)
    return path


def stored(recipe, folder):
    read = Recipe.read(recipe)
    game = lw.shadows.Game(read.subject, *(read.arguments[name] for name in ("trainer", "threat", "prior")), 0)
    return lw.shadows.Store(folder).open(game)


def run(script, recipe, models, store, **variables):
    path = os.pathsep.join([str(recipe.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["bash", SCRIPTS / script, recipe, str(models), store]
    environment = {**os.environ, "PATH": path, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)


def chunks(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.0")}


def test_an_array_of_tasks_fills_a_store(recipe, tmp_path):
    """Each task trains its own chunks; together they are what one process trains, byte for byte."""
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    chunk = stored(recipe, alone).chunk
    models = 5 * chunk
    for task, own in ((1, {0, 2, 4}), (2, {1, 3})):
        variables = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "1"}
        before = stored(recipe, shared).present()
        done = run("array.sbatch", recipe, models, shared, **variables)
        assert done.returncode == 0, done.stderr
        assert stored(recipe, shared).present() - before == own
    assert f"holds {models:,} models" in done.stdout
    done = run("array.sbatch", recipe, models, alone, SLURM_ARRAY_TASK_ID="0", SLURM_ARRAY_TASK_MIN="0")
    assert done.returncode == 0, done.stderr
    assert chunks(alone) == chunks(shared)
    assert len(chunks(alone)) == 10


@pytest.mark.parametrize(("part", "why"), [("0/2", "1 <= i <= n"), ("3/2", "1 <= i <= n"), ("2", "I/N")])
def test_a_part_that_is_none(part, why, recipe, tmp_path):
    command = [sys.executable, "-m", "lostwax", "simulate", recipe, "--models", "9", "--store", tmp_path / "s"]
    done = subprocess.run([*command, "--part", part], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert why in done.stderr


def test_a_part_of_no_store_is_refused(recipe):
    read = Recipe.read(recipe)
    game = {name: read.arguments[name] for name in ("trainer", "threat", "prior")}
    with pytest.raises(TypeError, match="a part is that of a store"):
        lw.simulate(read.subject, **game, models=8, part=(1, 2))


@pytest.mark.slow
def test_ray_inside_a_job(recipe, tmp_path):
    """A head on the first node of one; the cluster ends with the job."""
    pytest.importorskip("ray")
    for name, text in (("srun", SRUN), ("scontrol", "#!/bin/bash\necho localhost\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    chunk = stored(recipe, tmp_path / "s").chunk
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_CPUS_PER_TASK": "1", "HOME": str(tmp_path)}
    done = run("ray.sbatch", recipe, 2 * chunk, tmp_path / "s", **job)
    assert done.returncode == 0, done.stderr
    assert stored(recipe, tmp_path / "s").present() == {0, 1}
    assert not list(tmp_path.glob(".ray_token*")), "the token ends with the job"


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("*.sbatch")))
def test_its_shell_is_valid(script):
    assert shutil.which("bash")
    assert subprocess.run(["bash", "-n", SCRIPTS / script], check=False).returncode == 0
