"""The memory that attacks predict is near the peak, on two games that are small enough for a test."""

import sys
from pathlib import Path

import pytest

import lostwax as lw

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
memory = pytest.importorskip("memory")
pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux resets peaks of memory")


@pytest.mark.parametrize(
    "case",
    [
        memory.Case(lw.KernelRidge(), lw.KernelRidge(), hidden=24, games=20, prior=300),
        memory.Case(lw.KernelRidge(), lw.KernelRidge(), hidden=24, games=300, prior=60),
    ],
    ids=["shadow models", "victims"],
)
def test_memory_is_predicted(case):
    expected, peak = memory.measure(case)
    assert 1 / memory.FACTOR < expected / peak < memory.FACTOR
