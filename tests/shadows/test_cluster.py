"""Audits on a real cluster of three nodes that loses workers, a node and the driver."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("ray")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["linear", "shadows", "weak"])
def test_the_bytes_are_those_without_a_cluster(kind, root):
    command = [sys.executable, "-W", "ignore", "cluster_kills.py", kind]
    done = subprocess.run(command, cwd=root / "benchmarks", capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(
        r": (worker|node|driver), (worker|node|driver), (worker|node|driver) killed: same bytes", done.stdout
    )
