"""The memory that attacks predict is near the peak, on two games that are small enough for a test."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux resets peaks of memory")

# in a process of its own: the allocator of this one keeps what earlier tests freed
MEASURE = """
import lostwax as lw
import memory
case = memory.Case(lw.KernelRidge(), lw.KernelRidge(), hidden=24, games={games}, prior={prior})
expected, peak = memory.measure(case)
assert 1 / memory.FACTOR < expected / peak < memory.FACTOR, (expected, peak)
"""


@pytest.mark.parametrize(("games", "prior"), [(20, 300), (300, 60)], ids=["shadow models", "victims"])
def test_memory_is_predicted(games, prior, root):
    script = MEASURE.format(games=games, prior=prior)
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=root / "benchmarks", check=False, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
