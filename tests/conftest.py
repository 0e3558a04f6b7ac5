"""Shared by all tests."""

import os
import sys
import threading

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two workers share two cores (before torch and numpy are imported)
os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels run on the CPU, slowly (before they are compiled)

from pathlib import Path

import pytest

from lostwax.seeds import seed_torch
from optional import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

ROOT = Path(__file__).parent.parent


SEED = int(os.environ.get("LOSTWAX_TEST_SEED", "0"))


def pytest_collectstart(collector):
    """A net that a module of tests makes has the same weights, whatever was imported before."""
    seed_torch(SEED)


@pytest.fixture(autouse=True)
def seeded():
    """Each test draws the same numbers alone, beside others and in any order."""
    seed_torch(SEED)


@pytest.fixture
def untraced():
    """No coverage is measured: in Python 3.11 a traced thread spins while an exception waits for one that sleeps."""
    here, elsewhere = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    yield
    sys.settrace(here)
    threading.settrace(elsewhere)


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def shared_data():
    """The folder of real MNIST and CIFAR-10; tests that need it are skipped where there is none."""
    folder = Path(os.environ.get("LOSTWAX_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "mnist.npz").exists():
        pytest.skip("no mnist.npz: set LOSTWAX_DATA to a folder that holds it")
    return folder
